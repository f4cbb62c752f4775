"""Trees of real machines, and programs under an agent."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.fake_sysfs import Addresses, Builder, Trees
from tests.worker.programs.started import Recording, Start
from worker.program.output import Output
from worker.program.process import Program

MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 1 << 30


@pytest.fixture(scope="session")
def trees() -> Iterator[Trees]:
    """The tree that a builder makes, and its addresses; a test leaves it as it was.

    Each is made once: making one takes hundreds of files.
    """
    made: dict[Builder, tuple[Path, Addresses]] = {}
    is_fast = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES
    with TemporaryDirectory(dir=MEMORY if is_fast else None) as folder:

        def tree(build: Builder) -> tuple[Path, Addresses]:
            if build not in made:
                root = Path(folder, str(len(made)))
                made[build] = root, build(root)
            return made[build]

        yield tree


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """What starts programs; what a failed test leaves of them is ended."""
    programs: list[Program] = []

    async def run(
        *argv: str, grace: float = 5.0, output: Output | None = None, **environment: str
    ) -> Program:
        env = {**os.environ, **environment}
        output = output or Recording()
        programs.append(await Program.start(argv, env, grace_seconds=grace, output=output))
        return programs[-1]

    yield run
    for program in programs:
        program.kill_now()
        await program.wait()

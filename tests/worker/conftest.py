"""Trees of real machines, each made once: making one takes hundreds of files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.fake_sysfs import Addresses, Builder, Trees

MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 1 << 30


@pytest.fixture(scope="session")
def trees() -> Iterator[Trees]:
    """The tree that a builder makes, and its addresses; a test leaves it as it was."""
    made: dict[Builder, tuple[Path, Addresses]] = {}
    is_fast = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ENOUGH_BYTES
    with TemporaryDirectory(dir=MEMORY if is_fast else None) as folder:

        def tree(build: Builder) -> tuple[Path, Addresses]:
            if build not in made:
                root = Path(folder, str(len(made)))
                made[build] = root, build(root)
            return made[build]

        yield tree

"""Two launchers with one RDZV_ID at once: one owns the run, and the other is told so."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.test_pauses import standing_registry
from tests.support.launching import RDZV, environment, processes_with
from tests.support.record import ROUNDS, record
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

COMMAND = ("--nnodes", "2", "--framework", "command")
RACES = 2 * ROUNDS


def race(folder: Path, states: tuple[str, str], **env: str) -> list[tuple[int, str, str]]:
    """Start two launchers at once; exit code, output and last words of each, the owner first.

    The owner's programs run until the other has ended.
    """
    end = folder / "end"
    command = ["sh", "-c", f"echo $MASTER_PORT; until [ -e {end} ]; do sleep 0.05; done"]
    started = [
        subprocess.Popen(
            [RDZV, "launch", "--rdzv-id", "r", *COMMAND, "--", *command],
            env=environment(folder / state, **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for state in states
    ]
    try:
        until(lambda: any(process.poll() is not None for process in started))
    finally:
        end.touch()
    told = [process.communicate(timeout=60) for process in started]
    ends = [
        (process.returncode, out, " ".join(line.strip() for line in err.splitlines()[-2:]))
        for process, (out, err) in zip(started, told, strict=True)
    ]
    return sorted(ends)


@pytest.mark.parametrize("number", range(RACES))
def test_in_one_state_directory_the_second_launcher_is_told_who_the_first_is(
    number: int, tmp_path: Path
) -> None:
    begun = time.monotonic()
    owner, other = race(tmp_path, ("s", "s"))
    assert owner[0] == 0
    assert "rdzv: run 'r' ok: all 2 nodes ended with exit code 0" in owner[2]
    assert other[:2] == (1, "")
    assert re.search(r"run 'r' is being launched by pid \d+ on .*, started \d+ s ago", other[2])
    until(lambda: not processes_with(str(tmp_path)))
    assert len(set(owner[1].split())) == 3  # [0], [1] and one port: one table for both nodes
    record("two launchers of one RDZV_ID, one state directory", other[2], time.monotonic() - begun)


def test_at_a_standing_registry_the_second_launcher_is_told_of_the_launch_that_holds_the_run(
    tmp_path: Path,
) -> None:
    with standing_registry(tmp_path / "serve") as registry:
        for number in range(RACES):
            folder = tmp_path / str(number)
            folder.mkdir()
            owner, other = race(folder, ("a", "b"), RDZV_REGISTRY_FILE=str(registry.file))
            assert owner[0] == 0
            assert other[:2] == (1, "")
            held = r"run 'r' is held by launch [0-9a-z]{10}, \d+ s old and (gathering|\w+ing)"
            assert re.search(held, other[2])
            until(lambda at=folder: not processes_with(str(at)))  # type: ignore[misc]
            record("two launchers of one RDZV_ID at a standing registry", other[2])

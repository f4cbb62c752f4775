"""Restarts in place with real processes: what fails, and who is killed while it is answered."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.epochs import OWN_PORT, moments, program, starts_apart, starts_in
from tests.support.launching import Launched, launch, launching, processes_with, rdzv
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]

PORT_MOVES = ("--nnodes", "2", "--framework", "command")
COMMAND = (*PORT_MOVES, *OWN_PORT)
BOTH_TWICE = [(1, 0), (1, 1), (2, 0), (2, 1)]
OK = "rdzv: run 'r' ok after {}: both nodes ended with exit code 0"
WAITS = "while True: time.sleep(0.02)"
# Node 1 fails in the first epoch, once node 0 is there.
ONCE = """
if epoch == 1:
    until("start-1-0")
    if rank == 1:
        {fails}
    while True: time.sleep(0.02)
"""
# Each time in another way, until the last start, which ends well.
FIVE_TIMES = """
until(f"start-{epoch}-0", f"start-{epoch}-1")
if restarts < 4 and rank == 1:
    fail(10 + restarts)
while restarts < 4: time.sleep(0.02)
"""
"""Seconds: after the fourth quick failure, so long that nobody comes too late to see it."""


def test_an_exit_code_starts_all_programs_again(tmp_path: Path) -> None:
    command = program(tmp_path, ONCE.format(fails="fail(3)"))
    outcome = launch(tmp_path / "s", *PORT_MOVES, "--max-restarts", "1", command=command)
    assert outcome.code == 0, outcome.err
    assert outcome.last_line.startswith(OK.format("1 restart")), outcome.err
    assert "epoch 1 ended within 10 s: node 1" in outcome.last_line
    assert starts_apart(tmp_path) == BOTH_TWICE
    starts = starts_in(tmp_path)
    assert [start.restarts for start in starts] == [0, 0, 1, 1]
    words = f"node 1 ({socket.gethostname()}) failed: the program ended with exit code 3"
    assert [words in start.failure for start in starts] == [False, False, True, True]
    assert len({start.port for start in starts}) == 2
    logs = {log.name for log in (tmp_path / "s" / "r" / "logs").glob("node-*.log")}
    assert logs == {"node-0.log", "node-1.log", "node-0.e2.log", "node-1.e2.log"}
    until(lambda: not processes_with(str(tmp_path)))


def test_nothing_of_an_epoch_lives_when_the_next_one_starts(tmp_path: Path) -> None:
    """Node 0 is deaf to SIGTERM, and so is what it has started."""
    deaf = "hear(signal.SIGTERM)\nif epoch == 1 and rank == 0: os.fork()\n"
    command = program(tmp_path, ONCE.format(fails="fail(3)"), before=deaf)
    options = (*COMMAND, "--max-restarts", "1", "--grace", "1")
    outcome = launch(tmp_path / "s", *options, command=command)
    assert outcome.code == 0, outcome.err
    assert starts_apart(tmp_path) == BOTH_TWICE
    told = moments(tmp_path, "SIGTERM-1-0")[0]
    again = min(start.at for start in starts_in(tmp_path) if start.epoch == 2)
    print(f"SIGTERM of a deaf program -> next start, with a grace of 1 s: {again - told:.2f} s")
    assert again - told >= 1


def test_all_programs_start_again_by_hand(tmp_path: Path) -> None:
    """Though they take longer to stop than other causes of a failure are waited for."""
    slow = "hear(signal.SIGTERM, lambda: (time.sleep(2.5), sys.exit(0)))\n"
    command = program(tmp_path, f"if epoch == 1:\n    {WAITS}", before=slow)
    with launching(tmp_path / "s", *COMMAND, command=command) as launched:
        until(lambda: len(starts_in(tmp_path)) == 2)
        assert "restart requested with 'rdzv restart'" in rdzv(tmp_path / "s", "restart", "r")
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert outcome.last_line.startswith(OK.format("1 restart")), outcome.err
    assert starts_apart(tmp_path) == BOTH_TWICE
    assert [start.restarts for start in starts_in(tmp_path)] == [0] * 4


# --- who is killed meanwhile ----------------------------------------------------------------------


def test_a_registry_that_is_killed_before_it_hears_of_the_failure_goes_on(tmp_path: Path) -> None:
    """By the program that fails."""
    fails = 'until("registry"); os.kill(int((folder / "registry").read_text()), 9); fail(3)'
    command = program(tmp_path, ONCE.format(fails=fails))
    with launching(tmp_path / "s", *COMMAND, "--max-restarts", "1", command=command) as launched:
        until(lambda: len(starts_in(tmp_path)) == 2)
        registry = launched.child("_registry").pid
        (tmp_path / "pid").write_text(str(registry))
        (tmp_path / "pid").rename(tmp_path / "registry")
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert starts_apart(tmp_path) == BOTH_TWICE


def in_the_fourth_pause(launched: Launched) -> None:
    """Four epochs have failed, and the fifth waits."""

    def looks() -> bool:
        events = launched.events()
        return bool(events) and (events[-1]["phase"], events[-1]["epoch"]) == ("restarting", 4)

    until(looks)


FIVE = [(epoch, rank) for epoch in range(1, 6) for rank in (0, 1)]


def test_a_launcher_that_is_killed_in_a_pause_is_resumed_by_the_same_command(
    tmp_path: Path,
) -> None:
    options = (*COMMAND, "--max-restarts", "4")
    command = program(tmp_path, FIVE_TIMES)
    with launching(tmp_path / "s", *options, command=command) as launched:
        in_the_fourth_pause(launched)
        launched.process.kill()
        launched.process.wait()
        until(lambda: not processes_with(str(tmp_path)))
    before = starts_apart(tmp_path)
    outcome = launch(tmp_path / "s", *options, command=command)
    assert outcome.code == 0, outcome.err
    assert outcome.last_line.startswith(OK.format("4 restarts")), outcome.err
    assert before == FIVE[:-2]
    after = starts_apart(tmp_path)[len(before) :]
    assert [rank for _, rank in after] == [0, 1]
    assert [start.restarts for start in starts_in(tmp_path)[-2:]] == [4, 4]

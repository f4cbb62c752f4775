"""Notices with real processes: what programs are shown, how they are stopped, and what is saved."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import ANY

import pytest

from rendezvous.run.departures import MARGIN_SECONDS
from rendezvous.wire.errors import ExitCode
from tests.support.epochs import OWN_PORT, moments, program, starts_apart, starts_in
from tests.support.launching import LIMIT_SECONDS, Launched, launching, processes_with, rdzv
from tests.support.nightly import at_night
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

LOST = int(ExitCode.NODE_LOST)
COMMAND = ("--nnodes", "3", "--framework", "command", *OWN_PORT)
GOES = 1
NODE = f"node {GOES} ({socket.gethostname()})"
"""The node that leaves."""
TOGETHER = 0.5
"""Seconds within which all programs are told: a fraction of a second, on a busy machine as well."""
# Saves its state at SIGTERM, which takes its time; the name of the file says that it is complete.
SAVES = """
def save():
    time.sleep({seconds})
    write(f"saved-{{epoch}}-{{rank}}", json.dumps([time.monotonic()]))
    sys.exit(0)
hear(signal.SIGTERM, save)
hear(signal.SIGUSR1)
"""
WATCHES = """
notice = pathlib.Path(os.environ["RDZV_NOTICE_FILE"])
while not notice.exists():
    time.sleep(0.01)
write(f"notice-{rank}", notice.read_text())
while True:
    time.sleep(0.02)
"""


@dataclass(frozen=True)
class Case:
    """A notice, and what programs make of it.

    Attributes:
        seconds: Until the machine goes.
        grace: Between SIGTERM and SIGKILL.
        saving: How long it takes a program to save its state.
        say: Says it: run, folder, seconds; returns what is shown of it.
    """

    seconds: int
    grace: int
    saving: float
    say: Callable[[Launched, Path, int], str]

    @property
    def is_held(self) -> bool:
        """Whether the grace is long enough for the state."""
        return self.saving < self.grace

    def __str__(self) -> str:
        """For the test's name."""
        name = self.say.__name__.strip("_")
        return f"{name}-{self.seconds}s-{'held' if self.is_held else 'missed'}"


def _drain(run: Launched, folder: Path, seconds: int) -> str:
    said = rdzv(run.state, "drain", "r", str(GOES), "--in", str(seconds))
    leaves = f"{NODE} will leave: drained with 'rdzv drain'; all programs are"
    assert leaves in " ".join(said.split())
    return "drained with 'rdzv drain'"


def _file(run: Launched, folder: Path, seconds: int) -> str:
    (folder / "new").write_text(f"{seconds}\n")
    (folder / "new").rename(folder / f"goes-{GOES}")
    return f"its notice file {folder}/goes-{GOES} appeared"


def files_of_nodes(folder: Path) -> tuple[str, str]:
    """An option: each node watches a file of its own, as machines do that share none."""
    spec = folder / "worker.yaml"
    spec.write_text(
        f"argv: [sh, -c, 'exec rdzv worker --parent $PPID --notice-file {folder}/goes-<<SLOT>>"
        ' "$@"\', sh, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\n'
        "env: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    return "--worker-spec", str(spec)


def told_together(folder: Path, name: str, ranks: int) -> list[float]:
    """When all ranks got the signal: once each, and all at about the same time."""
    times = [moments(folder, f"{name}-1-{rank}") for rank in range(ranks)]
    assert [len(one) for one in times] == [1] * ranks
    apart = max(times)[0] - min(times)[0]
    print(f"{name}: {ranks} ranks within {apart:.3f} s")
    assert apart < TOGETHER
    return [at for [at] in times]


CASES = [Case(8, 2, 9.0, _file)]
CASES_AT_NIGHT = [
    Case(seconds, grace, saving, say)
    for say in (_drain, _file)
    for seconds, grace in ((30, 20), (120, 60))
    for saving in (0.9 * grace, 1.5 * grace)
]
CASES_AT_NIGHT.append(Case(10, 4, 3.0, _drain))


@pytest.mark.parametrize(
    "case",
    [*CASES, *(at_night(case) for case in CASES_AT_NIGHT)],
    ids=str,
)
def test_all_programs_are_shown_a_notice_and_are_stopped_in_time(
    case: Case, tmp_path: Path
) -> None:
    command = program(tmp_path, WATCHES, before=SAVES.format(seconds=case.saving))
    options = (*COMMAND, "--grace", str(case.grace), "--max-restarts", "3")
    more = ("--notice-signal", "USR1", *files_of_nodes(tmp_path))
    with launching(tmp_path / "s", *options, *more, command=command) as run:
        until(lambda: len(starts_in(tmp_path)) == 3)
        began = time.monotonic()
        why = case.say(run, tmp_path, case.seconds)
        said = time.monotonic()
        outcome = run.finish(case.seconds + LIMIT_SECONDS)
        ended = time.monotonic()
    assert outcome.code == LOST, outcome.err
    how = "was" if case.say is _drain else "left the run:"
    alone = "and no node may take its place (--on-node-loss fail)"
    assert f"{NODE} {how} {why}, {alone}" in outcome.last_line
    assert f"exit code {LOST} (rdzv's)" in outcome.last_line
    [notice] = {notice.read_text() for notice in tmp_path.glob("notice-*")}
    until_stop = case.seconds - case.grace - MARGIN_SECONDS
    assert json.loads(notice) == {"node": GOES, "reason": why, "seconds": ANY, "slot": GOES}
    assert json.loads(notice)["seconds"] <= until_stop
    assert len(list(tmp_path.glob("notice-*"))) == 3
    told_together(tmp_path, "SIGUSR1", 3)
    told = told_together(tmp_path, "SIGTERM", 3)
    print(f"SIGTERM {min(told) - began:.2f} s after the notice, end {ended - began:.2f} s")
    assert min(told) - began >= until_stop
    saved = moments(tmp_path, "saved-*")
    print(f"saved {[round(at - began, 2) for at in saved]} s after it")
    assert len(saved) == (3 if case.is_held else 0)
    assert max(saved, default=said) - said < case.seconds
    assert starts_apart(tmp_path) == [(1, 0), (1, 1), (1, 2)]
    until(lambda: not processes_with(str(tmp_path)))


@pytest.mark.torch
@pytest.mark.nightly
def test_every_rank_of_torchrun_is_told_once(tmp_path: Path) -> None:
    command = program(tmp_path, WATCHES, before=SAVES.format(seconds=1.0))
    options = ("--nnodes", "2", "--nproc-per-node", "2", "--grace", "4", "--notice-signal", "USR1")
    with launching(tmp_path / "s", *options, command=command[1:]) as run:
        until(lambda: len(starts_in(tmp_path)) == 4)
        _drain(run, tmp_path, 10)
        outcome = run.finish()
    assert outcome.code == LOST, outcome.err
    assert len(list(tmp_path.glob("notice-*"))) == 4
    told_together(tmp_path, "SIGUSR1", 4)
    told_together(tmp_path, "SIGTERM", 4)
    assert len(moments(tmp_path, "saved-*")) == 4


@pytest.mark.parametrize("slot", [GOES, at_night(0)])
def test_a_signal_at_an_agent_stops_the_programs_of_all_nodes_together(
    slot: int, tmp_path: Path
) -> None:
    """The others take longer than the verdict, and are not cut short by it."""
    command = program(tmp_path, WATCHES, before=SAVES.format(seconds=f"{slot} != rank and 3"))
    options = (*COMMAND, "--grace", "5", "--max-restarts", "3")
    with launching(tmp_path / "s", *options, command=command) as run:
        until(lambda: len(starts_in(tmp_path)) == 3)
        agent = run.child("worker", f"127.0.0.{slot + 1}")
        began = time.monotonic()
        agent.send_signal(signal.SIGTERM)
        outcome = run.finish()
    assert outcome.code == 143, outcome.err
    assert "its agent received SIGTERM" in outcome.last_line
    assert "; the programs are not started again, because it " in outcome.last_line
    told = told_together(tmp_path, "SIGTERM", 3)
    print(f"all told within {max(told) - began:.3f} s of the signal")
    assert len(moments(tmp_path, "saved-*")) == 3
    assert starts_apart(tmp_path) == [(1, 0), (1, 1), (1, 2)]
    until(lambda: not processes_with(str(tmp_path)))

"""A batch system that behaves, and launchers that are killed at every step and started again."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import psutil
import pytest

from tests.path.farm import Farm
from tests.path.test_farm import interrupt, kill
from tests.support.launching import Launched, processes_with, shell
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.faults, pytest.mark.timeout(240)]


def submitting(farm: Farm) -> list[psutil.Process]:
    """The calls of this farm that submit a run; another process of the tests may have a farm."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "farm/command.py submit" in line and str(farm.folder.parent) in line:
            found.append(process)
    return found


def test_what_cannot_be_ended_is_listed_with_the_command_that_does_it(farm: Farm) -> None:
    farm.prologue("[ $SLOT = 1 ] && sleep 600")
    farm.has("stays")
    with farm.launching("--nnodes", "2", command=["true"]) as launched:
        run = farm.run_of("1-1")
        farm.started("1-1")
        launched.signal(signal.SIGINT)
        until((farm.folder / "stayed").exists)
        outcome = interrupt(launched)
    assert outcome.code == 130
    assert re.search(
        rf"worker run {run['name']} \(slot 1, id {run['id']}\) may still be there: "
        rf".*you may not end this run.*; end it with: farm kill {run['id']} \d+",
        outcome.err,
    ), outcome.err
    assert farm.living() == ["1-1"]
    farm.is_rid_of("stays")
    again = farm.rdzv("cancel", "r")
    assert "was cancelled" in again.stdout
    assert again.returncode == 0, again.stdout
    assert farm.living() == []


# --- killed at every step -------------------------------------------------------------------------


def intended(farm: Farm, launched: Launched) -> None:
    """The intent is in the journal, and the scheduler never hears of it."""
    until(lambda: len(submitting(farm)) == 2)
    for process in submitting(farm):
        process.kill()


def made(farm: Farm, launched: Launched) -> None:
    """The scheduler has the runs, and has not told their ids."""
    farm.run_of("1-1")
    farm.run_of("2-1")


def joined(farm: Farm, launched: Launched) -> None:
    """Slot 1 is in, and slot 2 is not."""
    launched.wait_for("joined", 2)


@pytest.mark.parametrize(
    ("reach", "trouble"),
    [
        (intended, "hold-submit"),
        (made, "hold-answer"),
        pytest.param(joined, "held", marks=pytest.mark.nightly),
    ],
)
def test_a_launcher_killed_at_any_step_and_started_again_loses_nothing_and_leaves_nothing(
    farm: Farm, reach: Callable[[Farm, Launched], None], trouble: str
) -> None:
    end = farm.folder / "end"
    command = shell(f"trap 'exit 0' TERM; while [ ! -e {end} ]; do sleep 0.05; done")
    farm.prologue('while [ $SLOT = 2 ] && [ -e "$FARM_FOLDER/held" ]; do sleep 0.05; done')
    farm.has(trouble)
    with farm.launching("--nnodes", "3", command=command) as first:
        reach(farm, first)
        kill(first)
    farm.is_rid_of(trouble)
    with farm.launching("--nnodes", "3", command=command) as again:
        again.wait_for_phase("running")
        until(lambda: sorted(name.split("-")[0] for name in farm.living()) == ["1", "2"])
        end.touch()
        outcome = again.finish()
    assert outcome.code == 0, outcome.err
    names = [run["name"] for run in farm.runs()]
    assert len(set(names)) == len(names)
    assert farm.living() == []
    until(lambda: not processes_with(str(end)))

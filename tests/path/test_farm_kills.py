"""A batch system that behaves, and launchers that are killed at every step and started again."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable

import psutil
import pytest

from tests.path.farm import Farm
from tests.path.test_farm import interrupt, kill, said, waited_for
from tests.support.launching import Launched, processes_with, shell
from tests.support.nightly import but_at_night
from tests.support.record import ROUNDS, record
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


@pytest.mark.nightly
def test_a_run_that_runs_and_never_calls_is_named_with_the_address_to_be_opened(farm: Farm) -> None:
    farm.prologue('[ "$SLOT" = 1 ] && { echo still installing; exec sleep 600; }')
    with farm.launching("--nnodes", "2", command=shell("true")) as launched:
        place = r"10\.77\.0\.1:29\d{3}"
        late = rf"slot 1 running for \d0 s but never called: check that it can open {place}"
        until(lambda: re.search(late, waited_for(farm)), 60)
        said(launched, "slot 1, generation 1: running (its last line: 'still installing')")
        outcome = interrupt(launched)
    assert outcome.code == 130
    assert farm.living() == []


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


@pytest.mark.nightly
def test_a_launcher_killed_before_the_scheduler_had_the_run_submits_it_under_a_new_name(
    farm: Farm,
) -> None:
    """What the scheduler makes of the first submission, late, is refused and ended."""
    farm.has("hold-submit")
    with farm.launching("--nnodes", "2", command=shell("sleep 1")) as first:
        until(lambda: submitting(farm))
        kill(first)
    with farm.launching("--nnodes", "2", command=shell("sleep 1")) as second:
        said(second, "slot 1, generation 2: submitting")
        farm.is_rid_of("hold-submit")
        outcome = second.finish()
    assert outcome.code == 0, outcome.err
    assert set(farm.names()) <= {"1-1", "1-2"}
    assert "1-2" in farm.names()
    until(lambda: not farm.living())


@pytest.mark.nightly
def test_a_launch_that_is_taken_up_while_runs_are_queued_can_be_cancelled(farm: Farm) -> None:
    farm.has("capacity", "0")
    with farm.launching("--nnodes", "3", command=["true"]) as first:
        said(first, "slot 1, generation 1: queued")
        said(first, "slot 2, generation 1: queued")
        first.wait_for("joined")
        kill(first)
    assert len(farm.living()) == 2
    with farm.launching("--nnodes", "3", command=["true"]) as second:
        second.wait_for("joined", 2)
        until(lambda: "slots 1-2 queued" in waited_for(farm))
        outcome = interrupt(second)
    assert outcome.code == 130
    assert sorted(farm.names()) == ["1-1", "2-1"]
    assert farm.living() == []


def test_a_launcher_killed_at_a_standing_registry_can_launch_again(farm: Farm) -> None:
    farm.has("capacity", "0")
    registry = farm.start_rdzv("serve", "--registry-address", "10.77.0.1")
    try:
        assert registry.stderr is not None
        file = registry.stderr.readline().rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip()
        env = {"RDZV_REGISTRY_FILE": file}
        with farm.launching("--nnodes", "2", command=["true"], env=env) as first:
            farm.run_of("1-1")
            until(lambda: '"handle": "1' in (first.folder / "worker-runs.jsonl").read_text())
            kill(first)
        farm.is_rid_of("capacity")
        with farm.launching("--nnodes", "2", command=["true"], env=env) as second:
            outcome = second.finish()
    finally:
        registry.terminate()
        registry.communicate(timeout=20)
    assert outcome.code == 0, outcome.err
    assert "its launcher had ended" in outcome.err
    assert [run["name"][-3:] for run in farm.runs()] == ["1-1", "1-1"]
    assert farm.runs()[0]["name"] != farm.runs()[1]["name"]
    assert farm.living() == []


# --- killed at every step -------------------------------------------------------------------------


def nothing_yet(farm: Farm, launched: Launched) -> None:
    """The launcher has its state directory, and no more."""
    until(lambda: (launched.folder / "launch.json").exists())


def intended(farm: Farm, launched: Launched) -> None:
    """The intent is in the journal, and the scheduler never hears of it."""
    until(lambda: len(submitting(farm)) == 2)
    for process in submitting(farm):
        process.kill()


def made(farm: Farm, launched: Launched) -> None:
    """The scheduler has the runs, and has not told their ids."""
    farm.run_of("1-1")
    farm.run_of("2-1")


def queued(farm: Farm, launched: Launched) -> None:
    """They wait in the queue."""
    for slot in (1, 2):
        said(launched, f"slot {slot}, generation 1: queued")


def begun(farm: Farm, launched: Launched) -> None:
    """They run, and have not called yet."""
    for slot in (1, 2):
        said(launched, f"slot {slot}, generation 1: running")


def joined(farm: Farm, launched: Launched) -> None:
    """Slot 1 is in, and slot 2 is not."""
    launched.wait_for("joined", 2)


def training(farm: Farm, launched: Launched) -> None:
    """All nodes train."""
    launched.wait_for_phase("running")


STEPS: dict[str, tuple[Callable[[Farm, Launched], None], str, str]] = {
    "before anything": (nothing_yet, "", ""),
    "after the intent": (intended, "hold-submit", ""),
    "before the id": (made, "hold-answer", ""),
    "in the queue": (queued, "capacity", ""),
    "before they call": (begun, "held", "1|2"),
    "when one has joined": (joined, "held", "2"),
    "while they train": (training, "", ""),
}


@pytest.mark.parametrize("step", but_at_night(STEPS, "after the intent", "before the id"))
def test_a_launcher_killed_at_any_step_and_started_again_loses_nothing_and_leaves_nothing(
    farm: Farm, step: str
) -> None:
    reach, trouble, slots = STEPS[step]
    if slots:
        wait = 'while [ -e "$FARM_FOLDER/held" ]; do sleep 0.05; done'
        farm.prologue(f"case $SLOT in {slots}) {wait};; esac")
    if trouble:
        farm.has(trouble, "0")
    with farm.launching("--nnodes", "3", command=shell(training_until(farm))) as first:
        reach(farm, first)
        kill(first)
    begun_at = time.monotonic()
    if trouble:
        farm.is_rid_of(trouble)
    check_launch_again(farm)
    record(f"the launcher, {step}, then the same command", "ok", time.monotonic() - begun_at)


@pytest.mark.parametrize("number", but_at_night(range(2 * ROUNDS), 0))
def test_a_launcher_killed_at_any_moment_and_started_again_loses_nothing_and_leaves_nothing(
    farm: Farm, number: int
) -> None:
    chance = random.Random(number)
    for _ in range(2):
        with farm.launching("--nnodes", "3", command=shell(training_until(farm))) as killed:
            time.sleep(chance.uniform(0.3, 3.0))
            kill(killed)
    check_launch_again(farm)


def training_until(farm: Farm) -> str:
    """A program that trains until the farm's folder has the file `end`."""
    return f"trap 'exit 0' TERM; while [ ! -e {farm.folder}/end ]; do sleep 0.05; done"


def check_launch_again(farm: Farm) -> None:
    """The same command: every slot has one worker run, and in the end there is none."""
    with farm.launching("--nnodes", "3", command=shell(training_until(farm))) as again:
        again.wait_for_phase("running")
        until(lambda: sorted(name.split("-")[0] for name in farm.living()) == ["1", "2"])
        farm.has("end")
        outcome = again.finish()
    assert outcome.code == 0, outcome.err
    names = [run["name"] for run in farm.runs()]
    assert len(set(names)) == len(names)
    assert farm.living() == []
    until(lambda: not processes_with(f"{farm.folder}/end"))

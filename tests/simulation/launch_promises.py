"""What every launch holds, whatever happens to it: see DESIGN section 3.

As all invariants they judge by the history: by what the registry's journal has, what schedulers
really did, and what a person was shown and told.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher.schedulers import OVER
from rendezvous.schema import Result, SlotState
from tests.simulation.history import History

if TYPE_CHECKING:
    from tests.simulation.launchers import Launcher
    from tests.simulation.scheduler import Submitted
    from tests.simulation.world import World

Wrong = str | None

_SIGNALS = 128
_AT_ONCE_SECONDS = 16.0
"""What ends at once: 8 s for each scheduler's command, 5 s for the registry, and a little."""
_SETTLED_SECONDS = 1.0


# --- of what is submitted -------------------------------------------------------------------------


def a_submission_is_on_record_first(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """Before a worker run can exist, the ledger and the registry know of it."""
    assert launcher.folder is not None
    entries = {entry.name: entry for entry in launcher.folder.ledger.entries()}
    if not is_child and run.name not in entries:
        return f"the ledger has no {run.name}"
    known = history.runs.get(launcher.launch.run)
    if known is None or known.spec.launch_id != run.join.launch_id:
        return None
    told = known.slots[run.slot].generation
    return None if told >= run.generation else f"the registry knows of generation {told}"


def nothing_is_submitted_after_the_end(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """A launcher that knows the result, or was told to end, submits nothing more."""
    for what, at in (("the result", launcher.told_at), ("a signal", launcher.signalled_at)):
        if at is not None and history.now() - at > _SETTLED_SECONDS:
            return f"{run.name} was submitted {history.now() - at:.1f} s after {what}"
    return None


def what_lives_is_not_submitted_again(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """A launcher that comes back takes up the worker runs that it finds, and submits no others."""
    world = history.world
    scheduler = world.schedulers[launcher.index]
    doubtful = scheduler.was_silent or scheduler.list_lag or scheduler.lie_slot == run.slot
    if is_child or doubtful or scheduler.lost or scheduler.preempted:
        return None
    for process in history.processes:
        mine = process.facts.launch_id == run.join.launch_id and process.slot == run.slot
        well = process.ended is None and not (process.troubled or process.path.is_troubled)
        joined = process.incarnation and not (process.told_refusal or process.stuck)
        if mine and well and joined:
            return f"{run.name}, and {process.name} is well"
    return None


# --- of what it shows and tells -------------------------------------------------------------------


def a_launcher_tells_the_registrys_result(history: History, launcher: Launcher) -> Wrong:
    """What it has heard is its result, in the file and by its exit code."""
    told, outcome, code = launcher.told, launcher.outcome, launcher.exit_code
    if told is None:
        return None
    if isinstance(outcome, Result):
        if (outcome.status, outcome.code, outcome.slot) != (told.status, told.code, told.slot):
            return f"it was told {told}, and wrote {outcome}"
    elif history.world.folder_full_until < history.now():
        return f"it was told {told.code}, and ended with {outcome}"
    by_signal = launcher.signalled_at is not None and told.status == "cancelled"
    expected = _SIGNALS + launcher.first_signal if by_signal else told.exit_code
    return None if code == expected else f"{told.status}, exit code {code} and not {expected}"


def a_launch_that_did_not_end_well_says_so(history: History, launcher: Launcher) -> Wrong:
    """Exit code 0 is that of a run which ended well, and of nothing else."""
    well = launcher.told is not None and launcher.told.status == "ok"
    if (launcher.exit_code == 0) != well:
        return f"exit code {launcher.exit_code}, and it was told {launcher.told}"
    return None


def events_are_shown_once_and_in_order(history: History, launcher: Launcher) -> Wrong:
    """What happened is shown once, in its order, with nothing left out."""
    shown = launcher.events
    for former, number in itertools.pairwise(shown):
        if number != former + 1:
            return f"event {number} is shown after {former}"
    return None


def a_person_is_told_of_trouble(history: History, launcher: Launcher) -> Wrong:
    """Whoever is to do something hears it in a sentence: a failure has a message."""
    outcome = launcher.outcome
    if isinstance(outcome, Result) and outcome.status != "ok" and not outcome.message:
        return f"{outcome}"
    return None


def it_ends_soon_when_told_twice(history: History, launcher: Launcher) -> Wrong:
    """A second signal ends everything at once."""
    at = launcher.hurried_at
    if at is None or launcher.was_paused:
        return None
    seconds = history.now() - at
    return f"it took {seconds:.1f} s more" if seconds > _AT_ONCE_SECONDS else None


# --- at the end -----------------------------------------------------------------------------------


def nothing_is_left_at_a_scheduler(history: History, world: World) -> Wrong:
    """When the last launcher of a launch has ended, its worker runs have, or it has named them."""
    for index, scheduler in enumerate(world.schedulers):
        launchers = [launcher for launcher in world.launchers if launcher.belongs_to(index)]
        last = launchers[-1]
        if last.was_killed or last.exit_code is None or last.outcome == "run_exists":
            continue
        named = "\n".join(last.said)
        for run in scheduler.runs:
            is_over = run.described().state in OVER
            if is_over or run.name in named or f"end {run.handle}" in named:
                continue
            if _was_believed_over(world, index, run):
                continue
            return f"{run.name} is {run.state} after {last.machine.name}"
    return None


def _was_believed_over(world: World, index: int, run: Submitted) -> bool:
    """Whether the scheduler had said that it was, or would not list it yet."""
    scheduler = world.schedulers[index]
    lied = scheduler.lie is SlotState.FAILED and scheduler.lie_slot == run.slot
    return lied or scheduler.list_lag > 0.5


def children_end_with_their_launcher(history: History, world: World) -> Wrong:
    """No node that a launcher has started beside itself is left after it."""
    for launcher in world.launchers:
        left = [run.name for run in launcher.children.runs if not run.is_over]
        if launcher.ended and left:
            return f"{left} of {launcher.machine.name}"
    return None


def a_registry_that_comes_back_is_awaited(history: History, world: World) -> Wrong:
    """A launch is not given up for a registry that was killed once and was back soon."""
    if world.registry_is_gone or world.registries.longest_away > 10 or world.registries.crashes > 3:
        return None
    for launcher in world.launchers:
        own = launcher.launch.owns_registry
        troubled = launcher.path.light or launcher.path.is_late or launcher.was_paused
        outcome = launcher.outcome
        lost = isinstance(outcome, Result) and outcome.code == "registry_lost"
        if own and lost and not troubled and launcher.hurried_at is None:
            return f"{launcher.machine.name}: {outcome}"
    return None


OF_SUBMISSIONS: list[Callable[..., Wrong]] = [
    a_submission_is_on_record_first,
    nothing_is_submitted_after_the_end,
    what_lives_is_not_submitted_again,
]
OF_LAUNCHERS: list[Callable[..., Wrong]] = [
    a_launcher_tells_the_registrys_result,
    a_launch_that_did_not_end_well_says_so,
    events_are_shown_once_and_in_order,
    a_person_is_told_of_trouble,
    it_ends_soon_when_told_twice,
]
OF_LAUNCH_ENDS: list[Callable[..., Wrong]] = [
    nothing_is_left_at_a_scheduler,
    children_end_with_their_launcher,
    a_registry_that_comes_back_is_awaited,
]

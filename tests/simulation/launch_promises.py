"""What every launch holds, whatever happens to it: see DESIGN section 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rendezvous.wire.run import RunStatus, SlotState
from tests.simulation.agent_promises import ORPHAN_SECONDS
from tests.simulation.agents import GRACE_SECONDS
from tests.simulation.history import History, Wrong
from tests.simulation.losses import may_run
from tests.simulation.promises import BEFORE_GO
from tests.simulation.schedule import names

if TYPE_CHECKING:
    from tests.simulation.launchers import Launcher
    from tests.simulation.scheduler import Submitted
    from tests.simulation.world import World

_SETTLED_SECONDS = 1.0
_WANTED_SECONDS = 5.0
_BY_ITSELF_SECONDS = 2.9
_REPLACED_SECONDS = 20.0
_BEGUN_SECONDS = 40.0
_FOLLOWS_SECONDS = 17.0
_FEWEST_STARTS = 5
"""After so many a launch may have given its registry up."""
_NO_MATTER_AT_RESUME = {
    *names("""
launcher killed, cancel refused, list lags, scheduler busy, scheduler silent, submission lost,
submission slow, submission unsure
""")
}
_AWAITED_AT_RESUME = {"port held", "registry pause"}
AWAITED_SECONDS = 6.0
"""A launcher that comes back tries the former port for 10 s, and asks the registry as long."""
OF_SCHEDULERS = {
    *names("""
submission fails, submission lost, submission unsure, submission slow, scheduler busy,
scheduler silent, scheduler hangs, scheduler lies, list lags, cancel refused, logs hang, slow stop,
pause, host down, port held, registry ill, isolated
""")
}


# --- of what is submitted -------------------------------------------------------------------------


def a_submission_is_on_record_first(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """Before a worker run can exist, the ledger and the registry know of it."""
    assert launcher.folder is not None
    named = is_child or run.name in {entry.name for entry in launcher.folder.ledger.entries()}
    if not named:
        return f"the ledger has no {run.name}"
    known = history.run_of(history.facts[run.join.launch_id])
    if known is None:
        return None
    told = known.slots[run.slot].generation
    return None if told >= run.generation else f"the registry knows of generation {told}"


def nothing_is_submitted_after_the_end(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """A launcher that knows the result, or was told to end, submits nothing more."""
    heeded = None if launcher.was_paused else launcher.signalled_at
    known = [at for at in (launcher.told_at, heeded) if at is not None]
    late = history.now() - min(known, default=history.now())
    return f"{run.name} was submitted {late:.1f} s later" if late > _SETTLED_SECONDS else None


def what_lives_is_not_submitted_again(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """A launcher that comes back takes up the worker runs that it finds, and submits no others."""
    world = history.world
    scheduler = world.schedulers[launcher.index]
    doubtful = scheduler.was_silent or scheduler.list_lag or scheduler.lie_slot == run.slot
    doubtful = doubtful or (launcher.launch.outlives_nodes and not scheduler.finds)
    if is_child or doubtful or scheduler.lost or scheduler.preempted:
        return None
    for older in scheduler.runs:  # nobody says what becomes of a twin, which no scheduler started
        process, same = older.process, older.slot == run.slot
        if process is None or not same or older.join.launch_id != run.join.launch_id:
            continue
        well = process.ended is None and not (process.troubled or process.path.is_troubled)
        joined = process.incarnation and not (process.told_refusal or process.stuck)
        well = well and not process.released  # it was left out for a cause, and another one comes
        if well and joined:
            return f"{run.name}, and {process.name} is well"
    return None


def nobody_is_submitted_beside_another_after_the_go(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """After the go the older worker run of a slot is gone before the newer one is submitted.

    Or its node has been silent for so long that no program of it is left.
    """
    scheduler = history.world.schedulers[launcher.index]
    if launcher.ran_at is None or history.now() - launcher.ran_at < _SETTLED_SECONDS:
        return None
    for older in (*scheduler.runs, *launcher.children.runs):
        same = older.slot == run.slot and older.join.launch_id == run.join.launch_id
        if launcher.launch.outlives_nodes and same and not older.is_over:
            believed = scheduler.lie_slot == older.slot  # a scheduler that lies is believed
            if not believed and may_run(history, older.process, launcher.launch.fence):
                return f"{run.name}, and {older.name} is {older.state}"
        elif same and not older.is_over and not (scheduler.keeps_all or scheduler.was_silent):
            return f"{run.name}, and {older.name} is {older.state}"
    return None


def nobody_is_submitted_for_a_slot_that_is_left_out(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """After the go nobody can join whom the table has not, but for who is to replace a node."""
    if launcher.launch.outlives_nodes:
        return None  # see `loss_promises`
    ran, seen = launcher.ran_at, launcher.seen
    if ran is None or seen is None or history.now() - ran < _SETTLED_SECONDS:
        return None
    return None if seen.slots[run.slot].node is not None else f"{run.name}"


# --- of what it wants, and ends -------------------------------------------------------------------


def what_is_wanted_is_submitted(history: History, launcher: Launcher, status: RunStatus) -> Wrong:
    """A worker run that the registry wants before the go is submitted soon."""
    if status.phase not in BEFORE_GO or is_disturbed(history, launcher):
        return None
    if launcher.signalled_at is not None or launcher.launch.symmetric:
        return None
    for slot in status.slots:
        since = launcher.wanted_at[slot.slot, slot.wanted_generation]
        if slot.generation < slot.wanted_generation and history.now() - since > _WANTED_SECONDS:
            return f"slot {slot.slot}, generation {slot.wanted_generation}"
    return None


def former_remains_stay_on_record(history: History, launcher: Launcher, status: RunStatus) -> Wrong:
    """What a former launch has left can be ended later: the ledger names it."""
    folder, world = launcher.folder, history.world
    if launcher.shown_at != history.now() or folder is None or world.folder_full_until:
        return None
    left = {entry.name for entry in folder.ledger.left()}
    for run in world.schedulers[launcher.index].runs:
        if run.join.launch_id == launcher.launch_id or run.is_over or run.name in left:
            continue
        if not was_believed_over(world, launcher.index, run):
            return f"{run.name} is {run.state}, and not in the ledger"
    return None


def what_is_replaced_is_ended(history: History, launcher: Launcher, status: RunStatus) -> Wrong:
    """An older worker run of a slot is not left beside the newer one."""
    scheduler = history.world.schedulers[launcher.index]
    if scheduler.keeps_all or scheduler.was_silent or scheduler.list_lag or not scheduler.finds:
        return None
    newest = {run.slot: run for run in scheduler.runs if run.join.launch_id == status.launch_id}
    for run in scheduler.runs:
        newer = newest.get(run.slot)
        if newer is None or newer.generation <= run.generation or run.is_over:
            continue
        if run.name in scheduler.called_over:  # and the registry had given its node up as well
            continue
        seconds = history.now() - (newer.listed_at - scheduler.list_lag)
        same = run.join.launch_id == status.launch_id
        if same and seconds > _REPLACED_SECONDS and not launcher.was_paused:
            return f"{run.name} is {run.state} {seconds:.1f} s after {newer.name} was submitted"
    return None


def a_launch_begins_in_time(history: History, launcher: Launcher, status: RunStatus) -> Wrong:
    """A registry that creates no run for 20 s is given up."""
    if launcher.known_before is not None or launcher.was_paused:
        return None
    seconds = launcher.shown_at - launcher.began_at if launcher.shown_at is not None else 0.0
    return f"its run was there after {seconds:.1f} s" if seconds > _BEGUN_SECONDS else None


def a_former_run_is_over_before_another_one_begins(
    history: History, launcher: Launcher, status: RunStatus
) -> Wrong:
    """What must not go on is cancelled: its nodes hear of it, and need not miss their registry."""
    world, before = history.world, launcher.known_before
    if launcher.shown_at != history.now() or before is None or launcher.again == "host":
        return None
    former, registries = before.spec.launch_id, world.registries
    is_long = registries.crashes > 1 or registries.longest_away > AWAITED_SECONDS
    disturbed = is_long or disturbed_at_resume(world) - {"registry crash"}
    if former == launcher.launch_id or disturbed or launcher.was_paused:
        return None
    is_over = history.facts[former].finished is not None
    return None if is_over else f"{former} was {launcher.phase_before}, and nobody cancelled it"


def a_launch_that_forms_waits_for_its_journal_only_so_long(
    history: History, launcher: Launcher, status: RunStatus
) -> Wrong:
    """Without a journal nothing can go on or end: a disk that stays full is given up."""
    if status.phase not in BEFORE_GO or launcher.was_paused:
        return None
    seconds = status.unwritten_seconds
    late = seconds > ORPHAN_SECONDS + _WANTED_SECONDS
    return f"it was not written for {seconds:.1f} s" if late else None


def a_launcher_that_is_told_to_end_does_not_go_on(
    history: History, launcher: Launcher, status: RunStatus
) -> Wrong:
    """Its run is cancelled within 10 s, or it ends at once: it follows nothing any more."""
    at = launcher.signalled_at
    if at is None or status.result is not None or launcher.was_paused:
        return None
    later = history.now() - at
    return f"{later:.1f} s later the run is {status.phase}" if later > _FOLLOWS_SECONDS else None


def a_worker_run_has_its_grace(
    history: History, launcher: Launcher, run: Submitted, grace: float
) -> Wrong:
    """Nothing is killed without its time, unless a person is in a hurry or cannot be heard."""
    at = launcher.signalled_at
    unheard = at is not None and history.now() - at >= 10.0
    if grace >= GRACE_SECONDS or unheard or _is_in_a_hurry(launcher):
        return None
    return f"{run.name} has {grace:.1f} s"


def _is_in_a_hurry(launcher: Launcher) -> bool:
    """Whether a second signal has come, or the first one while it was ending."""
    at, told = launcher.signalled_at, launcher.told_at
    ending = launcher.was_broken or len(launcher.registry_starts) >= _FEWEST_STARTS
    ending |= told is not None and at is not None and told < at
    return launcher.hurried_at is not None or (at is not None and ending)


def a_node_may_end_by_itself(
    history: History, launcher: Launcher, run: Submitted, grace: float
) -> Wrong:
    """When the run is over, a worker run that runs is told to end only if it does not end.

    To one without a place in the table it is over at the go.
    """
    at, process, seen = launcher.told_at, run.process, launcher.seen
    scheduler = history.world.schedulers[launcher.index]
    if launcher.ran_at is not None and seen is not None:
        slot = seen.slots[run.slot]
        newest = run.generation >= slot.wanted_generation
        queued = slot.state is SlotState.QUEUED and scheduler.lie_slot == run.slot
        at = launcher.ran_at if slot.node is None and newest and not queued else at
        if launcher.launch.outlives_nodes and process is not None:
            at = (process.released_at if newest else None) or launcher.told_at
    is_own = run.join.launch_id == launcher.launch_id
    if at is None or _is_in_a_hurry(launcher) or not is_own or process is None:
        return None
    if launcher.launch.outlives_nodes and process.path.is_troubled:  # it may have heard of it late
        return None
    known = (process.result is not None or process.released) and process.ended is None
    soon = history.now() - at < _BY_ITSELF_SECONDS
    return f"{run.name} is told to end {history.now() - at:.1f} s later" if known and soon else None


def only_what_is_over_is_ended(
    history: History, launcher: Launcher, run: Submitted, grace: float
) -> Wrong:
    """While a run goes on, nothing is ended that it needs."""
    seen, over = launcher.seen, launcher.told is not None or launcher.signalled_at is not None
    if seen is None or over or run.join.launch_id != launcher.launch_id:
        return None
    slot = seen.slots[run.slot]
    left_out = slot.node is None and launcher.ran_at is not None and not slot.awaited
    wanted = run.generation >= slot.wanted_generation and not left_out
    if not wanted or is_disturbed(history, launcher):
        return None
    return f"{run.name}, and the run is {seen.phase}"


def is_disturbed(history: History, launcher: Launcher) -> bool:
    """Whether anything but its nodes may have kept a launcher from its work."""
    faults = {fault.what for fault in history.world.schedule.faults}
    return bool(is_cut_off(history, launcher) or faults & OF_SCHEDULERS)


def is_cut_off(history: History, launcher: Launcher) -> bool:
    """The same, or something of the launcher itself had failed."""
    return launcher.was_broken or is_away(history, launcher)


def is_away(history: History, launcher: Launcher) -> bool:
    """Whether something may have been between a launcher and its registry, or its own folder."""
    world, path = history.world, launcher.path
    alone = len(world.schedule.launches) == 1
    if not alone or world.registry_was_down or world.disk.failed or world.folder_full_until:
        return True
    if launcher.was_paused or world.network.isolated_until:
        return True
    faults = {fault.what for fault in world.schedule.faults}
    return bool(path.light or path.is_late or faults & {"port held", "registry ill"})


def disturbed_at_resume(world: World) -> set[str]:
    """What may keep a launcher that comes back from its former registry."""
    return {
        fault.what
        for fault in world.schedule.faults
        if fault.what not in _AWAITED_AT_RESUME or fault.seconds > AWAITED_SECONDS
    } - _NO_MATTER_AT_RESUME


def was_believed_over(world: World, index: int, run: Submitted) -> bool:
    """Whether the scheduler had said so while its node was not there, or did not list it yet."""
    scheduler = world.schedulers[index]
    return run.name in scheduler.called_over or scheduler.list_lag > 0.9

"""What every launch holds, whatever happens to it: see DESIGN section 3.

As all invariants they judge by the history: by what the registry's journal has, what schedulers
really did, and what a person was shown and told.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from launcher.schedulers.description import OVER
from rendezvous.run import events
from rendezvous.run.events import load_event
from rendezvous.wire.errors import error_from_code
from rendezvous.wire.run import Phase, Result, RunStatus
from tests.simulation.agent_promises import ORPHAN_SECONDS
from tests.simulation.agents import GRACE_SECONDS
from tests.simulation.faults import PARTS
from tests.simulation.history import History, Wrong

if TYPE_CHECKING:
    from tests.simulation.launchers import Launcher
    from tests.simulation.scheduler import Submitted
    from tests.simulation.world import World

_SIGNALS = 128
_AT_ONCE_SECONDS = 16.0
"""What ends at once: 8 s for each scheduler's command, 5 s for the registry, and a little."""
_SETTLED_SECONDS = 1.0
_HEEDED_SECONDS = 3.5
"""Where a node has just died: its closed connection is waited for 1 s, and the verdict 2."""
_WANTED_SECONDS = 5.0
_BY_ITSELF_SECONDS = 2.9
_ENDED_SECONDS = 10.0
_LEFT_SECONDS = 27.0
"""To leave 11 s, for the last events 3, by itself 3, to be told 5, to close 5."""
_TOLD_SECONDS = 125.0
"""To cancel 10 s, to leave 11, for the last events 3, to settle 10, to end 68, to close 5."""
_LATE_SECONDS = 25.0
_REPLACED_SECONDS = 20.0
_BEGUN_SECONDS = 40.0
_FOLLOWS_SECONDS = 17.0
_UNHEARD_SECONDS = 40.0
"""To cancel 10 s and its last try, then what ends at once."""
_MOST_SAID = 4
_MOST_STARTS = 10
_FEWEST_STARTS = 5
"""After so many a launch may have given its registry up."""
_FORMING = (Phase.GATHERING, Phase.VERIFYING, Phase.ARMING)
_NO_MATTER_AT_RESUME = {
    "launcher killed",
    "cancel refused",
    "list lags",
    "scheduler busy",
    "scheduler silent",
    "submission lost",
    "submission slow",
    "submission unsure",
}
_AWAITED_AT_RESUME = {"port held", "registry pause"}
_AWAITED_SECONDS = 6.0
"""A launcher that comes back tries the former port for 10 s, and asks the registry as long."""
_WITHOUT_REGISTRY = {"registry", "close"}
"""Parts without which no node can be told anything."""
_OF_NODES = {"slow stop", "pause", "host down"}
_OF_SCHEDULERS = {
    "submission fails",
    "submission lost",
    "submission unsure",
    "submission slow",
    "scheduler busy",
    "scheduler silent",
    "scheduler hangs",
    "scheduler lies",
    "list lags",
    "cancel refused",
    "logs hang",
    "slow stop",
    "pause",
    "host down",
    "port held",
    "registry ill",
    "isolated",
}


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
    heeded = None if launcher.was_paused else launcher.signalled_at
    for what, at in (("the result", launcher.told_at), ("a signal", heeded)):
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


def nobody_is_submitted_beside_another_after_the_go(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """After the go the older worker run of a slot is gone before the newer one is submitted."""
    scheduler = history.world.schedulers[launcher.index]
    if launcher.ran_at is None or history.now() - launcher.ran_at < _SETTLED_SECONDS:
        return None
    for older in (*scheduler.runs, *launcher.children.runs):
        same = older.slot == run.slot and older.join.launch_id == run.join.launch_id
        if same and not older.is_over and not (scheduler.keeps_all or scheduler.was_silent):
            return f"{run.name}, and {older.name} is {older.state}"
    return None


def nobody_is_submitted_for_a_slot_that_is_left_out(
    history: History, launcher: Launcher, run: Submitted, *, is_child: bool
) -> Wrong:
    """After the go nobody can join whom the table has not."""
    ran, seen = launcher.ran_at, launcher.seen
    if ran is None or seen is None or history.now() - ran < _SETTLED_SECONDS:
        return None
    return None if seen.slots[run.slot].rank is not None else f"{run.name}"


# --- of what it wants, and ends -------------------------------------------------------------------


def what_is_wanted_is_submitted(history: History, launcher: Launcher, status: RunStatus) -> Wrong:
    """A worker run that the registry wants before the go is submitted soon."""
    if status.phase not in _FORMING or _is_disturbed(history, launcher):
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
        if not _was_believed_over(world, launcher.index, run):
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
    former, more = before.spec.launch_id, {"registry crash"}
    disturbed = _disturbed_at_resume(world) - more or world.registries.crashes > 1
    if former == launcher.launch_id or disturbed or launcher.was_paused:
        return None
    is_over = history.facts[former].finished is not None
    return None if is_over else f"{former} was {launcher.phase_before}, and nobody cancelled it"


def a_launch_that_forms_waits_for_its_journal_only_so_long(
    history: History, launcher: Launcher, status: RunStatus
) -> Wrong:
    """Without a journal nothing can go on or end: a disk that stays full is given up."""
    if status.phase not in _FORMING or launcher.was_paused:
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
    """When the run is over, a worker run that runs is told to end only if it does not end."""
    at, process, seen = launcher.told_at, run.process, launcher.seen
    if at is None and seen is not None and seen.phase is Phase.RUNNING:
        slot = seen.slots[run.slot]
        newest = run.generation >= slot.wanted_generation
        at = launcher.ran_at if slot.rank is None and newest else None
    is_own = run.join.launch_id == launcher.launch_id
    if at is None or _is_in_a_hurry(launcher) or not is_own or process is None:
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
    left_out = slot.rank is None and launcher.ran_at is not None
    wanted = run.generation >= slot.wanted_generation and not left_out
    if not wanted or _is_disturbed(history, launcher):
        return None
    return f"{run.name}, and the run is {seen.phase}"


# --- of what it shows and tells -------------------------------------------------------------------


def a_launcher_tells_the_registrys_result(history: History, launcher: Launcher) -> Wrong:
    """What it has heard is its result, in the file and by its exit code."""
    told, outcome, code = launcher.told, launcher.outcome, launcher.exit_code
    if told is None or launcher.was_broken:
        return None
    unwritten = any("result.json cannot be written" in words for words in launcher.said)
    if not isinstance(outcome, Result) and not unwritten:
        return f"it was told {told.code}, and ended with {outcome}"
    if isinstance(outcome, Result) and (outcome.status, outcome.code, outcome.slot) != (
        told.status,
        told.code,
        told.slot,
    ):
        return f"it was told {told}, and wrote {outcome}"
    at, told_at = launcher.signalled_at, launcher.told_at
    expected = {told.exit_code}
    if at is not None and told_at is not None and told.status == "cancelled":
        by_signal = _SIGNALS + launcher.first_signal
        expected = {by_signal} if at < told_at else {told.exit_code, by_signal}
    return None if code in expected else f"{told.status}, exit code {code} and not {expected}"


def a_launch_that_did_not_end_well_says_so(history: History, launcher: Launcher) -> Wrong:
    """Exit code 0 is that of a run which ended well, and of nothing else."""
    well = launcher.told is not None and launcher.told.status == "ok"
    well &= launcher.outcome != "broken"
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


def an_exit_code_is_that_of_its_code(history: History, launcher: Launcher) -> Wrong:
    """How a launch failed that has no result of the registry's can be told by its exit code."""
    outcome, code = launcher.outcome, launcher.exit_code
    if launcher.told is not None or not isinstance(outcome, Result):
        return None
    expected = int(error_from_code(outcome.code, "", "").exit_code)
    if launcher.signalled_at is not None and outcome.status == "cancelled":
        expected = _SIGNALS + launcher.first_signal
    return None if code == expected else f"{outcome.code}, exit code {code} and not {expected}"


def a_signal_is_heeded(history: History, launcher: Launcher) -> Wrong:
    """A launcher that was told to end cancels its run, at once, and ends."""
    at, ended = launcher.signalled_at, launcher.ended_at or history.now()
    if at is None or launcher.was_paused:
        return None
    told = launcher.told_at
    if ended - at > (_UNHEARD_SECONDS if told is None else _TOLD_SECONDS):
        return f"it ended {ended - at:.1f} s after it was told to"
    if _is_cut_off(history, launcher) or told is None or told < at:
        return None
    return f"it told of a result {told - at:.1f} s later" if told - at > _HEEDED_SECONDS else None


def a_healthy_launch_ends_soon(history: History, launcher: Launcher) -> Wrong:
    """Once its nodes are gone and it knows the result, nothing keeps a launcher."""
    told, ended = launcher.told_at, launcher.ended_at or history.now()
    if told is None or _is_disturbed(history, launcher) or launcher.launch.symmetric:
        return None
    mine = [p for p in history.processes if p.facts.launch_id == launcher.launch_id]
    if any(process.gone is None or process.troubled for process in mine):
        return None
    last = max([told, *(process.gone.at for process in mine if process.gone)])
    return f"{ended - last:.1f} s after its last node" if ended - last > _ENDED_SECONDS else None


def a_launch_is_not_kept_by_a_silent_node(history: History, launcher: Launcher) -> Wrong:
    """A node that does not leave has its grace and a little, and then its worker run is ended."""
    told, ended = launcher.told_at, launcher.ended_at or history.now()
    if told is None or launcher.was_paused or launcher.was_broken or launcher.launch.symmetric:
        return None
    if ended - told > _TOLD_SECONDS:
        return f"{ended - told:.1f} s after the result"
    if {fault.what for fault in history.world.schedule.faults} & (_OF_SCHEDULERS - _OF_NODES):
        return None
    is_first = launcher.known_before is None and launcher.launch.finds
    if is_first and any("may still be there" in words for words in launcher.said):
        return f"what ends is said to be left: {launcher.said}"
    return f"{ended - told:.1f} s after the result" if ended - told > _LEFT_SECONDS else None


def the_ledger_is_right_at_the_end(history: History, launcher: Launcher) -> Wrong:
    """It names what may be left, which the person was told of, and nothing that is gone."""
    world, folder = history.world, launcher.folder
    full = world.folder_full_until or launcher.was_broken
    if folder is None or full or launcher.told is None:
        return None
    scheduler, named = world.schedulers[launcher.index], "\n".join(launcher.said)
    left = {entry.name: entry for entry in folder.ledger.left()}
    for entry in left.values():
        if entry.name not in named and f"id {entry.handle}" not in named:
            return f"{entry.name} is in the ledger, and nobody was told"
    for run in scheduler.runs:
        believed = run.is_over or _was_believed_over(world, launcher.index, run)
        if run.name not in left and not believed:
            return f"{run.name} is {run.state}, and not in the ledger"
    return None


def a_launch_is_taken_up_where_it_can_be(history: History, launcher: Launcher) -> Wrong:
    """What a killed launcher has left before the go goes on, if the same is launched again."""
    world, before = history.world, launcher.known_before
    if before is None or not launcher.launch.owns_registry or not launcher.launch_id:
        return None
    former = before.spec.launch_id
    if launcher.launch_id == former and launcher.phase_before is Phase.RUNNING:
        return f"{former} was running, and is taken up"
    if launcher.again in ("", "port"):
        disturbed = _disturbed_at_resume(world)
        waits = launcher.phase_before in _FORMING and history.facts[former].finished is None
        again = launcher.launch_id != former and len(world.launchers) == 2
        if waits and again and not (disturbed or launcher.signalled_at):
            return f"{former} was {launcher.phase_before}, and {launcher.launch_id} began"
        return None
    return f"another launch goes on as {former}" if launcher.launch_id == former else None


def _disturbed_at_resume(world: World) -> set[str]:
    """What may keep a launcher that comes back from its former registry."""
    return {
        fault.what
        for fault in world.schedule.faults
        if fault.what not in _AWAITED_AT_RESUME or fault.seconds > _AWAITED_SECONDS
    } - _NO_MATTER_AT_RESUME


def a_launcher_leaves_no_run_behind(history: History, launcher: Launcher) -> Wrong:
    """Whatever ends a launcher by itself, its run is over, or its registry was not to be had."""
    run = history.runs.get(launcher.launch.run)
    if run is None or run.spec.launch_id != launcher.launch_id or _is_away(history, launcher):
        return None
    breaks = [x.count for x in history.world.schedule.faults if x.what == "part breaks"]
    alone = any(PARTS[count - 1] in _WITHOUT_REGISTRY for count in breaks)
    if launcher.hurried_at is not None or (launcher.was_broken and alone):
        return None
    return None if run.phase is Phase.FINISHED else f"it is {run.phase}: {launcher.outcome}"


def nothing_is_said_again_and_again(history: History, launcher: Launcher) -> Wrong:
    """A person is told once, or now and then."""
    words, count = Counter(launcher.said).most_common(1)[0] if launcher.said else ("", 0)
    return f"{count} times: {words}" if count > _MOST_SAID else None


def a_registry_is_not_started_for_ever(history: History, launcher: Launcher) -> Wrong:
    """One that ends again and again is given up: the former launch's, and the launch's own."""
    starts = launcher.registry_starts
    soon = max((sum(at <= x < at + 25.0 for x in starts) for at in starts), default=0)
    return f"{soon} starts within 25 s" if soon > _MOST_STARTS else None


def every_event_is_shown(history: History, launcher: Launcher) -> Wrong:
    """Where everybody has left, that is shown as well: more may only come of worker runs."""
    seen = launcher.seen
    if launcher.told is None or seen is None or not seen.everyone_left:
        return None
    hurried = launcher.hurried_at is not None or launcher.signalled_at is not None
    if _is_cut_off(history, launcher) or hurried or launcher.launch.symmetric:
        return None
    shown = launcher.events[-1] if launcher.events else 0
    missed = [
        record.number
        for record in history.world.disk.records.values()
        if record.run == launcher.launch.run
        and shown < record.number < seen.version
        and not isinstance(load_event(record.body), events.SlotChanged)
    ]
    return f"event {shown} was the last, and not {missed}" if missed else None


def a_resumed_launch_shows_what_is_new(history: History, launcher: Launcher) -> Wrong:
    """Nothing that was shown before, and nothing less than what happens from then on."""
    before = launcher.known_before
    if before is None or before.spec.launch_id != launcher.launch_id or not launcher.events:
        return None
    former = [x for x in history.world.launchers if x.launch_id == launcher.launch_id]
    shown = max((x.events[-1] for x in former if x is not launcher and x.events), default=0)
    first = launcher.events[0]
    if first <= shown:
        return f"event {first} was shown before, as were all up to {shown}"
    assert launcher.first_version is not None
    late = first > launcher.first_version
    return f"event {first} is the first, after version {launcher.first_version}" if late else None


def _is_disturbed(history: History, launcher: Launcher) -> bool:
    """Whether anything but its nodes may have kept a launcher from its work."""
    faults = {fault.what for fault in history.world.schedule.faults}
    return bool(_is_cut_off(history, launcher) or faults & _OF_SCHEDULERS)


def _is_cut_off(history: History, launcher: Launcher) -> bool:
    """The same, or something of the launcher itself had failed."""
    return launcher.was_broken or _is_away(history, launcher)


def _is_away(history: History, launcher: Launcher) -> bool:
    """Whether something may have been between a launcher and its registry, or its own folder."""
    world, path = history.world, launcher.path
    alone = len(world.schedule.launches) == 1
    if not alone or world.registry_was_down or world.disk.failed or world.folder_full_until:
        return True
    if launcher.was_paused or world.network.isolated_until:
        return True
    faults = {fault.what for fault in world.schedule.faults}
    return bool(path.light or path.is_late or faults & {"port held", "registry ill"})


# --- at the end -----------------------------------------------------------------------------------


def nothing_is_left_at_a_scheduler(history: History, world: World) -> Wrong:
    """When the last launcher of a launch has ended, its worker runs have, or it has named them."""
    for index, scheduler in enumerate(world.schedulers):
        launchers = [launcher for launcher in world.launchers if launcher.belongs_to(index)]
        last = launchers[-1]
        was_ended = last.exit_code is not None or last.all_cleared is not None
        if not was_ended or last.outcome in ("run_exists", "broken", "usage"):
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
    """Whether the scheduler had said so while its node was not there, or did not list it yet."""
    scheduler = world.schedulers[index]
    return run.name in scheduler.called_over or scheduler.list_lag > 0.9


def what_was_ended_by_hand_is_gone(history: History, world: World) -> Wrong:
    """`rdzv cancel` says that nothing is left, or names what is."""
    for launcher in world.launchers:
        folder, cleared = launcher.folder, launcher.all_cleared
        if cleared is None or folder is None or launcher is not world.launchers[-1]:
            continue
        left = [entry.name for entry in folder.ledger.left()]
        if cleared and left:
            return f"nothing is left, and in the ledger {left}"
        if not cleared and not any(name in words for name in left for words in launcher.said):
            return f"{left} was not named"
    return None


def late_nodes_of_a_group_hear_of_the_end(history: History, world: World) -> Wrong:
    """Nodes that come by themselves, and soon after an early end, learn how it was."""
    for launcher in world.launchers:
        told, at = launcher.told, launcher.told_at
        alone = not launcher.launch.symmetric or launcher.signalled_at is not None
        if alone or told is None or at is None or _is_cut_off(history, launcher):
            continue
        if told.status == "ok" or told.code == "join_timeout" or launcher.was_broken:
            continue
        for process in history.processes:
            came = process.facts.began_at[process.number] < at + _LATE_SECONDS
            if came and process.fault == "join_timeout":
                return f"{process.name} does not know of {told.code}"
    return None


def children_end_with_their_launcher(history: History, world: World) -> Wrong:
    """No node that a launcher has started beside itself is left after it."""
    for launcher in world.launchers:
        left = [run.name for run in launcher.children.runs if not run.is_over]
        if launcher.ended and left:
            return f"{left} of {launcher.machine.name}"
    return None


def a_registry_that_comes_back_is_awaited(history: History, world: World) -> Wrong:
    """A launch is not given up for a registry that was killed once and was back soon."""
    away, crashes = world.registries.longest_away, world.registries.crashes
    paused = [x.seconds for x in world.schedule.faults if x.what == "registry pause"]
    away = max([away, *paused])
    if world.registry_is_gone or away > 10 or crashes > 3 or world.disk.failed:
        return None
    for launcher in world.launchers:
        own = launcher.launch.owns_registry
        troubled = launcher.path.light or launcher.path.is_late or launcher.was_paused
        outcome = launcher.outcome
        lost = isinstance(outcome, Result) and outcome.code == "registry_lost"
        if own and lost and not troubled and launcher.hurried_at is None:
            return f"{launcher.machine.name}: {outcome}"
    return None

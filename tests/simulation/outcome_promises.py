"""What a launch shows, tells and leaves: see `launch_promises`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rendezvous.run import events
from rendezvous.run.decision import load_entry
from rendezvous.wire.errors import error_from_code
from rendezvous.wire.run import Phase, Result
from tests.simulation.faults import PARTS
from tests.simulation.history import History, Wrong
from tests.simulation.launch_promises import (
    OF_SCHEDULERS,
    disturbed_at_resume,
    is_away,
    is_cut_off,
    is_disturbed,
    was_believed_over,
)
from tests.simulation.promises import BEFORE_GO

if TYPE_CHECKING:
    from tests.simulation.launchers import Launcher
    from tests.simulation.world import World

_SIGNALS = 128
_AT_ONCE_SECONDS = 16.0
"""What ends at once: 8 s for each scheduler's command, 5 s for the registry, and a little."""
_HEEDED_SECONDS = 3.5
"""Where a node has just died: its closed connection is waited for 1 s, and the verdict 2."""
_ENDED_SECONDS = 10.0
_LEFT_SECONDS = 27.0
"""To leave 11 s, for the last events 3, by itself 3, to be told 5, to close 5."""
_TOLD_SECONDS = 125.0
"""To cancel 10 s, to leave 11, for the last events 3, to settle 10, to end 68, to close 5."""
_LATE_SECONDS = 25.0
_UNHEARD_SECONDS = 40.0
"""To cancel 10 s and its last try, then what ends at once."""
_MOST_SAID = 4
_MOST_STARTS = 10
_WITHOUT_REGISTRY = {"registry", "close"}
"""Parts without which no node can be told anything."""
_OF_NODES = {"slow stop", "pause", "host down"}


# --- of what it shows and tells -------------------------------------------------------------------


def a_launcher_tells_the_registrys_result(history: History, launcher: Launcher) -> Wrong:
    """What it has heard is its result, in the file and by its exit code."""
    told, outcome, code = launcher.told, launcher.outcome, launcher.exit_code
    if told is None or launcher.was_broken:
        return None
    unwritten = any("result.json cannot be written" in words for words in launcher.said)
    if not isinstance(outcome, Result) and not unwritten:
        return f"it was told {told.code}, and ended with {outcome}"
    wrote = outcome if isinstance(outcome, Result) else told
    if (wrote.status, wrote.code, wrote.slot) != (told.status, told.code, told.slot):
        return f"it was told {told}, and wrote {outcome}"
    at, told_at = launcher.signalled_at, launcher.told_at
    expected = {told.exit_code}
    if at is not None and told_at is not None and told.status == "cancelled":
        by_signal = _SIGNALS + launcher.first_signal
        expected = {by_signal} if at < told_at else {told.exit_code, by_signal}
    return None if code in expected else f"{told.status}, exit code {code} and not {expected}"


def a_launch_that_did_not_end_well_says_so(history: History, launcher: Launcher) -> Wrong:
    """Exit code 0 is that of a run which ended well, and of nothing else."""
    told, code = launcher.told, launcher.exit_code
    well = told is not None and told.status == "ok" and launcher.outcome != "broken"
    return f"exit code {code}, and it was told {told}" if (code == 0) != well else None


def events_are_shown_once_and_in_order(history: History, launcher: Launcher) -> Wrong:
    """What happened is shown once, in its order, with nothing left out."""
    shown = launcher.events or [0]
    return None if shown == [*range(shown[0], shown[0] + len(shown))] else f"{shown}"


def a_person_is_told_of_trouble(history: History, launcher: Launcher) -> Wrong:
    """Whoever is to do something hears it in a sentence: a failure has a message."""
    outcome = launcher.outcome
    if isinstance(outcome, Result) and outcome.status != "ok" and not outcome.message:
        return f"{outcome}"
    return None


def it_ends_soon_when_told_twice(history: History, launcher: Launcher) -> Wrong:
    """A second signal ends everything at once."""
    at = launcher.hurried_at
    seconds = 0.0 if at is None or launcher.was_paused else history.now() - at
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
    if is_cut_off(history, launcher) or told is None or told < at:
        return None
    return f"it told of a result {told - at:.1f} s later" if told - at > _HEEDED_SECONDS else None


def a_healthy_launch_ends_soon(history: History, launcher: Launcher) -> Wrong:
    """Once its nodes are gone and it knows the result, nothing keeps a launcher."""
    told, ended = launcher.told_at, launcher.ended_at or history.now()
    if told is None or is_disturbed(history, launcher) or launcher.launch.symmetric:
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
    if {fault.what for fault in history.world.schedule.faults} & (OF_SCHEDULERS - _OF_NODES):
        return None
    is_first = launcher.known_before is None and launcher.launch.finds
    if is_first and any("may still exist" in words for words in launcher.said):
        return f"what ends is said to be left: {launcher.said}"
    if any(start < ended and end > told for start, end in history.gaps):
        return None  # its registry could not say who has left
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
        believed = run.is_over or was_believed_over(world, launcher.index, run)
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
        disturbed = disturbed_at_resume(world)
        waits = launcher.phase_before in BEFORE_GO and history.facts[former].finished is None
        again = launcher.launch_id != former and len(world.launchers) == 2
        if waits and again and not (disturbed or launcher.signalled_at):
            return f"{former} was {launcher.phase_before}, and {launcher.launch_id} began"
        return None
    return f"another launch goes on as {former}" if launcher.launch_id == former else None


def a_launcher_leaves_no_run_behind(history: History, launcher: Launcher) -> Wrong:
    """Whatever ends a launcher by itself, its run is over, or its registry was not to be had."""
    run = history.runs.get(launcher.launch.run)
    if run is None or run.spec.launch_id != launcher.launch_id or is_away(history, launcher):
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
    if is_cut_off(history, launcher) or hurried or launcher.launch.symmetric:
        return None
    shown = launcher.events[-1] if launcher.events else 0
    missed = [
        record.number
        for record in history.world.disk.records.values()
        if record.run == launcher.launch.run
        and shown < record.number < seen.version
        and not isinstance(load_entry(record.body)[0], events.SlotChanged)
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


# --- at the end -----------------------------------------------------------------------------------


def nothing_is_left_at_a_scheduler(history: History, world: World) -> Wrong:
    """When the last launcher of a launch has ended, its worker runs have, or it has named them."""
    for index, scheduler in enumerate(world.schedulers):
        launchers = [launcher for launcher in world.launchers if launcher.index == index]
        last = launchers[-1]
        was_ended = last.exit_code is not None or last.all_cleared is not None
        if not was_ended or last.outcome in ("run_exists", "broken", "usage"):
            continue
        named = "\n".join(last.said)
        if f"end them with 'rdzv cancel {last.launch.run}'" in named:
            continue
        for run in scheduler.runs:
            known = run.is_over or run.name in named or f"end {run.handle}" in named
            if not known and not was_believed_over(world, index, run):
                return f"{run.name} is {run.state} after {last.machine.name}"
    return None


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
    """Nodes that come by themselves, and soon after an early end, learn how it was.

    Those that come back after it may not: nobody waits for them.
    """
    faults = world.schedule.faults
    for launcher in world.launchers:
        told, at = launcher.told, launcher.told_at
        alone = not launcher.launch.symmetric or launcher.signalled_at is not None
        if alone or told is None or at is None or is_cut_off(history, launcher):
            continue
        if told.status == "ok" or told.code == "join_timeout" or launcher.was_broken:
            continue
        for process in history.processes:
            came = process.facts.began_at[process.number] < at + _LATE_SECONDS
            of = (process.index, process.slot)
            cut = any(f.what[:3] == "cut" and of == (f.launch, f.slot) for f in faults)
            was_there = any(slot == process.slot for slot, _ in process.facts.owners)
            if came and process.fault == "join_timeout" and not cut and not was_there:
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

"""What a node promises: judged by what its process, program and files really did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rendezvous.wire.reports import AckReport, Report
from rendezvous.wire.watch import NodeView
from tests.simulation.history import History, Wrong

if TYPE_CHECKING:
    from tests.simulation.agents import Process

ORPHAN_SECONDS = 60.0
"""Of the agents here; after so long a node gives its registry up."""

UNFORESEEN = "unforeseen"
"""How a process is noted that ends with what nobody expected."""
_KILL_SECONDS = 0.3
_GRACE_SECONDS = 3.0
_MOST_OF_AN_END = 25.0
"""Output, network log, reports and the hosts file have each their limit."""
_SPEECHLESS = ("connect", "report")
"""What breaks, and takes a node's voice with it."""
_NOT_HEARD = ("registry_lost", "fenced", "run_over", "join_timeout")

_MOST_VIEWS = 40
"""In a second: a table, a stop and a result come at once; more is a node that asks without end."""


def a_table_is_acknowledged_after_it_was_armed_for(
    history: History, process: Process, told: Report
) -> Wrong:
    """A node acknowledges the table that its hosts file and its program are ready for."""
    if not isinstance(told, AckReport) or set(told.digest) == {"0"}:
        return None
    if process.unready or process.armed_for.get(told.digest) != told.epoch:
        return f"{process.name} acknowledges {told.digest[:12]} of epoch {told.epoch}"
    return None


def news_are_asked_for_in_peace(history: History, process: Process, view: NodeView) -> Wrong:
    """A watch waits for what is new; it is no question without end."""
    now = history.now()
    lately = [at for at in process.views_at if at > now - 1.0]
    return f"{process.name}: {len(lately)} in a second" if len(lately) > _MOST_VIEWS else None


def a_node_leaves_no_names(history: History, process: Process) -> Wrong:
    """A node that ends by itself has put its hosts file back, unless its disk hangs."""
    excused = process.was_slow or process.keeps_names
    return process.name if process.armed and _ended_itself(process) and not excused else None


def a_node_outlives_its_program(history: History, process: Process) -> Wrong:
    """When a node has ended by itself, nothing is left of its program."""
    left = process.program is not None and not process.program.is_gone
    return process.name if left and _ended_itself(process) else None


def a_node_ends_with_what_it_knows(history: History, process: Process) -> Wrong:
    """Its exit code is the signal's or the result's; 0 of one that was left out, or stood by."""
    if not _ended_itself(process) or (process.fault and process.result is None):
        return None  # by an error of its own, which may have come before the signal
    stood_by = process.launch.outlives_nodes and _has_stood_by(process)
    allowed = {0} if process.released or (stood_by and process.result is not None) else set()
    if process.result is not None and not process.stands_by:
        allowed.add(process.result.exit_code)
    if process.signal_told:
        allowed.add(128 + process.signal)
    wrong = allowed and process.ended not in allowed
    return f"{process.name} ended with {process.ended}, knows {allowed}" if wrong else None


def _has_stood_by(process: Process) -> bool:
    """Whether it had no program when the run ended in which others had one."""
    return process.stands_by or (not process.lives and bool(process.facts.epochs.gone))


def a_registry_is_given_up_in_time(history: History, process: Process) -> Wrong:
    """A node goes on without its registry until the orphan time-out, whatever fails before."""
    faults = history.world.schedule.faults  # a full disk answers, and takes no report
    full = max((fault.seconds for fault in faults if fault.what == "disk full"), default=0.0)
    if process.fault != "registry_lost" or process.gone is None or full > ORPHAN_SECONDS:
        return None
    silent = process.gone.at - process.heard_at
    early = silent < ORPHAN_SECONDS - 0.01
    return f"{process.name} gave its registry up after {silent:.1f} s" if early else None


def a_node_tries_to_join_until_its_time_out(history: History, process: Process) -> Wrong:
    """A registry that is away, or a slot that is held, is asked again until the join time-out."""
    if process.fault != "join_timeout" or process.result is not None or process.gone is None:
        return None
    tried = process.gone.at - process.facts.began_at[process.number]
    early = tried < process.launch.join_timeout
    return f"{process.name} gave up after {tried:.1f} s" if early else None


def who_cannot_take_part_says_so(history: History, process: Process) -> Wrong:
    """A node that finds that it can never take part tells the registry, which waits for it."""
    cannot = history.world.marked("refuses", process) and process.fault in ("arming_failed", "run")
    said = process.incarnation or process.told_refusal
    return process.name if cannot and _ended_itself(process) and not said else None


def a_program_that_is_told_to_stop_has_its_grace(history: History, process: Process) -> Wrong:
    """One that ends in time is not killed, unless somebody was in a hurry."""
    killed = process.program is not None and process.program.was_killed
    if process.launch.outlives_nodes and _is_killed_by_its_fence(process):
        return None
    return process.name if killed and process.signals_told < 2 else None


def _is_killed_by_its_fence(process: Process) -> bool:
    """Whether it was killed only after its grace, with what it has left; or had slept for long."""
    program = process.program
    if program is None or program.killed_at is None or program.told_at is None:
        return process.was_paused
    return process.was_paused or program.killed_at - program.told_at > _GRACE_SECONDS - 0.01


def a_program_starts_on_the_table_that_was_agreed_to(
    history: History, process: Process, digest: str
) -> Wrong:
    """A node that is told to start on another table than it has acknowledged does not."""
    if not process.serves and process.go_digest != process.acked:
        return f"{process.name}: {process.go_digest[:12]} is not {process.acked[:12]}"
    return None


def who_cannot_go_on_says_so(history: History, process: Process) -> Wrong:
    """What only this node knows to be wrong it tells the registry, joined or not."""
    known = process.result is not None or process.signal_told or process.released
    if not process.unfit or process.unfit in _SPEECHLESS or known or not process.fault:
        return None
    said = process.told_end if process.incarnation else process.told_refusal
    if _ended_itself(process) and process.fault not in _NOT_HEARD and not said:
        return f"{process.name} ended with {process.ended} ({process.unfit})"
    return None


def who_cannot_go_on_ends_with_that(history: History, process: Process) -> Wrong:
    """A node that cannot start its program ends with an error, and not as if it had run."""
    excused = process.released or (process.result is not None and process.result.exit_code == 0)
    if process.unfit and _ended_itself(process) and process.ended == 0 and not excused:
        return f"{process.name} ended with 0 ({process.unfit})"
    return None


def a_part_that_breaks_costs_nothing(history: History, process: Process) -> Wrong:
    """What a run can do without ends no node when it breaks as nobody expected."""
    cost = process.fault == UNFORESEEN and not process.unfit
    return f"{process.name} ended with {process.ended}" if cost else None


def who_is_in_a_hurry_does_not_wait(history: History, process: Process) -> Wrong:
    """A second signal, or SIGQUIT, ends a program at once, and its node soon."""
    hurried = process.hurried_at
    if hurried is None or process.was_paused or process.was_killed:
        return None
    ended, started = process.program_ended_at, process.started_at
    if ended is None or started is None or process.serves:
        ended = started = hurried
    if ended - max(hurried, started) > _KILL_SECONDS:
        return f"{process.name}: its program ended {ended - hurried:.1f} s later"
    if process.gone is not None and process.gone.at - hurried > _MOST_OF_AN_END:
        return f"{process.name} ended {process.gone.at - hurried:.1f} s later"
    return None


def a_signal_for_a_program_reaches_it(history: History, process: Process) -> Wrong:
    """What is no signal to end is the program's, and ends nothing."""
    program, passed = process.program, process.passed
    if program is None or not passed or process.was_killed or process.was_paused:
        return None
    wrong = program.signals[: len(passed)] != passed
    return f"{process.name}: {passed} was passed on as {program.signals}" if wrong else None


def who_has_lost_its_launcher_is_silent(history: History, process: Process) -> Wrong:
    """Before the go, a node that ends with its launcher does not count as failed: it is silent."""
    spoke = process.spoke_without_parent and process.result is None and not process.unfit
    return process.name if spoke else None


def _ended_itself(process: Process) -> bool:
    return process.ended is not None and not process.was_killed

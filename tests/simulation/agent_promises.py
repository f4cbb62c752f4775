"""What a node promises, whatever happens: judged by what its process, program and files really did.

What is read of a process: `name, slot, ended, was_killed, was_slow, armed, armed_for, program,
result, released, signal_told, signal, incarnation, views_at, heard_at, told_refusal, fault, gone`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rendezvous.schema import AckReport, Report

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.history import History
    from tests.simulation.world import World

Wrong = str | None

ORPHAN_SECONDS = 60.0
"""Of the agents here; after so long a node gives its registry up."""

_MOST_VIEWS = 40
"""In a second: a table, a stop and a result come at once; more is a node that asks without end."""


def a_table_is_acknowledged_after_it_was_armed_for(
    history: History, process: Process, report: Report
) -> Wrong:
    """A node acknowledges the table that its hosts file and its program are ready for."""
    if not isinstance(report, AckReport) or set(report.digest) == {"0"}:
        return None
    if process.armed_for.get(report.digest) != report.epoch:
        return f"{process.name} acknowledges {report.digest[:12]} of epoch {report.epoch}"
    return None


def news_are_asked_for_in_peace(history: History, process: Process) -> Wrong:
    """A watch waits for what is new; it is no question without end."""
    now = history.now()
    lately = [at for at in process.views_at if at > now - 1.0]
    return f"{process.name}: {len(lately)} in a second" if len(lately) > _MOST_VIEWS else None


def a_node_leaves_no_names(history: History, world: World) -> Wrong:
    """A node that ends by itself has put its hosts file back, unless its disk hangs."""
    left = [
        process.name
        for process in history.processes
        if process.armed is not None and _ended_itself(process) and not process.was_slow
    ]
    return f"{left}" if left else None


def a_node_outlives_its_program(history: History, world: World) -> Wrong:
    """When a node has ended by itself, nothing is left of its program."""
    for process in history.processes:
        program = process.program
        if program is not None and _ended_itself(process) and not program.is_gone:
            return process.name
    return None


def a_node_ends_with_what_it_knows(history: History, world: World) -> Wrong:
    """Its exit code is the signal's or the result's; 0 of one that the run went without."""
    for process in history.processes:
        if not _ended_itself(process) or (process.fault and process.result is None):
            continue  # by an error of its own, which may have come before the signal
        allowed = set()
        if process.result is not None:
            allowed.add(process.result.exit_code)
        if process.signal_told:
            allowed.add(128 + process.signal)
        if process.released:
            allowed.add(0)
        if allowed and process.ended not in allowed:
            return f"{process.name} ended with {process.ended}, knows {sorted(allowed)}"
    return None


def a_registry_is_given_up_in_time(history: History, world: World) -> Wrong:
    """A node goes on without its registry until the orphan time-out, whatever fails before."""
    if world.registries.longest_away > ORPHAN_SECONDS - 1.0:  # then it is for a report
        return None
    for process in history.processes:
        if process.fault != "registry_lost" or process.gone is None:
            continue
        silent = process.gone.at - process.heard_at
        if silent < ORPHAN_SECONDS - 0.01:
            return f"{process.name} gave its registry up after {silent:.1f} s"
    return None


def who_cannot_take_part_says_so(history: History, world: World) -> Wrong:
    """A node that finds that it can never take part tells the registry, which waits for it."""
    for process in history.processes:
        cannot = world.marked("refuses", process) and process.fault in ("arming_failed", "run")
        if cannot and _ended_itself(process) and not (process.incarnation or process.told_refusal):
            return process.name
    return None


def a_program_that_is_told_to_stop_has_its_grace(history: History, world: World) -> Wrong:
    """One that ends in time is not killed, unless somebody was in a hurry."""
    for process in history.processes:
        program = process.program
        if program is not None and program.was_killed and process.signals_told < 2:
            return process.name
    return None


def _ended_itself(process: Process) -> bool:
    return process.ended is not None and not process.was_killed


OF_AGENT_REPORTS: list[Callable[..., Wrong]] = [a_table_is_acknowledged_after_it_was_armed_for]
OF_AGENT_VIEWS: list[Callable[..., Wrong]] = [news_are_asked_for_in_peace]
OF_AGENT_ENDS: list[Callable[..., Wrong]] = [
    a_node_leaves_no_names,
    a_node_outlives_its_program,
    a_node_ends_with_what_it_knows,
    a_program_that_is_told_to_stop_has_its_grace,
    a_registry_is_given_up_in_time,
    who_cannot_take_part_says_so,
]

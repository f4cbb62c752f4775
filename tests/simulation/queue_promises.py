"""What holds of queues that are full: what is not taken is sent again, and nothing is lost or said
twice because of it. See `queues` and `talking`."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from rendezvous.wire.log_view import RunView
from tests.simulation.history import History, Wrong
from tests.simulation.promises import is_troubled
from tests.simulation.talking import EXIT_CODE, lines_of, output_of
from tests.support.topics import PUBLISHED

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.talking import Command, Printing, Reader
    from tests.simulation.world import World

_SHOWN_SECONDS = 12.0
"""A node says every 5 s that it is there, and what was not taken is sent again each second."""
_ANSWERED_SECONDS = 8.0
"""A command takes a second or two, and what was not taken is sent again after half of one."""


# --- of the lines that somebody reads -------------------------------------------------------------


def a_line_is_shown_once_and_in_its_place(
    history: History, reader: Reader, shown: RunView
) -> Wrong:
    """Each line of a program is shown once, behind the one before it; what is left out is said."""
    seen = dict(reader.seen)
    skipped = any(part.skipped for piece in shown.pieces for part in piece.parts)
    for number, line in lines_of(shown):
        before = seen.get(number, line - 1)
        if line <= before or (line > before + 1 and not skipped):
            return f"line {line} of program {number} after line {before}"
        seen[number] = line
    return None


def who_follows_sees_what_is_printed(history: History, reader: Reader, shown: RunView) -> Wrong:
    """A line that a healthy node's program prints is soon shown to who follows it."""
    world, now = reader.world, history.now()
    if now - reader.opened_at < _SHOWN_SECONDS or shown.over:
        return None
    if any(world.queues.is_full(what, _SHOWN_SECONDS) for what in ("lines", "lines of a run")):
        return None
    seen = reader.seen | dict(lines_of(shown))
    for program in _healthy(reader):
        due = _printed_before(program, now - _SHOWN_SECONDS)
        if seen.get(program.number, 0) < due:
            name = program.process.name
            return f"line {due} of {name}, of which {seen.get(program.number)} was shown"
    return None


def a_view_goes_on_while_programs_run(history: History, reader: Reader, shown: RunView) -> Wrong:
    """A view is not over while a healthy node's program prints."""
    if not shown.over:
        return None
    since = max(reader.opened_at, history.now() - _SHOWN_SECONDS)
    going = [one for one in _healthy(reader) if one.printed_at and one.printed_at[0] < since]
    return f"over, and {going[0].process.name} prints" if going else None


def _healthy(reader: Reader) -> list[Printing]:
    """The programs of the run that go on nodes that nothing has disturbed."""
    if reader.world.registry_was_down:
        return []
    programs = [one for one in reader.world.talk.programs if one.process.index == reader.index]
    return [one for one in programs if one.is_going() and not _is_disturbed(one.process)]


def _is_disturbed(process: Process) -> bool:
    return is_troubled(process) or bool(process.path.light) or process.path.is_late


def _printed_before(program: Printing, at: float) -> int:
    return sum(printed_at < at for printed_at in program.printed_at)


# --- of commands on other nodes -------------------------------------------------------------------


def a_command_is_run_once_and_its_output_is_whole(
    history: History, process: Process, command: Command
) -> Wrong:
    """Who has a command run on a node gets all of its output once, and its end; it runs once."""
    runs = process.world.talk.runs[command.words]
    if runs > 1:
        return f"{process.name}: {command.words!r} was run {runs} times"
    if any("error" in answer for answer in command.told):
        return None
    text = "".join(answer.get("stdout", "") for answer in command.told[:-1])
    got = b"".join(base64.b64decode(answer["stdout"]) for answer in command.told[:-1])
    is_whole = got == b"".join(output_of(command.words)) and runs == 1
    if is_whole and command.told[-1] == {"exit": EXIT_CODE}:
        return None
    return f"{process.name}: {command.words!r} was told {len(text)} letters, {command.told[-1]}"


def a_command_has_an_end(history: History, process: Process) -> Wrong:
    """A command between healthy nodes does not wait for ever, whatever was full for a while."""
    late = [one.words for one in process.commands if _is_late(history, process, one)]
    return f"{process.name}: {late} since {_ANSWERED_SECONDS} s" if late else None


def a_command_is_answered_before_the_run_ends(
    history: History, process: Process, command: Command
) -> Wrong:
    """The end of a run ends what was asked for last, and nothing that was lost long before."""
    was_ended = any("error" in answer for answer in command.told)
    if not was_ended or not _is_late(history, process, command):
        return None
    return f"{process.name}: {command.words!r} since {_ANSWERED_SECONDS} s, then {command.told[-1]}"


def _is_late(history: History, process: Process, command: Command) -> bool:
    """Whether it has waited for long, and nothing but what was full may have delayed it."""
    world = process.world
    paths = [one.path for one in history.processes if one.facts is process.facts]
    if world.registry_was_down or any(path.light or path.is_late for path in paths):
        return False
    if any(is_troubled(one) for one in history.processes if one.facts is process.facts):
        return False
    until = process.program_ended_at if process.program_ended_at is not None else history.now()
    if world.queues.is_full("frames", _ANSWERED_SECONDS):
        return False
    return until - command.asked_at > _ANSWERED_SECONDS


# --- of the rows of metrics -----------------------------------------------------------------------


def a_row_keeps_its_number(history: History, process: Process, batch: Any) -> Wrong:
    """Rows are numbered as they were said, also those that have found no room."""
    for number, row in enumerate(batch.rows, batch.first):
        if row.step != number:
            return f"{process.name}: step {row.step} is row {number}"
    return None


def _rows(live: Any) -> list[Any]:
    """Those that the registry has of a run."""
    found = list[Any]()
    for topic in PUBLISHED:
        if topic.name == "metrics" and topic.query is not None:
            query = topic.query.load()(after=0)
            found += json.loads(live.store(topic).to_json(live.run, query, 0.0))["rows"]
    return found


def a_row_is_kept_once(history: History, world: World) -> Wrong:
    """The registry has no row of a node twice, and none before an older one."""
    registry = world.network.registry
    for live in registry.service.sequencer.runs.values() if registry is not None else ():
        steps = dict[int, int]()
        for row in _rows(live):
            slot, step = row["slot"], row["step"]
            if step == steps.get(slot) or (1 < step < steps.get(slot, 0)):
                return f"step {step} of slot {slot} after step {steps[slot]}"
            steps[slot] = step
    return None

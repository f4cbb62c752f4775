"""A program on its table: what is seen of it, what is said of it, and how it is ended. Pure.

What is certain is reported before the program has ended: its launcher may wait for half a minute
for ranks that go on for nothing, and what it has started may need its whole grace. A guess is a
reason to warn, and nothing more (see `worker.program.family`).
"""

from __future__ import annotations

from rendezvous.wire.errors import ExitCode
from rendezvous.wire.reports import ExitReport, ProgressReport, Report
from rendezvous.wire.words import listed, printable
from worker.agent import actions as do
from worker.agent import departing, inputs, reports
from worker.agent.notices import Note, notice, text_of
from worker.agent.state import IN_ORDER, Cause, ProgramState, Turn
from worker.program.ending import Ending, code_words
from worker.program.family import (
    LATE_END_SECONDS,
    Failure,
    certain_failure,
    ended_well_at,
    failed_rank,
    late_to_end,
    likely_cause,
)

WORDS_SECONDS = 1.0
"""How long what a program says last may take to arrive."""
_TROUBLE_SECONDS = 1.0
_WAITS_SECONDS = 1.0
"""At most so often is told for what processes wait: each time is a record of the journal."""
_MOST_WAITS = 8
"""So much is kept until it may be told; the newest."""


def _living(turn: Turn, number: int) -> ProgramState | None:
    """The program with this number, as long as something of it is there."""
    program = turn.node.program
    return program if program and program.number == number and not program.gone else None


def _goes_on(turn: Turn, program: ProgramState) -> bool:
    """Whether nobody has told the program to end."""
    return turn.node.ends is None and turn.node.signal is None and program.stop_at is None


# --- while it runs --------------------------------------------------------------------------------


def started(turn: Turn, number: int) -> None:
    """It runs; who was told to end it meanwhile ends it now."""
    if (program := _living(turn, number)) is None:
        return
    turn.set_program(started_at=turn.now)
    departing.show_kept(turn)
    if program.kill:
        turn.do(do.Kill(number))
    if program.stop_at is not None:
        turn.do(do.Stop(number))


def seen(turn: Turn, said: inputs.ProgramSeen) -> None:
    """Take in how its processes are."""
    if (program := _living(turn, said.number)) is None:
        return
    failed = failed_rank(said.family)
    certain = certain_failure(said.family, ends_all=program.ends_all)
    program = turn.set_program(
        family=said.family,
        main=said.main,
        failed_at=_since(program.failed_at, failed, turn.now),
        certain_at=_since(program.certain_at, certain, turn.now),
    )
    if said.words is not None and _goes_on(turn, program):
        _report_ahead(turn, program, said.words)


def importing(turn: Turn, said: inputs.Importing) -> None:
    """Keep whether its ranks import torch: the next watch tells it."""
    if _living(turn, said.number) is not None:
        turn.set_program(importing=said.importing)


def waits(turn: Turn, said: inputs.Waits) -> None:
    """Take in for what a process of the program waits."""
    program = turn.node.program
    if program is not None and not program.gone:
        turn.set_program(waits=(*program.waits, said)[-_MOST_WAITS:])


def _waits_told_at(turn: Turn, program: ProgramState) -> float | None:
    """When a person may be told the next words of that."""
    if not program.waits or program.gone or not _goes_on(turn, program):
        return None
    return turn.now if program.waits_at is None else program.waits_at + _WAITS_SECONDS


def _tell_waits(turn: Turn) -> None:
    program = turn.node.program
    at = _waits_told_at(turn, program) if program is not None else None
    if program is None or at is None or turn.now < at:
        return
    first, *more = program.waits
    turn.set_program(waits=tuple(more), waits_at=turn.now)
    words = printable(first.words, 600)
    report = ProgressReport(epoch=program.epoch, words=words, warning=True, over=first.over)
    reports.tell(turn, report, needed=False)


def _since(before: float | None, failure: Failure | None, now: float) -> float | None:
    """Since when there is this failure; a launcher may have started its rank again."""
    if failure is None:
        return None
    return now if before is None else before


def look(turn: Turn) -> None:
    """See how a program is of which something may have to be said now."""
    _tell_waits(turn)
    program = turn.node.program
    if program is not None and any(at <= turn.now for at in _look_due(turn)):
        turn.do(do.LookAtProgram(program.number))


def due(turn: Turn) -> list[float]:
    """When to look at the program, or to tell what was kept."""
    program = turn.node.program
    at = _waits_told_at(turn, program) if program is not None else None
    return _look_due(turn) if at is None else [*_look_due(turn), at]


def _look_due(turn: Turn) -> list[float]:
    program = turn.node.program
    if program is None or program.gone or program.started_at is None or not _goes_on(turn, program):
        return []
    found = []
    if program.told:
        pass
    elif program.main is not None and program.main.exit_code != 0:
        found.append(program.main.at + WORDS_SECONDS)
    else:
        if (at := _report_at(program)) is not None:
            found.append(at)
        if program.failed_at is not None and not program.warned:
            found.append(program.failed_at + WORDS_SECONDS)
    ended_at = ended_well_at(program.family)
    if ended_at is not None and not program.said_late:
        found.append(ended_at + LATE_END_SECONDS)
    return found


def _report_at(program: ProgramState) -> float | None:
    """When an end that is certain is reported: who was warned of it waits for more words."""
    if program.certain_at is None or program.failed_at is None:
        return None
    return (program.certain_at if program.warned else program.failed_at) + WORDS_SECONDS


def _report_ahead(turn: Turn, program: ProgramState, words: inputs.OwnWords) -> None:
    """Say what is certain, or strange, of a program that goes on."""
    main, failed = program.main, failed_rank(program.family)
    certain = certain_failure(program.family, ends_all=program.ends_all)
    report_at = _report_at(program)
    if program.told:
        pass
    elif main is not None and main.exit_code != 0:
        if turn.now >= main.at + WORDS_SECONDS:
            turn.say(Note.MAIN_ENDED_REPORTED, code=code_words(main.exit_code))
            ending = Ending(main.exit_code, main.at, likely_cause(program.family))
            _tell_ahead(turn, program, ending, words)
    elif certain is not None and report_at is not None and turn.now >= report_at:
        turn.say(Note.RANK_FAILED_REPORTED, rank=certain.rank)
        ending = Ending(certain.exit_code, certain.ended_at, certain)
        _tell_ahead(turn, program, ending, words)
    elif failed is not None and not program.warned:
        turn.set_program(warned=True)
        code = code_words(failed.exit_code)
        _warn(turn, program, Note.RANK_FAILED, rank=failed.rank, code=code)
    late = late_to_end(program.family, turn.now)
    if late and not program.said_late:
        turn.set_program(said_late=True)
        ranks = f"rank{'s' * (len(late) > 1)} {listed(map(str, late))}"
        _warn(turn, program, Note.RANKS_LATE, ranks=ranks)


def _tell_ahead(turn: Turn, program: ProgramState, ending: Ending, words: inputs.OwnWords) -> None:
    turn.set_program(told=True)
    report, since = reports.exit_report(program, ending, words, None)
    reports.tell(turn, report, since=since)


def _warn(turn: Turn, program: ProgramState, note: Note, **values: object) -> None:
    """Say what a person should see, here and to all."""
    said = notice(note, **values)
    turn.do(do.Say(said))
    words = printable(text_of(said), 600)
    report = ProgressReport(epoch=program.epoch, words=words, warning=True)
    reports.tell(turn, report, needed=False)


def network_said(turn: Turn, said: inputs.NetworkSaid) -> None:
    """Tell what NCCL uses; what may not be ends the run, long before anybody would notice."""
    program = _living(turn, said.number)
    if program is None or not _goes_on(turn, program):
        return
    epoch, verdict = program.epoch, said.verdict
    note = Note.TOLD if verdict.level == "ok" else Note.WARNED
    turn.say(note, words=verdict.words)
    warning = verdict.level == "warn"
    report: Report = ProgressReport(epoch=epoch, words=verdict.words, warning=warning)
    if verdict.level == "fail":
        code = int(ExitCode.PREFLIGHT_FAILED)
        report = ExitReport(epoch=epoch, exit_code=code, by_agent=True, message=verdict.words)
        turn.set_program(told=True)
    # Where a rank has failed before, this node is the first cause since then.
    reports.tell(turn, report, since=program.failed_at, needed=verdict.level == "fail")


# --- its end --------------------------------------------------------------------------------------


def stop_all(turn: Turn) -> None:
    """End the program, and what runs here for other nodes."""
    program = turn.node.program
    if program is None or program.stop_at is not None:
        return
    turn.set_program(stop_at=turn.now)
    if program.started_at is not None and not program.gone:
        ends_itself = program.ends_all and program.failed_at is not None
        turn.do(do.Stop(program.number, ends_itself))
    if turn.node.rules.remote:
        why, said = _why_closed(turn, program), turn.node.said
        turn.begin(do.CloseRemote, why=notice(why, said=said[0] if said else ""))


def _why_closed(turn: Turn, program: ProgramState) -> Note:
    """What those are told who wait for a command that ran here."""
    if program.fenced:
        return Note.FENCE_ENDING
    ends = turn.node.ends
    in_order = ends is None or ends.cause in IN_ORDER
    return Note.RUN_ENDING if in_order else Note.AGENT_ENDING


def kill_all(turn: Turn) -> None:
    """End it all at once, also within its grace; what is being started, once it runs."""
    program = turn.node.program
    closing = any(turn.under_way(do.CloseRemote))  # what runs for other nodes may have its grace
    if program is not None and (closing or not program.gone):
        turn.set_program(kill=True)
        if program.started_at is not None:
            turn.do(do.Kill(program.number))


def gone(turn: Turn, said: inputs.Input) -> None:
    """Nothing of it is left, or it could not be started."""
    match said:
        case inputs.ProgramGone():
            program = turn.set_program(gone=True, ending=said.ending, words=said.words)
            if said.ending is not None:
                turn.say(Note.TOLD, words=said.ending.reason)
                if said.ending.left is not None:
                    words = said.ending.left.words()
                    _warn(turn, program, Note.WARNED, words=words)
            _flush(turn, program)
        case inputs.Failed() | inputs.Broken():
            program = turn.set_program(gone=True)
            turn.end(Cause.FAULT, error=said.error)
            if (told := turn.node.signal) is not None:
                report = reports.signal_report(program.epoch, told.signal)
                reports.tell(turn, report, since=told.at)


def is_ending(turn: Turn) -> bool:
    """Whether a program was told to stop, and what there is to say of its end is not known yet."""
    program = turn.node.program
    return program is not None and program.stop_at is not None and not _has_ended(turn, program)


def is_over(turn: Turn, program: ProgramState) -> bool:
    """Whether nothing of it is left, and the registry knows how it ended."""
    return program.end is None and not _is_told_now(turn) and _has_ended(turn, program)


def _is_told_now(turn: Turn) -> bool:
    """Whether the registry has not answered yet how this program ended, or will."""
    return any(isinstance(tell.report, ExitReport) for tell in turn.under_way(do.Tell))


def _has_ended(turn: Turn, program: ProgramState) -> bool:
    ending = turn.under_way(do.Start, do.CloseRemote, do.Flush, do.ReadTrouble)
    return program.gone and not any(ending)


def remote_closed(turn: Turn) -> None:
    """What ran here for others has ended: a node that only served has nothing more to wait for."""
    program = turn.node.program
    if program is not None and program.serves and program.gone:
        _flush(turn, program)


def _flush(turn: Turn, program: ProgramState) -> None:
    """Send on what the program has said before it ended: the launcher reads it before the end."""
    ends = turn.node.ends
    if ends is not None and ends.cause not in IN_ORDER:
        return  # nobody takes its reports any more
    if not (program.serves and any(turn.under_way(do.CloseRemote))):
        turn.begin(do.Flush, program=program.number)


def flushed(turn: Turn) -> None:
    """Report the end, with what is known of a network that it failed of."""
    program = turn.node.program
    assert program is not None
    if program.serves and program.told:
        return
    report, since = _final_report(turn, program)
    if program.follows_network and report.exit_code and not report.stopped:
        turn.begin(do.ReadTrouble, program=program.number, limit=_TROUBLE_SECONDS)
    else:
        _tell_end(turn, report, since)


def trouble_read(turn: Turn, said: inputs.Input) -> None:
    """Report the end, with the trouble if there was one; the log's disk may hang."""
    assert turn.node.program is not None
    report, since = _final_report(turn, turn.node.program)
    if isinstance(said, inputs.TroubleRead):
        report = reports.with_trouble(report, said.trouble)
    _tell_end(turn, report, since)


def _tell_end(turn: Turn, report: ExitReport, since: float | None) -> None:
    """With the watch that has waited for it, or by itself where one is under way.

    The registry takes the first report of an end: one that is told just now is not overtaken.
    """
    member = turn.node.member
    if _is_told_now(turn) and not report.leaves:
        return
    if member is not None and member.held_at is not None and turn.node.ends is None:
        turn.set_program(end=(report, turn.now if since is None else since))
    else:
        reports.tell(turn, report, since=since)


def tell_by_itself(turn: Turn) -> None:
    """Report what the watch was to bring, as this node ends."""
    program = turn.node.program
    if program is not None and program.end is not None:
        report, since = program.end
        turn.set_program(end=None)
        reports.tell(turn, report, since=since)


def _final_report(turn: Turn, program: ProgramState) -> tuple[ExitReport, float | None]:
    told = turn.node.signal
    if program.ending is None:
        return reports.served_report(program, told)
    if program.left_behind and told is not None:  # the run waits for this node, not for its end
        return reports.signal_report(program.epoch, told.signal), told.at
    return reports.exit_report(program, program.ending, program.words, told)

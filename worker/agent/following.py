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
from worker.agent import inputs, reports
from worker.agent.notices import Note, notice, text_of
from worker.agent.state import IN_ORDER, Cause, Epoch, ProgramState, Turn
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


def _with_program(turn: Turn, number: int) -> tuple[Epoch, ProgramState] | None:
    """The attempt and its program, as long as something of that is there."""
    epoch = turn.node.epoch_of(number)
    if epoch is None or epoch.program is None or epoch.program.gone:
        return None
    return epoch, epoch.program


def _goes_on(turn: Turn, epoch: Epoch) -> bool:
    """Whether nobody has told the program to end."""
    return turn.node.ends is None and turn.node.signal is None and epoch.stop_at is None


# --- while it runs --------------------------------------------------------------------------------


def started(turn: Turn, number: int) -> None:
    """It runs; who was told to end it meanwhile ends it now."""
    found = _with_program(turn, number)
    if found is None:
        return
    epoch, program = found
    turn.set_program(epoch.number, started_at=turn.now)
    if program.kill:
        turn.do(do.Kill(number))
    if epoch.stop_at is not None:
        turn.do(do.Stop(number))


def seen(turn: Turn, said: inputs.ProgramSeen) -> None:
    """Take in how its processes are."""
    found = _with_program(turn, said.number)
    if found is None:
        return
    epoch, program = found
    failed = failed_rank(said.family)
    certain = certain_failure(said.family, ends_all=program.ends_all)
    turn.set_program(
        epoch.number,
        family=said.family,
        main=said.main,
        failed_at=_since(program.failed_at, failed, turn.now),
        certain_at=_since(program.certain_at, certain, turn.now),
    )
    if said.words is not None and _goes_on(turn, epoch):
        _report_ahead(turn, epoch.number, said.words)


def _since(before: float | None, failure: Failure | None, now: float) -> float | None:
    """Since when there is this failure; a launcher may have started its rank again."""
    if failure is None:
        return None
    return now if before is None else before


def look(turn: Turn) -> None:
    """See how a program is of which something may have to be said now."""
    for epoch in turn.node.epochs:
        if epoch.program is not None and min(_dues(turn, epoch), default=turn.now + 1) <= turn.now:
            turn.do(do.LookAtProgram(epoch.program.number))


def due(turn: Turn) -> list[float]:
    """When to look at the programs."""
    return [at for epoch in turn.node.epochs for at in _dues(turn, epoch)]


def _dues(turn: Turn, epoch: Epoch) -> list[float]:
    program = epoch.program
    if program is None or program.gone or program.started_at is None or not _goes_on(turn, epoch):
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


def _report_ahead(turn: Turn, number: int, words: inputs.OwnWords) -> None:
    """Say what is certain, or strange, of a program that goes on."""
    epoch = turn.node.epoch(number)
    assert epoch is not None
    assert epoch.program is not None
    program = epoch.program
    main, failed = program.main, failed_rank(program.family)
    certain = certain_failure(program.family, ends_all=program.ends_all)
    report_at = _report_at(program)
    if program.told:
        pass
    elif main is not None and main.exit_code != 0:
        if turn.now >= main.at + WORDS_SECONDS:
            turn.say(Note.MAIN_ENDED_REPORTED, code=code_words(main.exit_code))
            ending = Ending(main.exit_code, main.at, likely_cause(program.family))
            _tell_ahead(turn, epoch, ending, words)
    elif certain is not None and report_at is not None and turn.now >= report_at:
        turn.say(Note.RANK_FAILED_REPORTED, rank=certain.worker_rank)
        ending = Ending(certain.exit_code, certain.ended_at, certain)
        _tell_ahead(turn, epoch, ending, words)
    elif failed is not None and not program.warned:
        turn.set_program(number, warned=True)
        code = code_words(failed.exit_code)
        _warn(turn, number, Note.RANK_FAILED, rank=failed.worker_rank, code=code)
    late = late_to_end(program.family, turn.now)
    if late and not program.said_late:
        turn.set_program(number, said_late=True)
        ranks = f"rank{'s' * (len(late) > 1)} {listed(map(str, late))}"
        _warn(turn, number, Note.RANKS_LATE, ranks=ranks)


def _tell_ahead(turn: Turn, epoch: Epoch, ending: Ending, words: inputs.OwnWords) -> None:
    turn.set_program(epoch.number, told=True)
    report, since = reports.exit_report(epoch, ending, words, None)
    reports.tell(turn, report, since=since)


def _warn(turn: Turn, epoch: int, note: Note, **values: object) -> None:
    """Say what a person should see, here and to all."""
    said = notice(note, **values)
    turn.do(do.Say(said))
    words = printable(text_of(said), 600)
    reports.tell(turn, ProgressReport(epoch=epoch, words=words, warning=True), needed=False)


def network_said(turn: Turn, said: inputs.NetworkSaid) -> None:
    """Tell what NCCL uses; what may not be ends the run, long before anybody would notice."""
    found = _with_program(turn, said.number)
    if found is None or not _goes_on(turn, found[0]):
        return
    epoch, verdict = found[0].number, said.verdict
    note = Note.TOLD if verdict.level == "ok" else Note.WARNED
    turn.say(note, words=verdict.words)
    warning = verdict.level == "warn"
    report: Report = ProgressReport(epoch=epoch, words=verdict.words, warning=warning)
    if verdict.level == "fail":
        code = int(ExitCode.PREFLIGHT_FAILED)
        report = ExitReport(epoch=epoch, exit_code=code, by_agent=True, message=verdict.words)
    reports.tell(turn, report, needed=verdict.level == "fail")


# --- its end --------------------------------------------------------------------------------------


def stop_all(turn: Turn) -> None:
    """End every program, and what runs here for other nodes."""
    for epoch in turn.node.epochs:
        if epoch.program is None or epoch.stop_at is not None:
            continue
        turn.set_epoch(epoch.number, stop_at=turn.now)
        if epoch.program.started_at is not None and not epoch.program.gone:
            turn.do(do.Stop(epoch.program.number))
        if turn.node.rules.remote:
            turn.begin(do.CloseRemote, why=notice(_why(turn), said=_said(turn)))


def kill_all(turn: Turn) -> None:
    """End every program at once, also within its grace; one that is being started, once it runs."""
    closing = any(turn.under_way(do.CloseRemote))  # what runs for other nodes may have its grace
    for epoch in turn.node.epochs:
        if epoch.program is not None and (closing or not epoch.program.gone):
            turn.set_program(epoch.number, kill=True)
            if epoch.program.started_at is not None:
                turn.do(do.Kill(epoch.program.number))


def _why(turn: Turn) -> Note:
    ends = turn.node.ends
    in_order = ends is None or ends.cause in IN_ORDER
    return Note.RUN_ENDING if in_order else Note.AGENT_ENDING


def _said(turn: Turn) -> object:
    return turn.node.said[0] if turn.node.said else ""


def gone(turn: Turn, asked: do.Start, said: inputs.Input) -> None:
    """Nothing of it is left, or it could not be started."""
    epoch = turn.node.epoch_of(asked.number)
    assert epoch is not None
    match said:
        case inputs.ProgramGone():
            turn.set_program(epoch.number, gone=True, ending=said.ending, words=said.words)
            if said.ending is not None:
                turn.say(Note.TOLD, words=said.ending.reason)
                if said.ending.left is not None:
                    words = said.ending.left.words()
                    _warn(turn, epoch.number, Note.WARNED, words=words)
            _flush(turn, epoch.number)
        case inputs.Failed() | inputs.Broken():
            turn.set_program(epoch.number, gone=True)
            turn.end(Cause.FAULT, error=said.error)
            if (told := turn.node.signal) is not None:
                reports.tell(turn, reports.signal_report(epoch.number, told.signal), since=told.at)


def remote_closed(turn: Turn) -> None:
    """What ran here for others has ended: a node that only served has nothing more to wait for."""
    for epoch in turn.node.epochs:
        if epoch.program is not None and epoch.program.serves and epoch.program.gone:
            _flush(turn, epoch.number)


def _flush(turn: Turn, number: int) -> None:
    """Send on what the program has said before it ended: the launcher reads it before the end."""
    epoch = turn.node.epoch(number)
    assert epoch is not None
    assert epoch.program is not None
    ends = turn.node.ends
    if ends is not None and ends.cause not in IN_ORDER:
        return  # nobody takes its reports any more
    if not (epoch.program.serves and any(turn.under_way(do.CloseRemote))):
        turn.begin(do.Flush, program=epoch.program.number)


def flushed(turn: Turn, asked: do.Flush) -> None:
    """Report the end, with what is known of a network that it failed of."""
    found = turn.node.epoch_of(asked.program)
    assert found is not None
    assert found.program is not None
    if found.program.serves and found.program.told:
        return
    report, since = _final_report(turn, found)
    if found.program.follows_network and report.exit_code and not report.stopped:
        turn.begin(do.ReadTrouble, program=asked.program, limit=_TROUBLE_SECONDS)
    else:
        reports.tell(turn, report, since=since)


def trouble_read(turn: Turn, asked: do.ReadTrouble, said: inputs.Input) -> None:
    """Report the end, with the trouble if there was one; the log's disk may hang."""
    found = turn.node.epoch_of(asked.program)
    assert found is not None
    report, since = _final_report(turn, found)
    if isinstance(said, inputs.TroubleRead):
        report = reports.with_trouble(report, said.trouble)
    reports.tell(turn, report, since=since)


def _final_report(turn: Turn, epoch: Epoch) -> tuple[ExitReport, float | None]:
    assert epoch.program is not None
    if epoch.program.ending is None:
        return reports.served_report(epoch, turn.node.signal)
    return reports.exit_report(epoch, epoch.program.ending, epoch.program.words, turn.node.signal)

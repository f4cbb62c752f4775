"""What a node tells the registry, until it is taken in or nobody waits for it any more. Pure.

A report is tried again as long as the registry may come back. Once this node was told to end, or
knows the result, it is given up after a moment: its launcher may be gone as well.
"""

from __future__ import annotations

from rendezvous.wire.errors import NOT_NOW_SECONDS, RegistryError, TooManyRequests, Unavailable
from rendezvous.wire.reports import ExitReport, Report
from rendezvous.wire.words import printable
from worker.agent import inputs
from worker.agent.actions import Drop, Tell
from worker.agent.evidence import evidence_of, own_tail
from worker.agent.faults import SILENT, registry_lost
from worker.agent.notices import Note
from worker.agent.state import Cause, ProgramState, SignalTold, Turn
from worker.program.ending import Ending, signal_name

LAST_TELL_SECONDS = 3.0
"""How long a node that goes tries to tell something."""


def tell(turn: Turn, report: Report, *, since: float | None = None, needed: bool = True) -> None:
    """Report until it is taken in; `since` is when what an exit report tells of began."""
    turn.begin(Tell, report=report, began_at=turn.now, since=since, needed=needed)


def tell_once(
    turn: Turn, report: Report, *, since: float | None = None, limit: float = LAST_TELL_SECONDS
) -> None:
    """Report for a moment, as a node that goes."""
    turn.begin(
        Tell,
        report=report,
        began_at=turn.now,
        since=since,
        limit=limit,
        is_last_word=True,
    )


def answered(turn: Turn, asked: Tell, said: inputs.Input) -> None:
    """See whether it has to be told again."""
    if asked.is_last_word:
        return
    match said:
        case inputs.Late():
            _not_taken(turn, asked, SILENT)
        case inputs.Failed(error=Unavailable(told=True)):
            _not_taken(turn, asked, said.error.message, is_there=True)
        case inputs.Failed(error=RegistryError() | TooManyRequests()):
            _not_taken(turn, asked, said.error.message)
        case inputs.Failed() | inputs.Broken():
            cause = Cause.REFUSED if isinstance(said, inputs.Failed) else Cause.FAULT
            turn.end(cause, error=said.error)


def _not_taken(turn: Turn, asked: Tell, problem: str, *, is_there: bool = False) -> None:
    """Tell it again while somebody waits for it. Until when is a matter of the orphan time-out, and
    of a registry that `is_there` and cannot serve just now, of an hour."""
    node, waited = turn.node, turn.now - asked.began_at
    if (until := _given_up_at(turn, asked)) is not None and turn.now >= until:
        turn.say(Note.REPORT_GIVEN_UP, problem=problem)
        return
    is_late = waited > (NOT_NOW_SECONDS if is_there else node.rules.orphan_timeout)
    was_last = asked.is_last_try and is_late
    if until is None and was_last and not (asked.needed and _watch_decides(turn)):
        if asked.needed:
            turn.end(Cause.LOST, error=registry_lost(node.rules, waited, problem))
        return
    turn.wait_for(Note.REPORT_WAITS, problem=problem)
    turn.begin(
        Tell,
        report=asked.report,
        began_at=asked.began_at,
        since=asked.since,
        pause=True,
        needed=asked.needed,
        is_last_try=is_late,
    )


def _watch_decides(turn: Turn) -> bool:
    """Whether the registry serves no watch either: that one then knows when it is given up, unless
    this node ends, and waits for its reports alone."""
    member = turn.node.member
    if member is None or turn.node.ends is not None:
        return False
    return turn.now - member.answered_at > member.poll + turn.node.rules.answer_seconds


def _given_up_at(turn: Turn, asked: Tell) -> float | None:
    """When nobody waits for this report any more; None as long as somebody does."""
    since = turn.node.given_up_since
    return None if since is None else max(since, asked.began_at) + LAST_TELL_SECONDS


def give_up_late(turn: Turn) -> None:
    """Break off what nobody waits for any more."""
    for asked in list(turn.under_way(Tell)):
        until = _given_up_at(turn, asked)
        if not asked.is_last_word and until is not None and turn.now >= until:
            turn.close(asked.number)
            turn.do(Drop(asked.number))
            turn.say(Note.REPORT_GIVEN_UP, problem=SILENT)


def due(turn: Turn) -> list[float]:
    """When reports are given up."""
    tells = [tell for tell in turn.under_way(Tell) if not tell.is_last_word]
    return [until for t in tells if (until := _given_up_at(turn, t)) is not None]


# --- how a program ended --------------------------------------------------------------------------


def exit_report(
    program: ProgramState, ending: Ending, words: inputs.OwnWords, told: SignalTold | None
) -> tuple[ExitReport, float]:
    """The report of a program's end, and when what it tells of began.

    What came first counts: a program that failed by itself is not excused by a stop, nor by a
    signal, that came before it was reported; and of one that a signal has ended, the signal is the
    beginning, however long its grace was.

    Args:
        program: As it is known.
        ending: How it ended, or will.
        words: What it said.
        told: The signal that ends this node, if one came.
    """
    first, stop_at, began_at = ending.failed_rank, program.stop_at, program.started_at
    code = first.exit_code if first and ending.exit_code else ending.exit_code
    message, since = ending.more_than_code, ending.began_to_fail_at
    signalled = (
        told is not None
        and first is None
        and told.at <= ending.ended_at
        and (stop_at is None or told.at <= stop_at)
    )
    was_stopped = stop_at is not None and stop_at <= ending.ended_at
    if signalled:
        assert told is not None
        code, message, since = 128 + told.signal, words_of_signal(told.signal), told.at
    rank = first.rank if first else words.rank
    stopped = was_stopped and first is None and not signalled
    evidence = evidence_of(program, words, since, ended_well=code == 0 and not stopped)
    report = ExitReport(
        epoch=program.epoch,
        exit_code=code,
        ran_seconds=0.0 if began_at is None else max(0.0, ending.ended_at - began_at),
        rank=rank,
        stopped=stopped,
        fenced=program.fenced,
        leaves=told is not None,
        progress=words.progress,
        message=printable(message, 600),
        tail=own_tail(words, rank),
        log=printable(words.log, 600),
        evidence=evidence,
        worlds=list(words.worlds),
    )
    return report, since


def with_trouble(report: ExitReport, trouble: str) -> ExitReport:
    """The report of a program that failed, with what stood between it and its network."""
    words = "; ".join(filter(None, (report.message, trouble)))
    return report.model_copy(update={"message": printable(words, 600)})


def served_report(
    program: ProgramState, told: SignalTold | None
) -> tuple[ExitReport, float | None]:
    """The report of a node that was there for the program of node 0; what came first counts, unless
    the run has gone on since."""
    stop_at = None if program.left_behind else program.stop_at
    if told is None or (stop_at is not None and stop_at < told.at):
        report = ExitReport(epoch=program.epoch, exit_code=0, stopped=True, fenced=program.fenced)
        return report.model_copy(update={"leaves": told is not None}), None
    report = signal_report(program.epoch, told.signal).model_copy(update={"by_agent": True})
    return report, told.at


def signal_report(epoch: int, signal: int) -> ExitReport:
    """The report of a node that was told to end, and has no program."""
    words = words_of_signal(signal)
    return ExitReport(epoch=epoch, exit_code=128 + signal, leaves=True, message=words)


def words_of_signal(signal: int) -> str:
    """What ended a node, and with it its program."""
    return f"its agent received {signal_name(signal)}"

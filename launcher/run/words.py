"""The sentences of a launch, made last, from the values that its machines say."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from launcher.run import actions as do
from launcher.run import sentences
from launcher.run.values import (
    SIGNALS,
    ChildLost,
    EndedAtOnce,
    EndedBeforeBegun,
    Failure,
    Key,
    NotCreated,
    Preempted,
    Refusal,
    Silent,
    StorageLost,
    Verdict,
    Why,
)
from launcher.show.checks import lines_of, warning_lines
from launcher.show.epochs import epoch_words
from rendezvous.frozen import frozen
from rendezvous.wire.errors import (
    PREEMPTED_HINT,
    Cause,
    ExitCode,
    RegistryLost,
    RunCancelled,
    StorageFull,
)
from rendezvous.wire.run import Result, SlotState
from rendezvous.wire.words import listed, printable, reason_clause, slots_text
from worker.program.ending import signal_name

_BEFORE = "run '{}' was stopped before it started"
_SENDERS: dict[int, str] = {signal.SIGINT: "Ctrl-C", signal.SIGHUP: "SIGHUP (a closed terminal)"}
_MOST_REASON = 300
_MOST_SAYS = 300
_MOST_DETAIL = 600


@frozen
class Names:
    """What the sentences name.

    Attributes:
        run: The run id.
        ledger: The ledger's path.
        log: The log of the registry's process.
        former_log: The same of the former launch.
        lasts: Whether `rdzv status` can show afterwards what is left out.
        of: The name of a worker run.
        start_words: The command with which a person starts a worker run; empty where there is none.
        end_words: The command with which a person ends a worker run; empty where there is none.
    """

    run: str
    ledger: Path
    log: Path
    former_log: Path
    lasts: bool
    of: Callable[[Key], str]
    start_words: Callable[[Key, str], str]
    end_words: Callable[[Key, str], str]


def lines(said: sentences.Sentence, names: Names) -> Sequence[str]:
    """A sentence as lines: mostly one."""
    match said:
        case sentences.Warnings(report=report):
            return warning_lines(report, lasts=names.lasts)
        case sentences.Findings(report=report):
            return lines_of(report, lasts=names.lasts)
        case sentences.EpochEnded(end=end):
            # A restart that was requested has been announced already.
            return [f"{epoch_words(end)}; {end.then}" if end.code else epoch_words(end)]
        case sentences.MayBeLeft():
            return [_may_be_left(said, names)]
        case sentences.WaitsForOlder(key=key):
            waits = f"the next worker run of slot {key.slot} waits until its program is surely over"
            return [f"{_older(said, names)}; {waits}"]
        case sentences.Requeued(restarts=restarts, said=what):
            first, *more = lines(what, names)
            return [f"the job was requeued (restart {restarts}): {first}", *more]
        case sentences.BeginsAnew():
            return [_begins_anew(said, names)]
        case sentences.LostAfterResult(failure=failure):
            return [f"the registry was lost after the run had ended: {_error(failure, names)[2]}"]
        case _:
            return [_sentence(said, names)]


def _sentence(said: sentences.Sentence, names: Names) -> str:
    match said:
        case sentences.EndsRun(signal=number, grace=grace):
            return _ends_run(number, grace)
        case sentences.EndsAtOnce(signal=number, again=again):
            who = _SENDERS.get(number, _signal(number))
            return f"{who}{' again' * again}: killing all nodes now"
        case sentences.RegistryTrouble(message=message, hint=hint):
            return f"{message}; {hint}" if hint else message
        case sentences.RegistryNotNow(message=message):
            return f"the registry answers, but cannot serve run '{names.run}' just now: {message}"
        case sentences.StandingWaits(message=message):
            return f"the standing registry has not created the run yet: {message}"
        case sentences.LedgerUnwritable(error=error):
            return f"{names.ledger} cannot be written, so rdzv submits nothing: {error}"
        case sentences.DidNotLeave(slots=slots, seconds=seconds):
            return f"{slots_text(sorted(slots))} did not end within {seconds:.0f} s"
        case sentences.WaitsForOthers(slots=slots, seconds=seconds):
            have = "have" if len(slots) > 1 else "has"
            return (
                f"waiting for at most {seconds:.0f} s to send the result to "
                f"{slots_text(list(slots))}, which {have} not joined yet"
            )
        case sentences.WaitsForRuns(slots=slots):
            return (
                f"waiting for the worker runs of {slots_text(list(slots))} to end, as their "
                "scheduler reports; press Ctrl-C to stop waiting"
            )
        case (
            sentences.AvoidsHosts()
            | sentences.CannotAvoid()
            | sentences.NoOtherHost()
            | sentences.StartsElsewhere()
            | sentences.StartsAgainOn()
        ):
            return _of_hosts(said)
        case sentences.StartsByHand(key=key, handle=handle):
            command = names.start_words(key, handle)
            return f"copy slot {key.slot}'s script to its machine, and start it there: {command}"
        case sentences.ResultUnwritten(error=error):
            return error
        case sentences.Resumes(launch_id=launch_id, reason=reason):
            return f"resuming launch {launch_id}: {reason}"
        case sentences.PortKept(given=given, kept=kept):
            return f"--port {given} has no effect: the workers of this launch use port {kept}"
        case sentences.FormerStays(launch_id=launch_id):
            return f"launch {launch_id}, which may still be on the registry, is not changed"
        case sentences.EndsFormer(phase=phase, why=why):
            was = f"the previous launch of run '{names.run}' was {phase}"
            return (
                f"{was}, and {cancel_reason(why, names)}: rdzv ends what is left of it and "
                "starts a new launch"
            )
        case sentences.EndsLeft(count=count):
            return f"{_runs_left(count)}: ending them"
        case sentences.KeepsLeft(count=count):
            return f"{_runs_left(count)}; end them with 'rdzv cancel {names.run}'"
        case sentences.UnknownLeft(name=name, error=error):
            return f"worker run {name} may still exist: {error}"
    raise AssertionError(f"no words for {said}")


def _of_hosts(said: sentences.OfHosts) -> str:
    match said:
        case sentences.CannotAvoid(key=key, hosts=()):
            return f"slot {key.slot} may start on the same host again: its scheduler names no hosts"
        case sentences.CannotAvoid(key=key, hosts=hosts):
            cannot = "its worker spec has no <<AVOID>>"
            return f"slot {key.slot} may start on {listed(hosts)} again: {cannot}"
        case sentences.AvoidsHosts(key=key, hosts=hosts):
            return f"slot {key.slot}: rdzv asks for another host than {listed(hosts)}"
        case sentences.StartsElsewhere(key=key, host=host, former=former):
            return f"slot {key.slot} starts on {host}, not on {former}"
        case sentences.StartsAgainOn(slot=slot, host=host):
            return f"slot {slot} starts on {host} again: no other host of the list is free"
        case sentences.NoOtherHost(slot=slot, hosts=hosts, words=words):
            if words:
                why = f"with other hosts than {listed(hosts)} only, it was refused ({words})"
            else:
                why = f"another host than {listed(hosts)} has not come free within 60 s"
            return f"slot {slot} may start on any host: {why}"


def _ends_run(number: int, grace: float | None) -> str:
    """What a first signal leads to, and how long that takes; no second hang-up hurries it."""
    who = _SENDERS.get(number, _signal(number))
    if grace is None:
        return f"{who}: stopping before anything has started"
    if number == signal.SIGINT:
        return f"Stopping all nodes (up to {grace:g} s). Press Ctrl-C again to kill them now."
    again = "" if number == signal.SIGHUP else f". A second {who} kills them now."
    return f"{who}: stopping all nodes (up to {grace:g} s){again}"


def _signal(number: int) -> str:
    return signal.Signals(number).name


def _begins_anew(said: sentences.BeginsAnew, names: Names) -> str:
    match said.why:
        case Why.OTHER_HOST:
            return (
                f"run '{names.run}' was launched on {said.detail}; there is nothing to resume on "
                "this host: starting a new launch"
            )
        case Why.PORT_HELD:
            return f"the previous launch cannot be resumed: {said.detail}"
        case Why.OVER:
            how = f": {said.detail}" if said.detail else ""
            return f"the previous launch has ended{how}; starting a new launch"
        case Why.NOTHING_FORMER:
            return (
                f"{names.ledger.parent} holds no previous launch: starting a new launch; set "
                "RDZV_STATE_DIR to a folder that all nodes share"
            )
        case _:
            return (
                "the previous launch cannot be resumed: its registry does not start or does not "
                f"know it (see {names.former_log}); starting a new launch"
            )


def _runs_left(count: int) -> str:
    runs = "worker run" if count == 1 else "worker runs"
    return f"{count} {runs} of the previous launch may still exist"


def _older(said: sentences.WaitsForOlder, names: Names) -> str:
    if said.stand.how is sentences.StandKind.STATE and said.stand.state is SlotState.ENDED:
        return f"what was started by hand as {_who(said, names)} may still run"
    return _may_be_left(said, names)


def _who(said: sentences.MayBeLeft | sentences.WaitsForOlder, names: Names) -> str:
    known = f", id {said.handle}" if said.handle else ""
    return f"worker run {names.of(said.key)} (slot {said.key.slot}{known})"


def _may_be_left(said: sentences.MayBeLeft | sentences.WaitsForOlder, names: Names) -> str:
    command = names.end_words(said.key, said.handle)
    how = "" if said.handle else "; look for a run with that name"
    if command:
        how = f"; end it with: {command}"
    return f"{_who(said, names)} may still exist: {_stand(said.stand)}{how}"


def _stand(stand: sentences.Stand) -> str:
    match stand.how:
        case sentences.StandKind.NOT_LISTED:
            return "it is not listed"
        case sentences.StandKind.CANNOT_LOOK:
            return "the scheduler did not answer its submission and cannot look it up"
        case sentences.StandKind.SILENT:
            return stand.detail
        case sentences.StandKind.STATE:
            return f"it is {stand.state}" + (f": {stand.detail}" if stand.detail else "")


def detail_of(news: do.News) -> str:
    """What the registry is told of a worker run, in words."""
    last = f"its last line: {news.last_line!r}" if news.last_line else ""
    return printable("; ".join(filter(None, (news.detail, last))), _MOST_DETAIL)


def cancel_reason(reason: do.CancelReason, names: Names) -> str:
    """Why a run is cancelled, for its nodes."""
    match reason:
        case do.BySignal(number=number):
            return f"{_signal(number)} at the launcher"
        case do.ByFailure(failure=failure):
            words = failure if isinstance(failure, str) else _error(failure, names)[2]
            return f"its launcher failed: {words}"[:_MOST_REASON]
        case Why.RUNNING:
            return "its launcher had ended"
        case _:
            return "its COMMAND or options were different"


# --- how it ended


def result_of(verdict: Verdict, names: Names) -> Result:
    """The result of the run, with the launcher's exit code."""
    result = _result_of(verdict, names)
    if verdict.signal is None or result.status != "cancelled":
        return result
    message, by_signal = result.message, do.BySignal(verdict.signal)
    if verdict.signal == signal.SIGINT:
        stopped = f"you stopped run '{names.run}' with Ctrl-C"
        why = reason_clause(cancel_reason(by_signal, names))
        message = {
            f"run '{names.run}' was cancelled{why}": stopped,
            _BEFORE.format(names.run): f"{stopped}, before it started",
        }.get(message, message)
    exit_code = SIGNALS + verdict.signal
    return result.model_copy(update={"exit_code": exit_code, "message": message})


def _result_of(verdict: Verdict, names: Names) -> Result:
    """The registry's, with what the launcher knows, or one made of why it could not go on."""
    result = verdict.result
    if result is None:
        assert verdict.failure is not None
        code, exit_code, message, hint = _error(verdict.failure, names)
        return Result(
            status="cancelled" if code == RunCancelled.code else "failed",
            exit_code=int(exit_code),
            code=code,
            message=message,
            hint=hint,
            epochs=list(verdict.epochs),
        )
    if verdict.preempted is not None:
        return _preempted(result, verdict.preempted)
    if verdict.hint and not result.hint:
        result = result.model_copy(update={"hint": printable(verdict.hint, _MOST_DETAIL)})
    says = printable(verdict.says, _MOST_SAYS)
    if not says or says in result.message:
        return result
    message = f"{result.message}; the scheduler reports: {says}"
    return result.model_copy(update={"message": message})


def _preempted(result: Result, by: Preempted) -> Result:
    """The registry did not know it yet: schedulers say it late."""
    whose = "its worker run" if by.slot == result.slot else f"the worker run of slot {by.slot}"
    words = printable(by.words, _MOST_SAYS)
    changed = {
        "code": Cause.PREEMPTED,
        "cause": Cause.PREEMPTED,
        "exit_code": int(Cause.PREEMPTED.exit_code),
        "exit_code_of": "rdzv",
        "message": f"{result.message}; {PurePath(by.scheduler).stem} preempted {whose}: {words}",
        "hint": PREEMPTED_HINT,
    }
    return result.model_copy(update=changed)


def _error(failure: Failure, names: Names) -> tuple[str, int, str, str]:
    """Code, exit code, message and hint."""
    lost = RegistryLost.code, ExitCode.REGISTRY_LOST
    cancelled = RunCancelled.code, ExitCode.CANCELLED
    run, see = f"run '{names.run}'", f"see {names.log}"
    match failure:
        case NotCreated(seconds=seconds, trouble=trouble, standing=True):
            how = f"the standing registry did not create the run within {seconds:.0f} s"
            return (*lost, f"{how}: {trouble.message}", trouble.hint)
        case NotCreated(seconds=seconds, trouble=trouble):
            how = f"the registry did not start within {seconds:.0f} s"
            return (*lost, f"{how}: {trouble.message}", see)
        case Silent(trouble=trouble):
            return (
                *lost,
                f"the registry of {run} does not answer: {trouble.message}",
                trouble.hint,
            )
        case ChildLost(starts=starts, seconds=seconds, last_words=words, code=number):
            how = f"the registry ended {starts} times within {seconds:.0f} s"
            how += f" ({signal_name(-number)})" if number < 0 else ""
            room = "its state folder may have no room: see df and the quota there; "
            see = (room if number == -signal.SIGBUS else "") + see
            return (*lost, f"{how}; its last output: {words}", see)
        case StorageLost(seconds=seconds, message=message, hint=hint):
            code = StorageFull.code, ExitCode.REGISTRY_LOST
            return (*code, f"for {seconds:.0f} s, {message}", hint)
        case EndedBeforeBegun():
            return (*cancelled, _BEFORE.format(names.run), "")
        case EndedAtOnce(unheard_seconds=None):
            return (*cancelled, f"{run} was ended immediately by a second signal", "")
        case EndedAtOnce(unheard_seconds=unheard):
            how = f"its registry did not answer within {unheard:.0f} s"
            return (*cancelled, f"{run} was ended immediately: {how}", "")
        case Refusal(trouble=trouble):
            return trouble.code, trouble.exit_code, trouble.message, trouble.hint

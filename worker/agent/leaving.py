"""How a node ends: what is under way is finished or broken off, and nothing of it is left. Pure.

    programs end -> their end is reported -> socket closed -> own fault told -> last words sent
        -> leave told -> connections closed -> hosts file put back -> exit

The hosts file is put back last, and whatever failed before.
"""

from __future__ import annotations

import signal as signals
from dataclasses import replace

from rendezvous.wire.errors import Fenced, RegistryError, RunOver
from rendezvous.wire.reports import AckReport, LeaveReport, RefuseReport, Report
from rendezvous.wire.verify import ProbeReport
from worker.agent import actions as do
from worker.agent import departing, following, inputs, last_words, reports
from worker.agent.faults import fault_report
from worker.agent.notices import Note
from worker.agent.state import IN_ORDER, Cause, Ends, SignalTold, Step, Turn
from worker.program.ending import signal_name

_PASSED = (signals.SIGUSR1, signals.SIGUSR2)
_OF_PROGRAMS = (do.Start, do.CloseRemote, do.Flush, do.ReadTrouble)
_OF_ATTEMPTS = (ProbeReport, AckReport, RefuseReport)
_STEPS = list(Step)
_TOGETHER_SECONDS = 0.1


def signal_came(turn: Turn, said: inputs.SignalCame) -> None:
    """End this node, or pass the signal on; a second one ends everything at once.

    Not one that nobody sends twice in a hurry: a terminal's end, and that of the launcher. That one
    may be either of two that come together.
    """
    if said.signal in _PASSED:
        for start in turn.under_way(do.Start):
            turn.do(do.PassSignal(start.number, said.signal))
        return
    at_once = said.signal == signals.SIGQUIT
    lost_parent = turn.node.parent_lives and not said.parent_lives
    turn.set(parent_lives=turn.node.parent_lives and said.parent_lives)
    if (first := turn.node.signal) is not None:
        if first.of_launcher and turn.now - first.at <= _TOGETHER_SECONDS:
            turn.set(signal=replace(first, of_launcher=False))
            lost_parent = True
        in_a_hurry = not lost_parent and signals.SIGHUP not in (first.signal, said.signal)
        if at_once or in_a_hurry:
            following.kill_all(turn)
        return
    told = SignalTold(said.signal, turn.now, of_launcher=lost_parent)
    turn.set(signal=told)
    turn.say(Note.SIGNAL, signal=signal_name(said.signal))
    if at_once:
        following.kill_all(turn)
    if turn.node.ends is None:
        turn.end(Cause.SIGNAL, code=128 + said.signal)
        _tell_signal(turn, told)


def exhausted(turn: Turn, said: inputs.Exhausted) -> None:
    """End this node by name while it can: the kernel would end it without a word."""
    if turn.node.ends is None:
        turn.end(Cause.FAULT, error=said.error)


def _tell_signal(turn: Turn, told: SignalTold) -> None:
    """Say why this node goes, where no program's end will say it.

    One that serves says it first: node 0's program fails of its end, and would be taken for the
    cause. Of one whose program runs the others are to hear it, so that all stop together.
    """
    program = turn.node.program
    if program is None or following.is_over(turn, program):
        number = turn.node.agreed.table.epoch if turn.node.agreed else 0
        _last_word(turn, reports.signal_report(number, told.signal), None)
    elif program.serves and not program.gone:
        turn.set_program(told=True)
        _last_word(turn, *reports.served_report(program, told))
    elif told.signal != signals.SIGQUIT and _may_speak(turn):
        departing.tell_signal(turn, told)


def _last_word(turn: Turn, report: Report, since: float | None) -> None:
    if _may_speak(turn):
        reports.tell_once(turn, report, since=since)


def _may_speak(turn: Turn) -> bool:
    """Whether the registry knows this node, and may be there.

    A launcher that comes back takes up its launch as it was, this node not counted as failed.
    """
    node = turn.node
    is_lost = node.ends is not None and node.ends.cause is Cause.LOST
    return node.member is not None and node.parent_lives and not is_lost


def go_on(turn: Turn) -> None:
    """Do what can be done now of the end."""
    if turn.node.ends is None or turn.node.ends.step is not None:
        return
    if turn.node.ends.cause not in IN_ORDER:
        _break_off(turn)
    turn.drop(_is_of_attempt)
    if any(tell.is_last_word for tell in turn.under_way(do.Tell)):
        return
    following.stop_all(turn)
    following.tell_by_itself(turn)
    reported = not any(tell.needed for tell in turn.under_way(do.Tell))
    if reported and not any(turn.under_way(*_OF_PROGRAMS)):
        _leave(turn)


def _is_of_attempt(effect: do.Effect) -> bool:
    """Whether it is for what this node has to say of its peers, or of a table."""
    is_report = isinstance(effect, do.Tell) and isinstance(effect.report, _OF_ATTEMPTS)
    return is_report or isinstance(effect, do.Visit)


def _break_off(turn: Turn) -> None:
    """Drop what nobody waits for; what writes the hosts file cannot be, and its end is awaited."""
    turn.drop(lambda effect: not isinstance(effect, (do.Arm, *_OF_PROGRAMS)))


def _leave(turn: Turn) -> None:
    """Nothing runs any more, and all is reported that can be."""
    _break_off(turn)
    if (known := turn.node.result) is not None:
        if known.result.command_word is not None:
            turn.do(do.ShowWord(known.result.command_word))
        turn.say(Note.RUN_OVER, run=turn.node.rules.run, message=known.result.message)
    turn.do(do.StopListening())
    _at(turn, Step.SOCKET)


def _at(turn: Turn, step: Step) -> None:
    """Do this step, or the next one that there is something to do for."""
    ends = turn.node.ends
    assert ends is not None
    turn.set(ends=replace(ends, step=step, step_at=turn.now))
    match step:
        case Step.SOCKET:
            turn.begin(do.CloseSocket)
        case Step.FAULT if ends.error and _is_own_fault(ends) and _may_speak(turn):
            epoch = turn.node.agreed.table.epoch if turn.node.agreed else 0
            reports.tell_once(turn, fault_report(ends.error, epoch), since=ends.at)
        case Step.WORDS if _may_speak(turn) and last_words.begin_at_end(turn):
            pass
        case Step.LEAVE if _may_speak(turn):
            reports.tell_once(turn, LeaveReport())
        case Step.CLIENT:
            turn.begin(do.CloseClient)
        case Step.HOSTS if turn.node.rules.hosts_file:
            pass  # `put_hosts_back` looks at the end of each step of the machine
        case Step.OVER:
            turn.do(do.End(ends.code, ends.error))
        case _:
            _at(turn, _after(step))


def _is_own_fault(ends: Ends) -> bool:
    """Whether nobody but this node knows what it ends of."""
    is_known = isinstance(ends.error, Fenced | RunOver | RegistryError)
    return ends.cause in (Cause.FAULT, Cause.REFUSED) and not is_known


def _after(step: Step) -> Step:
    return _STEPS[_STEPS.index(step) + 1]


def put_hosts_back(turn: Turn) -> None:
    """Take this node's names out of the hosts file, once no thread writes them any more."""
    ends = turn.node.ends
    if ends is None or ends.step is not Step.HOSTS or any(turn.under_way(do.RemoveHosts)):
        return
    left = ends.step_at + turn.node.rules.hosts_seconds - turn.now
    if left <= 0:
        _hosts_hang(turn)
    elif not any(turn.under_way(do.Arm)):
        turn.begin(do.RemoveHosts, limit=left)


def _hosts_hang(turn: Turn) -> None:
    turn.say(
        Note.HOSTS_HANG, file=turn.node.rules.hosts_file, seconds=turn.node.rules.hosts_seconds
    )
    _at(turn, Step.OVER)


def due(turn: Turn) -> list[float]:
    """When the hosts file is given up."""
    ends = turn.node.ends
    if ends is None or ends.step is not Step.HOSTS or not any(turn.under_way(do.Arm)):
        return []
    return [ends.step_at + turn.node.rules.hosts_seconds]


def answered(turn: Turn, asked: do.Effect, said: inputs.Input) -> None:
    """One of the steps is done, as well as it could be."""
    ends = turn.node.ends
    if ends is None or ends.step is None:
        return
    if isinstance(asked, do.RemoveHosts):
        match said:
            case inputs.Late():
                _hosts_hang(turn)
                return
            case inputs.Failed(error=error):
                file, problem = turn.node.rules.hosts_file, error.message
                turn.say(Note.HOSTS_NOT_BACK, file=file, problem=problem)
            case inputs.Broken(error=exception):
                file, problem = turn.node.rules.hosts_file, repr(exception)
                turn.say(Note.HOSTS_NOT_BACK, file=file, problem=problem)
    _at(turn, _after(ends.step))

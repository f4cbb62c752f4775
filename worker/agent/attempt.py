"""One attempt at a table, from the probes to the go: what a node does at each news. Pure.

    verifying: visit the peers -> report      arming: arm -> acknowledge or refuse      running: go

Nothing that belongs to an attempt outlives it, but a program that takes its time to end: nothing is
armed for before it has, so that an acknowledgement says that nothing of it is left. One table is
armed for at a time: a thread that writes the hosts file cannot be broken off, and the next one
waits for it.
"""

from __future__ import annotations

from dataclasses import replace

from rendezvous.wire.errors import ExitCode
from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import NO_RESTARTS, Phase, Result
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import ProbePlan, ProbeReport
from rendezvous.wire.watch import NodeView
from worker.agent import actions as do
from worker.agent import departing, fencing, following, inputs, last_words, reports, viewing
from worker.agent.faults import not_acknowledged, port_taken
from worker.agent.notices import Note
from worker.agent.state import Agreed, Cause, Epoch, ProgramState, ResultKnown, Turn

_FAILURES_SAID = 8


def take_in(turn: Turn, view: NodeView) -> None:
    """Do what the news asks of this node."""
    if view.result is not None:
        _result_known(turn, view, view.result)
    elif turn.node.rules.slot in view.retired:
        _released(turn, view)
    if turn.node.ends is not None:
        return
    # The report of visits that the run no longer waits for would come too late.
    verified = view.epoch if view.phase is Phase.VERIFYING else None
    turn.drop(lambda effect: isinstance(effect, do.Visit) and effect.epoch != verified)
    _leave_behind(turn, view)
    if view.phase is Phase.RUNNING:
        turn.set_member(stands_by=stands_by(turn, view))
    if turn.node.rules.slot in view.released:
        if view.phase is Phase.RUNNING:  # it is a spare until the go
            _released(turn, view)
    elif view.phase is Phase.VERIFYING and view.plan is not None:
        _visit(turn, view.epoch, view.plan)
    elif view.phase is Phase.ARMING and view.table is not None:
        _arm(turn, view, view.table)
    elif view.phase is Phase.RUNNING and view.stop:
        departing.show(turn, view)
        following.stop_all(turn)
        if _may_start_again(view):
            _begin_early(turn)
    elif view.phase is Phase.RUNNING and not stands_by(turn, view):
        _go(turn, view)


def stands_by(turn: Turn, view: NodeView) -> bool:
    """Whether the run goes on without this node, which stays to take the place of a lost one: it
    was never asked to arm for this table. Each table has an epoch of its own: where this node has
    armed for one of this epoch, another one is nobody's plan."""
    node, epoch, agreed = turn.node, turn.node.epoch, turn.node.agreed
    if node.member is None or node.member.fence_timeout is None:
        return False
    if view.phase is not Phase.RUNNING or node.rules.slot in (*view.released, *view.retired):
        return False
    if agreed is not None and agreed.table.epoch == view.epoch:
        return False
    return epoch is None or view.digest not in (epoch.digest, epoch.armed_for)


def _epoch(turn: Turn, number: int) -> Epoch:
    """The attempt with this number; the one before it is over."""
    known = turn.node.epoch
    return known if known is not None and known.number == number else Epoch(number)


def _leave_behind(turn: Turn, view: NodeView) -> None:
    """End a program whose epoch the run has left; it may have missed that it was told to stop."""
    program = turn.node.program
    if program is None or program.left_behind:
        return
    if view.phase is not Phase.RUNNING or view.epoch > program.epoch:
        facts = view.restarts or NO_RESTARTS
        repeats = facts.cold and not program.cold
        failed = repeats or facts.restarts > program.restarts
        turn.set_program(left_behind=True, epoch_failed=failed)
        following.stop_all(turn)
        _begin_early(turn, cold=repeats)


def _may_start_again(view: NodeView) -> bool:
    """Whether programs that are being stopped may be followed by others, as far as is known."""
    facts = view.restarts
    if facts is None or facts.outlives_nodes:
        return facts is not None
    return view.notice is None and facts.restarts < facts.max_restarts


def _begin_early(turn: Turn, *, cold: bool = False) -> None:
    """Begin with the launcher of a program that may follow, while this one ends: once, but that
    another one is needed where nothing is forked any more."""
    program = turn.node.program
    if turn.node.rules.early and program is not None and (cold or not program.followed):
        turn.set_program(followed=True)
        turn.do(do.StartEarly(cold))


def go_on(turn: Turn) -> None:
    """Do what waited for a program of an epoch before, or for what was begun for another table."""
    program = turn.node.program
    if program is not None and program.left_behind and following.is_over(turn, program):
        last_words.begin_between(turn, program)
        turn.set(program=None)
    _arm_next(turn)


# --- verifying ------------------------------------------------------------------------------------


def _visit(turn: Turn, number: int, plan: ProbePlan) -> None:
    """Visit this node's share of its peers, beside the watch; once in each epoch."""
    epoch = _epoch(turn, number)
    if not epoch.visited:
        turn.set(epoch=replace(epoch, visited=True))
        if turn.node.starts:
            turn.begin(do.Listen, again=True)
        turn.begin(do.Visit, epoch=number, plan=plan)


def visited(turn: Turn, asked: do.Visit, said: inputs.Input) -> None:
    """Report what the visits have shown."""
    match said:
        case inputs.Visited():
            _say_visits(turn, asked.plan, said)
            reports.tell(turn, ProbeReport(epoch=asked.epoch, pairs=list(said.pairs)))
        case inputs.Failed() | inputs.Broken():
            turn.end(Cause.FAULT, error=said.error)


def listens_again(turn: Turn, said: inputs.Input) -> None:
    """A node that cannot says so: its peers would find nobody, and blame the network."""
    match said:
        case inputs.Listening(port=None):
            turn.end(Cause.FAULT, error=port_taken(said.problem))
        case inputs.Failed() | inputs.Broken():
            turn.end(Cause.FAULT, error=said.error)


def _say_visits(turn: Turn, plan: ProbePlan, said: inputs.Visited) -> None:
    """One line for all, and one for each of the first failures: the registry has them all. A
    node without peers has nothing to say."""
    failed = [pair for pair in said.pairs if pair.outcome != "ok"]
    if said.pairs:
        turn.say(
            Note.PEERS_ANSWER,
            good=len(said.pairs) - len(failed),
            all=len(said.pairs),
            network=plan.network,
            seconds=said.seconds,
        )
    peers = {peer.slot: peer for peer in plan.peers}
    for pair in failed[:_FAILURES_SAID]:
        peer = peers[pair.slot]
        turn.say(
            Note.PEER_FAILED,
            slot=peer.slot,
            hostname=peer.hostname,
            address=peer.address,
            port=peer.probe_port,
            outcome=pair.outcome,
            detail=pair.detail,
        )


# --- arming ---------------------------------------------------------------------------------------


def _arm(turn: Turn, view: NodeView, table: EndpointTable) -> None:
    """Arm for a table: once, and not before what was begun for another one has ended."""
    epoch, digest = _epoch(turn, view.epoch), view.digest
    if digest not in (epoch.armed_for, epoch.digest):
        facts = view.restarts or NO_RESTARTS
        turn.set(epoch=replace(epoch, table=table, digest=digest, restarts=facts))
        go_on(turn)


def _arm_next(turn: Turn) -> None:
    """Begin with the newest table that waits, if none is being armed for and no program runs."""
    if turn.node.ends is not None or turn.node.program or any(turn.under_way(do.Arm)):
        return
    epoch = turn.node.epoch
    if epoch is None or epoch.table is None or turn.node.member is None:
        return
    if turn.node.member.lacks:  # nothing starts without the sealed variables
        return
    turn.set(epoch=replace(epoch, table=None, digest="", armed_for=epoch.digest))
    turn.begin(
        do.Arm,
        table=epoch.table,
        digest=epoch.digest,
        former=turn.node.agreed.table if turn.node.agreed else None,
        offered=turn.node.member.offered,
        restarts=epoch.restarts,
        of_generations=turn.node.member.fence_timeout is not None,
    )


def armed(turn: Turn, asked: do.Arm, said: inputs.Input) -> None:
    """Tell the registry whether this node can start on the table."""
    epoch = asked.table.epoch
    ends = turn.node.ends is not None
    match said:
        case inputs.Armed():
            turn.set(agreed=Agreed(asked.digest, asked.table, said.contract, said.warm))
            for words in said.contract.notes:
                turn.say(Note.TOLD, words=words)
            if not ends:
                ack = AckReport(epoch=epoch, digest=asked.digest, warm=said.warm)
                _acknowledge(turn, ack)
        case inputs.NotArmed():
            if said.refusal.code == "bad_table":  # whoever made it may not pass it on
                turn.say(Note.TABLE_REFUSED, epoch=epoch, problem=said.refusal.reason)
            if not ends:
                reports.tell(turn, said.refusal)
        case inputs.Failed() | inputs.Broken():
            turn.end(Cause.FAULT, error=said.error)


def _acknowledge(turn: Turn, ack: AckReport) -> None:
    """With the watch that has waited for it, or by itself where one is under way."""
    member, epoch = turn.node.member, turn.node.epoch
    if member is None or member.held_at is None:
        reports.tell(turn, ack)
    elif epoch is not None and epoch.number == ack.epoch:
        turn.set(epoch=replace(epoch, ack=ack))


# --- the go ---------------------------------------------------------------------------------------


def _result_known(turn: Turn, view: NodeView, result: Result) -> None:
    """The run is over; a node that it went without is not concerned by how."""
    if turn.node.result is not None:
        return
    turn.set(result=ResultKnown(result, turn.now))
    if turn.node.rules.slot in (*view.released, *view.retired):
        _released(turn, view)
    elif _stood_by(turn, view):
        _end_well(turn)
    else:
        turn.end(Cause.RESULT, code=result.exit_code)


def _stood_by(turn: Turn, view: NodeView) -> bool:
    """Whether the run had programs, and none of the newest ones here."""
    node, facts = turn.node, view.restarts or NO_RESTARTS
    if node.member is None or node.member.fence_timeout is None:
        return False
    return node.member.stands_by or (node.starts == 0 and bool(facts.last_failure))


def _released(turn: Turn, view: NodeView) -> None:
    """The run goes without this node; say why."""
    _end_well(turn)
    cause = view.why_released.get(turn.node.rules.slot)
    if cause is None:
        turn.say(Note.RELEASED_UNNEEDED)
    else:
        turn.say(Note.RELEASED, cause=cause)


def _end_well(turn: Turn) -> None:
    turn.end(Cause.RELEASED, code=int(ExitCode.OK))


def _go(turn: Turn, view: NodeView) -> None:
    """Start on the table that was acknowledged, and on no other."""
    if turn.node.program is not None and turn.node.program.epoch == view.epoch:
        departing.show(turn, view)
        return
    facts = view.restarts or NO_RESTARTS
    if not facts.max_restarts and not facts.outlives_nodes:
        turn.do(do.StopListening())  # nodes that may start again may have to prove each other again
    agreed = turn.node.agreed
    if agreed is None or agreed.digest != view.digest or turn.node.program is not None:
        turn.end(Cause.FAULT, error=not_acknowledged(view.digest))
        return
    if fencing.is_too_late(turn):
        fencing.not_begun(turn, view.epoch)
        return
    fencing.allow(turn)
    table, contract = agreed.table, agreed.contract
    if turn.node.rules.remote:
        turn.do(do.OpenRemote(table, agreed.digest, contract))
    again = turn.node.starts > 0 or bool(facts.last_failure)  # this process may not have seen it
    if contract.argv:
        row = table.row_of_slot(turn.node.rules.slot)
        assert row is not None
        turn.say(Note.STARTS, node=row.node, command=" ".join(contract.argv))
    else:
        turn.say(Note.SERVES)
    number = turn.begin(do.Start, table=table, contract=contract, again=again)
    program = ProgramState(
        number,
        view.epoch,
        serves=not contract.argv,
        ends_all=contract.fatal_workers,
        follows_network=bool(contract.nccl_log),
        restarts=facts.restarts,
        cold=facts.cold,
    )
    turn.set(epoch=_epoch(turn, view.epoch), program=program, starts=turn.node.starts + 1)
    viewing.placed(turn, table)
    departing.tell(turn)
    departing.show(turn, view)

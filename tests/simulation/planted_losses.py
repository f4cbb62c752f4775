# ruff: noqa: E501
"""Bugs in how a run outlives its nodes, as in `planted`."""

from __future__ import annotations

# fmt: off
LOSSES: dict[str, list[tuple[str, str, str]]] = {
    "launcher/run/replacing.py": [
        ("launch: submits before the older is gone", "return not (seen is not None and seen.fenced) and any(map(self._may_run, older))", "return False"),
        ("launch: an older one's end is not told", "if is_news and not (run.starter.by_hand or self.submitting.stopped):", "if False:"),
        ("launch: a fence is not heard of", "return not (seen is not None and seen.fenced) and any(map(self._may_run, older))", "return any(map(self._may_run, older))"),
    ],
    "launcher/run/slots.py": [
        ("launch: standbys are released", "if slot.node is not None or slot.awaited:", "if slot.node is not None:"),
    ],
    "rendezvous/run/arming.py": [
        ("losses: a standby overtakes", "key=lambda slot: (slot.index not in had, slot.index)", "key=lambda slot: (slot.index in had, slot.index)"),
        ("losses: the fence is ignored", "run.waiting_for or fences.holding(run)", "run.waiting_for"),
        ("losses: standing numbers are forgotten", "        run.starts.numbers,\n        of_generations", "        {},\n        of_generations"),
        ("losses: who has come since has gathered", "if why != NOT_NEEDED", "if why.cause"),
        ("losses: standbys are released at the go", "        settle(run, former)\n", "        pass\n"),
    ],
    "rendezvous/run/fences.py": [
        ("losses: a fence counts from the loss", "until, holds = node.silent_since + _seconds(run), True", "until, holds = now + _seconds(run), True"),
        ("losses: a silent node is taken for dead", "until, holds = node.silent_since + _seconds(run), True", "until, holds = node.silent_since + _seconds(run), False"),
        ("losses: a fence is short", "until, holds = node.silent_since + _seconds(run), True", "until, holds = node.silent_since + _seconds(run) / 2, True"),
    ],
    "rendezvous/run/gathering.py": [
        ("losses: enough is not enough", "elif _is_full_again(run) or not", "elif not"),
        ("losses: who comes while programs run is no standby", "slot.node.state = NodeState.STANDBY\n    if stands_by or run", "pass\n    if False and run"),
        ("losses: a lost one between is not missed", "    if was_in and run.rules.awaits is Awaits.REPORTS:\n        gather_again(run, now)\n    then", "    then"),
    ],
    "rendezvous/run/joins.py": [
        ("losses: an older worker run joins", "if request.generation < slot.wanted:", "if request.generation < slot.wanted and not outlives(run):"),
        ("losses: no room is room", "if is_empty(slot) and (is_released or not has_room(run)):", "if False:"),
        ("losses: who is released joins", "is_released = run.spec.managed and slot.given_up", "is_released = False"),
    ],
    "rendezvous/run/places.py": [
        ("losses: released and standby are mixed up", "why.cause is None and open_places > 0", "open_places > 0"),
        ("losses: no standby stays", "why.cause is None and open_places > 0", "False"),
        ("losses: every place is awaited", "            slot.given_up = open_places <= 0\n", "            pass\n"),
    ],
    "rendezvous/run/protocol.py": [
        ("losses: a fence never passes", "elif fences.are_over(run, now):", "elif False:"),
    ],
    "rendezvous/run/replacing.py": [
        ("losses: no bound", "is_left = run.starts.resubmitted < limits.max_replacements", "is_left = True"),
        ("losses: counted for each slot", "is_left = run.starts.resubmitted < limits.max_replacements", "is_left = slot.wanted <= limits.max_replacements"),
        ("losses: nobody is replaced", "is_left = run.starts.resubmitted < limits.max_replacements", "is_left = False"),
        ("losses: the launcher's own is replaced", "    if any(map(run.needs, lost)):", "    if False:"),
        ("losses: below the least", "if left + again >= spec.min_nodes:", "if True:"),
        ("losses: one more than the least", "if left + again >= spec.min_nodes:", "if left + again > spec.min_nodes:"),
    ],
    "rendezvous/run/restarts.py": [
        ("losses: a loss uses a restart", "return Again(0.0, False, plan_words(run, lost), tuple(lost))", "return Again(0.0, True, plan_words(run, lost), tuple(lost))"),
        ("losses: the lost are in the next table", "return Again(0.0, False, plan_words(run, lost), tuple(lost))", "return Again(0.0, False, plan_words(run, lost))"),
        ("losses: who was cut off uses a restart", 'return Again(0.0, False, f"they start again', 'return Again(0.0, True, f"they start again'),
        ("losses: a program's failure counts as well", "    if run.spec.outlives_nodes and lost and (found is not None or was_stopped(run)):", "    if run.spec.outlives_nodes and lost and found is None:"),
    ],
    "rendezvous/run/rounds.py": [
        ("losses: proven on other addresses", "!= (slot.its_node.incarnation, network.members[slot.index].address)\n    ]", "!= (slot.its_node.incarnation, proven.get(slot.index, (0, ''))[1])\n    ]"),
        ("losses: newcomers are not proven", "return fresh if len(fresh) < len(run.taking_part()) else None", "return []"),
    ],
    "rendezvous/run/running.py": [
        ("losses: a lost standby stops the programs", "if node.state is NodeState.STANDBY and run.phase is Phase.RUNNING:", "if False:"),
        ("losses: a standby's end stops the programs", "    if node.state is NodeState.STANDBY:\n", "    if False:\n"),
        ("losses: a close is a silence", "if not event.closed and not worker_run_is_over(slot):", "if True:"),
        ("losses: a silence is a close", "if not event.closed and not worker_run_is_over(slot):", "if False:"),
    ],
    "rendezvous/run/seal.py": [
        ("losses: a newcomer has the last number", "place[next(free)] = join.slot", "place[max(place, default=-1) + 1] = join.slot"),
    ],
    "rendezvous/run/views.py": [
        ("losses: who is released hears nothing", "    if not outlives(run):\n        return []", "    if True:\n        return []"),
    ],
    "worker/agent/attempt.py": [
        ("node: a standby ends as the run", "    elif _stood_by(turn, view):\n", "    elif False:\n"),
        ("node: what begins too late begins", "    fencing.allow(turn)\n", ""),
        ("node: any other table is of others", "agreed is not None and agreed.table.epoch == view.epoch", "False"),
    ],
    "worker/agent/fencing.py": [
        ("node: ignores its fence", "if member is None or member.fence_timeout is None:", "if True:"),
        ("node: a fence gives a grace after it", "return member.known_at + max(begins, least), member.known_at + fence", "return member.known_at + fence, member.known_at + fence + 10.0"),
    ],
}
# fmt: on

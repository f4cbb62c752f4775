"""A node's machine that is driven along, and written down: each input, and all that comes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from rendezvous.wire.errors import RdzvError
from rendezvous.wire.node import JoinReply, JoinRequest
from rendezvous.wire.run import Phase
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import PairProbe, ProbePeer, ProbePlan
from tests.support.courses import one_line
from tests.worker.agent.drive import BASE, OFFER, Drive
from tests.worker.skewed import ADDRESSES, HOSTS, INTERFACES, SLOT, SLOTS, skewed
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.actions import Action
from worker.agent.inputs import NO_WORDS, Input
from worker.agent.notices import Notice, text_of
from worker.agent.state import (
    Agreed,
    Ends,
    Epoch,
    Joining,
    Member,
    ProgramState,
    Rules,
)
from worker.contracts import Contract
from worker.program.family import Child, Family, Ranks

RULES = Rules(
    "llama",
    SLOT,
    join_timeout=611.0,
    orphan_timeout=127.0,
    answer_seconds=2.5,
    hosts_file="/etc/hosts",
    hosts_seconds=11.0,
    early=True,
    notice_signal=10,
    grace=9.0,
)
PROGRAM = Contract(["torchrun", "train.py"], {}, notes=["it is told"], fatal_workers=True)
PLAN = ProbePlan(
    network="10.4.0.0/24",
    peers=[
        ProbePeer(
            slot=slot,
            hostname=host,
            address=address,
            interface=name,
            mtu=0,
            probe_port=7_010 + n,
        )
        for n, (slot, host, address, name) in enumerate(
            zip(SLOTS, HOSTS, ADDRESSES, INTERFACES, strict=True)
        )
    ],
)
_MOST_LOOKS = 50
_NOTHING: tuple[object, ...] = ("", [], (), {}, Family())
_HEX = re.compile(r"\b[0-9a-f]{64}\b")


class Course(Drive):
    """One node of three, on its way from the start; see `tests.worker.skewed`."""

    is_quick = True

    def __init__(self, rules: Rules = RULES, now: float = 100.0, **reply: Any) -> None:
        self.lines: list[str] = []
        self.children: tuple[Child, ...] = ()
        self.main: inputs.MainEnd | None = None
        self.words = NO_WORDS
        self._state: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        super().__init__(rules, now)
        values: dict[str, Any] = {"credential": "", "incarnation": 11, "epoch": 3, "seq": 21}
        values |= {"nnodes": 3, "poll_seconds": 2.25, "join_timeout_seconds": 611.0}
        values |= {"arm_timeout_seconds": 61.0}
        self.reply = JoinReply(**(values | reply))
        self._seq = self.reply.seq
        self._tell("begins", self.first)

    def feed(self, said: Input) -> tuple[Action, ...]:
        """See the base class."""
        actions = super().feed(said)
        self._tell(self._shown(said), actions)
        for action in actions:
            if isinstance(action, do.LookAtProgram):  # the shell answers it at once
                self.sees(self.words)
        return actions

    def wait(self, seconds: float) -> Course:
        """Let this time pass; it looks at its clock when it wants to."""
        until, looks = self.now + seconds, 0
        while self.due is not None and self.due <= until:
            looks += 1
            assert looks < _MOST_LOOKS
            self.now = max(self.now, self.due)
            self.feed(inputs.Tick())
        self.now = until
        return self

    def sees(self, words: inputs.OwnWords | None = None) -> None:
        """The program's processes are so."""
        self.seen(*self.children, main=self.main, words=words)

    def name(self, table: EndpointTable) -> EndpointTable:
        """Have its digest told by a name."""
        self._digests[table.digest()] = f"<{table.epoch}:{table.master_port}>"
        return table

    # --- on its way -------------------------------------------------------------------------------

    def join(self) -> Course:
        """From its start until the registry has taken it in."""
        if self.all(do.RestoreHosts):
            self.answer(do.RestoreHosts)
        self.wait(0.5).answer(do.Listen, inputs.Listening, 7_013)
        self.wait(0.25).answer(do.LookAhead)
        self.wait(0.25).answer(do.Connect, inputs.Connected, BASE)
        self.wait(0.75).answer(do.MakeOffer, inputs.Offered, OFFER)
        self.wait(1.25).answer(do.Join, inputs.Joined, self.reply, BASE)
        return self

    def unwritten(self) -> Course:
        """What it has done until now is in another course."""
        self.lines.clear()
        return self

    def visits(self, epoch: int, **news: Any) -> Course:
        """The nodes are to visit each other, and this one has."""
        self.wait(1.5).verify(epoch, plan=PLAN, **news)
        if self.all(do.Listen):
            self.answer(do.Listen, inputs.Listening, 7_013)
        self.wait(0.75).visited(PairProbe(slot=7, outcome="ok"), PairProbe(slot=3, outcome="ok"))
        self.taken()
        return self

    def arms(
        self, table: EndpointTable, contract: Contract = PROGRAM, *, warm: bool = False, **news: Any
    ) -> Course:
        """There is a table, and this node can start on it."""
        self.name(table)
        self.wait(0.5).arm(table, **news)
        self.wait(0.125).answer(do.Arm, inputs.Armed, contract, (), warm)
        self.taken()
        return self

    def goes(self, table: EndpointTable, **news: Any) -> Course:
        """The run goes on it, and its program runs."""
        self.wait(0.875).go(table, **news)
        self.wait(0.25).started()
        return self

    def runs(
        self, table: EndpointTable | None = None, contract: Contract = PROGRAM, **news: Any
    ) -> Course:
        """From the visits until its program runs."""
        table = table or skewed()
        return self.visits(table.epoch, **news).arms(table, contract, **news).goes(table, **news)

    def news(self, seconds: float = 2.0, **news: Any) -> Course:
        """The same as before, this later, with these values."""
        seq = self.the(do.Watch).after
        agreed = self.node.agreed
        given = {"digest": agreed.digest, "epoch": agreed.table.epoch} if agreed else {}
        self.wait(seconds).view(Phase.RUNNING, **({"seq": seq} | given | news))
        return self

    def halts(self, table: EndpointTable, **news: Any) -> Course:
        """All programs of this table are to end."""
        self.wait(0.5).go(table, stop=True, **news)
        return self

    def is_over(self) -> Course:
        """Answer all that it does to end, a quarter of a second each."""
        for _ in range(9):
            for effect in list(self.node.effects.values()):
                if effect.number in self.node.effects:
                    self.wait(0.25).feed(inputs.Done(effect.number))
        assert not self.node.effects
        return self

    # --- how it is written down -------------------------------------------------------------------

    def _tell(self, what: str, actions: tuple[Action, ...]) -> None:
        state = dict(self._values())
        self.lines += [
            f"* {self._shown(self.now)} {what}",
            *(f"- {self._shown(action)}" for action in actions),
        ]
        before = self._state
        parts = {name.partition(".")[0] for name in state}
        changed = [
            f"{name}={state[name]}" for name in sorted(state) if state[name] != before.get(name)
        ]
        lost = {
            name if name.partition(".")[0] in parts else name.partition(".")[0]
            for name in before.keys() - state.keys()
        }
        changed += [f"{name}=gone" for name in sorted(lost)]
        if changed:
            self.lines.append(f"= {' '.join(changed)}")
        self._state = state

    def _values(self) -> Iterator[tuple[str, str]]:
        """What the node knows, beside what it was told of its program and what it does."""
        known = {name: value for name, value in vars(self.node).items() if name not in _LEFT_OUT}
        for name, value in known.items():
            if value is None:
                continue
            inner = _set_in(value) if isinstance(value, _PARTS) else {"": value}
            for key, each in inner.items():
                if f"{name}.{key}" not in _LEFT_OUT:
                    yield f"{name}.{key}".rstrip("."), self._shown(each)
        if self.due is not None:
            yield "due", self._shown(self.due)

    def _shown(self, value: object) -> str:
        """In one line, without what is not set."""
        match value:
            case Notice():
                return f"{value.note.name}: {text_of(value)}"
            case EndpointTable():
                return f"<{value.epoch}:{value.master_port}>"
            case ProbePlan():
                return f"{value.network} of {len(value.peers)}"
            case Contract():
                return f"[{' '.join(value.argv)}]"
            case RdzvError():
                hint = f" [{value.hint}]" if value.hint else ""
                return f"{type(value).__name__} {value.message}{hint}"
            case Family():
                return self._shown(value.children)
            case Child(ranks=Ranks() as ranks):
                ended = "" if value.ended_at is None else f"={value.exit_code}@{value.ended_at:g}"
                return f"{ranks.rank}{ended}"
            case JoinRequest():
                return f"of {value.hostname}"
            case Enum():
                return value.name
            case tuple() | list() | frozenset():
                return f"[{', '.join(map(self._shown, value))}]"
            case dict():
                return f"{{{', '.join(f'{k}: {self._shown(v)}' for k, v in value.items())}}}"
            case float():
                return f"{value:.10g}"
            case str():
                return one_line(_HEX.sub(lambda m: self._digests.get(m[0], m[0][:4]), value))
        return self._record(value) if _is_record(value) else one_line(value)

    def _record(self, value: object) -> str:
        words = [f"{name}={self._shown(each)}" for name, each in _set_in(value).items()]
        return f"{type(value).__name__}({' '.join(words)})"


_PARTS = (Joining, Member, Epoch, Agreed, ProgramState, Ends)
_LEFT_OUT = ("rules", "effects", "count", "said", "program.family", "program.words")


def _is_record(value: object) -> bool:
    return is_dataclass(value) or isinstance(value, BaseModel)


def _set_in(value: Any) -> dict[str, Any]:
    """The values of a record that are not the usual ones."""
    usual: dict[str, Any] = {}
    if isinstance(value, BaseModel):
        usual = {name: one.default for name, one in type(value).model_fields.items()}
    else:
        usual = {one.name: one.default for one in fields(value)}
    found = {name: getattr(value, name) for name in usual}
    return {
        name: each
        for name, each in found.items()
        if each is not None and each not in _NOTHING and each != usual[name]
    }

"""Runs told as stories: a rule in words, what happens to a run, and what holds then.

    a node that is lost after a failure is not the cause
        running 3 verdict_seconds=60; exit 0 7; silent 30 1 -> exited,lost,running
        stop 2 143 -> finished slot=0 exit=7
        "node 0 (host0) failed: …; also lost: node 1 (host1)"

A story begins with a phase to which all nodes have come, or with `new`: none has. The steps are the
methods of `Drive`, and those of `_STEPS`. A fact is a phase, the nodes' states, `name=value` of the
run or its result, `1.name=value` of a slot, `L12=warn:1` of a check's findings, the class of the
last step's refusal, or `nothing`: it changed nothing. A sentence is the refusal's, the result's or
the last event's; with a word before it, it is what that word names; `…` stands for anything. `a|b`
tells the story for each.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.run import events
from rendezvous.run.leases import SWEEP_SECONDS
from rendezvous.run.views import node_view, reason, remaining_seconds, run_status
from rendezvous.wire.errors import RequestError
from rendezvous.wire.node import Facts, Finding, Job
from rendezvous.wire.reports import DepartReport, ExitReport, LeaveReport
from rendezvous.wire.run import Phase, SlotState
from tests.support.driver import Drive, in_phase, make_spec, sha

MEMLOCK = Finding(
    check="L12",
    level="fail",
    slot=0,  # whatever it says, it is about the node that says it
    subject="memlock",
    value="64 KiB",
    expected="unlimited",
    cause="RDMA cannot register memory",
    fix="ulimit -l unlimited",
)
_EITHER = re.compile(r"[^\s|\"'=;]+(?:\|[^\s|\"';]+)+")


def stories(text: str) -> pytest.MarkDecorator:
    """A test of each story, by the words of its rule."""
    told = re.findall(r"^(\S.*)\n((?:[ ].*\n)+)", text, re.MULTILINE)
    assert "".join(f"{rule}\n{body}" for rule, body in told) == text.lstrip("\n"), "a line is lost"
    cells = [
        pytest.param(way, id=rule + tag) for rule, body in told for tag, way in _each_way(body)
    ]
    return pytest.mark.parametrize("story", cells)


def _each_way(body: str) -> list[tuple[str, str]]:
    either = [found.split("|") for found in _EITHER.findall(body)]
    if not either:
        return [("", body)]
    return [
        (f" ({number})", _EITHER.sub(lambda m, n=number: m[0].split("|")[n], body))  # type: ignore[misc]
        for number in range(len(either[0]))
    ]


def tell(story: str) -> Drive:
    """What becomes of the run; every fact and sentence of the story holds."""
    told = _Told()
    for line in re.findall(r"^ +((?:\w+ )?\"[^\"]*\"$|.*)", story, re.MULTILINE):
        if sentence := re.fullmatch(r"(\w+ )?\"([^\"]*)\"", line):
            told.says((sentence[1] or "").strip(), " ".join(sentence[2].split()))
            continue
        steps, _, facts = line.partition("-> ")
        for step in filter(None, map(str.strip, steps.split("; "))):
            told.step(*shlex.split(step))
        for fact in shlex.split(facts):
            told.holds(fact)
    assert told.error is None or told.error_seen, told.error
    return told.drive


class _Told:
    drive: Drive
    error: RequestError | None = None
    error_seen = False
    kept = 0

    def step(self, verb: str, *words: str) -> None:
        assert self.error is None or self.error_seen, self.error
        self.error, self.error_seen = None, False
        given = [_value(word) for word in words if "=" not in word]
        named = {
            name: _value(value) for name, value in (w.split("=", 1) for w in words if "=" in w)
        }
        named |= {name: named[name].split(",") for name in ("skip", "tail") if name in named}
        if verb == "new":
            self.drive = Drive(make_spec(*given, **named))
        elif verb in list(Phase):
            self.drive = in_phase(Phase(verb), *given, **named)
        else:
            self.kept = len(self.drive.journal)
            do: Callable[..., Any] = _STEPS.get(verb) or getattr(Drive, verb)
            try:
                do(self.drive, *given, **named)
            except RequestError as exc:
                self.error = exc

    def holds(self, fact: str) -> None:
        run, told = self.drive.run, self.drive.reasons
        name, equals, value = fact.partition("=")
        if equals:
            assert (name, str(_value_of(self.drive, name))) == (name, value), told
        elif fact == "nothing":
            assert len(self.drive.journal) == self.kept, told
        elif fact in list(Phase):
            assert run.phase == fact, told
        elif fact[0].isupper():
            assert type(self.error).__name__ == fact, told
            self.error_seen = True
        else:
            assert ",".join(self.drive.states()) == fact, told

    def says(self, of: str, words: str) -> None:
        pattern = re.escape(words).replace("…", ".*")
        assert re.fullmatch(pattern, found := self._sentence(of), re.DOTALL), found

    def _sentence(self, of: str) -> str:
        run = self.drive.run
        if of == "waits":
            return reason(run, self.drive.now)
        if of == "board":
            return run_status(run, self.drive.now, self.drive.leases).reason
        if of == "told":
            return self.drive.reasons[-1]
        if self.error is not None:
            self.error_seen = True
            return self.error.hint if of == "hint" else self.error.message
        if of == "hint":
            return self.drive.result.hint
        if of == "last":
            return run.starts.ended[-1].message
        return run.result.message if run.result else self.drive.reasons[-1]


def _value(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return word


def _value_of(drive: Drive, name: str) -> object:
    """The value that a fact of this name is about."""
    slot, dot, of_slot = name.partition(".")
    if dot:
        return getattr(drive.slot(int(slot)), of_slot)
    run, table, result = drive.run, drive.run.table, drive.run.result
    match name:
        case "table":
            return ",".join(str(row.slot) for row in table.rows) if table else None
        case "port":
            return table and table.master_port
        case "network":
            return run.network and run.network.words
        case "waiting":
            return ",".join(map(str, sorted(run.waiting_for)))
        case "out":
            return ",".join(map(str, sorted(run.attempt.left_out)))
        case "left":
            return remaining_seconds(run, drive.now)
        case "ending" | "everyone_left" | "spares":
            return getattr(run_status(run, drive.now, drive.leases), name)
        case "plan":
            plan = node_view(run, drive.now, 2.0).plan
            return plan and ",".join(str(peer.slot) for peer in plan.peers)
        case "released":
            return ",".join(map(str, node_view(run, drive.now, 2.0).released))
        case "addresses":
            return ",".join(row.address for row in table.rows) if table else None
        case "rounds":
            return len(run.attempt.rounds)
        case "enough_since":
            return run.attempt.enough_since
        case "exit":
            return result and result.exit_code
        case "exit_code_of":
            return result and result.exit_code_of
        case "status" | "code" | "slot" | "node" | "rank" | "hostname" | "log":
            return getattr(result, name, None)
        case "used" | "asked" | "due_at":
            return getattr(run.starts, name)
        case "epochs":
            return ",".join(f"{end.epoch}:{end.exit_code}" for end in run.starts.ended)
        case "stopping_in":
            return run.departure and run.departure.stop_at - drive.now
        case "then":
            return run.starts.ended[-1].then
        case "numbers":
            return ",".join(str(slot.its_node.number) for slot in run.of_table())
        case "tail":
            return result and ",".join(result.tail)
        case "command_word":
            return result and result.command_word
        case _ if re.fullmatch("[A-Z][0-9]{2}", name):
            of_check = [found for found in run.attempt.findings if found.check == name]
            return ",".join(f"{found.level}:{found.slot}" for found in of_check)
        case _:
            return getattr(run, name)


def _join(drive: Drive, slot: int, generation: int = 1, **said: Any) -> None:
    """`at` several addresses; `sick`, or `sick=warn`; its `nccl`; of a job: `nnodes`, `framework`,
    `command`."""
    if "at" in said:
        said["addresses"] = said.pop("at").split(",")
    if sick := said.pop("sick", ""):
        said["findings"] = [replace(MEMLOCK, level="warn" if sick == "warn" else "fail")]
    if "nccl" in said:
        said["facts"] = Facts(gpus=8, nccl_version=said.pop("nccl"))
    job: dict[str, Any] = {
        name: str(said.pop(name)) for name in ("nnodes", "framework") if name in said
    }
    if "command" in said:
        job["command_words"] = [sha(word)[:16] for word in said.pop("command").split(",")]
    drive.join(slot, generation, **said, **({"job": Job(**job)} if job else {}))


def _offer(drive: Drive, networks: int) -> None:
    """Every node joins with an address in so many networks."""
    for slot in range(len(drive.run.slots)):
        drive.join(slot, addresses=[f"10.{net}.0.{slot + 1}" for net in range(networks)])


def restart(drive: Drive) -> None:
    """The registry comes back on its journal; every node has a full lease."""
    drive.apply(events.Restarted())
    filled = [slot for slot in drive.run.slots if slot.node is not None]
    drive.leases.grant_all([(slot.index, slot.incarnations) for slot in filled], drive.now)


def _close(drive: Drive, slot: int) -> None:
    """The last connection of the slot's node is closed."""
    drive.leases.heard((slot, 1), drive.now, connection=7)
    drive.leases.closed((slot, 1), drive.now, 7)


def _try_cancel(drive: Drive) -> None:
    event = drive.cancel("SIGTERM at the launcher")
    if event is not None:
        drive.apply(event)


def _time_out(drive: Drive, trouble: dict[str, Any]) -> None:
    """The time to join is over, and the registry itself had this trouble meanwhile."""
    drive.now += SWEEP_SECONDS
    drive.apply(events.TimedOut(phase=Phase.GATHERING, **trouble))


_STEPS: dict[str, Callable[..., Any]] = {
    "silent": lambda drive, seconds, *slots: drive.wait(seconds, silent=slots),
    "leave": lambda drive, slot: drive.report(slot, LeaveReport()),
    "stop": lambda drive, slot, code: drive.exit(slot, code, stopped=True),
    "news": lambda drive, slot, state, *generation, **told: drive.news(
        slot, SlotState(state), *generation, **told
    ),
    "cancelled": lambda drive, why: drive.apply(events.Cancelled(reason=why)),
    "cancel": _try_cancel,
    "close": _close,
    "join": _join,
    "offer": _offer,
    "restart": restart,
    "depart": lambda drive, slot, seconds, why: drive.report(
        slot, DepartReport(epoch=drive.run.epoch, seconds=seconds, words=why)
    ),
    "again": lambda drive, why: drive.restart(why),
    "asked": lambda drive, why: drive.apply(events.RestartAsked(reason=why)),
    "late": lambda drive, slot, epoch, code, **said: drive.report(
        slot, ExitReport(epoch=epoch, exit_code=code, **said)
    ),
    "timeout": lambda drive, **trouble: _time_out(drive, trouble),
}

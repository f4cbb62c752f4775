"""What a node makes of remote commands, frame by frame, is as in `remote_courses.txt`.

On a virtual clock, with the way to the other nodes and the commands themselves played: before the
go, asked for and served, doubled and overtaken, too many, and ended. See `make reference`.
"""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.talk.macs import command_mac, is_command_mac
from rendezvous.wire.errors import Forbidden, RunOver, UsageError
from rendezvous.wire.relay import (
    CommandEnd,
    CommandExit,
    CommandFrame,
    CommandOutput,
    CommandStart,
    CommandTaken,
)
from tests.support.courses import lines_in, one_line, text_of
from tests.support.virtual_time import now, run_virtually
from tests.worker.skewed import SLOT, skewed
from tests.worker.test_table import join
from tests.worker.told import Told
from worker.program.local_socket import Caller
from worker.rsh import remote
from worker.rsh.remote import RemoteCommands
from worker.rsh.served import ServedShell

KNOWN = Path(__file__).with_name("remote_courses.txt")
TABLE = skewed()
JOIN = join(SLOT)
FIRST, LAST = 7, 3
"""The slots of the other two."""


class Node:
    """One that is told of others' commands, and asked for some by its processes."""

    def __init__(self, patch: pytest.MonkeyPatch, *, allowed: bool = True) -> None:
        self.told = Told()
        self.ends: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.end_seconds = 0.5
        self.full = False
        patch.setattr(remote, "Exchange", self._exchange)
        patch.setattr(remote, "Served", self._served)
        patch.setattr(remote, "logger", self._log())
        registry: Any = None
        self.commands = RemoteCommands(registry, JOIN, allowed=allowed)

    def tell(self, words: object) -> None:
        self.told.lines.append(one_line(f"@ {now():.3f} {words}"))

    def _log(self) -> Any:
        def at(level: object) -> Any:
            return lambda form, *words: self.tell(f"says {level}: {form % words}")

        names = ("debug", "info", "warning")
        log = SimpleNamespace(**{name: at(name) for name in names})
        log.log = lambda level, form, *words: at(level)(form, *words)
        return log

    # --- the other nodes, and what runs here ------------------------------------------------------

    def _exchange(self, registry: object, run: str, slot: int, **calls: Any) -> Any:
        self.tell(f"exchanges {run} {slot}")
        self.receive, self.lost = calls.pop("receive"), calls.pop("lost")
        assert not calls
        return SimpleNamespace(send=self._send, work=lambda: self.ends)

    def _send(self, peer: int, frame: CommandFrame) -> None:
        if isinstance(frame, CommandStart):
            if self.full:
                raise UsageError("too much waits")
            command = base64.b64decode(frame.command)
            values: dict[str, Any] = {"sender": SLOT, "target": peer, "number": frame.number}
            values |= {"command": command, "digest": "the table's"}
            genuine = is_command_mac(frame.mac, JOIN.row_key, **values)
            self.tell(f"> {peer} start {frame.number} {command!r} genuine={genuine}")
        else:
            self.tell(f"> {peer} {type(frame).__name__} {_values(frame)}")

    def _served(self, number: int, send: Callable[[CommandFrame], None]) -> Any:
        over = asyncio.Event()

        def says(what: str) -> Any:
            return lambda *given: self.tell(f"{number} {what} {[*given]}")

        async def run(command: bytes, shell: ServedShell) -> None:
            where = (shell.node, dict(shell.environ), shell.grace_seconds, shell.until())
            self.tell(f"{number} runs {command!r} {where}")
            await over.wait()
            send(CommandExit(number=number, code=9))

        async def end(why: str = "") -> None:
            self.tell(f"{number} ends: {why}".removesuffix(": "))
            await asyncio.sleep(self.end_seconds)
            if command := self.end_seconds < 10.0:
                over.set()
            self.tell(f"{number} has ended {command}")

        names = {name: says(name) for name in ("taken", "may_run", "kill_now", "tell_again")}
        return SimpleNamespace(run=run, end=end, **names)

    # --- what comes -------------------------------------------------------------------------------

    def start(self, peer: int, number: int, command: bytes = b"hostname", /, **wrong: Any) -> None:
        """The start of a command of another node, but for what is wrong with its MAC."""
        values: dict[str, Any] = {"digest": "the table's", "sender": peer}
        values |= {"target": SLOT, "number": number}
        key = wrong.pop("key", JOIN.row_key)
        mac = command_mac(key, **({**values, "command": command} | wrong))
        words = base64.b64encode(command).decode()
        self.told.lines.append(f"* from {peer}: start {number} {sorted(wrong)}")
        self.receive(peer, CommandStart(number=number, command=words, mac=mac))

    def comes(self, peer: int, frame: CommandFrame) -> None:
        """Another frame."""
        self.told.lines.append(f"* from {peer}: {type(frame).__name__} {_values(frame)}")
        self.receive(peer, frame)

    def ask(self, host: Any = "gpu-9", command: Any = "ZGF0ZQ==", seconds: float = 99.0) -> Any:
        """A process of this node asks for a command; it goes after so long."""
        process = Process(self, f"{host}", seconds)
        self.told.lines.append(f"* asks {host} {command}")
        return asyncio.create_task(self.commands.serve({"host": host, "command": command}, process))

    def holds(self, what: str) -> None:
        """What it holds now."""
        own = self.commands
        held = (sorted(own._calls), sorted(own._served), own._numbers, len(own._tasks))
        self.told.of(f"{now():.3f} {what}", *held, own._closed)


class Process(Caller):
    """One that asked."""

    def __init__(self, node: Node, name: str, seconds: float) -> None:
        self._node, self._name, self._seconds = node, name, seconds

    async def tell(self, answer: Any) -> None:
        self._node.tell(f"{self._name} is told {answer}")

    async def gone(self) -> None:
        await asyncio.sleep(self._seconds)


def _values(frame: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in frame.model_dump().items() if value)


def _output(number: int, data: bytes) -> CommandOutput:
    return CommandOutput(
        number=number, offset=0, stream="stderr", data=base64.b64encode(data).decode()
    )


async def _settle() -> None:
    await asyncio.sleep(0.0625)


def what_is_asked_for(node: Node) -> Any:
    """By processes of this node: before the go, badly, of several, too many, with no room."""

    async def work() -> None:
        own = node.commands
        await node.ask()
        own.begin(TABLE, "the table's", ServedShell("node 1", {}, 4.0, lambda: 60.0))
        for host, command in (
            *((None, "ZGF0ZQ=="), ("gpu-9", None), ("gpu-9", b"ZGF0ZQ=="), ("gpu-9", "ZGF0ZQ")),
            *(("gpu-9", ""), ("gpu-9", "AGE="), ("gpu-1", "ZGF0ZQ=="), ("gpu-9", "ä")),
            ("gpu-9", base64.b64encode(b"x" * (128 << 10)).decode()),
        ):
            await node.ask(host, command)
            node.told.lines[:] = [line[:400] for line in node.told.lines]
        node.holds("nothing yet")
        asked = [
            node.ask("gpu-9"),
            node.ask("gpu-6"),
            node.ask("node-0", "bHM="),
            node.ask("gpu-4"),
        ]
        await _settle()
        await node.ask("gpu-6")
        node.holds("four, and no more")
        for frame in (
            _output(1, b"one"),
            CommandExit(number=2, code=4, offset=0),
            CommandExit(number=1, code=3, offset=3),
            _output(7, b"of nobody"),
            CommandExit(number=9, code=1),
        ):
            node.comes(FIRST, frame)
            await _settle()
        node.comes(LAST, CommandExit(number=1, code=255, message="no shell"))
        node.comes(SLOT, _output(1, b"own"))
        await _settle()
        node.holds("one is left")
        node.told.lines.append("* lost")
        node.lost()
        asked[3].cancel()
        await _settle()
        node.holds("its process has gone")
        node.full = True
        await node.ask("gpu-6")
        node.full = False
        more = [node.ask("gpu-6", seconds=1.0 + n) for n in range(3)]
        await _settle()
        await node.ask("gpu-9")
        await asyncio.gather(*more)
        node.holds("all have gone")
        await node.ask("gpu-9", seconds=0.5)
        last = [node.ask("gpu-9"), node.ask("gpu-6")]
        await _settle()
        node.ends.set_exception(Forbidden("it is not allowed any more"))
        await own.work()
        await asyncio.gather(*last)
        await node.ask("gpu-9")
        own._close("the run is over")
        node.holds("refused for good")

    return work()


def what_is_run_for_others(node: Node) -> Any:
    """Genuine and not, doubled, overtaken by its end, too many; until when, lost, and ended."""

    async def work() -> None:
        own = node.commands
        node.start(FIRST, 1)
        own.begin(TABLE, "the table's", ServedShell("node 1", {"A": "b"}, 4.0, lambda: 60.0))
        node.start(FIRST, 1)
        node.start(FIRST, 1)
        await _settle()
        for wrong in (
            *({"key": b"x" * 32}, {"digest": "another"}, {"command": b"rm"}),
            *({"sender": LAST}, {"target": FIRST}, {"number": 3}),
        ):
            node.start(FIRST, 2, **wrong)
        node.start(LAST, 1, b"sleep 9")
        await _settle()
        node.comes(FIRST, CommandTaken(number=1, offset=12))
        node.comes(LAST, CommandTaken(number=2, offset=13))
        own.may_run(70.0)
        own.kill_now()
        node.lost()
        node.start(FIRST, 2)  # one more than there may be
        node.comes(FIRST, CommandEnd(number=1))
        node.comes(FIRST, CommandEnd(number=1))
        node.comes(FIRST, CommandEnd(number=3))
        await asyncio.sleep(1.0)
        node.holds("one has ended")
        for number in (1, 2, 3, 4):
            node.start(FIRST, number)
        await _settle()
        node.holds("one more runs")
        own.may_run(80.0)
        node.ends.set_exception(RunOver("the run is over"))
        await own.work()
        node.start(LAST, 2)
        own.kill_now()
        began = now()
        await own.close("another reason")
        node.holds(f"closed in {now() - began:.3f}")
        node.lost()

    return work()


def what_does_not_end(node: Node) -> Any:
    """One that goes on is waited for so long, and who has asked for another one is told."""

    async def work() -> None:
        own = node.commands
        own.begin(TABLE, "the table's", ServedShell("node 1", {}, 4.0))
        node.end_seconds = 11.0
        working = asyncio.create_task(own.work())
        node.start(FIRST, 1)
        asked = node.ask("gpu-9")
        await _settle()
        await own.close("the run is ending")
        await _settle()
        node.holds("closed")
        node.told.of("ended", asked.done(), working.done())
        working.cancel()

    return work()


def what_is_not_allowed(node: Node) -> Any:
    """Neither is anything asked for then, nor run."""

    async def work() -> None:
        await node.ask()
        node.start(FIRST, 1)
        await node.commands.close("the run is over")
        node.holds("closed")

    return work()


STEPS = (what_is_asked_for, what_is_run_for_others, what_does_not_end, what_is_not_allowed)


def _course(steps: Callable[[Node], Any]) -> Told:
    found: list[Told] = []

    async def work(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(remote, "MOST_CALLS", 4)
        patch.setattr(remote, "MOST_SERVED", 2)
        node = Node(patch, allowed=steps is not what_is_not_allowed)
        found.append(node.told)
        await steps(node)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        node.told.of("goes on", len(left))
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    with pytest.MonkeyPatch.context() as patch:
        run_virtually(work(patch))
    return found[0]


COURSES: dict[str, Callable[[], Told]] = {one.__name__: partial(_course, one) for one in STEPS}


@pytest.mark.parametrize("name", COURSES)
def test_what_a_node_makes_of_remote_commands(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

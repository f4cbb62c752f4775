"""The remote commands of one node: those that it asks for, and those that it runs."""

from __future__ import annotations

import asyncio
import base64
import functools
import logging
from collections.abc import Awaitable

from rendezvous.talk.join_string import JoinString
from rendezvous.talk.macs import command_mac, is_command_mac
from rendezvous.wire.errors import RdzvError, RunOver, UsageError
from rendezvous.wire.relay import (
    MAX_COMMAND_BYTES,
    CommandEnd,
    CommandExit,
    CommandFrame,
    CommandOutput,
    CommandStart,
    CommandTaken,
)
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.words import printable
from worker.program.local_socket import Caller, Request
from worker.rsh.calls import Call
from worker.rsh.exchange import Exchange, Registry
from worker.rsh.names import row_of_host
from worker.rsh.served import NOT_RUN, Served, ServedShell

logger = logging.getLogger(__name__)

MOST_CALLS = 512
MOST_SERVED = 128
"""Commands at once that a node waits for, and that it runs."""
_TELL_SECONDS = 2.0


class RemoteCommands:
    """What one node does for `rdzv rsh`.

    Args:
        registry: By which frames reach other nodes.
        join: The run, the slot, and the key by which its nodes know each other.
        allowed: Whether the run allows remote commands.
    """

    def __init__(self, registry: Registry, join: JoinString, *, allowed: bool) -> None:
        self._join = join
        self._exchange = Exchange(
            registry, join.run, join.slot, receive=self._receive, lost=self._tell_again
        )
        self._closed = (
            f"run '{join.run}' is not running yet"
            if allowed
            else f"run '{join.run}' does not allow remote commands: launch it with --allow-exec"
        )
        self._table: EndpointTable | None = None
        self._digest = ""
        self._shell = ServedShell(f"slot {join.slot}", {}, 0.0)
        self._numbers: dict[int, int] = {}
        self._calls: dict[tuple[int, int], Call] = {}
        self._served: dict[tuple[int, int], Served] = {}
        self._seen: dict[int, _Numbers] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, table: EndpointTable, digest: str, shell: ServedShell) -> None:
        """From now on commands may be asked for, on the nodes of this table, and are run here."""
        self._table, self._digest, self._shell = table, digest, shell
        self._closed = ""

    async def work(self) -> None:
        """Pass on what the nodes say to each other until cancelled, or until the run is over."""
        try:
            await self._exchange.work()
        except RdzvError as exc:
            level = logging.DEBUG if isinstance(exc, RunOver) else logging.WARNING
            logger.log(level, "remote commands have ended: %s", exc.message)
            self._close(exc.message)

    async def close(self, words: str) -> None:
        """End what runs for others, and tell those who wait; `words` say why."""
        self._close(words)
        await asyncio.gather(*(served.end(self._closed) for served in self._served.values()))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_TELL_SECONDS)
        for task in self._tasks:
            task.cancel()

    def may_run(self, until: float) -> None:
        """Until then may go on what runs for others, unless that is said again."""
        for served in self._served.values():
            served.may_run(until)

    def kill_now(self) -> None:
        """End what runs for others at once, also within its grace."""
        for served in self._served.values():
            served.kill_now()

    def _close(self, words: str) -> None:
        if not self._closed:
            self._closed = words
        for call in self._calls.values():
            call.fail(self._closed)

    # --- what this node's processes ask for -----------------------------------------------------

    async def serve(self, request: Request, caller: Caller) -> None:
        """Have a command run for a process of this node: {"do": "exec", "host", "command"}."""
        try:
            target, start = self._begin(request)
        except UsageError as exc:
            await caller.tell({"error": exc.message})
            return
        call = Call(start, functools.partial(self._exchange.send, target), caller)
        key = target, start.number
        self._calls[key] = call
        running = self._keep(call.run())
        try:
            await asyncio.shield(running)
        finally:
            running.cancel()
            del self._calls[key]

    def _begin(self, request: Request) -> tuple[int, CommandStart]:
        if self._closed:
            raise UsageError(self._closed)
        assert self._table is not None
        host, command = request.get("host"), request.get("command")
        if not isinstance(host, str) or not isinstance(command, str):
            raise UsageError('"exec" needs "host" and "command", which is base64')
        try:
            asked = base64.b64decode(command, validate=True)
        except ValueError as exc:
            raise UsageError('"command" is not base64') from exc
        if not asked or b"\0" in asked or len(asked) > MAX_COMMAND_BYTES:
            raise UsageError(f"a command has 1 to {MAX_COMMAND_BYTES} bytes, none of them zero")
        target = row_of_host(self._table, host).slot
        if len(self._calls) >= MOST_CALLS:
            raise UsageError(f"this node already waits for {MOST_CALLS} remote commands")
        number = self._numbers[target] = self._numbers.get(target, 0) + 1
        mac = command_mac(
            self._join.row_key,
            digest=self._digest,
            sender=self._join.slot,
            target=target,
            number=number,
            command=asked,
        )
        return target, CommandStart(
            number=number, command=base64.b64encode(asked).decode(), mac=mac
        )

    # --- what comes from other nodes ------------------------------------------------------------

    def _receive(self, peer: int, frame: CommandFrame) -> None:
        key = peer, frame.number
        if isinstance(frame, CommandStart):
            self._start(peer, frame)
        elif isinstance(frame, CommandOutput | CommandExit):
            if (call := self._calls.get(key)) is not None:
                call.receive(frame)
            else:  # what told it so was lost, or is on its way
                self._exchange.send(peer, CommandEnd(number=frame.number))
        elif isinstance(frame, CommandTaken):
            if (served := self._served.get(key)) is not None:
                served.taken(frame.offset)
        elif isinstance(frame, CommandEnd):
            self._seen_of(peer).add(frame.number)  # its start may have been overtaken
            if (served := self._served.pop(key, None)) is not None:
                self._keep(served.end())

    def _start(self, peer: int, frame: CommandStart) -> None:
        """Run a command, once, if a node of the run has asked for it."""
        seen = self._seen_of(peer)
        if frame.number in seen:
            return
        send = functools.partial(self._exchange.send, peer)
        command = base64.b64decode(frame.command)
        problem = self._problem_of(peer, frame, command)
        if not problem:
            seen.add(frame.number)
            if len(self._served) >= MOST_SERVED:
                problem = f"{self._shell.node} already runs {MOST_SERVED} remote commands"
        if problem:
            logger.warning("a remote command of slot %d was not run: %s", peer, problem)
            send(CommandExit(number=frame.number, code=NOT_RUN, message=problem))
            return
        logger.debug("slot %d has this run: %s", peer, printable(str(command), 300))
        served = self._served[peer, frame.number] = Served(frame.number, send)
        self._keep(served.run(command, self._shell))

    def _seen_of(self, peer: int) -> _Numbers:
        return self._seen.setdefault(peer, _Numbers())

    def _problem_of(self, peer: int, frame: CommandStart, command: bytes) -> str:
        me = self._shell.node
        if self._closed:
            return f"{me}: {self._closed}"
        genuine = is_command_mac(
            frame.mac,
            self._join.row_key,
            digest=self._digest,
            sender=peer,
            target=self._join.slot,
            number=frame.number,
            command=command,
        )
        return "" if genuine else f"{me}: this command was not made by a node of this run for it"

    def _tell_again(self) -> None:
        logger.info("the registry restarted: reporting the remote commands to it again")
        for call in self._calls.values():
            call.tell_again()
        for served in self._served.values():
            served.tell_again()

    def _keep(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _Numbers:
    """The numbers that were seen; they come nearly in order."""

    def __init__(self) -> None:
        self._below = 1
        self._above: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self._below or number in self._above

    def add(self, number: int) -> None:
        """One more."""
        if number >= self._below:
            self._above.add(number)
        while self._below in self._above:
            self._above.remove(self._below)
            self._below += 1

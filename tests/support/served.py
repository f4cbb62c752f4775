"""The registry without a process and without a socket: its service, and its application."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.types import ASGIApp, Message

from rendezvous.registry import retention, sweep
from rendezvous.registry.journal import Journal, MemoryJournal, Record, by_run
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.options import Options
from rendezvous.registry.service import Service
from rendezvous.talk.credentials import SERVER_NAME, Credential, hkdf, registry_credential
from rendezvous.wire.errors import RegistryError, StorageFull
from rendezvous.wire.node import JoinReply
from rendezvous.wire.reports import AckReport, Report
from rendezvous.wire.run import Phase, RunStatus
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe
from tests.support.registry import LIMIT_SECONDS, Launch

SECRET = bytes(32)
OPERATOR = registry_credential(SECRET)


class FakeClock:
    """Monotonic seconds that stand still until they are moved."""

    def __init__(self) -> None:
        self.seconds = 5_000.0
        self.was_read = asyncio.Event()

    def __call__(self) -> float:
        self.was_read.set()
        return self.seconds

    async def move(self, seconds: float) -> None:
        """Let time pass, and the registry's sweep see it.

        In small steps: a registry that sees a jump forgives it as a stall of its own.
        """
        end = self.seconds + seconds
        while self.seconds < end:
            await self.jump(min(end - self.seconds, 0.6))

    async def jump(self, seconds: float) -> None:
        """Let it all pass at once."""
        self.seconds += seconds
        self.was_read.clear()
        await asyncio.wait_for(self.was_read.wait(), 5)


_FULL = StorageFull("the disk is full", hint="free space")
_LIE = StorageFull("the disk hangs")


class TroubledJournal(MemoryJournal):
    """Keeps records once its gate is open, and refuses them while its disk is full."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.open.set()
        self.is_full = self.lies = False
        """When it lies, it keeps what it says that it could not."""
        self.batches: list[int] = []
        self.refused = 0

    async def append(self, records: list[Record]) -> Mapping[str, RegistryError]:
        """See the base class."""
        self.batches.append(len(records))
        await self.open.wait()
        if self.is_full:
            self.refused += 1
            return dict.fromkeys(by_run(records), _FULL)
        errors = await super().append(records)
        return dict.fromkeys(by_run(records), _LIE) if self.lies else errors

    async def drop(self, runs: Sequence[str]) -> None:
        """See the base class."""
        if self.is_full:
            self.refused += 1
            raise _FULL
        await super().drop(runs)


class Served:
    """A service that is being served, without a socket."""

    def __init__(
        self, journal: Journal, clock: FakeClock | Callable[[], float], **options: Any
    ) -> None:
        self.journal: Any = journal
        self.clock: Any = clock
        self.options = Options(**options)
        self.service = self._made()
        self.task: asyncio.Task[None] | None = None

    def _made(self) -> Service:
        key, operator = hkdf(SECRET, "nodes"), OPERATOR.sha256()
        return Service(self.journal, key, operator, clock=self.clock, options=self.options)

    async def recovered(self) -> Service:
        """What another process would have, from the journal."""
        made = self._made()
        await made.sequencer.recover()
        return made

    async def is_what_the_journal_says(self, launch: Launch, other: Service | None = None) -> bool:
        """Whether a registry that is started now would have the same run."""
        there = (other or await self.recovered()).access.run(launch.run, OPERATOR, "write")
        return there.run == self.host(launch).run

    async def restart(self, away: float = 0.0) -> None:
        """The process is killed, and started again on its journal after these seconds."""
        await self.end()
        self.clock.seconds += away
        self.service = await self.recovered()
        self.start()
        await self.service.sequencer.ready.wait()

    def let_pass(self, seconds: float) -> None:
        """Let time pass of which the sweep sees the end alone; the registry was awake all along."""
        end = self.clock.seconds + seconds
        while self.clock.seconds < end:
            self.clock.seconds = min(end, self.clock.seconds + 1)
            self.service.now()

    def start(self) -> None:
        """Begin to serve."""
        self.task = asyncio.create_task(self.service.serve())

    async def end(self) -> None:
        """Stop, as a process that is killed does: nothing more is written."""
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    @property
    def is_alive(self) -> bool:
        """Whether it goes on serving."""
        return self.task is not None and not self.task.done()

    def host(self, launch: Launch) -> LiveRun:
        """A run as the service has it; raises NotFound."""
        return self.service.access.run(launch.run, OPERATOR, "write")

    async def create(self, launch: Launch, nodes: int = 2, **changes: Any) -> RunStatus:
        """Make a run."""
        return await self.service.create(launch.run, launch.spec(nodes, **changes))

    async def join(self, launch: Launch, slot: int, attempt: int = 1, **changes: Any) -> JoinReply:
        """A node asks for its slot."""
        request = launch.join(slot, attempt, **changes)
        token = launch.token(slot, request.generation)
        _, reply = await self.service.join(launch.run, token, request)
        return reply

    async def report(self, launch: Launch, slot: int, report: Report, incarnation: int = 1) -> int:
        """A node says something; returns the sequence number of the answer."""
        host = self.host(launch)
        self.service.heard(host, slot, incarnation, None)
        await self.service.report(host, slot, incarnation, report)
        return host.news_seq

    async def bring_to(self, phase: Phase, launch: Launch, nodes: int = 2, **changes: Any) -> None:
        """A new run in which all nodes have come to this phase."""
        await self.create(launch, nodes, **changes)
        await asyncio.gather(*(self.join(launch, slot) for slot in range(nodes)))
        if phase is not Phase.VERIFYING:
            everyone = range(nodes)
            probes = [make_probe(1, slot, everyone) for slot in everyone]
            await asyncio.gather(*(self.report(launch, s, probes[s]) for s in everyone))
        if phase is Phase.RUNNING:
            ack = AckReport(epoch=1, digest=self.host(launch).run.digest)
            await asyncio.gather(*(self.report(launch, s, ack) for s in range(nodes)))
        assert self.host(launch).run.phase is phase

    def poll_long(self, launch: Launch) -> None:
        """Let polls end by news alone, however long a test takes to make them."""
        self.host(launch).leases.poll = 600.0

    def watch(self, launch: Launch, after: int = 0) -> asyncio.Task[NodeView]:
        """A node's poll."""

        async def poll() -> NodeView:
            body = await self.service.watch(self.host(launch), after)
            return NodeView.model_validate_json(body.plain)

        return asyncio.create_task(poll())

    def reasons(self, launch: Launch) -> list[str]:
        """The run's events, in words."""
        return [line.reason for line in self.host(launch).lines_after(0)]


async def serving(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """For `pytest.fixture`: a service that looks at its clock so often that nobody waits for it."""
    monkeypatch.setattr(sweep, "SWEEP_SECONDS", 0.005)
    monkeypatch.setattr(retention, "_LOOK_SECONDS", 0.005)
    made = Served(TroubledJournal(), FakeClock())
    made.start()
    yield made
    await made.end()


@dataclass
class Answer:
    """What an application answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, str]:
        """Status and code of a refusal, which has the one shape of all refusals."""
        assert sorted(self.json) == ["code", "hint", "message", "retryable"]
        assert self.headers["content-type"] == "application/json"
        return self.status, self.json["code"]


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    credential: Credential | str | None = None,
    body: Any = b"",
    *,
    headers: Sequence[tuple[bytes, bytes]] = (),
    source: str = "127.0.0.1",
) -> Answer:
    """Send one request, with bytes or JSON; of a stream of events, the first lines are awaited."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    shown = credential.text() if isinstance(credential, Credential) else credential
    bearer = [] if shown is None else [(b"authorization", b"Bearer " + shown.encode())]
    length = (b"content-length", b"%d" % len(data))
    named = (b"host", SERVER_NAME.encode())
    scope = scope_of(method, path, [named, length, *bearer, *headers], source)
    requests: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]
    answers: list[Message] = []

    async def receive() -> Message:
        if not requests:
            await asyncio.get_running_loop().create_future()
        return requests.pop()

    async def send(message: Message) -> None:
        answers.append(message)
        if scope["path"].endswith("/events") and message.get("body"):
            raise asyncio.CancelledError

    task = asyncio.ensure_future(app(scope, receive, send))
    await asyncio.wait({task}, timeout=LIMIT_SECONDS)
    if not task.cancelled():
        task.result()
    start = answers[0]
    names = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], names, b"".join(a.get("body", b"") for a in answers[1:]))


def scope_of(
    method: str, path: str, headers: Sequence[tuple[bytes, bytes]], source: str
) -> dict[str, Any]:
    """A request, as uvicorn tells an application of it."""
    route, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(route) if "%" in route else route,
        "raw_path": route.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "client": (source, 4711),
        "server": ("127.0.0.1", 29600),
        "headers": headers,
    }

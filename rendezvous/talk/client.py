"""The calls of a registry, for nodes, launchers and people.

Every failure of the network becomes `Unavailable`, with what happened at each address; every
refusal becomes the error that its code names.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from rendezvous.channel import Published
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.known_table import KnownTable
from rendezvous.talk.lines import Lines
from rendezvous.talk.moving import next_address, trusted_address
from rendezvous.talk.network import UNREACHED, Line, Network, Request
from rendezvous.talk.own_name import own_name
from rendezvous.talk.retry import RANDOM, persistently, retry_pause
from rendezvous.version import rdzv_version
from rendezvous.wire.asked import DrainRequest, RestartRequest
from rendezvous.wire.errors import (
    Mismatch,
    Moved,
    RdzvError,
    RegistryError,
    StorageFull,
    Unavailable,
    error_from_code,
)
from rendezvous.wire.node import JoinReply, JoinRequest, Refusal
from rendezvous.wire.protocol import HEADER, PROTOCOL, Speaker
from rendezvous.wire.relay import RELAY_POLL_SECONDS, Parcel, RelayMail, RelayPost, RelayReply
from rendezvous.wire.reports import (
    AckReport,
    DepartReport,
    ExitReport,
    Report,
    ReportReply,
)
from rendezvous.wire.run import (
    EventLine,
    RunList,
    RunReport,
    RunSpec,
    RunStatus,
    SlotNews,
)
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.types import Problem, adapter_of
from rendezvous.wire.watch import LONGEST_POLL_SECONDS, NodeView, OtherDigest
from rendezvous.wire.words import printable

REQUEST_SECONDS = 2.0
"""Seconds. A short time-out with a new connection beats the kernel's retries, which double."""

_NOT_NOW = (Moved.status, Unavailable.status, StorageFull.status)
_QUIET_SECONDS = 30.0
"""A stream of events has an empty line now and then."""

Model = TypeVar("Model")
R = TypeVar("R", bound=Report)


def aged(report: R, seconds: float) -> R:
    """The report as it is told so much later: the registry judges by age who failed first, and a
    node that will go has so much less time."""
    if isinstance(report, DepartReport):
        return report.model_copy(update={"seconds": max(0.0, report.seconds - seconds)})
    if not isinstance(report, ExitReport):
        return report
    return report.model_copy(update={"age_seconds": report.age_seconds + seconds})


class RegistryClient:
    """A client of one registry.

    Args:
        place: Where the registry is and how it proves itself.
        credential: Sent with every request; may be set later.
        request_seconds: Time-out of one request that does not wait on purpose.
        network: The real one unless told; httpx is imported when it is dialled.
        draw: Of the pauses between tries.
    """

    def __init__(
        self,
        place: RegistryPlace,
        credential: Credential | str | None = None,
        *,
        request_seconds: float = REQUEST_SECONDS,
        network: Network | None = None,
        draw: random.Random | None = None,
    ) -> None:
        self.lines = Lines(place, request_seconds, network)
        self.credential = credential.text() if isinstance(credential, Credential) else credential
        self.pause = functools.partial(retry_pause, draw or RANDOM)
        """Seconds before the next try of what failed."""
        self._seconds = request_seconds
        self._known = KnownTable()
        self._speaker = Speaker(own_name(), PROTOCOL, rdzv_version()).header()
        self._unreached = ""
        """Where the run was said to be, and nobody could be reached."""

    async def __aenter__(self) -> RegistryClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> str:
        """Dial all addresses; returns the base URL that is used. Raises as `Lines.dial`."""
        await self.lines.dial()
        return self.base

    @property
    def base(self) -> str:
        """The base URL that is used; empty before one is."""
        return self.lines.base

    async def close(self) -> None:
        """Close all connections."""
        await self.lines.close()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: dict[str, Any] | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """Send one request, to another replica where that owns the run; returns the answer's body.

        What can be called gives the body once there is a connection, which may take its time.
        Where none could be opened, the next call dials all addresses again.
        """
        line, been = await self.lines.ready(), list[str]()
        while True:
            with self.lines.waiting(line):
                request = self._request(method, path, body() if callable(body) else body, params)
                answer = await line.request(request, seconds or self._seconds)
            if answer.status < 400:
                await self.lines.answered(line)
                self.lines.served()
                self._unreached = ""
                return answer.body
            line = await self._elsewhere(line, _refusal(answer.status, answer.body), been)

    async def _elsewhere(self, line: Line, refusal: RdzvError, been: list[str]) -> Line:
        """Where to ask again what was refused on this line; raises the refusal where nowhere.

        `been` gets this line's base URL.
        """
        if isinstance(refusal, Moved):
            been.append(line.base)
            address = next_address(self.lines.place, refusal, been)
            await self.lines.answered(line, address)
            try:
                return await self.lines.move_to(address)
            except Unavailable:
                if self._unreached == refusal.address:  # whom we ask knows, and could not help
                    self.lines.try_elsewhere()
                    raise
                # Without a pause: the owner may have seen this node's connection close.
                self._unreached = refusal.address
                return self.lines.stay(line)
        await self.lines.answered(line)
        if isinstance(refusal, Unavailable) and refusal.told:
            self.lines.not_served(line)
        raise refusal

    async def ask(
        self, model: type[Model], method: str, path: str, body: object = None, **how: Any
    ) -> Model:
        """What comes of `request`, read as that model."""
        return _parse(model, await self.request(method, path, body, **how))

    def _request(
        self, method: str, path: str, body: object, params: dict[str, Any] | None
    ) -> Request:
        headers = {"content-type": "application/json", HEADER: self._speaker}
        if self.credential is not None:
            headers["authorization"] = f"Bearer {self.credential}"
        if self._unreached:
            headers[UNREACHED] = self._unreached
        target = f"{path}?{urlencode(params)}" if params else path
        content = None if body is None else to_json(body)
        return Request(method, target, headers, content)

    async def _persistently(
        self, method: str, path: str, body: Callable[[], object] | None = None, *, late: float
    ) -> bytes:
        """As `request`, again on other connections while the answer is late."""
        return await persistently(
            lambda: self.request(method, path, body, seconds=4 * late),
            late=late,
            again_after=self._seconds / 2,
            pause=self.pause,
            on_late=self.lines.try_elsewhere,
        )

    # --- what a node says ---------------------------------------------------------------------

    async def join(self, run: str, request: JoinRequest) -> JoinReply:
        """Ask for the slot; the credential of the answer is used from then on."""
        path = f"/v1/runs/{run}/nodes"
        data = await self._persistently("POST", path, lambda: request, late=self._seconds)
        reply = _parse(JoinReply, data)
        self.credential = reply.credential
        return reply

    async def refuse(self, run: str, slot: int, refusal: Refusal) -> ReportReply:
        """Tell why this node does not join."""
        return await self.ask(ReportReply, "POST", f"/v1/runs/{run}/slots/{slot}/refusal", refusal)

    async def watch(
        self,
        run: str,
        slot: int,
        after: int,
        poll: float,
        brings: AckReport | ExitReport | None = None,
        question: int = 0,
        views: int = 0,
        importing: bool = False,
    ) -> NodeView:
        """The next news, or the present reason when there is none.

        The answer to one that brings something says that it is taken in. It comes within `poll`
        seconds, if the registry is there.
        """
        asked = f"&question={question}" * bool(question) + f"&views={views}" * bool(views)
        asked += "&importing=1" * importing
        asked += f"&wait={round(min(poll, LONGEST_POLL_SECONDS), 2):g}"
        path = f"/v1/runs/{run}/nodes/{slot}/watch?after={after}{asked}"
        late = poll + self._seconds
        if isinstance(brings, AckReport):
            path += f"&epoch={brings.epoch}&ack={brings.digest}" + "&warm=1" * brings.warm
        else:
            path += self._known.query
        if isinstance(brings, ExitReport):
            return _read(NodeView, self._known.read, await self._tell(path, brings, late=late))
        data = await self._persistently("GET", path, late=late)
        return _read(NodeView, self._known.read, data)

    async def report(self, run: str, slot: int, report: Report) -> ReportReply:
        """Tell something of this node."""
        path = f"/v1/runs/{run}/nodes/{slot}/reports"
        return _parse(ReportReply, await self._tell(path, report, late=self._seconds))

    async def _tell(self, path: str, report: Report, *, late: float) -> bytes:
        """Send a report, which gets older meanwhile; returns the answer."""
        clock = asyncio.get_running_loop().time
        began = clock()
        return await self._persistently(
            "POST", path, lambda: aged(report, clock() - began), late=late
        )

    async def publish(self, topic: Published, run: str, slot: int, message: BaseModel) -> BaseModel:
        """Send a node's message on a topic; what is lost on the way may be sent again."""
        body = message.model_dump(mode="json", exclude_defaults=True)
        reply: type[BaseModel] = topic.reply.load()
        return await self.ask(reply, "POST", f"/v1/runs/{run}/nodes/{slot}/{topic.path}", body)

    async def relay_give(self, run: str, slot: int, parcels: list[Parcel]) -> RelayReply:
        """Send frames of remote commands to other nodes."""
        post = RelayPost(parcels=parcels)
        return await self.ask(RelayReply, "POST", f"/v1/runs/{run}/nodes/{slot}/relay", post)

    async def relay_take(self, run: str, slot: int, after: int, session: str) -> RelayMail:
        """The frames of remote commands for this node after those that it has; waits for one."""
        return await self.ask(
            RelayMail,
            "GET",
            f"/v1/runs/{run}/nodes/{slot}/relay",
            params={"after": after, "session": session},
            seconds=RELAY_POLL_SECONDS + self._seconds,
        )

    # --- what a launcher or a person says -----------------------------------------------------

    async def create(self, run: str, spec: RunSpec) -> RunStatus:
        """Make a run.

        A registry refuses what it does not know of a run. A field that is as usual is not sent, so
        that one of the same protocol takes what wants nothing new of it.
        """
        said = spec.model_dump(mode="json", exclude_defaults=True)
        return await self.ask(RunStatus, "PUT", f"/v1/runs/{run}", said)

    async def cancel(self, run: str, reason: str) -> RunStatus:
        """End a run."""
        return await self.ask(RunStatus, "DELETE", f"/v1/runs/{run}", params={"reason": reason})

    async def restart(self, run: str, reason: str) -> RunStatus:
        """Start the programs of a run again."""
        path = f"/v1/runs/{run}/restart"
        return await self.ask(RunStatus, "POST", path, RestartRequest(reason=reason))

    async def drain(self, run: str, slot: int, seconds: float, reason: str) -> RunStatus:
        """Have a node leave, after so many seconds."""
        asked = DrainRequest(seconds=seconds, reason=reason)
        return await self.ask(RunStatus, "POST", f"/v1/runs/{run}/slots/{slot}/drain", asked)

    async def slot_news(self, run: str, slot: int, news: SlotNews) -> RunStatus:
        """Tell what the scheduler says of a slot."""
        return await self.ask(RunStatus, "POST", f"/v1/runs/{run}/slots/{slot}", news)

    async def status(self, run: str, *, after: int = -1, wait: float = 0.0) -> RunStatus:
        """The run's state; with `wait`, once its version is above `after`."""
        path = f"/v1/runs/{run}?after={after}&wait={wait}"
        if self.lines.place.replicas:  # another one may have the run by now
            data = await self._persistently("GET", path, late=wait + self._seconds)
            return _parse(RunStatus, data)
        return await self.ask(RunStatus, "GET", path, seconds=wait + self._seconds)

    async def checks(self, run: str) -> RunReport:
        """What was checked before the go, and what was found."""
        return await self.ask(RunReport, "GET", f"/v1/runs/{run}/report")

    async def topic(self, topic: Published, run: str, **query: int) -> Any:
        """What the registry keeps of a topic, as its `response`."""
        assert topic.response is not None
        path, shown = f"/v1/runs/{run}/{topic.name}", topic.response.load()
        return await self.ask(shown, "GET", path, params=query or None)

    async def table(self, run: str, digest: str) -> EndpointTable:
        """The run's endpoint table with this digest."""
        return await self.ask(EndpointTable, "GET", f"/v1/runs/{run}/tables/{digest}")

    async def runs(self) -> list[RunStatus]:
        """All runs of the registry, in its order; of one with replicas, by name.

        Raises Unavailable where one of the replicas does not answer.
        """
        found = await self.ask(RunList, "GET", "/v1/runs")
        if not found.others:
            return found.runs
        lists = [found.runs, *await asyncio.gather(*map(self._runs_at, found.others))]
        versions = sorted(itertools.chain(*lists), key=lambda one: (one.run, one.version))
        # One that was handed over meanwhile may be told by both: the newer one counts.
        return list({one.run: one for one in versions}.values())

    async def _runs_at(self, address: str) -> list[RunStatus]:
        """Those of another replica, which proves itself as this one has."""
        lines = self.lines
        place = replace(lines.place, addresses=(trusted_address(lines.place, address),))
        async with RegistryClient(
            place, self.credential, request_seconds=self._seconds, network=lines.network
        ) as other:
            try:
                return (await other.ask(RunList, "GET", "/v1/runs")).runs
            except RegistryError as exc:
                words = f"the replica at {address}: {exc.message}"
                raise Unavailable(words, hint=exc.hint) from exc

    async def events(self, run: str, after: int = 0) -> AsyncGenerator[EventLine, None]:
        """The run's events as they happen, until the run is over."""
        request = self._request("GET", f"/v1/runs/{run}/events", None, {"after": after})
        line, been = await self.lines.ready(), list[str]()
        while True:
            with self.lines.waiting(line):
                async with line.stream(request, _QUIET_SECONDS) as answer:
                    if answer.status < 400:
                        if been:
                            await self.lines.answered(line)
                        async for text in answer.lines():
                            if text:
                                yield _parse(EventLine, text.encode())
                        return
                    refusal = _refusal(answer.status, await answer.read())
            line = await self._elsewhere(line, refusal, been)


def _parse(model: type[Model], data: bytes) -> Model:
    return _read(model, adapter_of(cast(Any, model)).validate_json, data)


def _read(model: type[Model], read: Callable[[bytes], Model], data: bytes) -> Model:
    try:
        return read(data)
    except OtherDigest as exc:
        raise Unavailable(str(exc)) from exc
    except ValidationError as exc:
        raise Unavailable(
            f"the registry's answer is not a valid {model.__name__}: {exc.errors()[0]['msg']}",
            hint="another program may have answered",
        ) from exc


def _refusal(status: int, body: bytes) -> RdzvError:
    try:
        problem = Problem.model_validate_json(body)
    except ValidationError:
        return Unavailable(f"the registry answered {status}: {printable(repr(body), 200)}")
    error = error_from_code(problem.code, problem.message, problem.hint)
    if problem.retryable and not error.retryable:  # a code that this version does not know
        error = Unavailable(problem.message, hint=problem.hint)
    if isinstance(error, Mismatch):
        error.command_word = problem.command_word
    if isinstance(error, Moved):
        error.address = problem.address or ""
    if isinstance(error, RegistryError) and status in _NOT_NOW:
        error.told = True
    return error

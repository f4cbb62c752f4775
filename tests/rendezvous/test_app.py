"""The application without a socket."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from rendezvous.registry.app import make_app
from rendezvous.registry.journal import MemoryJournal
from rendezvous.serving.connection import Connection
from rendezvous.serving.limiter import Pace, Strangers
from rendezvous.talk.credentials import SERVER_NAME, Credential, parse_credential
from rendezvous.wire.errors import InternalError, Unavailable
from rendezvous.wire.reports import AckReport, ExitReport
from rendezvous.wire.run import Phase
from rendezvous.wire.table import EndpointTable, canonical_json
from rendezvous.wire.verify import ProbeReport
from rendezvous.wire.watch import NodeView
from tests.support.driver import make_probe, make_refusal
from tests.support.exposition import parsed, value
from tests.support.mangle import CANARY
from tests.support.registry import Launch, is_waiting
from tests.support.served import OPERATOR, Answer, FakeClock, Served, ask, serving
from tests.support.virtual_time import run_virtually
from tests.support.waiting import soon


class Door:
    """The registry's application, and who may call it."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.launch = Launch("demo")
        self.app: ASGIApp = make_app(served.service, allowed_hosts=[SERVER_NAME])
        self.nodes: dict[int, Credential | None] = {}

    async def ask(self, method: str, path: str, credential: Any, body: Any = b"") -> Answer:
        """Send a request about the run."""
        return await ask(self.app, method, f"/v1/runs/demo{path}", credential, body)

    async def create(self, nodes: int = 2, **changes: Any) -> Answer:
        """Make the run."""
        spec = self.launch.spec(nodes, lease_seconds=2, **changes)
        return await self.ask("PUT", "", OPERATOR, spec.model_dump(mode="json"))

    async def join(self, slot: int, **changes: Any) -> Answer:
        """A node asks for its slot."""
        request = json.loads(to_json(self.launch.join(slot, **changes)))
        answer = await self.ask("POST", "/nodes", self.launch.token(slot), request)
        if answer.status == 200:
            self.nodes[slot] = parse_credential(answer.json["credential"])
        return answer

    async def watch(self, slot: int, after: int | str = 0) -> Answer:
        """A node's poll."""
        return await self.ask("GET", f"/nodes/{slot}/watch?after={after}", self.nodes[slot])

    async def report(self, slot: int, report: Any) -> Answer:
        """A node says something."""
        said = report if isinstance(report, dict) else report.model_dump(mode="json")
        return await self.ask("POST", f"/nodes/{slot}/reports", self.nodes[slot], said)

    async def arm(self, nodes: int = 2, **changes: int) -> NodeView:
        """A run whose table is sealed."""
        await self.create(nodes, **changes)
        for slot in range(nodes):
            await self.join(slot)
        for slot in range(nodes):
            await self.report(slot, make_probe(1, slot, range(nodes)))
        return view_of(await self.watch(0))


def view_of(answer: Answer) -> NodeView:
    """What a watch answered."""
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    return NodeView.model_validate_json(answer.body)


served = pytest.fixture(serving)


@pytest.fixture
def door(served: Served) -> Door:
    """The application."""
    return Door(served)


# A run


async def test_health_needs_no_credential_and_says_that_it_is_rdzv(door: Door) -> None:
    answer = await ask(door.app, "GET", "/healthz")
    assert (answer.status, answer.body, "x-rdzv" in answer.headers) == (200, b"ok\n", True)


async def test_a_registry_is_ready_while_its_journal_answers_and_until_it_closes(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked() -> tuple[int, str]:
        answer = await ask(door.app, "GET", "/readyz")
        return answer.status, answer.body.decode() if answer.status == 200 else str(answer.problem)

    def is_away() -> None:
        raise Unavailable("the journal is away")

    assert await asked() == (200, "ok\n")
    with monkeypatch.context() as patch:
        patch.setattr(door.served.service.place, "check_ready", is_away)
        assert await asked() == (503, "(503, 'unavailable')")
    assert await asked() == (200, "ok\n")
    door.served.service.closing.set()
    assert await asked() == (503, "(503, 'unavailable')")


async def test_a_node_that_refuses_to_join_ends_the_run_and_is_answered_alike_each_time(
    door: Door,
) -> None:
    await door.create()
    await door.join(0)
    refusal, token = make_refusal(1).model_dump(), door.launch.token(1)
    for _ in range(2):
        answer = await door.ask("POST", "/slots/1/refusal", token, refusal)
        assert (answer.status, answer.json) == (200, {"seq": 2})
    result = view_of(await door.watch(0)).result
    assert result is not None
    assert (result.slot, result.hostname, result.exit_code) == (1, "host1", 2)


async def test_the_table_is_the_same_bytes_for_everyone_and_named_by_its_digest(door: Door) -> None:
    view = await door.arm(3)
    bodies = [(await door.watch(slot)).body for slot in range(3)]
    assert len(set(bodies)) == 1
    for digest in ("0" * 64, "x", "%0a"):
        answer = await door.ask("GET", f"/tables/{digest}", door.launch.keys.read)
        assert answer.problem == (404, "not_found")
    answer = await door.ask("GET", f"/tables/{view.digest}", door.launch.keys.read)
    assert EndpointTable.model_validate_json(answer.body) == view.table
    assert view.table is not None
    assert canonical_json(answer.json) == view.table.canonical()
    assert view.table.digest() == view.digest


async def test_an_acknowledgement_comes_with_a_watch_as_it_comes_as_a_report(
    served: Served, door: Door
) -> None:
    view = await door.arm()
    brings = f"{view.seq}&epoch=1&ack={view.digest}&warm=1"
    served.poll_long(door.launch)
    first = asyncio.create_task(door.watch(0, brings))
    await soon(lambda: "node 0 (host0) is ready" in served.reasons(door.launch)[-1])
    again = asyncio.create_task(door.watch(0, brings))  # its answer was lost
    assert await is_waiting(first)
    assert await is_waiting(again)
    known = len(served.reasons(door.launch))
    ack = AckReport(epoch=1, digest=view.digest)
    assert (await door.report(1, ack)).status == 200  # from an older node
    for poll in (first, again):
        assert view_of(await poll).phase is Phase.RUNNING
    assert len(served.reasons(door.launch)) == known + 1
    assert served.host(door.launch).run.starts.warm == 1


async def test_a_watch_waits_no_longer_than_its_node_expects(served: Served, door: Door) -> None:
    view = await door.arm(max_restarts=1)
    served.poll_long(door.launch)
    for slot in (0, 1):
        await door.report(slot, AckReport(epoch=1, digest=view.digest))
    seq = served.host(door.launch).news_seq
    assert view_of(await door.watch(0, f"{seq}&wait=0.05")).seq == seq
    path = f"/nodes/0/watch?after={seq}&wait=0.05"
    ended = ExitReport(epoch=1, exit_code=0).model_dump(mode="json")
    assert view_of(await door.ask("POST", path, door.nodes[0], ended)).seq == seq
    longer = asyncio.create_task(door.watch(0, f"{seq}&wait=600"))
    assert await is_waiting(longer)
    served.host(door.launch).leases.poll = 0.05
    assert view_of(await door.watch(1, f"{seq}&wait=600")).seq == seq
    longer.cancel()


async def test_a_watch_that_brings_an_acknowledgement_is_answered_once_that_is_durable(
    served: Served, door: Door
) -> None:
    view = await door.arm(1)
    served.journal.open.clear()
    for ack in ("", f"&epoch=1&ack={view.digest}"):
        poll = asyncio.create_task(door.watch(0, f"0{ack}"))
        assert await is_waiting(poll) is bool(ack)
    assert served.host(door.launch).news_seq == view.seq
    served.journal.open.set()
    assert view_of(await poll).phase is Phase.RUNNING


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("epoch=1&ack=" + "0" * 64, (409, "mismatch")),
        ("epoch=1&ack=0", (400, "bad_request")),
        ("epoch=1&ack=", (400, "bad_request")),
        ("epoch=x&ack=" + "0" * 64, (400, "bad_request")),
        ("epoch=0&ack=" + "0" * 64, None),
        ("ack=" + "0" * 64, None),
    ],
)
async def test_a_watch_acknowledges_the_table_of_its_epoch_and_no_other(
    served: Served, door: Door, query: str, problem: tuple[int, str] | None
) -> None:
    await door.arm()
    answer = await door.watch(0, f"0&{query}")
    assert answer.problem == problem if problem else view_of(answer).phase is Phase.ARMING
    assert not any("is ready" in reason for reason in served.reasons(door.launch))


async def test_the_end_of_a_program_comes_with_a_watch_as_it_comes_as_a_report(
    served: Served, door: Door
) -> None:
    """It is answered once it is durable, and there is news: here that programs start again."""
    view = await door.arm(max_restarts=1)
    for slot in (0, 1):
        await door.report(slot, AckReport(epoch=1, digest=view.digest))
    await door.report(1, ExitReport(epoch=1, exit_code=7))
    stop = view_of(await door.watch(0))
    ended = ExitReport(epoch=1, exit_code=143, stopped=True).model_dump(mode="json")
    brings = "POST", f"/nodes/0/watch?after={stop.seq}", door.nodes[0], ended
    served.journal.open.clear()
    first = asyncio.create_task(door.ask(*brings))
    assert (stop.stop, await is_waiting(first)) == (True, True)
    served.journal.open.set()
    again = view_of(await first)
    assert (again.phase, again.epoch) == (Phase.ARMING, 2)
    known = served.reasons(door.launch)
    assert view_of(await door.ask(*brings)) == again  # its answer was lost
    assert served.reasons(door.launch) == known


async def test_a_large_table_is_compressed_for_those_who_take_it(served: Served) -> None:
    door = Door(served)
    await door.arm(120)
    url = "/v1/runs/demo/nodes/7/watch?after=0"
    plain = await ask(door.app, "GET", url, door.nodes[7])
    gzipped = (b"accept-encoding", b"gzip")
    small = await ask(door.app, "GET", url, door.nodes[7], headers=[gzipped])
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) == len(small.body) < len(plain.body) / 3
    assert gzip.decompress(small.body) == plain.body


async def test_a_cancelled_run_keeps_the_reason_without_control_characters(door: Door) -> None:
    await door.create()
    path = "?reason=a%0ab%1b%5B31mc"
    answer = await door.ask("DELETE", path.replace("%0a", "\n"), door.launch.keys.admin)
    assert answer.status == 200
    words = answer.json["result"]["message"]
    assert words.startswith("run 'demo' was cancelled: a?b")
    assert "\n" not in words
    assert "\x1b" not in words
    assert (await door.ask("DELETE", "", door.launch.keys.admin)).json["result"] == answer.json[
        "result"
    ]


async def test_metrics_are_prometheus_text(door: Door) -> None:
    await door.create()
    await door.join(0)
    answer = await ask(door.app, "GET", "/metrics", OPERATOR)
    assert answer.headers["content-type"].startswith("text/plain")
    found = parsed(answer.body.decode())
    assert value(found, "rdzv_joins_total") == 1
    assert value(found, "rdzv_runs", phase="gathering") == 1


async def test_the_operator_may_read_the_description_of_all_routes(door: Door) -> None:
    answer = await ask(door.app, "GET", "/v1/openapi.json", OPERATOR)
    assert answer.json == json.loads((Path(__file__).parents[2] / "docs/openapi.json").read_text())


# Refusals


async def test_only_the_operator_may_send_a_large_body(door: Door) -> None:
    assert len((await door.create(1_500)).json["slots"]) == 1_500
    spec = door.launch.spec(1_500).model_dump(mode="json")
    answer = await door.ask("PUT", "", door.launch.keys.admin, spec)
    assert answer.problem == (403, "forbidden")
    answer = await door.ask("POST", "/slots/0", door.launch.keys.admin, spec)
    assert answer.problem == (413, "too_large")
    answer = await door.ask("POST", "/slots/0", None, spec)
    assert answer.problem == (401, "unauthorized")


async def test_a_fault_of_the_registry_is_one_500_without_its_cause(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    await door.create()
    await door.join(0)
    host = door.served.host(door.launch)
    host.leases.heard = None  # type: ignore[assignment,method-assign]  # no sweep calls it
    answer = await door.watch(0)
    assert answer.problem == (500, InternalError.code)
    assert "NoneType" not in answer.body.decode()
    assert "NoneType" in caplog.text
    host._crowded = None  # type: ignore[assignment]  # nor this
    answer = await door.ask("GET", "", door.launch.keys.read)
    assert answer.problem == (500, InternalError.code)


def test_the_wrong_credentials_of_one_source_are_slowed_down() -> None:
    async def work() -> None:
        served = Served(MemoryJournal(), FakeClock())
        served.start()
        door, wrong = Door(served), Launch("demo").keys
        await door.create()
        answers: list[Answer] = []
        for path, credential in [("", wrong.read), ("/nodes/0/watch", wrong.read), ("", None)] * 7:
            started = asyncio.get_running_loop().time()
            answers.append(await door.ask("GET", path, credential))
        assert [answer.status for answer in answers[:20]] == ([404, 401, 401] * 7)[:20]
        assert asyncio.get_running_loop().time() - started > 0.5  # the peer has to wait for it
        assert answers[20].problem == (429, "too_many_requests")
        assert answers[20].headers["retry-after"] == "1"
        assert answers[20].json["retryable"] is True
        right = await door.ask("GET", "", door.launch.keys.read)
        elsewhere = await ask(door.app, "GET", "/v1/runs/demo", wrong.read, source="10.0.0.9")
        assert (right.status, elsewhere.status) == (200, 404)
        await served.end()

    run_virtually(work())


def connected(app: ASGIApp) -> ASGIApp:
    """The application, as on one connection."""
    connection = Connection("10.0.0.9")

    async def on_it(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {"connection": connection}}, receive, send)

    return on_it


def seconds_of(shown: Credential | None, *paths: str) -> float:
    """How long requests take that come one after the other on a connection."""

    async def work() -> float:
        app = make_app(Served(MemoryJournal(), FakeClock()).service, allowed_hosts=[SERVER_NAME])
        door = connected(app)
        for path in paths:
            assert (await ask(door, "GET", path, shown)).status == 200
        return asyncio.get_running_loop().time()

    return run_virtually(work())


def test_a_connection_without_a_credential_is_paced_and_one_with_it_is_not() -> None:
    assert seconds_of(None, *["/healthz"] * 4) == 2.0  # two at once, the others a second apart
    assert seconds_of(OPERATOR, "/healthz", "/metrics", *["/healthz"] * 40) == 0.0


def test_what_a_node_asked_before_it_was_known_is_not_counted_against_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A source may bring as many nodes as it has."""
    monkeypatch.setattr(Strangers, "SOURCE", Pace(2, 1.0))

    async def work() -> float:
        served = Served(MemoryJournal(), FakeClock())
        served.start()
        door = Door(served)
        await door.create(8)
        app = door.app
        for slot in range(8):
            door.app = connected(app)
            assert (await ask(door.app, "GET", "/healthz")).status == 200
            assert (await door.join(slot)).status == 200
        await served.end()
        return asyncio.get_running_loop().time()

    assert run_virtually(work()) == 0.0


async def test_what_is_not_there_is_no_wrong_credential(served: Served) -> None:
    door = Door(served)
    await door.create()
    for _ in range(30):
        table = await door.ask("GET", "/tables/0", door.launch.keys.read)
        run = await ask(door.app, "GET", "/v1/runs/nosuch", OPERATOR)
        assert (table.problem, run.problem) == ((404, "not_found"), (404, "not_found"))


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/v1/runs/x/zzz", b"", "not_found"),
        ("PUT", "/v1/runs/x/nodes", b"", "method_not_allowed"),
        ("PUT", "/v1/runs/x", b"{}", "forbidden"),
        ("POST", "/v1/runs/x/nodes", b"{}", "bad_request"),
        ("POST", "/v1/runs/x/nodes", bytes(70_000), "too_large"),
    ],
    ids=["path", "method", "role", "body", "length"],
)
def test_a_credential_of_a_nodes_kind_does_not_flood_where_it_is_not_looked_at(
    method: str, path: str, body: bytes, code: str
) -> None:
    async def work() -> None:
        app = make_app(Served(MemoryJournal(), FakeClock()).service, allowed_hosts=[SERVER_NAME])
        door, forged = connected(app), Credential("join", bytes(32), 0, 1)
        asked = [await ask(door, method, path, forged, body) for _ in range(21)]
        codes = [answer.json["code"] for answer in asked]
        assert codes == [code] * 20 + ["too_many_requests"]
        assert asyncio.get_running_loop().time() > 0.5  # the peer has to wait for it

    run_virtually(work())


# Bad input: every refusal is a 4xx in the one shape, and says nothing of what was sent

JOIN = json.loads(to_json(Launch("demo").join(0)))
OFFERED = JOIN["candidates"][0]
TEXT = json.dumps(JOIN | {"hostname": CANARY})
PROGRESS = {"kind": "progress", "epoch": 1}
REFUSAL = make_refusal(0).model_dump()
SPEC = Launch("demo").spec(2).model_dump(mode="json")


# One of each way in which a body is no JSON, or a message is not as its model says: what each
# field takes is in test_schema.py.
BAD: dict[tuple[str, str, str], list[Any]] = {
    ("POST", "/nodes", "join"): [
        *(b"", b'{"slot": 0, "gen', [], None, CANARY, {"slot": 0, CANARY: 1}),
        *(b'{"slot":' + b"[" * 30_000, b'{"slot":' + b"[" * 20_000 + b"]" * 20_000 + b"}"),
        *(TEXT.replace('"mtu": 0', f'"mtu": {odd}').encode() for odd in ("NaN", "1e999")),
        TEXT.replace('"slot": 0', '"slot": ' + "9" * 6000).encode(),
        *(TEXT.encode().replace(b"canary", b"can\xff\xfe"), TEXT.encode("utf-16")),
        *(JOIN | {"hostname": CANARY + odd} for odd in ("\ud800", "\0", "\x1b[2J", "\n1 bank")),
        *(JOIN | {"slot": CANARY}, JOIN | {"nproc_per_node": 2**70}, JOIN | {"slot": -1}),
        *(JOIN | {"hostname": CANARY * 100}, JOIN | {"join_id": f"{CANARY}/../../x"}),
        *(JOIN | {"candidates": [OFFERED | {name: CANARY}]} for name in ("address", "kind", "mac")),
    ],
    ("POST", "/nodes/0/reports", "node"): [
        *(b"", [CANARY], {"epoch": 1}, {"kind": CANARY}, {"kind": {CANARY: 1}}),
        *(PROGRESS | {"words": words} for words in (f"{CANARY}\x1b]0;x\x07", CANARY * 100)),
        {"kind": "refuse", "epoch": 1, "code": CANARY, "reason": "x"},
        b'{"kind":"exit","epoch":1,"exit_code":0,"age_seconds":NaN}',
    ],
    ("POST", "/slots/0/refusal", "join"): [
        *(b"", REFUSAL | {"code": f"{CANARY} "}, REFUSAL | {"reason": f"{CANARY}\x1b]0;x\x07"}),
        *(REFUSAL | {"exit_code": odd} for odd in (0, 256)),
    ],
    ("POST", "/slots/0", "admin"): [
        *(b"", b"[" * 60_000, {"generation": 1, "state": CANARY}),
        {"generation": 1, "state": "submitting", "token_sha256": CANARY},
    ],
    ("PUT", "", "registry"): [
        *(b"", SPEC | {"launch_id": CANARY.upper()}, SPEC | {"secret_value": CANARY}),
        *(SPEC | {"min_nodes": 3}, SPEC | {"limits": {"lease_seconds": 0.1}}),
    ],
}


@pytest.mark.parametrize(
    ("method", "path", "kind", "body"),
    [
        pytest.param(*call, body, id=f"{call[1]} {str(body)[:40]}")
        for call, bodies in BAD.items()
        for body in bodies
    ],
)
async def test_bad_input_is_refused_without_an_echo(
    door: Door, method: str, path: str, kind: str, body: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await door.create()
    await door.join(0)
    before = copy.deepcopy(door.served.host(door.launch).run)
    token, admin = door.launch.token(0), door.launch.keys.admin
    shown = {"join": token, "node": door.nodes[0], "admin": admin, "registry": OPERATOR}
    answer = await door.ask(method, path, shown[kind], body)
    assert answer.problem == (400, "bad_request")
    assert CANARY not in answer.body.decode().lower()
    assert CANARY not in caplog.text.lower()
    assert door.served.host(door.launch).run == before


PATHS = (
    *("/", "/v1", "/docs", "/redoc", "/openapi.json", "/v1/runs/", "/v1/runs/demo/"),
    *("/v1/runs/demo/nodes/", "/v1/runs/demo/nodes/0", "/v1/runs/demo/nodes/0/watch/"),
    *("/v1/runs/demo/nodes/-1/watch", "/v1/runs/demo/nodes/0/other", "/v1/runs/demo/../demo"),
    *("/v1/runs//demo", "//v1/runs/demo", "/V1/runs/demo"),
    *("/healthz\n", "/v1/runs\n", "/v1/runs/demo\n", "/v1/runs/demo/nodes/0/watch\n"),
)
NAMES = (".", "..", "a b", "é", "-x", "a" * 64, "a\x00b", "a\nb", "%", "a'b")


@pytest.mark.parametrize(
    ("method", "path"),
    [*(("GET", path) for path in PATHS), *(("PUT", f"/v1/runs/{name}") for name in NAMES)],
)
async def test_a_path_that_is_no_route_leads_nowhere(door: Door, method: str, path: str) -> None:
    body = door.launch.spec(2).model_dump(mode="json") if method == "PUT" else b""
    answer = await ask(door.app, method, path, OPERATOR, body)
    assert answer.problem[0] in (400, 404)
    assert (await door.served.service.statuses()).runs == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", f"?wait={value}") for value in ("nan", "inf", "-1", "26", CANARY)),
        *(("GET", f"?after={value}") for value in ("1.5", CANARY)),
        ("GET", f"/events?after={CANARY}"),
        *(("GET", f"/nodes/0/watch?after={value}") for value in ("", "1.5", "1e3", CANARY)),
        *(("GET", f"/nodes/0/watch?wait={value}") for value in ("nan", "-0.1", "601", CANARY)),
        ("DELETE", "?reason=" + CANARY * 100),
    ],
)
async def test_a_bad_query_is_refused_without_an_echo(door: Door, method: str, path: str) -> None:
    await door.create()
    await door.join(0)
    shown = door.nodes[0] if "/nodes/" in path else door.launch.keys.admin
    answer = await door.ask(method, path, shown)
    assert answer.problem == (400, "bad_request")
    assert CANARY not in answer.body.decode()


async def test_of_a_key_that_stands_twice_the_last_one_counts_and_new_ones_are_ignored(
    door: Door,
) -> None:
    await door.create()
    body = (
        json.dumps(JOIN | {"hostname": "first", "colour": ["new"]})[:-1] + ', "hostname": "last"}'
    )
    answer = await door.ask("POST", "/nodes", door.launch.token(0), body.encode())
    door.nodes[0] = parse_credential(answer.json["credential"])
    status = await door.served.service.status(door.served.host(door.launch))
    assert status.slots[0].hostname == "last"
    assert (await door.report(0, {"kind": "leave", "colour": 1})).status == 200


async def test_a_join_that_is_refused_for_good_is_told_to_the_people(door: Door) -> None:
    await door.create()
    body = json.loads(to_json(door.launch.join(0))) | {"job": {"nnodes": "4"}}
    answer = await door.ask("POST", "/nodes", door.launch.token(0), body)
    assert answer.problem == (409, "mismatch")
    status = await door.ask("GET", "", door.launch.keys.read)
    assert status.json["slots"][0]["problem"] == answer.json["message"]
    assert status.json["result"]["message"] == answer.json["message"]


async def test_a_node_is_heard_of_with_each_of_its_requests(door: Door) -> None:
    await door.create()
    await door.join(0)
    host = door.served.host(door.launch)
    for request in (door.watch(0), door.report(0, ProbeReport(epoch=9)), door.join(0)):
        door.served.clock.seconds += 0.4
        assert host.leases.silent_seconds((0, 1), door.served.service.now()) > 0
        await request
        assert host.leases.silent_seconds((0, 1), door.served.service.now()) == 0

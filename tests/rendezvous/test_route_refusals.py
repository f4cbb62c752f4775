"""What a refused request is told, word by word, and which of several reasons it is told."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import pytest

from rendezvous.registry.app import ROUTES, make_app
from rendezvous.registry.routes.launchers import MAX_SPEC_BYTES
from rendezvous.serving.guard import MAX_BODY_BYTES
from rendezvous.talk.credentials import (
    SERVER_NAME,
    metrics_credential,
    new_tenant_credential,
    node_credential,
    registry_credential,
)
from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import HEADER, PROTOCOL
from rendezvous.wire.run import Phase
from rendezvous.wire.tenant import TenantRequest
from tests.support.registry import Launch
from tests.support.served import OPERATOR, Answer, Served, ask, serving

DEMO, OTHER = Launch("demo"), Launch("other")
WATCH = "/v1/runs/demo/nodes/0/watch"
TENANT, STRANGER = new_tenant_credential(), new_tenant_credential()

served = pytest.fixture(serving)


class Fault(NamedTuple):
    """What is wrong with a request, and what it is told."""

    request: dict[str, Any]
    status: int
    code: str
    message: str


def long(length: int, limit: int) -> Fault:
    """A body that is too long."""
    words = f"The request body has {length} bytes; the limit here is {limit}."
    return Fault({"body": bytes(length)}, 413, "too_large", words)


OWN = f"this registry speaks protocol {PROTOCOL} (rdzv {rdzv_version()})"
FAULTS: dict[str, Fault] = {
    "page": Fault(
        {"origin": "https://evil.example"}, 403, "forbidden",
        "The registry does not answer requests made by web pages.",
    ),
    "longest": long(MAX_SPEC_BYTES + 1, MAX_SPEC_BYTES),
    "host": Fault(
        {"host": "evil.example"}, 400, "bad_request",
        "The registry does not have the host name 'evil.example'.",
    ),
    "protocol": Fault(
        {HEADER: f"{PROTOCOL + 1} 0.9 the launcher on h1"}, 409, "other_protocol",
        f"the launcher on h1 speaks protocol {PROTOCOL + 1} (rdzv 0.9), but {OWN}",
    ),
    "method": Fault(
        {"method": "PATCH"}, 405, "method_not_allowed", f"{WATCH} does not support PATCH"
    ),
    "credential": Fault({"shown": None}, 401, "unauthorized", "this request needs a credential"),
    "query": Fault(
        {"query": "?after=x"}, 400, "bad_request",
        "after: Input should be a valid integer, unable to parse string as an integer",
    ),
    "long": long(MAX_BODY_BYTES + 1, MAX_BODY_BYTES),
    "body": Fault({"body": {"epoch": 1}}, 400, "bad_request", "exit_code: Field required"),
}  # fmt: skip
"""In the order in which they are looked for: nothing of a request is read before it may be made."""


class Door:
    """The application, to which each request comes from another address."""

    def __init__(self, served: Served) -> None:
        self._app = make_app(served.service, allowed_hosts=[SERVER_NAME])
        self._count = 0

    async def ask(self, *request: Any, **more: Any) -> Answer:
        """Send one request."""
        self._count += 1
        return await ask(self._app, *request, source=f"10.0.0.{self._count}", **more)

    async def watch(self, shown: Any, *faults: Fault) -> Answer:
        """Send a watch with all of these faults."""
        given: dict[str, Any] = {"method": "POST", "query": "", "shown": shown, "body": {}}
        for fault in reversed(faults):
            given |= fault.request
        headers = [(name.encode(), given[name].encode()) for name in given.keys() - _PARTS]
        path = WATCH + given["query"]
        return await self.ask(given["method"], path, given["shown"], given["body"], headers=headers)


_PARTS = {"method", "query", "shown", "body"}


@pytest.fixture
async def door(served: Served) -> Door:
    """The application, with a run that runs."""
    await served.bring_to(Phase.RUNNING, DEMO, 2)
    await served.service.tenants.put("t", TenantRequest(prefix="t.", sha256=TENANT.sha256()))
    return Door(served)


async def test_of_several_reasons_the_first_is_told(served: Served, door: Door) -> None:
    shown = served.service.access.node_credential(served.host(DEMO), 0, 1)
    for fault in FAULTS.values():
        answer = await door.watch(shown, fault)
        told = answer.problem, answer.json["message"]
        assert told == ((fault.status, fault.code), fault.message)
    for first, second in combinations(FAULTS, 2):
        answer = await door.watch(shown, FAULTS[first], FAULTS[second])
        assert answer.json["message"] == FAULTS[first].message, (first, second)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"epoch": 1}, "exit_code: Field required"),
        ({}, "epoch: Field required (and 1 more)"),
        ({"rank": "x"}, "epoch: Field required (and 2 more)"),
        (b"[]", "the body: Input should be an object"),
    ],
)
async def test_what_is_wrong_with_a_body_is_named_and_the_rest_counted(
    body: Any, message: str, served: Served, door: Door
) -> None:
    shown = served.service.access.node_credential(served.host(DEMO), 0, 1)
    answer = await door.watch(shown, Fault({"body": body}, 0, "", ""))
    assert (answer.problem, answer.json["message"]) == ((400, "bad_request"), message)


async def test_an_unknown_kind_of_report_is_not_quoted(served: Served, door: Door) -> None:
    shown = served.service.access.node_credential(served.host(DEMO), 0, 1)
    path = "/v1/runs/demo/nodes/0/reports"
    answer = await door.ask("POST", path, shown, {"kind": "secret"})
    assert answer.json["message"] == "the body: unknown kind"


NOT_YOURS = "there is no run 'demo' here, or it is not yours"
NO_NODE = "this credential does not belong to a node of run 'demo'"
OPERATOR_ONLY = "this request needs the credential of the registry's operator"
KEYS = DEMO.keys


@pytest.mark.parametrize(
    ("method", "path", "shown", "status", "message"),
    [
        # the registry itself
        ("GET", "/v1/tenants", KEYS.admin, 403, OPERATOR_ONLY),
        ("GET", "/v1/runs", KEYS.admin, 403, OPERATOR_ONLY),
        ("GET", "/v1/runs", registry_credential(bytes(31)), 401,
         "this is not the credential of this registry's operator"),
        ("GET", "/v1/runs", STRANGER, 401,
         "this is not the credential of a tenant of this registry"),
        ("GET", "/metrics", KEYS.admin, 403,
         "this request needs the metrics credential of the registry, or its operator's"),
        ("GET", "/metrics", metrics_credential("0" * 64), 401,
         "this is not the metrics credential of this registry"),
        ("PUT", "/v1/runs/demo", TENANT, 403,
         "tenant 't' can only make runs whose ID begins with 't.'"),
        # a run
        ("GET", "/v1/runs/none", OPERATOR, 404, "there is no run 'none' here"),
        ("GET", "/v1/runs/t.none", TENANT, 404,
         "there is no run 't.none' here, or it is not yours"),
        *(("GET", "/v1/runs/demo", shown, 404, NOT_YOURS)
          for shown in (OTHER.keys.admin, TENANT, DEMO.token(1))),
        ("GET", "/v1/runs/demo", KEYS.look, 403,
         "a look credential cannot read the state of a run"),
        ("DELETE", "/v1/runs/demo", KEYS.read, 403, "a read credential cannot change a run"),
        ("GET", "/v1/runs/demo/words", KEYS.look, 403,
         "a look credential cannot read the output of a run"),
        ("GET", "/v1/runs/demo/tables/0", KEYS.read, 404, "run 'demo' has no table 0 now"),
        # a node
        *(("GET", WATCH, shown, 401, NO_NODE) for shown in (KEYS.admin, DEMO.token(0), OPERATOR)),
        ("GET", WATCH, node_credential(bytes(32), "demo", "launch01", 0, 1), 401, NO_NODE),
        ("GET", "/v1/runs/demo/nodes/9/watch", OPERATOR, 401, NO_NODE),
        ("GET", "/v2/runs", OPERATOR, 404, "there is no /v2/runs here"),
    ],
)  # fmt: skip
async def test_whom_a_route_refuses_is_told_why(
    method: str, path: str, shown: Any, status: int, message: str, door: Door
) -> None:
    answer = await door.ask(method, path, shown)
    assert (answer.status, answer.json["message"]) == (status, message)


async def test_a_node_is_told_whose_place_it_asks_for(served: Served, door: Door) -> None:
    access, run = served.service.access, served.host(DEMO)
    other = await door.ask("GET", WATCH, access.node_credential(run, 1, 1))
    assert other.json["message"] == "a node of slot 1 cannot act for slot 0"
    run.run.slots[0].node = None
    old = await door.ask("GET", WATCH, access.node_credential(run, 0, 1))
    assert old.json["message"] == "slot 0: incarnation 1 has been replaced"
    assert old.json["hint"] == "a newer worker run has this slot, or the slot was given up"


async def test_no_route_reads_a_body_before_it_knows_who_sends_it(door: Door) -> None:
    long_body = bytes(MAX_BODY_BYTES + 1)
    for route in ROUTES:
        path = route.path_format.format(run="demo", tenant="t", node=0, slot=0, digest="0" * 64)
        answer = await door.ask(route.method, path, None, long_body)
        allowed = {"healthz", "readyz"}
        assert answer.status == (200 if route.name in allowed else 401), route.name

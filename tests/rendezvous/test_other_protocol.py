"""A peer that speaks another protocol is refused by name; both numbers and what to do are said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic_core import to_json

from rendezvous.registry.app import ROUTES, make_app
from rendezvous.talk.credentials import SERVER_NAME
from rendezvous.talk.own_name import name_of
from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import HEADER, PROTOCOL, Speaker, same_rdzv
from tests.support.driver import make_refusal
from tests.support.registry import Launch
from tests.support.served import OPERATOR, Answer, Served, ask, serving

OWN = f"this registry speaks protocol {PROTOCOL} (rdzv {rdzv_version()})"
DEMO = Launch("demo")

served = pytest.fixture(serving)


# --- the names of clients


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("rdzv launch --nnodes 2 -- status", "the launcher on h1"),
        ("/bin/python -E /app/rdzv_command.py worker -- launch", "the node on h1"),
        ("/bin/python -I -m rdzv _torchrun", "the rendezvous of torchrun on h1"),
        ("rdzv _torchrun_host", "the rendezvous of torchrun on h1"),
        ("rdzv ui r", "the page of 'rdzv ui' on h1"),
        ("/usr/bin/rdzv --version", "rdzv on h1"),
        ("rdzv", "rdzv on h1"),
        ("python -m pytest launch", "rdzv on h1"),
        *((f"rdzv {name} r", f"'rdzv {name}' on h1") for name in ("status", "logs", "cancel")),
    ],
)
def test_a_process_is_named_by_its_command(words: str, name: str) -> None:
    assert name_of(words.split(), "h1") == name


# --- the registry


class Door:
    """The registry's application, asked by a client of this protocol."""

    def __init__(self, served: Served) -> None:
        self.app = make_app(served.service, allowed_hosts=[SERVER_NAME])

    async def ask(
        self, method: str, path: str, shown: Any = None, body: Any = b"", says: str | None = None
    ) -> Answer:
        """Send a request that says so in its header."""
        headers = [] if says is None else [(HEADER.encode(), says.encode())]
        return await ask(self.app, method, path, shown, body, headers=headers)

    async def create(self) -> Answer:
        """Make the run."""
        spec = DEMO.spec(2).model_dump(mode="json")
        return await self.ask("PUT", "/v1/runs/demo", OPERATOR, spec)

    async def join(self, slot: int, shown: Any = None, **changes: Any) -> Answer:
        """Ask for the slot; what is None is left out."""
        body = json.loads(to_json(DEMO.join(slot))) | changes
        body = {name: value for name, value in body.items() if value is not None}
        return await self.ask("POST", "/v1/runs/demo/nodes", shown or DEMO.token(slot), body)


@pytest.fixture
def door(served: Served) -> Door:
    """The application."""
    return Door(served)


OTHER = f"{PROTOCOL + 1} 0.9 the launcher on h1"


async def test_every_request_of_another_protocol_is_refused_but_for_those_of_all(
    door: Door,
) -> None:
    await door.create()
    for route in ROUTES:
        path = route.path_format.format(run="demo", tenant="t", node=0, slot=0, digest="0" * 64)
        answer = await door.ask(route.method, path, OPERATOR, says=OTHER)
        is_refused = answer.status == 409 and answer.json["code"] == "other_protocol"
        assert is_refused is not route.role.any_protocol, route.name
    assert {route.name for route in ROUTES if route.role.any_protocol} == {
        "join", "refuse", "healthz", "readyz",
    }  # fmt: skip


async def test_the_refusal_names_the_client_both_numbers_and_what_to_do(door: Door) -> None:
    await door.create()
    for method, path in (("GET", "/v1/runs"), ("PUT", "/v1/runs/demo"), ("GET", "/v2/unknown")):
        answer = await door.ask(method, path, OPERATOR, says=OTHER)
        assert answer.json == {
            "code": "other_protocol",
            "message": f"the launcher on h1 speaks protocol {PROTOCOL + 1} (rdzv 0.9), but {OWN}",
            "hint": same_rdzv(rdzv_version()),
            "retryable": False,
        }


@pytest.mark.parametrize("says", [None, f"{PROTOCOL} 0.0.1 'rdzv status' on h1"])
async def test_a_person_and_another_version_of_the_same_protocol_are_served(
    says: str | None, door: Door
) -> None:
    await door.create()
    assert (await door.ask("GET", "/v1/runs/demo", OPERATOR, says=says)).status == 200


async def test_who_dials_hears_the_registrys_own_number(door: Door) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await door.ask("GET", path, says=OTHER)
        assert answer.status == 200
        said = Speaker.from_header(answer.headers[HEADER])
        assert said == Speaker("this registry", PROTOCOL, rdzv_version())


# --- its nodes

FORMS: dict[str, dict[str, Any]] = {
    "the same fields": {},
    "others": {"candidates": "10.0.0.1", "join_id": None, "nproc_per_node": [8], "new": 7},
}


@pytest.mark.parametrize("form", FORMS)
async def test_a_node_of_another_protocol_ends_its_run_by_name(form: str, door: Door) -> None:
    """Whatever else its join is made of."""
    await door.create()
    facts = {"rdzv_version": "0.9", "other": [1]}
    answer = await door.join(1, protocol=PROTOCOL + 1, facts=facts, **FORMS[form])
    words = f"slot 1 (host1) speaks protocol {PROTOCOL + 1} (rdzv 0.9), but {OWN}"
    assert answer.problem == (409, "other_protocol")
    assert answer.json["message"] == words
    result = (await door.ask("GET", "/v1/runs/demo", DEMO.keys.read)).json["result"]
    assert (result["code"], result["exit_code"], result["message"]) == ("mismatch", 77, words)
    assert result["hint"] == same_rdzv(rdzv_version())


async def test_a_node_without_a_number_speaks_an_unknown_protocol(door: Door) -> None:
    await door.create()
    answer = await door.join(1, protocol=None, facts=None)
    assert answer.problem == (409, "other_protocol")
    words = "slot 1 (host1) speaks an unknown protocol (an unknown rdzv), but"
    assert answer.json["message"].startswith(words)


async def test_a_stranger_of_another_protocol_ends_nothing(door: Door) -> None:
    await door.create()
    answer = await door.join(1, DEMO.token(0), protocol=PROTOCOL + 1)
    assert answer.status == 401
    assert (await door.ask("GET", "/v1/runs/demo", OPERATOR)).json["result"] is None


async def test_a_node_that_is_in_stays_whoever_else_asks_for_its_slot(door: Door) -> None:
    await door.create()
    assert (await door.join(1)).status == 200
    answer = await door.join(1, protocol=PROTOCOL + 1)
    assert answer.problem == (409, "other_protocol")
    assert (await door.ask("GET", "/v1/runs/demo", OPERATOR)).json["result"] is None


async def test_what_is_wrong_with_a_join_of_this_protocol_is_said(door: Door) -> None:
    await door.create()
    answer = await door.join(1, candidates=[])
    assert answer.problem == (400, "bad_request")
    assert answer.json["message"].startswith("candidates: ")
    for body in (b"", b"[]", b'{"protocol": 7}'):
        answer = await door.ask("POST", "/v1/runs/demo/nodes", DEMO.token(1), body)
        assert answer.problem == (400, "bad_request")


async def test_why_a_node_does_not_join_is_heard_in_any_protocol(door: Door) -> None:
    await door.create()
    said = make_refusal(1).model_dump(mode="json")
    path = "/v1/runs/demo/slots/1/refusal"
    assert (await door.ask("POST", path, DEMO.token(1), said, says=OTHER)).status == 200
    run = (await door.ask("GET", "/v1/runs/demo", OPERATOR)).json
    assert said["reason"] in json.dumps(run)

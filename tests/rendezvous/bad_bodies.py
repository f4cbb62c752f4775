"""Bodies that are bad by one thing, for each route that takes a body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.driver import make_refusal
from tests.support.mangle import CANARY
from tests.support.registry import Launch


def join_body(**changes: Any) -> dict[str, Any]:
    """A join of slot 0 with changes."""
    body: dict[str, Any] = Launch("demo").join(0).model_dump(mode="json")
    return body | changes


def candidate(**changes: Any) -> list[dict[str, Any]]:
    """The only candidate of a join, with changes."""
    body: dict[str, Any] = join_body()["candidates"][0]
    return [body | changes]


BAD_JOINS: dict[str, Any] = {
    "nothing": b"",
    "cut off": b'{"slot": 0, "gen',
    "a list": [],
    "null": None,
    "text": CANARY,
    "NaN": json.dumps(join_body()).replace('"mtu": 0', '"mtu": NaN').encode(),
    "infinity": json.dumps(join_body()).replace('"mtu": 0', '"mtu": Infinity').encode(),
    "an overflow": json.dumps(join_body()).replace('"mtu": 0', '"mtu": 1e999').encode(),
    "text for a number": join_body(slot="0"),
    "a float for a number": join_body(slot=0.0),
    "a boolean for a number": join_body(nproc_per_node=True),
    "a number for text": join_body(hostname=7),
    "a huge number": json.dumps(join_body()).replace('"slot": 0', '"slot": ' + "9" * 6000).encode(),
    "a large number": join_body(nproc_per_node=2**70),
    "a negative number": join_body(slot=-1),
    "too deep": b'{"slot":' + b"[" * 30_000,
    "deep and complete": b'{"slot":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "no UTF-8": json.dumps(join_body(hostname=CANARY)).encode().replace(b"canary", b"can\xff\xfe"),
    "UTF-16": json.dumps(join_body()).encode("utf-16"),
    "a lone surrogate": json.dumps(join_body(hostname=f"{CANARY}\ud800")).encode(),
    "a NUL": join_body(hostname=f"{CANARY}\0"),
    "an escape sequence": join_body(hostname=f"{CANARY}\x1b[2J"),
    "a line feed": join_body(hostname=f"{CANARY}\n127.0.0.1 bank"),
    "a long name": join_body(hostname=CANARY * 100),
    "no candidate": join_body(candidates=[]),
    "many candidates": join_body(candidates=candidate() * 65),
    "a name for an address": join_body(candidates=candidate(address=CANARY)),
    "a number for an address": join_body(candidates=candidate(address=2130706433)),
    "an odd kind": join_body(candidates=candidate(kind=CANARY)),
    "an odd mac": join_body(candidates=candidate(mac=CANARY)),
    "an odd join id": join_body(join_id=f"{CANARY}/../../x"),
    "a missing key": {"slot": 0, CANARY: 1},
}
BAD_REPORTS: dict[str, Any] = {
    "nothing": b"",
    "an unknown kind": {"kind": CANARY},
    "a kind that is no text": {"kind": {CANARY: 1}},
    "no kind": {"epoch": 1},
    "a list": [CANARY],
    "an odd code": {"kind": "refuse", "epoch": 1, "code": CANARY, "reason": "x"},
    "no digest": {"kind": "ack", "epoch": 1, "digest": CANARY},
    "a late age": b'{"kind":"exit","epoch":1,"exit_code":0,"age_seconds":NaN}',
    "a code out of range": {"kind": "exit", "epoch": 1, "exit_code": 256},
    "a long tail": {"kind": "exit", "epoch": 1, "exit_code": 1, "tail": [CANARY] * 41},
    "text for a number": {"kind": "progress", "epoch": "1", "words": CANARY},
    "an escape sequence": {"kind": "progress", "epoch": 1, "words": f"{CANARY}\x1b]0;x\x07"},
    "long words": {"kind": "progress", "epoch": 1, "words": CANARY * 100},
}
BAD_NEWS: dict[str, Any] = {
    "nothing": b"",
    "an odd state": {"generation": 1, "state": CANARY},
    "too deep": b"[" * 60_000,
    "no UTF-8": b'{"generation": 1, "state": "queued", "detail": "\xff"}',
    "NaN": b'{"generation": NaN, "state": "queued"}',
    "text for a number": {"generation": "1", "state": "queued"},
    "no digest": {"generation": 1, "state": "submitting", "token_sha256": CANARY},
}
BAD_REFUSALS: dict[str, Any] = {
    "nothing": b"",
    "an odd code": make_refusal(0).model_dump() | {"code": f"{CANARY} "},
    "long words": make_refusal(0).model_dump() | {"reason": CANARY * 100},
    "an escape sequence": make_refusal(0).model_dump() | {"reason": f"{CANARY}\x1b]0;x\x07"},
    "an end without a failure": make_refusal(0).model_dump() | {"exit_code": 0},
    "a code out of range": make_refusal(0).model_dump() | {"exit_code": 256},
}
BAD_SPECS: dict[str, Any] = {
    "nothing": b"",
    "an odd launch": {"launch_id": CANARY.upper()},
    "no digest": {"read_sha256": CANARY},
    "other sizes": {"min_nodes": 3},
    "too few tokens": {"token_sha256": ["0" * 64]},
    "a lease that is too short": {"limits": {"lease_seconds": 0.1}},
    "NaN": b'{"launch_id": "abcdefgh", "min_nodes": NaN}',
    "a key that it does not know": {"secret_value": CANARY},
}


def refusals() -> Iterator[Any]:
    """Every bad body with the route and the credential that it is sent with."""
    for name, body in BAD_JOINS.items():
        yield pytest.param("POST", "/nodes", "join", body, id=f"join: {name}")
    for name, body in BAD_REPORTS.items():
        yield pytest.param("POST", "/nodes/0/reports", "node", body, id=f"report: {name}")
    for name, body in BAD_REFUSALS.items():
        yield pytest.param("POST", "/slots/0/refusal", "join", body, id=f"refusal: {name}")
    for name, body in BAD_NEWS.items():
        yield pytest.param("POST", "/slots/0", "admin", body, id=f"news: {name}")
    for name, changes in BAD_SPECS.items():
        body = changes
        if isinstance(changes, dict):
            body = Launch("demo").spec(2).model_dump(mode="json") | changes
        yield pytest.param("PUT", "", "registry", body, id=f"spec: {name}")

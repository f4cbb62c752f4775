"""Secret variables, sealed for the nodes of one launch: what is read back, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.sealed_variables import NONCE, NotSealedHere, excess, pack, seal, unseal
from rendezvous.wire.sealed import MOST_SEALED_BYTES, SealedVariables

KEY = RunKeys(bytes(range(32)), "r", "launch").row_key
FRESH = bytes(range(NONCE))
LAUNCH: Any = {"run": "r", "launch_id": "launch"}
VALUES = {"HF_TOKEN": "hf_x", "PER_NODE": "key-{slot}-{{slot}}", "ODD": "a\nü\udcff{slot}"}
KNOWN = (
    "AQcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHqqm9+RUMPj1xfWrNhdS3sABk6HlKL8QWxpTzBUmZ"
    "3siKhnnwjgN9OptMF3xZ/qKU"
)


def opened(sealed: str, key: bytes = KEY, slot: int = 3, **more: Any) -> dict[str, str]:
    return unseal(sealed, key, slot=slot, **LAUNCH | more)


def test_every_node_reads_what_was_sealed_with_its_own_slot_where_that_was_asked_for() -> None:
    sealed = seal(pack(VALUES, ["PER_NODE"]), KEY, FRESH, **LAUNCH)
    assert opened(sealed) == VALUES | {"PER_NODE": "key-3-{3}"}
    assert opened(sealed, slot=11)["PER_NODE"] == "key-11-{11}"
    assert SealedVariables(sealed=sealed).sealed == sealed
    assert opened(seal(pack({}), KEY, FRESH, **LAUNCH)) == {}


def test_what_is_sealed_is_the_same_in_every_version_and_shows_nothing() -> None:
    sealed = seal(pack({"A": "secret"}), KEY, b"\x07" * NONCE, **LAUNCH)
    assert sealed == KNOWN
    assert b"secret" not in base64.b64decode(sealed)
    other = seal(pack({"A": "secret"}), KEY, b"\x08" * NONCE, **LAUNCH)
    assert base64.b64decode(other)[33:] != base64.b64decode(sealed)[33:]


def test_what_was_changed_at_any_place_or_cut_anywhere_is_refused() -> None:
    whole = base64.b64decode(KNOWN)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x40
        with pytest.raises(NotSealedHere):
            opened(base64.b64encode(changed).decode())
        with pytest.raises(NotSealedHere):
            opened(base64.b64encode(whole[:at]).decode())
    for text in ("", "!", "ü", "A", KNOWN + "AAAA"):
        with pytest.raises(NotSealedHere):
            opened(text)


@pytest.mark.parametrize(
    "other",
    [
        {"run": "s"},
        {"launch_id": "launch2"},
        {"run": "r|launch", "launch_id": ""},
        {"key": RunKeys(bytes(32), "r", "launch").row_key},
    ],
)
def test_what_another_launch_has_sealed_is_refused(other: dict[str, Any]) -> None:
    assert opened(KNOWN) == {"A": "secret"}
    with pytest.raises(NotSealedHere, match="not sealed by a launcher of this launch"):
        opened(KNOWN, **other)


def test_it_is_known_by_how_much_there_is_too_much() -> None:
    room = MOST_SEALED_BYTES - 65 - len(pack({"A": ""}))
    assert (excess({"A": "x" * room}), excess({"A": "x" * (room + 7)})) == (0, 7)
    assert SealedVariables(sealed=seal(pack({"A": "x" * room}), KEY, FRESH, **LAUNCH))

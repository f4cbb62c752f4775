"""Join strings, and the other words that carry everything."""

from __future__ import annotations

import base64
import json
import re
import socket
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.talk.certificate import key_from_secret, make_certificate, public_key_pin
from rendezvous.talk.credentials import Credential, RunKeys, base64url, registry_credential
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    RegistryString,
    group_token_text,
    own_port,
    parse_group_token,
    with_port,
    without_secrets,
)
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import UsageError
from rendezvous.wire.protocol import PROTOCOL

SECRET = bytes(range(32))
KEYS = RunKeys(SECRET, "r", "launch")
CERTIFICATE = make_certificate(SECRET)
PLACE = RegistryPlace(
    ("10.0.0.1", "fd00:10:20::1", "rank0.example.org"), 29_600, "certificate", CERTIFICATE.der
)
JOIN = JoinString(PLACE, "r", "launch", 3, 2, KEYS.join_token(3, 2), KEYS.row_key, KEYS.probe_key)
REGISTRY = RegistryString(PLACE, registry_credential(SECRET))
TENANT = RegistryString(PLACE, Credential("tenant", SECRET))
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


WORDS: dict[str, tuple[Callable[[], str], Callable[[str], Any], object]] = {
    "RDZV_JOIN": (JOIN.text, JoinString.parse, JOIN),
    "RDZV_REGISTRY": (REGISTRY.text, RegistryString.parse, REGISTRY),
    "RDZV_TOKEN": (lambda: group_token_text(SECRET), parse_group_token, SECRET),
}
each_word = pytest.mark.parametrize("variable", WORDS)


def test_a_tenants_word_is_that_of_a_registry_with_another_credential() -> None:
    text = TENANT.text()
    assert text.startswith("rdzvreg1-")
    assert RegistryString.parse(text) == TENANT


@each_word
def test_a_word_is_read_back_and_neither_yaml_nor_a_shell_touches_it(variable: str) -> None:
    write, parse, meant = WORDS[variable]
    text = write()
    assert parse(text) == parse(f"  {text}\n") == meant
    assert WORD.match(text)


def test_a_join_string_with_a_certificate_and_three_addresses_is_below_a_kilobyte() -> None:
    assert len(JOIN.text()) < 1_024


@pytest.mark.parametrize(
    "place",
    [
        RegistryPlace(("127.0.0.1",), 29_600),
        RegistryPlace(("10.0.0.1", "::1"), 1, "public_key", public_key_pin(SECRET)),
        RegistryPlace(("::1",), 1, "certificate", b"\x00\x00\x17"),  # AAAX
        RegistryPlace(("10.0.0.1:7", "[fd00::1]:8"), 1, replicas=True),
        PLACE,
    ],
)
def test_a_place_is_read_back_from_json(place: RegistryPlace) -> None:
    assert RegistryPlace.from_json(json.loads(json.dumps(place.to_json()))) == place


def test_only_replicas_are_written_as_such() -> None:
    assert set(PLACE.to_json()) == {"a", "p", "t", "c"}
    value = replace(PLACE, replicas=True).to_json()
    assert value == PLACE.to_json() | {"m": True}
    assert not RegistryPlace.from_json(value | {"m": 1}).replicas


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("10.0.0.1:29600", ("10.0.0.1", 29_600)),
        ("rank0.example.org:1", ("rank0.example.org", 1)),
        ("[fd00::1]:65535", ("fd00::1", 65_535)),
        ("10.0.0.1", None),
        ("fd00:10:20::1", None),
        ("::1", None),
        ("fd00::1:29600", None),
        ("[fd00::1]", None),
        ("10.0.0.1:", None),
        ("10.0.0.1:0", None),
        ("10.0.0.1:65536", None),
        ("10.0.0.1:-1", None),
        ("10.0.0.1:\u0661", None),
        ("a b:1", None),
        ("http://10.0.0.1:1", None),
        (":1", None),
        ("10.0.0.1:1\n", None),
        ("", None),
    ],
)
def test_an_address_may_have_a_port_of_its_own(address: str, found: tuple[str, int] | None) -> None:
    assert own_port(address) == found
    assert found is None or with_port(*found) == address
    assert PLACE.host_and_port(address) == (found or (address, 29_600))


@pytest.mark.parametrize(
    ("addresses", "words"),
    [
        (("a", "b"), "port 29600 of a, b"),
        (("a", "b:29600"), "port 29600 of a, b"),
        (("a:7", "b:7"), "port 7 of a, b"),
        (("a", "[::1]:7"), "a:29600, [::1]:7"),
        ((), "port 29600 of "),
        (tuple(f"10.0.0.{n}" for n in range(1, 251)), "port 29600 of 10.0.0.1 and 249 more"),
    ],
)
def test_where_a_registry_is_in_words(addresses: tuple[str, ...], words: str) -> None:
    assert RegistryPlace(addresses, 29_600).where() == words


REPLICAS = replace(PLACE, addresses=("a:1", "b:2", "c:3"), replicas=True)


def test_the_clients_of_a_run_dial_the_same_replica_first_and_runs_spread() -> None:
    orders = [REPLICAS.ordered_for(f"run-{number}").addresses for number in range(300)]
    again = replace(REPLICAS, addresses=("c:3", "b:2", "a:1"))
    assert [again.ordered_for(f"run-{number}").addresses for number in range(300)] == orders
    assert REPLICAS.ordered_for("run-0") == replace(REPLICAS, addresses=orders[0])
    first = Counter(order[0] for order in orders)
    assert all(70 < first[address] < 130 for address in REPLICAS.addresses)
    assert PLACE.ordered_for("run-0") is PLACE


def test_without_a_replica_its_runs_alone_go_elsewhere() -> None:
    two = replace(REPLICAS, addresses=("a:1", "c:3"))
    for number in range(50):
        order = list(REPLICAS.ordered_for(f"run-{number}").addresses)
        order.remove("b:2")
        assert list(two.ordered_for(f"run-{number}").addresses) == order


def refused_quietly(variable: str, text: str) -> str:
    """The refusal of a word; neither it nor its cause may show a key."""
    with pytest.raises(UsageError) as caught:
        WORDS[variable][1](text)
    shown = str(caught.value) + repr(caught.value) + str(caught.value.__cause__)
    for key in (SECRET, JOIN.token.secret, JOIN.row_key, JOIN.probe_key):
        assert base64url(key) not in shown
        assert repr(key) not in shown
    return str(caught.value)


@each_word
def test_a_word_that_was_cut_quoted_or_folded_is_refused(variable: str) -> None:
    text = WORDS[variable][0]()
    for length in {0, 1, 6, 8, 9, 10, 13, 20, len(text) // 2, len(text) - 2, len(text) - 1}:
        assert variable in refused_quietly(variable, text[:length])
    for spoil in ("{} {}", "{}\n{}", '"{}{}"', "{}ü{}", "{}%{}"):
        assert variable in refused_quietly(variable, spoil.format(text[:40], text[40:]))


@each_word
def test_a_word_that_was_altered_is_refused(variable: str) -> None:
    text = WORDS[variable][0]()
    for place in range(text.index("-") + 1, len(text) - 1, 7):
        other = "B" if text[place] == "A" else "A"
        words = refused_quietly(variable, text[:place] + other + text[place + 1 :])
        assert f"{variable} is damaged" in words
        assert f"pass it as a file ({variable}_FILE)" in words


@each_word
def test_another_word_is_refused_with_what_it_should_begin_with(variable: str) -> None:
    for name in WORDS.keys() - {variable}:
        words = refused_quietly(variable, WORDS[name][0]())
        assert f"{variable} does not begin with 'rdzv" in words
        assert f"{variable}, or its file in {variable}_FILE" in words


PARTS = json.loads(zlib.decompress(base64.urlsafe_b64decode(JOIN.text()[6:] + "==")[:-4]))


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in PARTS),
        {"s": "three"},
        {"g": []},
        {"s": float("inf")},
        {"g": 1.5},
        {"s": -1},
        {"s": True},
        {"w": {"a": ["10.0.0.1"], "p": 1e400, "t": "plain", "c": ""}},
        {"w": {"a": ["10.0.0.1"], "p": 70_000, "t": "plain", "c": ""}},
        {"r": "../../etc"},
        {"r": "a\n[31mb"},
        {"r": 5},
        {"j": "AAAA"},
        {"k": "not base64!"},
        {"w": {"a": ["10.0.0.1"], "p": 1, "t": "blindly", "c": ""}},
        {"w": {"a": ["10.0.0.1"], "p": 1, "t": "plain"}},
        {"w": []},
    ],
    ids=str,
)
def test_a_join_string_with_a_part_missing_or_odd_is_refused(changes: dict[str, object]) -> None:
    value = {key: part for key, part in (PARTS | changes).items() if part is not None}
    words = refused_quietly("RDZV_JOIN", _pack("rdzv1-", value))
    assert words.startswith("RDZV_JOIN is complete, but a part of it is missing")


OTHER = PARTS | {"n": PROTOCOL + 1, "v": "0.9\n"}


def test_a_join_string_of_another_protocol_is_taken_as_long_as_it_can_be_read() -> None:
    """The registry refuses its node, so that the run hears of it."""
    assert JoinString.parse(_pack("rdzv1-", OTHER)) == JOIN


def test_a_join_string_of_another_protocol_that_cannot_be_read_names_both() -> None:
    with pytest.raises(UsageError) as refused:
        JoinString.parse(_pack("rdzv1-", {"n": OTHER["n"], "v": OTHER["v"], "new": 7}))
    assert refused.value.message == (
        f"the launcher that wrote RDZV_JOIN speaks protocol {PROTOCOL + 1} (rdzv 0.9?), but the "
        f"rdzv of this node ({socket.gethostname()}) speaks protocol {PROTOCOL} "
        f"(rdzv {rdzv_version()})"
    )
    assert refused.value.hint.endswith("Try: pip install rdzv==0.9?")


def test_the_numbers_of_a_join_string_are_taken_up_to_their_bounds() -> None:
    def parse(slot: int, port: int) -> JoinString:
        place = {"a": ["10.0.0.1"], "p": port, "t": "plain", "c": ""}
        return JoinString.parse(_pack("rdzv1-", PARTS | {"s": slot, "w": place}))

    read = [parse(slot, port) for slot, port in ((0, 0), (1_000_000, 65_535))]
    assert [(join.slot, join.place.port) for join in read] == [(0, 0), (1_000_000, 65_535)]
    for slot, port in ((1_000_001, 1), (1, 65_536)):
        with pytest.raises(UsageError, match="a part of it is missing"):
            parse(slot, port)


NO_OBJECTS = (b"[]", b"7", b"[" * 50_000, b'{"a": ' + b"1" * 2_000_000 + b"}", b"\xff")


@pytest.mark.parametrize("packed", [b"", b"no zlib", *map(zlib.compress, NO_OBJECTS)])
def test_a_word_that_holds_no_object_or_a_bomb_is_refused(packed: bytes) -> None:
    refused_quietly("RDZV_JOIN", _word("rdzv1-", packed))


@pytest.mark.parametrize(("size", "found"), [(1_000_000, "is complete"), (1_000_001, "is damaged")])
def test_a_word_is_unpacked_up_to_a_million_bytes(size: int, found: str) -> None:
    packed = zlib.compress(b"{" + b" " * (size - 2) + b"}")
    assert f"RDZV_JOIN {found}" in refused_quietly("RDZV_JOIN", _word("rdzv1-", packed))


@pytest.mark.parametrize(
    ("variable", "prefix"), [("RDZV_REGISTRY", "rdzvreg1-"), ("RDZV_TOKEN", "rdzvtok1-")]
)
@pytest.mark.parametrize("value", [{}, {"s": "AAAA", "g": "AAAA"}], ids=str)
def test_the_other_words_need_their_parts_too(variable: str, prefix: str, value: object) -> None:
    words = refused_quietly(variable, _pack(prefix, value))
    assert words.startswith(f"{variable} is complete, but a part of it is missing")


def _word(prefix: str, packed: bytes) -> str:
    return prefix + base64url(packed + zlib.crc32(packed).to_bytes(4, "big"))


def _pack(prefix: str, value: object) -> str:
    return _word(prefix, zlib.compress(json.dumps(value).encode()))


def test_what_a_stranger_repeats_has_none_of_our_secret_words() -> None:
    for write, _, _ in WORDS.values():
        word = write()
        assert without_secrets(f'env: "{word}" is odd') == 'env: "(hidden)" is odd'
        assert without_secrets(f"RDZV_JOIN={word[:40]}") == "RDZV_JOIN=(hidden)"
    harmless = "rdzv-k7f2a9c1xy-1-1 of rdzv 1-2, rdzv1 and myrdzv1-x"
    assert without_secrets(harmless) == harmless


# --- nothing secret is shown ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing", [KEYS, KEYS.read, KEYS.join_token(1, 1), JOIN, REGISTRY, CERTIFICATE], ids=type
)
def test_no_secret_is_shown_by_repr(thing: object) -> None:
    shown = repr(thing) + str(thing)
    private = key_from_secret(SECRET).private_numbers().private_value
    for secret in (SECRET, KEYS.read.secret, KEYS.join_token(1, 1).secret, JOIN.token.secret,
                   KEYS.row_key, KEYS.probe_key, REGISTRY.credential.secret):  # fmt: skip
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown
        assert base64url(secret) not in shown
    assert "PRIVATE KEY" not in shown
    assert str(private) not in shown

"""Keys and credentials, and what nodes sign and prove with the row key of their run."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.talk.credentials import (
    Credential,
    RunKeys,
    hkdf,
    metrics_credential,
    new_secret,
    node_credential,
    parse_credential,
    registry_credential,
)
from rendezvous.talk.macs import command_mac, row_is_genuine, sign_join, word_macs
from rendezvous.wire.node import MOST_COMMAND_WORDS
from rendezvous.wire.table import TableRow
from tests.support.driver import make_candidate, make_join

SECRET = bytes(range(32))
KEYS = RunKeys(SECRET, "r", "launch")
A = "A" * 43


# --- keys -----------------------------------------------------------------------------------------


def test_hkdf_gives_the_published_bytes() -> None:
    """RFC 5869, A.3: SHA-256, no salt, no info."""
    assert hkdf(b"\x0b" * 22, "", 42) == bytes.fromhex(
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    )


def test_every_use_has_a_key_of_its_own() -> None:
    runs = [KEYS, RunKeys(SECRET, "other", "launch"), RunKeys(SECRET, "r", "other"),
            RunKeys(bytes(32), "r", "launch")]  # fmt: skip
    secrets: list[bytes] = []
    for keys in runs:
        secrets += [keys.read.secret, keys.admin.secret, keys.row_key, keys.probe_key]
        secrets += [keys.look.secret, keys.logs.secret]
        for slot, number in itertools.product((1, 11), (1, 11)):
            node = node_credential(keys.secret, keys.run, keys.launch_id, slot, number)
            secrets += [keys.join_token(slot, number).secret, node.secret]
    operator = registry_credential(SECRET)
    secrets += [operator.secret, metrics_credential(operator.sha256()).secret]
    assert len(set(secrets)) == len(secrets) == 58
    assert {len(secret) for secret in secrets} == {32}


def test_what_is_derived_from_a_secret_is_the_same_in_every_version_and_read_back() -> None:
    """An operator's string and a journal outlive the version that wrote them."""
    credentials = [
        KEYS.join_token(0, 1),
        node_credential(SECRET, "r", "launch", 3, 2),
        KEYS.read,
        KEYS.admin,
        registry_credential(SECRET),
        KEYS.look,
        KEYS.logs,
        metrics_credential(registry_credential(SECRET).sha256()),
        Credential("tenant", SECRET),
    ]
    of_most = node_credential(SECRET, "r", "launch", 19_999, 7)
    assert all(parse_credential(one.text()) == one for one in (*credentials, of_most))
    assert [credential.text() for credential in credentials] == [
        "j.0.1.Aq6GEFU8WSsht89EqeSGOLNj4NpilHtYDAqgbp3wEPw",
        "n.3.2.42tmK5us8u89ucd9HWfdpNGY2E7w4jAyWOiwUNv7pOo",
        "r._H10aGuvmIHFfZm_IcoC_cvy9ClJRYMMyTNrZMoIdUg",
        "a.wehuy8wyti4oXqRwK9QW76MW7IV15WIP1Sps_PR7_Oo",
        "g.IWBfVATKzZj8cJ3kxQpGFlPdJohGfOzrYILPsD3mqF4",
        "l.5zefkIdSfsE1dWdzCcjNXMbh8s5HYVqifTg0L1JaoBI",
        "o.Q7QKpraumWL0Hv0Ce7qASGApH3vmCKjmxqxVs5oelKM",
        "m.TVBa3jKnVqrXOqApgPQIiG4sDil45Vj0-ivTx2LkC74",
        "t.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    ]
    assert [KEYS.row_key.hex(), KEYS.probe_key.hex()] == [
        "50160274b8a87da3defd647fca3776972072d4e96cca2133df6099238bc2ec16",
        "4e448375122f65a82ae4acb1802203f5ddcdf550f0632ad43826d9d6b1874dd2",
    ]


def test_a_new_secret_has_256_bits_and_is_new() -> None:
    secrets = {new_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert {len(secret) for secret in secrets} == {32}


# --- credentials ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("", "...", "j.1.2.", f"r.{A[1:]}", f"r.A{A}"),
        *(f"r.{A[1:]}{end}" for end in ("=", "ü", "\n", " ", "B")),
        *(f"{kind}.{A}" for kind in ("x", "j", "R", "r.1.2", "j.1", "j.1.2.3", "j.-1.2", "j.+1.2")),
        *(f"{kind}.{A}" for kind in ("j..2", "j.1.99999999", "j.\u0661.2", "j.²2.2", "n.0.01")),
        *(f"j.00.1.{A}", "j.1.1." + "\0" * 43),
    ],
)
def test_what_is_no_credential_is_none(text: str) -> None:
    assert parse_credential(text) is None


def test_a_credential_matches_its_own_hash_alone() -> None:
    assert KEYS.read.matches(KEYS.read.sha256())
    assert not KEYS.read.matches(KEYS.admin.sha256())
    assert not KEYS.read.matches("")
    assert not KEYS.read.matches("ü")


# --- what nodes sign and prove --------------------------------------------------------------------


HERE = {"run": "r", "launch_id": "launch"}


def signed_row() -> TableRow:
    offered = [make_candidate("10.0.0.1"), make_candidate("10.0.0.2", "ib0", 16)]
    join = make_join(1, hostname="host1", nproc_per_node=8, candidates=offered)
    signed = sign_join(join, KEYS.row_key, **HERE)
    return signed.row(signed.candidates[1], node=5)


def test_what_a_node_left_out_is_signed_as_what_it_offers() -> None:
    join = replace(make_join(1), left_out=[make_candidate("100.64.0.2", "wg0", 32)])
    signed = sign_join(join, KEYS.row_key, **HERE)
    for one in (*signed.candidates, *signed.left_out):
        assert row_is_genuine(signed.row(one), KEYS.row_key, run="r", launch_id="launch")


def test_what_a_node_signs_is_the_same_in_every_version() -> None:
    row = signed_row()
    text = b'["row","r","launch",1,"host1","ib0","10.0.0.2",16,8]'
    assert row.signed_text("r", "launch") == text
    assert row.mac == "27fa45545f3b0cdd4476b8c46ae7a0837e26ade3889930816ab4643e1bca1e6d"
    mac = command_mac(bytes(range(32)), digest="d", sender=0, target=1, number=2, command=b"true")
    assert mac == "d072c66adaa1d319214c27fd7e853fc5efa78014e3495ba4dbbc73e4d008a0c1"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slot", 2),
        ("hostname", "host2"),
        ("address", "10.0.0.3"),
        ("interface", "eth0"),
        ("prefix_length", 24),
        ("nproc_per_node", 4),
        ("mac", ""),
        ("mac", "0" * 64),
        ("mac", "\ud800"),
    ],
)
def test_a_row_is_genuine_in_its_run_whatever_its_rank_until_somebody_changes_it(
    field: str, value: Any
) -> None:
    row = replace(signed_row(), node=0)
    here: dict[str, Any] = {**HERE}
    assert row_is_genuine(row, KEYS.row_key, **here)
    for other in ({"run": "other"}, {"launch_id": "other"}, {"generation": 1}):
        assert not row_is_genuine(row, KEYS.row_key, **here | other)
    assert not row_is_genuine(row, KEYS.probe_key, **here)
    assert not row_is_genuine(replace(row, **{field: value}), KEYS.row_key, **here)


def test_words_of_a_command_are_told_apart_by_place_and_value_under_the_runs_key() -> None:
    made = word_macs(KEYS.row_key, ["a", "b", "a", "\udcff"], **HERE)
    assert made == word_macs(KEYS.row_key, ("a", "b", "a", "\udcff"), **HERE)
    assert len({*made}) == 4
    others = [
        word_macs(bytes(32), ["a"], **HERE),
        word_macs(KEYS.row_key, ["a"], run="other", launch_id="launch"),
        word_macs(KEYS.row_key, ["a"], run="r", launch_id="other"),
        word_macs(KEYS.row_key, ["a "], **HERE),
    ]
    assert len({made[0], *(other[0] for other in others)}) == 5
    assert word_macs(KEYS.row_key, [], **HERE) == []


def test_of_a_long_command_what_lies_behind_is_one_mac() -> None:
    words = ["x"] * 300
    made = word_macs(KEYS.row_key, words, **HERE)
    assert len(made) == MOST_COMMAND_WORDS + 1
    changed = word_macs(KEYS.row_key, [*words[:-1], "y"], **HERE)
    assert made[:128] == changed[:128]
    assert made[128] != changed[128]
    assert word_macs(KEYS.row_key, words[:128], **HERE) == made[:128]

"""Keys and credentials."""

from __future__ import annotations

import itertools
import re

import pytest

from rendezvous.talk.credentials import (
    Credential,
    RunKeys,
    hkdf,
    new_secret,
    node_credential,
    parse_credential,
    registry_credential,
)

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
        for slot, number in itertools.product((1, 11), (1, 11)):
            node = node_credential(keys.secret, keys.run, keys.launch_id, slot, number)
            secrets += [keys.join_token(slot, number).secret, node.secret]
    secrets.append(registry_credential(SECRET).secret)
    assert len(set(secrets)) == len(secrets) == 49
    assert {len(secret) for secret in secrets} == {32}


def test_what_is_derived_from_a_secret_is_the_same_in_every_version() -> None:
    """An operator's string and a journal outlive the version that wrote them."""
    credentials = [
        KEYS.join_token(0, 1),
        node_credential(SECRET, "r", "launch", 3, 2),
        KEYS.read,
        KEYS.admin,
        registry_credential(SECRET),
    ]
    assert [credential.text() for credential in credentials] == [
        "j.0.1.Aq6GEFU8WSsht89EqeSGOLNj4NpilHtYDAqgbp3wEPw",
        "n.3.2.42tmK5us8u89ucd9HWfdpNGY2E7w4jAyWOiwUNv7pOo",
        "r._H10aGuvmIHFfZm_IcoC_cvy9ClJRYMMyTNrZMoIdUg",
        "a.wehuy8wyti4oXqRwK9QW76MW7IV15WIP1Sps_PR7_Oo",
        "g.IWBfVATKzZj8cJ3kxQpGFlPdJohGfOzrYILPsD3mqF4",
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
    ("credential", "form"),
    [
        (KEYS.join_token(3, 2), r"j\.3\.2\.[A-Za-z0-9_-]{43}"),
        (node_credential(SECRET, "r", "l", 19_999, 7), r"n\.19999\.7\.[A-Za-z0-9_-]{43}"),
        (KEYS.read, r"r\.[A-Za-z0-9_-]{43}"),
        (KEYS.admin, r"a\.[A-Za-z0-9_-]{43}"),
        (registry_credential(SECRET), r"g\.[A-Za-z0-9_-]{43}"),
    ],
)
def test_a_credential_is_read_back_from_its_text(credential: Credential, form: str) -> None:
    assert re.fullmatch(form, credential.text())
    assert parse_credential(credential.text()) == credential


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

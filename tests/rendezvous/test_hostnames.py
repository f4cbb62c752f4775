"""Which hostnames lead nowhere, and which to every machine."""

from __future__ import annotations

import pytest

from rendezvous.wire.hostnames import is_everyones, is_valid_label, lookup_error


@pytest.mark.parametrize(
    "name",
    ["localhost", "LocalHost", "localhost.", "localhost.localdomain", "localhost6.localdomain6",
     "ip6-localhost", "loopback"],
)  # fmt: skip
def test_what_a_hosts_file_holds_by_itself_is_every_machines(name: str) -> None:
    assert is_everyones(name)
    assert not is_valid_label(name)


@pytest.mark.parametrize("name", ["", "n1", "localhost.example", "n1.localdomain", "localhost-0"])
def test_other_names_are_one_machines(name: str) -> None:
    assert not is_everyones(name)


@pytest.mark.parametrize("name", ["a" * 64, "a..b", ".a", "a" * 64 + ".b", "\udcff"])
def test_python_cannot_look_up_an_empty_or_too_long_label(name: str) -> None:
    assert lookup_error(name)


@pytest.mark.parametrize(
    "name", ["a" * 63, "h_1", "-x", "UP", "tr.", "12345", "\u00e9", "node-1", "localhost", "a.b"]
)
def test_python_looks_up_other_names(name: str) -> None:
    assert lookup_error(name) == ""

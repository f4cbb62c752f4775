"""The words, numbers and names of the wire, by value: at each bound, and on both sides of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rendezvous.wire import types, words


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (words.size_text, {(4, 4): "4", (2, 4): "2:4"}),
        (
            words.duration_text,
            {
                (0.04,): "0.0 s",
                (9.94,): "9.9 s",
                (9.95,): "10 s",
                (119.4,): "119 s",
                (119.6,): "2 min",
                (130,): "2 min 10 s",
                (599,): "9 min 59 s",
                (600,): "10 min",
                (659,): "10 min",
                (7199,): "119 min",
                (7200,): "2 h",
                (14_399,): "3 h",
            },
        ),
        (
            words.seconds_text,
            {
                (0.0124,): "12.4 ms",
                (0.9999,): "999.9 ms",
                (1.0,): "1.0 s",
                (599.9,): "599.9 s",
                (600,): "10 min",
                (900,): "15 min",
            },
        ),
        (
            words.ms_text,
            {(0.123,): "0.12 ms", (9.9,): "9.9 ms", (10,): "10 ms", (230.4,): "230 ms"},
        ),
        (
            words.bytes_text,
            {
                (12,): "12 bytes",
                (1023,): "1023 bytes",
                (1024,): "1 KiB",
                (1536,): "1.5 KiB",
                (99.96 * 1024,): "100 KiB",
                (700 << 20,): "700 MiB",
                (3 << 29,): "1.5 GiB",
                (5 << 40,): "5 TiB",
            },
        ),
        (
            words.read_bytes,
            {("64K",): 65_536, ("16m",): 16 << 20, ("1G",): 1 << 30, ("77",): 77},
        ),
        (
            words.listed,
            {
                (("a", "b"), 2): "a, b",
                (("a", "b", "c"), 2): "a, b and 1 more",
                (("a", "b", "c", "d", "e"),): "a, b, c, d, e",
                (("a", "b", "c", "d", "e", "f"),): "a, b, c, d, e and 1 more",
            },
        ),
        (words.few, {(("a", "b"), 2): "a, b", (("a", "b", "c"), 2): "a and 2 more"}),
        (words.slots_text, {((5,),): "slot 5", ((1, 2, 3, 5),): "slots 1-3, 5"}),
        (words.spans_text, {((0, 2, 3, 7, 8, 9),): "0, 2-3, 7-9"}),
        (
            words.spans_of,
            {
                ("0-3, 8",): [range(4), range(8, 9)],
                ("7",): [range(7, 8)],
                ("0-3,x",): [],
                ("",): [],
            },
        ),
        (words.bracketed, {("fd00::5",): "[fd00::5]", ("10.0.0.5",): "10.0.0.5"}),
        (words.natural_key, {("n2-x10",): [("n", 0), ("", 2), ("-x", 0), ("", 10)]}),
        (types.base64_length, {(0,): 0, (1,): 4, (3,): 4, (4,): 8, (300,): 400}),
        (
            types.read_ports,
            {
                ("1024-1024",): (1024, 1024),
                ("41000-41099",): (41_000, 41_099),
                ("65535",): (65_535, 65_535),
            },
        ),
        (types.subnet_text, {((4, 24, 0x0A0001),): "10.0.1.0/24", ((6, 16, 0xFD00),): "fd00::/16"}),
    ],
    ids=lambda of: of.__name__ if callable(of) else "",
)
def test_values(function: Callable[..., Any], values: dict[tuple[Any, ...], Any]) -> None:
    assert {given: function(*given) for given in values} == values


@pytest.mark.parametrize(
    ("node", "hostname", "slot", "name"),
    [
        (1, "h1", 1, "node 1 (h1)"),
        (1, "h1", None, "node 1 (h1)"),
        (1, "h1", 3, "node 1 (h1, slot 3)"),
        (0, "h1", 3, "node 0 (h1, slot 3)"),
        (3, "h1", 0, "node 3 (h1, slot 0)"),
        (1, "", 1, "node 1"),
        (1, "", 3, "node 1 (slot 3)"),
        (None, "h1", 0, "slot 0 (h1)"),
        (None, "", 3, "slot 3"),
    ],
)
def test_a_node_is_named_with_its_slot_where_that_is_another_number(
    node: int | None, hostname: str, slot: int | None, name: str
) -> None:
    assert words.node_name(node, hostname, slot) == name


@pytest.mark.parametrize(
    ("reason", "clause"),
    [
        ("", ""),
        ("bad fan: h1", ": bad fan: h1"),
        ("rdzv cancel", " with 'rdzv cancel'"),
        ("rdzv cancel by ann on h0", " with 'rdzv cancel' by ann on h0"),
        ("rdzv cancel by ann on h0: not by day", " with 'rdzv cancel' by ann on h0: not by day"),
        ("not by day: b", ": not by day: b"),
        ("rdzv cancel: wrong data: b", " with 'rdzv cancel': wrong data: b"),
    ],
)
def test_a_reason_names_the_command_and_a_persons_own_words(reason: str, clause: str) -> None:
    assert words.reason_clause(reason) == clause


@pytest.mark.parametrize(
    ("count", "known"),
    [
        (0, "none of its nodes has a number yet"),
        (1, "its only node is 0"),
        (2, "its nodes are 0 to 1"),
    ],
)
def test_a_node_that_a_run_lacks_is_told_with_those_that_it_has(count: int, known: str) -> None:
    assert words.no_node_words("r", 7, count) == f"run 'r' has no node 7: {known}"


def test_a_few_nodes_are_named_and_many_are_counted() -> None:
    names = {1: "", 4: "h9"}
    assert words.group_name([4], names) == "slot 4 (h9)"
    assert words.group_name([1, 4], names) == "slot 1, slot 4 (h9)"
    assert words.group_name([1, 4, 5], names) == "slots 1, 4-5"


@pytest.mark.parametrize("text", ["1023-2000", "2000-1999", "65536", "80", "a-b", ""])
def test_what_are_no_ports(text: str) -> None:
    with pytest.raises(ValueError, match="ports are LOW-HIGH"):
        types.read_ports(text)

"""A round of probes as text."""

from __future__ import annotations

from rendezvous.proof.text_matrix import text_matrix
from rendezvous.wire.run import Round
from rendezvous.wire.verify import PairProbe
from tests.support.mesh import (
    ETH,
    both,
    into,
    tried,
)


def hostnames(size: int) -> dict[int, str]:
    return {slot: f"h{slot}" for slot in range(size)}


def test_a_small_round_is_shown_whole() -> None:
    mixed = tried(4, into(2, 4))
    reports = mixed.reports | {0: [PairProbe(slot=2, outcome="black_hole"), *mixed.reports[0][:1]]}
    assert text_matrix(mixed.model_copy(update={"reports": reports}), hostnames(4)) == [
        f"{ETH}: 3 of 12 directed pairs fail",
        "  from \\ to  0 1 2 3",
        "  0 h0       - . M .",
        "  1 h1       . - T .",
        "  2 h2       . . - .",
        "  3 h3       . . T -",
        "  . good, T no answer, M small messages pass and large ones vanish",
    ]


def test_a_good_round_is_one_line() -> None:
    assert text_matrix(tried(4), hostnames(4)) == [f"{ETH}: 0 of 12 directed pairs fail"]


def test_slots_of_two_digits_stand_on_two_lines() -> None:
    lines = text_matrix(tried(12, both((3, 11))), hostnames(12))
    assert lines[1:4] == [
        "                                 1 1",
        "  from \\ to  0 1 2 3 4 5 6 7 8 9 0 1",
        "  0 h0       - . . . . . . . . . . .",
    ]
    assert lines[6] == "  3 h3       . . . - . . . . . . . T"


def test_of_a_large_round_only_what_fails_is_shown() -> None:
    cut = tried(100, [(3, 70), (5, 70), (5, 71)])
    assert text_matrix(cut, hostnames(100)) == [
        f"{ETH}: 3 of 9900 directed pairs fail",
        "             7 7",
        "  from \\ to  0 1",
        "  3 h3       T .",
        "  5 h5       T T",
        "  . good, T no answer",
    ]


def test_no_more_rows_and_columns_than_32_are_shown() -> None:
    lines = text_matrix(tried(100, into(9, 100)), hostnames(100))
    assert len(lines) == 1 + 1 + 32 + 1 + 1
    assert lines[-2] == "  and 67 more rows"
    everything = [(a, b) for a in range(100) for b in range(100) if a != b]
    assert text_matrix(tried(100, everything), {})[-2] == "  and 68 more rows and 68 more columns"


def test_pairs_that_nobody_was_to_probe_are_blank() -> None:
    slots = list(range(200))
    reports = {a: [PairProbe(slot=(a + 1) % 200, outcome="ok")] for a in slots}
    reports |= {
        a: [PairProbe(slot=b, outcome="refused" if b == 7 else "ok") for b in (7, 8)]
        for a in (3, 5)
    }
    reports[8] = [PairProbe(slot=9, outcome="refused")]
    round_ = Round(network=ETH, number=0, verdict="", slots=slots, reports=reports)
    assert text_matrix(round_, hostnames(200)) == [
        f"{ETH}: 3 of 12800 directed pairs fail",
        "  from \\ to  7 9",
        "  3 h3       R",
        "  5 h5       R",
        "  8 h8         R",
        "  . good, R connection refused",
    ]


def test_a_hostname_cannot_spoil_the_text() -> None:
    lines = text_matrix(tried(2, [(0, 1)]), {0: "a\x1b[2J" + "b" * 90})
    assert lines[2] == f"  0 a?[2J{'b' * 18}…  - T"

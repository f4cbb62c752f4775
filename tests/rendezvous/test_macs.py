"""What nodes sign and prove with the row key of their run."""

from __future__ import annotations

import pytest

from rendezvous.talk.credentials import (
    RunKeys,
)
from rendezvous.talk.macs import row_is_genuine, sign_join, word_macs
from rendezvous.wire.node import MOST_COMMAND_WORDS
from rendezvous.wire.table import TableRow
from tests.support.driver import make_candidate, make_join

KEYS = RunKeys(bytes(range(32)), "r", "launch")


def signed_row() -> TableRow:
    offered = [make_candidate("10.0.0.1"), make_candidate("10.0.0.2", "ib0", 16)]
    join = make_join(1, hostname="host1", nproc_per_node=8, candidates=offered)
    signed = sign_join(join, KEYS.row_key, run="r", launch_id="launch")
    return signed.row(signed.candidates[1], rank=5)


def test_what_a_node_signs_is_the_same_in_every_version() -> None:
    row = signed_row()
    text = b'["row","r","launch",1,"host1","ib0","10.0.0.2",16,8]'
    assert row.signed_text("r", "launch") == text
    assert row.mac == "27fa45545f3b0cdd4476b8c46ae7a0837e26ade3889930816ab4643e1bca1e6d"


def test_a_row_that_its_node_signed_is_genuine_whatever_rank_it_got() -> None:
    row = signed_row()
    assert row_is_genuine(row, KEYS.row_key, run="r", launch_id="launch")
    moved = row.model_copy(update={"rank": 0})
    assert row_is_genuine(moved, KEYS.row_key, run="r", launch_id="launch")


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
def test_a_row_that_somebody_changed_is_not_genuine(field: str, value: object) -> None:
    row = signed_row().model_copy(update={field: value})
    assert not row_is_genuine(row, KEYS.row_key, run="r", launch_id="launch")


def test_a_row_of_another_run_launch_or_key_is_not_genuine() -> None:
    row = signed_row()
    assert not row_is_genuine(row, KEYS.row_key, run="other", launch_id="launch")
    assert not row_is_genuine(row, KEYS.row_key, run="r", launch_id="other")
    assert not row_is_genuine(row, KEYS.probe_key, run="r", launch_id="launch")


def test_words_of_a_command_are_told_apart_by_place_and_value_under_the_runs_key() -> None:
    here = {"run": "r", "launch_id": "launch"}
    made = word_macs(KEYS.row_key, ["a", "b", "a", "\udcff"], **here)
    assert made == word_macs(KEYS.row_key, ("a", "b", "a", "\udcff"), **here)
    assert len({*made}) == 4
    others = [
        word_macs(bytes(32), ["a"], **here),
        word_macs(KEYS.row_key, ["a"], run="other", launch_id="launch"),
        word_macs(KEYS.row_key, ["a"], run="r", launch_id="other"),
        word_macs(KEYS.row_key, ["a "], **here),
    ]
    assert len({made[0], *(other[0] for other in others)}) == 5
    assert word_macs(KEYS.row_key, [], **here) == []


def test_of_a_long_command_what_lies_behind_is_one_mac() -> None:
    here = {"run": "r", "launch_id": "launch"}
    words = ["x"] * 300
    made = word_macs(KEYS.row_key, words, **here)
    assert len(made) == MOST_COMMAND_WORDS + 1
    changed = word_macs(KEYS.row_key, [*words[:-1], "y"], **here)
    assert made[:128] == changed[:128]
    assert made[128] != changed[128]
    assert word_macs(KEYS.row_key, words[:128], **here) == made[:128]

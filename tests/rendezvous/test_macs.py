"""What nodes sign and prove with the row key of their run."""

from __future__ import annotations

import pytest

from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.macs import row_is_genuine, sign_join, word_macs
from rendezvous.wire.node import MOST_COMMAND_WORDS
from rendezvous.wire.table import TableRow
from tests.support.driver import make_candidate, make_join

KEYS = RunKeys(bytes(range(32)), "r", "launch")
HERE = {"run": "r", "launch_id": "launch"}


def signed_row() -> TableRow:
    offered = [make_candidate("10.0.0.1"), make_candidate("10.0.0.2", "ib0", 16)]
    join = make_join(1, hostname="host1", nproc_per_node=8, candidates=offered)
    signed = sign_join(join, KEYS.row_key, **HERE)
    return signed.row(signed.candidates[1], rank=5)


def test_what_a_node_signs_is_the_same_in_every_version() -> None:
    row = signed_row()
    text = b'["row","r","launch",1,"host1","ib0","10.0.0.2",16,8]'
    assert row.signed_text("r", "launch") == text
    assert row.mac == "27fa45545f3b0cdd4476b8c46ae7a0837e26ade3889930816ab4643e1bca1e6d"


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
    field: str, value: object
) -> None:
    row = signed_row().model_copy(update={"rank": 0})
    assert row_is_genuine(row, KEYS.row_key, **HERE)
    for other in ({"run": "other"}, {"launch_id": "other"}):
        assert not row_is_genuine(row, KEYS.row_key, **HERE | other)
    assert not row_is_genuine(row, KEYS.probe_key, **HERE)
    assert not row_is_genuine(row.model_copy(update={field: value}), KEYS.row_key, **HERE)


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

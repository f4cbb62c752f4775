"""A run that is named by a part of its ID, or by its launch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.state.run_names import runs_meant

KNOWN = {
    "run-d0026d37": "a1b2c3d4e5",
    "run-77aa26d3": "ffffeeee00",
    "llama-7b": "0123456789",
    "llama": "9876543210",
}


@pytest.mark.parametrize(
    ("word", "shown", "changed"),
    [
        ("llama", "llama", "llama"),  # a whole ID is its run alone
        ("d0026d37", "run-d0026d37", "run-d0026d37"),
        ("26d37", "run-d0026d37", ""),
        ("7b", "llama-7b", "llama-7b"),
        ("llama-7", "llama-7b", ""),
        ("llam", "llama-7b llama", ""),
        ("run", "run-d0026d37 run-77aa26d3", "run-d0026d37 run-77aa26d3"),
        ("run-7", "run-77aa26d3", ""),
        ("a1b2c3d4e5", "run-d0026d37", "run-d0026d37"),
        ("a1b2", "run-d0026d37", "run-d0026d37"),
        ("a1b", "", ""),
        ("rdzv-ffffeeee00-2-1", "run-77aa26d3", "run-77aa26d3"),
        ("6d3", "run-77aa26d3", ""),
        ("", "", ""),
        ("mistral", "", ""),
    ],
)
def test_a_part_of_an_id_means_the_runs_that_have_it(word: str, shown: str, changed: str) -> None:
    assert runs_meant(word, KNOWN, whole=False) == shown.split()
    assert runs_meant(word, KNOWN, whole=True) == changed.split()


def test_a_run_whose_launch_is_not_known_is_found_by_its_id_alone() -> None:
    assert runs_meant("", {"a": ""}, whole=False) == []
    assert runs_meant("x-", {"a": ""}, whole=False) == []
    assert runs_meant("b", {"a-b": ""}, whole=True) == ["a-b"]


@given(st.text("ab-7", max_size=6), st.dictionaries(st.text("ab-7", min_size=1), st.just("")))
def test_what_may_be_changed_may_be_shown(word: str, known: dict[str, str]) -> None:
    shown = runs_meant(word, known, whole=False)
    assert set(runs_meant(word, known, whole=True)) <= set(shown) <= set(known)

"""A slot as a row: in words, how it is meant, and whether it is looked for."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.ui.shapes import Slot
from launcher.ui.slots import LONG_SILENCE_SECONDS, is_same, marked, slot_row, suspected
from rendezvous.wire.run import NodeState, Result, SlotState, SlotStatus, Suspect


def status(**known: Any) -> SlotStatus:
    """Of a slot that runs, but for what is given."""
    usual: dict[str, Any] = {
        "slot": 3,
        "generation": 1,
        "wanted_generation": 1,
        "state": SlotState.RUNNING,
        "node_state": NodeState.RUNNING,
        "node": 2,
        "hostname": "gpu-3",
    }
    return SlotStatus(**usual | known)


def row(**known: Any) -> Slot:
    return slot_row(status(**known), [])


FAILED = {"node_state": NodeState.EXITED, "exit_code": 1, "problem": "out of memory"}
STOPPED = {"node_state": NodeState.EXITED, "exit_code": 143, "stopped": True}
STANDBY = {"node_state": NodeState.STANDBY, "node": None}
ABSENT = {"node_state": None, "node": None, "hostname": ""}


@pytest.mark.parametrize(
    ("known", "state", "tone", "words"),
    [
        ({}, "running", "good", "running"),
        ({"problem": "a GPU is lost"}, "running", "wait", "running: a GPU is lost"),
        ({"silent_seconds": LONG_SILENCE_SECONDS}, "running", "wait", "running"),
        ({"silent_seconds": LONG_SILENCE_SECONDS - 0.1}, "running", "good", "running"),
        ({"node_state": NodeState.JOINED}, "joined", "wait", "joined"),
        ({"node_state": NodeState.VERIFIED}, "verified", "wait", "verified"),
        ({"node_state": NodeState.ARMED}, "armed", "wait", "armed"),
        (FAILED, "ended", "bad", "ended, exit code 1: out of memory"),
        (FAILED | {"node_state": NodeState.LEFT}, "ended", "bad", "ended, exit code 1: out of m"),
        ({"node_state": NodeState.EXITED, "exit_code": 0}, "ended", "off", "ended, exit code 0"),
        ({"node_state": NodeState.LEFT, "exit_code": 0}, "ended", "off", "ended, exit code 0"),
        ({"node_state": NodeState.LEFT}, "left", "off", "left"),
        (STOPPED, "ended", "off", "ended, stopped by rdzv, exit code 143"),
        (STOPPED | {"state": SlotState.FAILED}, "ended", "off", "ended, stopped by rdzv"),
        (STOPPED | {"node_state": NodeState.LEFT}, "ended", "off", "ended, stopped by rdzv"),
        ({"node_state": NodeState.RELEASED}, "released", "off", "released"),
        ({"node_state": NodeState.LOST}, "lost", "bad", "lost"),
        (STANDBY, "standby", "off", "standby"),
        (STANDBY | {"problem": "a GPU is lost"}, "standby", "wait", "standby: a GPU is lost"),
        (STANDBY | {"silent_seconds": LONG_SILENCE_SECONDS}, "standby", "wait", "standby"),
        (ABSENT | {"state": SlotState.NONE}, "not submitted", "wait", "not joined yet"),
        (ABSENT | {"state": SlotState.QUEUED, "detail": "Priority"}, "queued", "wait", "queued: P"),
        (ABSENT | {"state": SlotState.FAILED, "problem": "no such image"}, "failed", "bad", ""),
    ],
)
def test_a_slot_in_words(known: dict[str, Any], state: str, tone: str, words: str) -> None:
    found = row(**known)
    assert (found["state"], found["tone"]) == (state, tone)
    assert found["words"].startswith(words)


def test_no_number_of_a_slot_is_taken_for_another() -> None:
    found = row(generation=5, wanted_generation=6, nproc_per_node=8, exit_code=9)
    numbers = [found[name] for name in ("slot", "node", "processes", "generation", "exit_code")]
    assert numbers == [3, 2, 8, 5, 9]


def test_what_the_scheduler_says_stands_beside_what_is_wrong() -> None:
    found = row(**ABSENT, state=SlotState.FAILED, detail="ImagePullBackOff", problem="no image")
    assert found["words"] == "failed: ImagePullBackOff; no image"


def test_who_is_looked_for_comes_first() -> None:
    in_order: list[dict[str, Any]] = [
        FAILED,
        {"problem": "a GPU is lost"},
        {"silent_seconds": 9.0},
        ABSENT | {"state": SlotState.QUEUED},
        {"node_state": NodeState.JOINED},
        {"node_state": NodeState.VERIFIED},
        {"node_state": NodeState.ARMED},
        {},
        {"node_state": NodeState.LEFT},
    ]
    worse = [row(**known)["worse"] for known in in_order]
    assert worse == sorted(set(worse), reverse=True)


@pytest.mark.parametrize("known", [FAILED, {"node_state": NodeState.LOST}, ABSENT, STOPPED])
def test_the_first_cause_is_red_and_marked_and_comes_before_who_failed_after_it(
    known: dict[str, Any],
) -> None:
    whole = row(**known)
    result = Result(status="failed", exit_code=1, message="node 2 failed", rank=17)
    found = marked(whole, "first cause", status(**known), result)
    assert (found["tone"], found["mark"], found["suspect"]) == ("bad", "first cause", 17)
    assert found["worse"] > whole["worse"]
    assert found["worse"] > row(**FAILED)["worse"] > row(**STOPPED)["worse"]
    assert row(**FAILED)["mark"] == ""
    counted = [found["counts_as"], row(**FAILED)["counts_as"], row(**STOPPED)["counts_as"]]
    assert counted == ["first cause", "failed", "stopped by rdzv"]


@pytest.mark.parametrize(
    ("message", "words", "problem"),
    [
        ("node 2 failed: out of memory (limit 64 GiB)", "ended, exit code 1", ""),
        ("node 2 failed", "ended, exit code 1: out of memory", "out of memory"),
    ],
)
def test_the_cause_that_the_sentence_says_is_not_said_again_in_the_row(
    message: str, words: str, problem: str
) -> None:
    result = Result(status="failed", exit_code=1, message=message)
    found = marked(row(**FAILED), "first cause", status(**FAILED), result)
    assert (found["words"], found["problem"]) == (words, problem)


def test_whom_the_others_wait_for_is_coloured_and_stands_above_who_runs() -> None:
    found = suspected(row(), Suspect(slot=3, rank=9))
    assert (found["tone"], found["mark"], found["suspect"]) == ("wait", "waited for", 9)
    assert (found["counts_as"], row()["counts_as"]) == ("waited for", "running")
    assert row(**FAILED)["worse"] > found["worse"] > row(problem="a GPU is lost")["worse"]


def test_silence_is_told_in_whole_seconds_once_it_is_long() -> None:
    assert row(silent_seconds=7.4)["silent"] == 7.0
    assert row(silent_seconds=2.0)["silent"] is None
    assert row()["silent"] is None


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"state_seconds": 1.0}, {"state_seconds": 7.0}, True),
        ({"silent_seconds": 0.1}, {"silent_seconds": 5.9}, True),
        ({"silent_seconds": 5.9}, {"silent_seconds": 6.0}, False),
        ({"silent_seconds": 8.1}, {"silent_seconds": 8.2}, True),
        ({"silent_seconds": 8.1}, {"silent_seconds": 9.2}, False),
        ({}, {"progress": "step 1"}, False),
        ({}, {"node_state": NodeState.LOST}, False),
        ({}, {"exit_code": 0}, False),
    ],
)
def test_time_alone_makes_no_other_row(
    before: dict[str, Any], after: dict[str, Any], same: bool
) -> None:
    assert is_same(status(**after), status(**before)) is same
    assert not is_same(status(**after), None)


def test_what_peers_have_said_is_printable_and_bounded() -> None:
    found = row(hostname="a\x1b[2Jb\u202e", problem="<b>\n" * 1_000, progress="\0" * 1_000)
    assert found["host"] == "a?[2Jb?"
    for text in (found["problem"], found["progress"], found["words"]):
        assert text.isprintable()
        assert len(text) <= 600

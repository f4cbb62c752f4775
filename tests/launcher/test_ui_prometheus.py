"""What the launcher's page tells Prometheus of its runs."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prometheus_client import Metric

from launcher.ui.parts import Part, Sample, series
from launcher.ui.prometheus import (
    FAMILIES,
    FAMILIES_BY_RANK,
    MOST_SILENT,
    PHASES,
    metrics_text,
)
from launcher.ui.shapes import Head, Slot, Span, State
from rendezvous.prometheus import Family
from rendezvous.registry import prometheus as of_registry
from tests.support.exposition import parsed, value


def head_of(**changes: Any) -> Head:
    made: dict[str, Any] = {
        "run": "llama",
        "launch_id": "k7f2a9c1xy",
        "state": "running",
        "tone": "good",
        "sentence": "4 nodes run",
        "next_step": "",
        "over": False,
        "elapsed": 90.0,
        "remaining": None,
        "epoch": 1,
        "restarts": 2,
        "max_restarts": 3,
        "replacements": 4,
        "resubmitted": 1,
        "max_replacements": 3,
        "nodes": "4",
        "trouble": "",
        "silent_seconds": None,
        "finding": "",
        "silence": "",
        "command": "train.py --token hidden",
        "scheduler": "slurm",
        "host": "login1",
        "started_at": 1e9,
        "digest": "",
        "result": None,
    }
    return cast(Head, made | changes)


def spans_of(*starts: tuple[str, float], end: float | None = None) -> list[Span]:
    """Phases from when they began; the last one lasts, or ends then."""
    ends = [*(start for _, start in starts[1:]), end]
    rows = zip(starts, ends, strict=False)
    return [cast(Span, {"phase": p, "start": s, "end": e}) for (p, s), e in rows]


def slot_of(slot: int, *starts: tuple[str, float], **changes: Any) -> Slot:
    made: dict[str, Any] = {
        "slot": slot,
        "node": slot,
        "host": f"gpu-{slot}",
        "address": "10.0.0.1",
        "processes": 8,
        "generation": 1,
        "state": starts[-1][0] if starts else "none",
        "tone": "good",
        "words": "",
        "problem": "",
        "progress": "",
        "mark": "",
        "suspect": None,
        "worse": 0,
        "exit_code": None,
        "silent": None,
        "spans": spans_of(*starts),
    }
    return cast(Slot, made | changes)


def state_of(*, slots: list[Slot] | None = None, **head: Any) -> State:
    return {
        "n": 1,
        "head": head_of(**head),
        "slots": slots or [],
        "events": [],
        "epochs": [],
        "parts": {},
    }


FIRST = slot_of(
    0, ("submitted", 1.0), ("queued", 2.0), ("booted", 12.0), ("joined", 15.0), ("verified", 42.0),
    ("armed", 43.0), ("running", 44.0),
)  # fmt: skip
LATE = slot_of(
    1, ("submitted", 2.0), ("queued", 3.0), ("booted", 31.0), ("joined", 40.0), ("verified", 42.0),
    ("armed", 43.5), ("running", 44.0),
)  # fmt: skip
BOOTING = slot_of(1, ("submitted", 2.0), ("queued", 3.0), ("booted", 31.0))
WHOLE = state_of(
    slots=[FIRST, LATE | {"silent": 8.0}],
    result={"status": "failed", "exit_code": 89, "cause": "stall"},
)


def told(*states: State, by_rank: bool = False) -> dict[str, Metric]:
    text = metrics_text(states, "1.2", by_rank=by_rank)
    return parsed(text, (*FAMILIES, *FAMILIES_BY_RANK))


def labels(found: dict[str, Metric], name: str, label: str) -> list[str]:
    return [sample.labels[label] for sample in found[name].samples]


def starts(found: dict[str, Metric]) -> dict[str, float]:
    samples = found["rdzv_run_start_seconds"].samples if "rdzv_run_start_seconds" in found else []
    return {sample.labels["phase"]: sample.value for sample in samples}


def test_every_series_of_the_table_is_there_but_those_of_features() -> None:
    of_features = {family.name for family, _ in series()}
    own = [family.name for family in FAMILIES if family.name not in of_features]
    assert [name for name in told(WHOLE) if name not in of_features] == own


class Failing(Part):
    """One feature's."""

    @staticmethod
    def samples(state: State) -> list[Sample]:
        return [((state["head"]["run"],), state["parts"]["odd"])]

    series = ((Family("rdzv_odd", "gauge", "Odd.", ("run",)), samples),)


def test_a_feature_whose_series_fail_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("launcher.ui.parts._classes", lambda: {"odd": Failing})
    odd = state_of(run="other")
    odd["parts"]["odd"] = 7
    text = metrics_text([WHOLE, odd], "1.2", by_rank=True)
    assert 'rdzv_odd{run="other"} 7' in text
    assert 'rdzv_odd{run="llama"}' not in text
    assert caplog.messages == ["feature 'odd' failed on the page"]


def test_without_runs_it_is_the_version_alone() -> None:
    assert value(told(), "rdzv_build_info", version="1.2") == 1
    assert [*told()] == ["rdzv_build_info"]


def test_no_name_is_a_registrys_too_but_the_version() -> None:
    own = {family.name for family in (*FAMILIES, *FAMILIES_BY_RANK)}
    assert own & {family.name for family in of_registry.FAMILIES} == {"rdzv_build_info"}


def test_a_run_is_told_by_its_head() -> None:
    slow = state_of(finding="rank 3 is slow", silent_seconds=4.0)
    found = told(slow, state_of(run="other", silence="no output, which nobody has judged"))
    info = {"launch_id": "k7f2a9c1xy", "scheduler": "slurm", "nodes": "4", "host": "login1"}
    assert value(found, "rdzv_run_info", run="llama", **info) == 1
    for name, one, other in (
        ("rdzv_run_seconds", 90, 90),
        ("rdzv_registry_silent_seconds", 4, 0),
        ("rdzv_restarts_total", 2, 2),
        ("rdzv_replacements_total", 4, 4),
    ):
        assert value(found, name, run="llama") == one
        assert value(found, name, run="other") == other
    assert "train.py" not in metrics_text([WHOLE], "1.2", by_rank=True)


@pytest.mark.parametrize("state", PHASES)
def test_a_run_is_in_one_phase(state: str) -> None:
    samples = told(state_of(state=state))["rdzv_run_phase"].samples
    assert {s.labels["phase"]: s.value for s in samples} == {p: p == state for p in PHASES}


def test_slots_are_counted_by_their_state() -> None:
    found = told(state_of(slots=[FIRST, BOOTING, slot_of(2, ("booted", 3.0))]))
    assert value(found, "rdzv_nodes", run="llama", state="booted") == 2
    assert value(found, "rdzv_nodes", run="llama", state="running") == 1


# --- the start ------------------------------------------------------------------------------------


def test_a_start_is_as_long_as_that_of_the_last_slot() -> None:
    expected = {"submitted": 2, "queued": 30, "booted": 39, "joined": 41, "verified": 42.5}
    assert starts(told(WHOLE)) == expected | {"armed": 43}


def test_a_phase_in_which_a_slot_still_is_has_no_length() -> None:
    found = told(state_of(state="gathering", slots=[FIRST, BOOTING]))
    assert starts(found) == {"submitted": 2, "queued": 30}
    not_submitted = told(state_of(state="gathering", slots=[FIRST, slot_of(1)]))
    assert starts(not_submitted) == {}


def test_slots_that_programs_run_without_do_not_count() -> None:
    found = told(state_of(slots=[FIRST, LATE, BOOTING | {"slot": 2}, slot_of(3)]))
    assert starts(found)["armed"] == 43


def test_a_slot_that_has_skipped_a_phase_is_beyond_it() -> None:
    manual = slot_of(0, ("joined", 15.0), ("verified", 16.0), ("armed", 17.0), ("running", 18.0))
    expected = {"submitted": 0, "queued": 0, "booted": 0, "joined": 1, "verified": 2, "armed": 3}
    assert starts(told(state_of(slots=[manual]))) == expected


def test_a_run_without_slots_has_no_start() -> None:
    assert starts(told(state_of(state="gathering"))) == {}


def test_what_is_waited_for_is_the_slot_that_waits_longest() -> None:
    other = slot_of(2, ("submitted", 2.0), ("queued", 60.0))
    found = told(state_of(state="gathering", slots=[FIRST, BOOTING, other]))
    waits = {s.labels["for"]: s.value for s in found["rdzv_wait_seconds"].samples}
    assert waits == {
        "submitted": 0, "queued": 30, "booted": 59, "joined": 0, "verified": 0, "armed": 0,
    }  # fmt: skip
    over = told(state_of(state="failed", over=True, slots=[BOOTING]))
    assert {s.value for s in over["rdzv_wait_seconds"].samples} == {0}


# --- what is bounded ------------------------------------------------------------------------------


def test_few_of_the_silent_nodes_have_series_the_longest_first() -> None:
    slots = [slot_of(i, ("running", 1.0), silent=float(i)) for i in range(50)]
    slots[49]["node"] = None
    found = told(state_of(slots=slots))
    assert labels(found, "rdzv_node_late_seconds", "slot") == [
        str(49 - i) for i in range(MOST_SILENT)
    ]
    at = {"run": "llama", "node": "", "slot": "49", "host": "gpu-49"}
    assert value(found, "rdzv_node_late_seconds", **at) == 49


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "status", "cause", "code"),
    [
        ({"status": "ok", "exit_code": 0, "cause": "", "code": ""}, "ok", "", 0),
        ({"status": "failed", "exit_code": 1, "cause": "cuda_oom"}, "failed", "cuda_oom", 1),
        (
            {"status": "failed", "exit_code": 84, "code": "join_timeout"},
            "failed",
            "join_timeout",
            84,
        ),
        ({}, "", "", 0),
    ],
)
def test_the_end_of_a_run_has_its_code_and_its_cause(
    result: dict[str, Any], status: str, cause: str, code: int
) -> None:
    found = told(state_of(over=True, result=result))
    assert value(found, "rdzv_exit", run="llama", status=status, cause=cause) == code


def test_a_run_that_goes_on_has_no_exit() -> None:
    assert "rdzv_exit" not in told(state_of())


def test_what_peers_have_said_stays_inside_of_its_label() -> None:
    evil = 'x"} 1\nrdzv_run_seconds{run="other"} 1 # \\'
    found = told(state_of(run=evil, slots=[slot_of(0, ("booted", 1.0), host=evil, silent=3.0)]))
    assert labels(found, "rdzv_run_seconds", "run") == [evil]
    assert labels(found, "rdzv_node_late_seconds", "host") == [evil]

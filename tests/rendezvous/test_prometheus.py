"""Prometheus' text format, and how long the starts of a run take."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rendezvous.prometheus import Family, Histogram, number
from rendezvous.registry.starts import Start, StartTimes
from rendezvous.wire.run import Phase
from tests.support.exposition import parsed, value

RUNS = Family("rdzv_runs", "gauge", "Runs, by phase.", ("phase",))
SECONDS = Family("rdzv_join_seconds", "histogram", "How long a join takes.", ("run",))
JOINS = Family("rdzv_joins_total", "counter", 'Joins; "all"\nof \\ them.')


# --- the text -------------------------------------------------------------------------------------


def test_a_family_has_a_help_a_type_and_its_values() -> None:
    assert RUNS.text([(("gathering",), 2), (("running",), 0.5)]) == (
        "# HELP rdzv_runs Runs, by phase.\n"
        "# TYPE rdzv_runs gauge\n"
        'rdzv_runs{phase="gathering"} 2\n'
        'rdzv_runs{phase="running"} 0.5\n'
    )


def test_a_family_without_values_is_left_out() -> None:
    assert RUNS.text([]) == ""


def test_the_help_is_on_one_line() -> None:
    text = JOINS.text([((), 3)])
    assert text.splitlines()[0] == r'# HELP rdzv_joins_total Joins; "all"\nof \\ them.'
    assert parsed(text, [JOINS]).keys() == {"rdzv_joins_total"}


def test_a_histogram_counts_each_bucket_and_those_below_it() -> None:
    seconds = Histogram((0.1, 1.0, 5.0))
    for seen in (0.05, 0.1, 0.10001, 1.0, 60.0):
        seconds.observe(seen)
    text = SECONDS.text([(("a",), seconds)])
    assert text.splitlines()[2:] == [
        'rdzv_join_seconds_bucket{run="a",le="0.1"} 2',
        'rdzv_join_seconds_bucket{run="a",le="1"} 4',
        'rdzv_join_seconds_bucket{run="a",le="5"} 4',
        'rdzv_join_seconds_bucket{run="a",le="+Inf"} 5',
        f'rdzv_join_seconds_sum{{run="a"}} {seconds.sum!r}',
        'rdzv_join_seconds_count{run="a"} 5',
    ]
    assert value(parsed(text), "rdzv_join_seconds_count", run="a") == 5


@given(st.text(st.characters()))
def test_every_label_is_read_back_and_what_is_no_unicode_is_a_question_mark(text: str) -> None:
    found = parsed(RUNS.text([((text,), 1)]), [RUNS])
    [sample] = found["rdzv_runs"].samples
    assert sample.labels == {"phase": text.encode("utf-8", "replace").decode()}


@given(st.floats() | st.integers(-(2**60), 2**60))
def test_every_value_is_read_back(seen: float) -> None:
    [sample] = parsed(RUNS.text([(("x",), seen)]))["rdzv_runs"].samples
    assert sample.value == seen or math.isnan(seen) == math.isnan(sample.value) is True


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        (True, "1"),
        (7, "7"),
        (7.0, "7"),
        (1e300, "1e+300"),
        (0.1, "0.1"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_a_value_is_written_as_the_format_has_it(seen: float, text: str) -> None:
    assert number(seen) == text


def test_a_value_has_as_many_labels_as_its_family() -> None:
    with pytest.raises(ValueError, match="zip"):
        RUNS.text([((), 1)])


# --- starts ---------------------------------------------------------------------------------------

G, V, A, R = Phase.GATHERING, Phase.VERIFYING, Phase.ARMING, Phase.RUNNING
RESTARTING, FINISHED = Phase.RESTARTING, Phase.FINISHED


def starts(*moves: tuple[Phase, float]) -> tuple[list[Start], bool]:
    times = StartTimes(100.0)
    for phase, now in moves:
        times.moved(phase, now)
    found = times.take()
    assert times.take() == ([], False)
    return found


def test_a_start_is_told_once_its_programs_run() -> None:
    assert starts((G, 102.0), (V, 110.0), (A, 111.0)) == ([], False)
    one = Start(False, {G: 10.0, V: 1.0, A: 0.5})
    assert starts((G, 102.0), (V, 110.0), (A, 111.0), (R, 111.5), (R, 900.0)) == ([one], False)


def test_every_attempt_counts() -> None:
    moves = [(V, 101.0), (G, 104.0), (V, 109.0), (A, 110.0), (G, 112.0), (V, 113.0), (A, 114.0)]
    assert starts(*moves, (R, 115.0)) == ([Start(False, {G: 7.0, V: 5.0, A: 3.0})], False)


def test_a_restart_counts_from_the_end_of_the_programs() -> None:
    moves = [(V, 101.0), (A, 102.0), (R, 103.0), (RESTARTING, 500.0), (A, 504.0), (R, 505.0)]
    first, again = Start(False, {G: 1.0, V: 1.0, A: 1.0}), Start(True, {RESTARTING: 4.0, A: 1.0})
    assert starts(*moves) == ([first, again], False)


def test_a_run_that_ends_before_the_go_has_no_start() -> None:
    assert starts((V, 101.0), (FINISHED, 102.0)) == ([], True)

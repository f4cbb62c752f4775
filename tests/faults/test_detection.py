"""The figures of `tests.faults.detection`, with limits that a busy machine keeps as well.

What was measured on a quiet one stands in docs/faults.md.
"""

from __future__ import annotations

import pytest

from tests.faults.detection import Figure, killed_agents, silent_hosts, stopped_runs
from tests.support.record import ROUNDS, record

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300 * ROUNDS)]

TRIALS = 2 * ROUNDS


def assert_below(figure: Figure, seconds: float) -> None:
    """Keep the figure; fail when it is far beyond its target."""
    record(figure.name, figure.line())
    assert max(figure.seconds) < seconds, figure.line()


def test_a_killed_agent_is_known_to_all_soon() -> None:
    assert_below(killed_agents(TRIALS), 3 * 1.5)


@pytest.mark.netns
@pytest.mark.parametrize(
    ("lease", "target"), [(5, 7), pytest.param(15, 17, marks=pytest.mark.nightly)]
)
def test_a_silent_host_is_known_to_all_when_its_lease_is_over(lease: int, target: int) -> None:
    figure = silent_hosts(lease, TRIALS)
    assert_below(figure, target + 10)
    assert min(figure.seconds) > lease / 2


@pytest.mark.torch
@pytest.mark.parametrize(
    ("others", "target"), [("obey", 3), pytest.param("deaf", 3 + 2, marks=pytest.mark.nightly)]
)
def test_a_run_is_stopped_soon_after_a_worker_has_failed(others: str, target: int) -> None:
    assert_below(stopped_runs(others, TRIALS), 3 * target)

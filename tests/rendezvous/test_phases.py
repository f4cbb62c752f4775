"""The table of the phases: complete, and of one piece with what a run's limits are called."""

from __future__ import annotations

import pytest

from rendezvous.run.phases import RULES, Admits, Awaits, PhaseRules
from rendezvous.wire.run import Limits, Phase


def test_every_phase_has_its_rules() -> None:
    assert list(RULES) == list(Phase)


@pytest.mark.parametrize("rules", RULES.values(), ids=list(RULES))
def test_what_nodes_are_asked_has_a_time_out_and_something_to_show(rules: PhaseRules) -> None:
    asks = rules.awaits is Awaits.REPORTS
    assert asks == bool(rules.task) == (rules.limit is not None) == (rules.shows is not None)
    assert rules.limit is None or rules.limit in Limits.model_fields


@pytest.mark.parametrize("rules", RULES.values(), ids=list(RULES))
def test_nobody_joins_once_the_programs_have_started(rules: PhaseRules) -> None:
    assert rules.is_forming == (rules.admits is not Admits.NOBODY)

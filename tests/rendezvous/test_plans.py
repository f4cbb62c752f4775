"""What holds in each phase, and what follows on a state: planning changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rendezvous.run.gathering import Recovery, recovery_of
from rendezvous.run.phases import RULES, Admits, Awaits, PhaseRules
from rendezvous.run.verifying import GatherMore, Verify, plan_checks
from rendezvous.wire.run import Limits, Phase, Result, SlotState
from tests.support.driver import Drive, in_phase, make_spec
from tests.support.stories import MEMLOCK


@pytest.mark.parametrize(
    ("bad", "spares", "given_up", "step", "out"),
    [
        (None, 1, False, Verify, []),
        (1, 2, False, Verify, [1]),
        (1, 1, False, GatherMore, []),
        (0, 1, False, Result, []),
        (1, 1, True, Result, []),
    ],
)
def test_checks_leave_out_gather_more_or_end_the_run(
    bad: int | None, spares: int, given_up: bool, step: type[Any], out: list[int]
) -> None:
    drive = Drive(make_spec(2, spares=spares))
    for slot in range(1 + spares):
        drive.join(slot, findings=[MEMLOCK] if slot == bad else [])
    drive.run.slots[-1].given_up = given_up
    before = copy.deepcopy(drive.run)
    plan = plan_checks(drive.run, drive.now)
    assert drive.run == before
    assert type(plan.step) is step
    assert [slot for group in plan.left_out for slot in group] == out


def test_how_a_run_goes_on_without_a_node() -> None:
    run = in_phase(Phase.ARMING, 2, spares=1).run
    slot = run.slots[1]
    assert recovery_of(run, slot, again=False) is Recovery.SPARED
    assert recovery_of(run, run.slots[0], again=False) is None
    assert recovery_of(run, slot, again=True) is Recovery.RESUBMITTED
    run.spec = run.spec.model_copy(update={"managed": False})
    assert recovery_of(run, slot, again=True) is Recovery.RESTARTED
    slot.retries = run.spec.limits.submit_retries
    assert recovery_of(run, slot, again=True) is Recovery.SPARED
    slot.generation = 2
    assert recovery_of(run, slot, again=True) is Recovery.ON_ITS_WAY
    slot.state = SlotState.FAILED
    assert recovery_of(run, slot, again=True) is Recovery.SPARED
    assert recovery_of(run, run.slots[2], again=True) is Recovery.LEFT_OUT


@pytest.mark.parametrize("rules", RULES.values(), ids=list(RULES))
def test_the_rules_of_a_phase_are_of_one_piece(rules: PhaseRules) -> None:
    assert list(RULES) == list(Phase)
    asks = rules.awaits is Awaits.REPORTS
    assert asks == bool(rules.task) == (rules.limit is not None) == (rules.shows is not None)
    assert rules.limit is None or rules.limit in Limits.model_fields
    assert rules.is_forming == (rules.admits is not Admits.NOBODY)  # nobody joins programs that run

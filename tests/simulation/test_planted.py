"""Each planted bug is caught by a schedule that the real code passes.

When the generator is changed: `python -m tests.simulation --bug NAME` finds another seed.
"""

from __future__ import annotations

import pytest

from tests.simulation.generate import generate
from tests.simulation.planted import BUGS
from tests.simulation.world import simulate

CAUGHT = {
    "no fencing": (103, "a_stale_incarnation_changes_nothing"),
    "old generations join": (25, "a_stale_generation_changes_nothing"),
    "joins not remembered": (21, "a_join_is_taken_once"),
    "live holders displaced": (6, "a_live_holder_keeps_its_slot"),
    "rank clashes": (12, "the_registry_never_fails_inside"),
    "refusals displace": (114, "a_refusal_displaces_nobody"),
    "refusals do not last": (10, "submissions_are_bounded"),
    "joins while running": (6, "nobody_starts_before_all_acknowledged"),
    "live runs replaced": (11, "a_live_run_is_never_replaced"),
    "go at first ack": (0, "the_go_needs_every_acknowledgement"),
    "old acks count": (237, "the_go_needs_every_acknowledgement"),
    "table changes": (11, "a_table_never_changes_within_its_epoch"),
    "epoch stays": (132, "a_table_never_changes_within_its_epoch"),
    "lost node stays": (132, "a_table_holds_those_who_are_there"),
    "no slot 0": (179, "ranks_are_0_to_n_minus_1"),
    "early exit is an end": (8, "ranks_are_0_to_n_minus_1"),
    "failed pairs forgiven": (3, "a_table_stands_on_proven_pairs"),
    "silence is good": (14, "a_table_stands_on_proven_pairs"),
    "old rounds count": (6, "an_old_epochs_report_changes_nothing"),
    "failed checks forgiven": (19, "a_sick_node_is_in_no_table"),
    "spares in the table": (18, "a_table_holds_those_who_are_there"),
    "released nodes count": (18, "nobody_who_was_released_is_to_blame"),
    "no leases after restart": (504, "no_live_node_is_given_up"),
    "no brake": (7, "no_live_node_is_given_up"),
    "short brake": (7, "no_live_node_is_given_up"),
    "own stall counts": (6, "a_time_out_has_somebody_who_is_late"),
    "FIN kills at once": (107, "no_live_node_is_given_up"),
    "old FIN kills": (38, "no_live_node_is_given_up"),
    "full leases on a full disk": (164, "the_first_cause_is_the_first"),
    "verdict by arrival": (312, "the_first_cause_is_the_first"),
    "ages as told": (52, "the_first_cause_is_the_first"),
    "unbounded retries": (476, "submissions_are_bounded"),
    "queue counts": (23, "time_in_the_schedulers_queue_does_not_count"),
    "result written over": (69, "the_result_never_changes"),
    "led runs wait for all": (5, "a_led_run_is_over_with_its_leader"),
    "nobody told to stop": (26, "news_have_a_number_of_their_own"),
    "verifying has no end": (0, "what_a_launcher_sees_has_a_reason"),
    "answers before the commit": (0, "nothing_is_told_that_a_crash_could_take_back"),
    "no rebuild": (26, "nothing_is_told_that_a_crash_could_take_back"),
    "failed commits answered": (6, "the_registry_never_fails_inside"),
    "clock begins anew": (8, "the_registrys_time_never_goes_back"),
    "numbers begin anew": (21, "news_have_a_number_of_their_own"),
}


def test_every_planted_bug_has_a_schedule_that_shows_it() -> None:
    assert CAUGHT.keys() == BUGS.keys()


@pytest.mark.parametrize("name", list(CAUGHT))
def test_a_planted_bug_is_caught(name: str) -> None:
    seed, invariant = CAUGHT[name]
    with BUGS[name].planted():
        violation = simulate(generate(seed)).violation
    assert violation is not None
    assert violation.invariant == invariant


@pytest.mark.parametrize("seed", sorted({seed for seed, _ in CAUGHT.values()}))
def test_the_real_code_passes_the_schedules_that_show_the_bugs(seed: int) -> None:
    assert simulate(generate(seed)).violation is None

"""The timeline: phases of slots, of the events of their run."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from launcher.ui.phases import MOST_SPANS, Phases
from rendezvous.wire.run import EventLine, Phase, SlotState

Said = tuple[str, int | None, Phase, SlotState | None]

KINDS = ("slot", "joined", "acked", "exited", "lost", "left", "created", "timed_out")
G, V, A, R, F = (
    Phase.GATHERING,
    Phase.VERIFYING,
    Phase.ARMING,
    Phase.RUNNING,
    Phase.FINISHED,
)


def phases_of(*said: Said) -> Phases:
    """What comes of events, a second apart."""
    made = Phases()
    for at, (kind, slot, phase, state) in enumerate(said):
        made.take(EventLine(at + 1, float(at), kind, "", phase, 1, slot, state=state))
    return made


def names(phases: Phases, slot: int = 0) -> list[str]:
    return [span["phase"] for span in phases.spans(slot)]


def told(slot: int, state: SlotState, phase: Phase = G) -> Said:
    return "slot", slot, phase, state


SUBMITTED = [told(0, SlotState.SUBMITTING), told(0, SlotState.SUBMITTED)]
STARTED: list[Said] = [
    *SUBMITTED,
    told(0, SlotState.QUEUED),
    told(0, SlotState.RUNNING),
    ("joined", 0, V, None),
    ("probed", None, A, None),
    ("acked", 0, R, None),
]


def test_a_slot_that_goes_through_everything() -> None:
    phases = phases_of(*STARTED, ("exited", 0, F, None))
    before = ["submitted", "queued", "booted", "joined", "verified", "armed"]
    assert names(phases) == [*before, "running", "ended"]
    assert phases.spans(0)[3] == {"phase": "joined", "start": 4, "end": 5}


def test_a_slot_of_which_nothing_has_happened_has_no_phase() -> None:
    assert phases_of(("created", None, G, None)).spans(3) == []


def test_the_newest_phase_lasts() -> None:
    assert phases_of(*STARTED).spans(0)[-1] == {"phase": "running", "start": 6, "end": None}


def test_what_a_scheduler_says_late_of_a_node_that_is_here_changes_nothing() -> None:
    late = [told(0, state) for state in (SlotState.QUEUED, SlotState.RUNNING, SlotState.SUBMITTED)]
    assert names(phases_of(*SUBMITTED, ("joined", 0, G, None), *late)) == ["submitted", "joined"]
    gone = phases_of(*SUBMITTED, ("joined", 0, G, None), ("lost", 0, G, None), late[1])
    assert names(gone) == ["submitted", "joined", "ended"]


def test_a_worker_run_of_which_the_scheduler_knows_nothing_changes_nothing() -> None:
    unknown = [told(0, SlotState.UNKNOWN), told(0, SlotState.NONE)]
    assert names(phases_of(*SUBMITTED, *unknown)) == ["submitted"]


def test_another_generation_begins_anew() -> None:
    again = phases_of(*SUBMITTED, told(0, SlotState.FAILED), told(0, SlotState.SUBMITTING))
    assert again.spans(0) == [{"phase": "submitted", "start": 3, "end": None}]


def test_a_restart_ends_what_ran_and_shows_what_comes_next() -> None:
    phases = phases_of(
        *STARTED,
        ("exited", 1, Phase.RESTARTING, None),
        ("backoff_over", None, V, None),
        ("probed", None, A, None),
        ("acked", 0, R, None),
    )
    assert names(phases)[-4:] == ["running", "ended", "armed", "running"]
    assert phases.spans(0)[-3] == {"phase": "ended", "start": 7, "end": 10}


def test_a_loss_after_which_nodes_gather_again_ends_what_ran() -> None:
    phases = phases_of(
        *STARTED,
        ("lost", 1, G, None),
        ("joined", 1, V, None),
        ("probed", None, A, None),
        ("acked", 0, R, None),
    )
    assert names(phases)[-4:] == ["running", "ended", "armed", "running"]


def test_the_end_of_the_run_is_that_of_every_slot_that_began() -> None:
    others = [told(1, SlotState.QUEUED), ("joined", 2, G, None)]
    phases = phases_of(*STARTED, *others, ("cancelled", None, F, None))
    assert [names(phases, slot)[-1] for slot in (0, 1, 2)] == ["ended"] * 3
    assert phases.spans(3) == []


def test_a_spare_that_was_not_chosen_never_runs() -> None:
    spare = ("joined", 1, G, None)
    phases = phases_of(spare, *STARTED, ("left", 1, R, None))
    assert names(phases, 1) == ["joined", "verified", "ended"]


def test_a_run_that_restarts_for_ever_keeps_its_newest_phases() -> None:
    again: list[Said] = [
        ("exited", 0, Phase.RESTARTING, None),
        ("joined", 0, V, None),
        ("acked", 0, R, None),
    ]
    phases = phases_of(*STARTED, *again * MOST_SPANS)
    assert len(phases.spans(0)) == MOST_SPANS
    assert names(phases)[-1] == "running"


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.none() | st.integers(0, 3),
        st.sampled_from(list(Phase)),
        st.none() | st.sampled_from(list(SlotState)),
    )
)


@given(EVENTS)
def test_whatever_comes_in_whatever_order_the_spans_follow_each_other(said: list[Said]) -> None:
    made = Phases()
    for at, (kind, slot, phase, state) in enumerate(said):
        line = EventLine(at + 1, float(at), kind, "", phase, 1, slot, state=state)
        before = {one: made.spans(one) for one in range(4)}
        changed = set(made.take(line))
        assert changed == {one for one in range(4) if made.spans(one) != before[one]}
    for slot in range(4):
        spans = made.spans(slot)
        assert len(spans) <= MOST_SPANS
        for span, following in itertools.pairwise(spans):
            assert span["end"] == following["start"]
            assert span["phase"] != following["phase"]
        for span in spans[-1:]:
            assert (span["end"] is None) == (span["phase"] != "ended")

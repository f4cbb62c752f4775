"""Nodes that ask to join and are refused: what is kept and told of them, and what ends a run."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.run import refusals
from rendezvous.wire.errors import Fenced, Mismatch, RunOver, SlotTaken, TooLate
from rendezvous.wire.reports import LeaveReport
from rendezvous.wire.run import Phase, SlotState
from tests.support.driver import Drive, in_phase, make_join, make_refusal, make_spec
from tests.support.tables import rows

TWIN: dict[str, Any] = {"attempt": 2, "hostname": "twin", "addresses": ["10.0.0.9"]}
SYMMETRIC: dict[str, Any] = {"managed": False, "join_timeout_seconds": 600}
ASKS = "twin (10.0.0.9) asks for slot 2, which host2 (10.0.0.3) holds"


def started(nodes: int = 4, *missing: int, **changes: Any) -> Drive:
    """A symmetric start in which nodes are missing: slots are told from counts."""
    drive = Drive(make_spec(nodes, **(SYMMETRIC | changes)))
    drive.gather(*(slot for slot in range(nodes) if slot not in missing))
    drive.wait(1.0)
    return drive


def kept(drive: Drive) -> list[tuple[int | None, str, int]]:
    """Slot, hostname and number of requests of each that is kept."""
    told = refusals.told(drive.run, drive.now)
    return [(ask.slot, ask.hostname, ask.times) for ask in told]


# --- two nodes for one slot -----------------------------------------------------------------------


def test_a_second_node_for_a_slot_is_kept_and_told_everywhere() -> None:
    drive = started(4, 1)
    refused = drive.ask(2, source="192.0.2.7", **TWIN)
    assert isinstance(refused, SlotTaken)
    assert refused.hint == (
        "two nodes have NODE_RANK 2: give every node its own NODE_RANK, 0 to 3: no node has 1"
    )
    assert kept(drive) == []  # the holder may have died, and this be its next start
    drive.wait(0.5)
    drive.ask(2, source="192.0.2.7", **TWIN)
    via = ASKS.replace("10.0.0.9", "10.0.0.9, from 192.0.2.7")
    assert drive.reasons[-1] == via
    assert drive.waits().endswith(f"slot 1 has not joined yet; {via}")
    (told,) = drive.status().refused
    assert (told.slot, told.hostname, told.address) == (2, "twin", "10.0.0.9")
    assert (told.source, told.holder, told.code) == (
        "192.0.2.7",
        "host2 (10.0.0.3)",
        "slot_taken",
    )
    assert (told.times, told.first_seconds, told.last_seconds) == (2, 0.5, 0.0)


def test_a_symmetric_start_of_which_all_nodes_were_seen_ends_early() -> None:
    drive = started(4, 1)
    drive.ask_for(9.0, 2, **TWIN)
    assert drive.run.result is None
    drive.ask_for(5.0, 2, **TWIN)
    result = drive.result
    assert (result.code, result.exit_code, result.slot) == ("mismatch", 77, None)
    assert result.message == (
        "run 'r' cannot complete: it expects 4 nodes and that many came, but host2 (10.0.0.3) "
        "and twin (10.0.0.9) both ask for slot 2; no node asks for slot 1"
    )
    assert result.hint == "give every node its own NODE_RANK, 0 to 3: no node has 1"
    assert result.evidence[0].startswith(f"{ASKS}; asked ")


def test_the_time_out_tells_who_asked() -> None:
    drive = started(5, 1, 3, least=4, join_timeout_seconds=20)  # 4 of 5 were seen: one may come
    drive.ask_for(25.0, 2, **TWIN)
    result = drive.result
    assert (result.code, result.slot) == ("join_timeout", 1)
    assert result.message.endswith(f"slots 1, 3 never reached the registry; {ASKS}")
    assert result.hint == "give every node its own NODE_RANK, 0 to 4: no node has 1, 3"
    assert len(result.evidence) == 1


def test_where_a_launcher_submits_the_right_worker_run_may_still_come() -> None:
    drive = started(3, 1, managed=True, join_timeout_seconds=60)
    drive.news(1, SlotState.SUBMITTED)
    refused = drive.ask(2, **TWIN)
    assert refused is not None
    assert "with the same token" in refused.message
    drive.ask_for(50.0, 2, **TWIN)
    assert drive.run.result is None
    drive.ask_for(15.0, 2, **TWIN)
    assert drive.result.code == "join_timeout"
    assert drive.result.message.endswith(ASKS)
    assert drive.result.hint.startswith("two worker runs were started with the same join string")


@pytest.mark.parametrize("others", [1, 2, 4])
def test_all_that_ask_for_a_slot_are_named(others: int) -> None:
    drive = started(others + 2, *range(2, others + 2))
    for _ in range(30):
        for number in range(others):
            place: dict[str, Any] = {"hostname": f"twin{number}", "addresses": [f"10.0.9.{number}"]}
            drive.ask(1, attempt=2 + number, **place)
        drive.wait(0.5)
    names = {
        1: "host1 (10.0.0.2) and twin0 (10.0.9.0) both",
        2: "host1 (10.0.0.2), twin0 (10.0.9.0) and twin1 (10.0.9.1) all",
        4: "host1 (10.0.0.2), twin0 (10.0.9.0), twin1 (10.0.9.1) and 2 more all",
    }
    assert f"but {names[others]} ask for slot 1; no node asks for slot" in drive.result.message


def test_several_conflicts_are_all_named() -> None:
    drive = Drive(make_spec(8, **SYMMETRIC)).gather(0, 2, 4, 6)
    for _ in range(60):
        for slot in (0, 2, 4, 6):
            drive.ask(slot, attempt=2, hostname=f"twin{slot}", addresses=[f"10.0.9.{slot}"])
        drive.wait(0.5)
        if drive.run.result is not None:
            break
    message = drive.result.message
    assert "both ask for slot 4; and 1 more; no node asks for slots 1, 3, 5, 7" in message


# --- what is no conflict --------------------------------------------------------------------------


def test_a_node_that_starts_again_is_not_blamed() -> None:
    drive = started(3, 1)
    again: dict[str, Any] = {"attempt": 2}
    for _ in range(14):
        refused = drive.ask(2, **again)
        drive.wait(0.5, silent=[2])
        if refused is None:
            break
    assert kept(drive) == []
    assert drive.slot(2).incarnations == 2
    assert not any("asks for" in words for words in drive.reasons)


def test_a_pod_that_is_replaced_while_the_old_one_ends_waits_for_it() -> None:
    drive = started(3, 1)
    replaced: dict[str, Any] = {
        "attempt": 2,
        "addresses": ["10.0.0.9"],
    }  # the same name, another address
    drive.ask_for(32.0, 2, **replaced)
    assert drive.run.result is None
    drive.report(2, LeaveReport())
    assert drive.ask(2, **replaced) is None
    assert kept(drive) == []
    who = refusals.who_joins(make_join(2, **replaced))
    assert drive.refused.asks.count(who, drive.now) == refusals.Asked(drive.now, 1)
    drive.join(1)
    assert drive.phase is Phase.VERIFYING


def test_two_processes_with_one_name_end_the_start_later() -> None:
    drive = started(3, 1)
    drive.ask_for(39.0, 2, attempt=2)
    assert drive.run.result is None
    drive.ask_for(15.0, 2, attempt=2)
    assert drive.result.code == "mismatch"


def test_who_has_stopped_asking_does_not_count() -> None:
    drive = started(4, 1)
    drive.ask_for(6.0, 2, **TWIN)
    drive.wait(100.0)
    assert drive.run.result is None


def test_a_claim_on_a_node_that_has_been_lost_since_does_not_count() -> None:
    drive = started(4, 1)
    drive.ask_for(8.0, 2, **TWIN)
    drive.wait(20.0, silent=[2])
    assert drive.run.result is None
    drive.join(2, attempt=3)
    drive.wait(20.0)
    assert drive.run.result is None


@pytest.mark.parametrize("before", [1.0, 12.0])
def test_a_claim_on_the_next_node_in_a_slot_is_another_one(before: float) -> None:
    drive = started(5, 1, 3)
    drive.ask_for(before, 2, **TWIN)
    drive.report(2, LeaveReport())
    for slot in (2, 1):
        drive.join(slot, attempt=3)
    drive.wait(0.5)
    drive.ask_for(9.0, 2, **TWIN)
    assert [one.held_by for one in drive.run.refused.values()] == [2]
    assert drive.run.result is None  # beside this one it has not been there for long
    drive.ask_for(5.0, 2, **TWIN)
    assert drive.result.code == "mismatch"


def test_a_claim_on_the_node_before_this_one_does_not_count() -> None:
    drive = started(5, 1, 3)
    drive.ask_for(12.0, 2, **TWIN)
    drive.report(2, LeaveReport())
    for slot in (2, 1):  # with a second node for slot 2, as many as are expected
        drive.join(slot, attempt=3)
    drive.wait(1.0)
    assert (drive.run.result, drive.run.present) == (None, 4)


def test_with_enough_nodes_the_last_call_decides() -> None:
    drive = started(4, 1, least=3, last_call_seconds=30)
    drive.ask_for(25.0, 2, **TWIN)
    assert drive.run.result is None
    drive.wait(10.0)
    assert drive.phase is Phase.VERIFYING


def test_a_late_duplicate_is_kept_and_harms_nobody() -> None:
    drive = in_phase(Phase.RUNNING, 3, managed=False)
    refused = drive.ask(2, **TWIN)
    assert isinstance(refused, RunOver)
    assert kept(drive) == [(2, "twin", 1)]
    assert drive.outcomes[-1].usual
    assert drive.waits() == "running on 3 nodes"
    for slot in (0, 1, 2):
        drive.exit(slot, 0)
    assert drive.result.status == "ok"
    drive.ask(2, **TWIN)
    assert kept(drive) == [(2, "twin", 1)]  # the run is over: nothing more is written


def test_who_may_ask_for_another_slot_is_not_kept_while_there_is_one() -> None:
    drive = started(4, 1)
    refused = drive.ask(2, any_slot=True, **TWIN)
    assert refused is not None
    assert refused.hint == ""
    drive.ask_for(20.0, 2, any_slot=True, **TWIN)
    assert (kept(drive), drive.run.result) == ([], None)


def test_who_comes_too_late_is_not_kept() -> None:
    drive = Drive(make_spec(2, spares=1, last_call_seconds=5)).gather(0, 1).wait(5.0)
    drive.verify().arm()
    assert isinstance(drive.ask(2), TooLate)
    assert kept(drive) == []


def test_a_delayed_copy_of_an_older_join_is_not_kept() -> None:
    drive = started(3, 1)
    drive.wait(7.0, silent=[2])
    drive.join(2, attempt=2)
    assert isinstance(drive.ask(2), Fenced)
    assert kept(drive) == []


def test_an_older_worker_run_is_kept() -> None:
    drive = started(3, 1, managed=True)
    drive.news(1, SlotState.SUBMITTING, 3)
    assert isinstance(drive.ask(1), Fenced)
    assert kept(drive) == [(1, "host1", 1)]
    assert "host1 (10.0.0.2) asked for slot 1 and was refused: slot 1 belongs to a n" in (
        drive.waits()
    )


def test_another_job_that_asks_for_a_held_slot_is_no_problem_of_its_node() -> None:
    drive = started(3, 1)
    refused = drive.ask(2, **TWIN, requested_node=0)
    assert isinstance(refused, Mismatch)
    assert kept(drive) == [(2, "twin", 1)]
    assert drive.slot(2).problem == ""
    assert "twin (10.0.0.9) asked for slot 2 and was refused" in drive.reasons[-1]


# --- nodes without a slot, and strangers ----------------------------------------------------------


def stray(drive: Drive, hostname: str = "h9", source: str = "10.0.0.9") -> None:
    refusal = make_refusal(0, hostname=hostname, reason="NODE_RANK 4 is not in 0 to 3")
    event = refusals.ask_of_refusal(
        drive.run, 0, refusal.model_copy(update={"of_slot": False}), source
    )
    known = refusals.Asked(drive.now, 1)
    if (said := refusals.written(drive.run, event, known, drive.now)) is not None:
        drive.apply(said)


def test_a_rank_out_of_range_is_told_at_once_and_ends_a_start_that_lacks_it() -> None:
    drive = started(4, 1)
    stray(drive)
    assert drive.reasons[-1] == "h9 (10.0.0.9) cannot take part: NODE_RANK 4 is not in 0 to 3"
    drive.wait(9.0)
    assert drive.run.result is None
    drive.wait(2.0)
    assert drive.result.message.endswith(
        "but h9 (10.0.0.9) cannot take part: NODE_RANK 4 is not in 0 to 3; no node asks for slot 1"
    )


def test_a_surplus_node_ends_nothing() -> None:
    drive = started(4, 1)
    stray(drive)
    drive.wait(5.0)
    drive.join(1)
    assert drive.phase is Phase.VERIFYING
    drive.wait(20.0)
    assert "NODE_RANK" not in drive.waits()


def test_a_refusal_without_a_slot_is_not_one_of_slot_0() -> None:
    drive = Drive(make_spec(2, **SYMMETRIC))
    drive.refuse_to_join(0, of_slot=False, hostname="h9")
    assert drive.run.result is None
    assert kept(drive) == [(None, "h9", 1)]


def test_a_second_container_that_refuses_itself_is_kept() -> None:
    drive = started(3, 1)
    assert drive.refuse_to_join(2) is None  # the node itself, started again
    drive.refuse_to_join(2, hostname="twin")
    assert kept(drive) == [(2, "twin", 1)]
    assert drive.run.result is None


def stranger(drive: Drive, source: str) -> None:
    ask = refusals.ask_of_stranger("other", 2, source)
    event = refusals.decide_stranger(drive.run, ask, drive.now)
    if event is not None:
        drive.apply(event)


def test_strangers_are_few_are_named_by_their_address_and_decide_nothing() -> None:
    drive = started(3, 1, join_timeout_seconds=30)
    for number in range(100):
        stranger(drive, f"203.0.113.{number}")
    assert len(kept(drive)) == refusals.MOST_STRANGERS
    assert drive.reasons[-1] == (
        "a client at 203.0.113.3 asked to join run 'other' as slot 2 with a token that is not of "
        "this run"
    )
    drive.wait(20.0)
    assert drive.run.result is None
    stranger(drive, "203.0.113.0")
    drive.wait(11.0)
    assert drive.result.code == "join_timeout"
    assert "; and" not in drive.result.message
    assert drive.result.message.endswith("; 1 more were refused")
    assert drive.result.hint.startswith("a node that was started with the RDZV_JOIN or RDZV_TOKEN")


@pytest.mark.parametrize(
    ("count", "hint"),
    [(1, "a node that was started with"), (2, "each node that is missing may be one of the")],
)
def test_as_many_strangers_as_nodes_are_missing_are_most_likely_these(
    count: int, hint: str
) -> None:
    drive = started(3, 1, 2, join_timeout_seconds=30)
    for number in range(count):
        stranger(drive, f"203.0.113.{number}")
    drive.wait(31.0)
    assert drive.result.code == "join_timeout"
    assert drive.result.hint.startswith(hint)


def test_strangers_do_not_speak_of_a_run_that_runs() -> None:
    drive = in_phase(Phase.RUNNING, 2)
    stranger(drive, "203.0.113.1")
    assert kept(drive) == []
    forming = started(3, 1)
    for _ in range(2):
        stranger(forming, "203.0.113.1")
        forming.wait(20.0)
    assert kept(forming) == [(None, "", 1)]
    assert refusals.ask_of_stranger("r", 0, "").reason.startswith("a client at an unknown address")


def test_what_is_kept_is_bounded_and_written_ever_less_often() -> None:
    drive = started(4, 1, 3)
    before = len(drive.journal)
    drive.ask_for(120.0, 2, **TWIN)
    assert len(drive.journal) - before < 30
    assert kept(drive)[0][2] > 200
    for number in range(2 * refusals.MOST):
        stray(drive, hostname=f"h{number}")
    assert len(kept(drive)) == refusals.MOST
    asks = refusals.Asks()
    for number in range(1_000):
        asks.count(f"somebody {number}", 1.0)
    assert asks.count("somebody 0", 5.0) == refusals.Asked(5.0, 1)
    assert asks.count("somebody 999", 5.0) == refusals.Asked(1.0, 2)
    asks.written("nobody")


@rows(
    "hostname address source words",
    """
both | n1 | 10.0.0.1 | 10.0.0.1 | n1 (10.0.0.1)
behind NAT | n1 | 10.0.0.1 | 192.0.2.1 | n1 (10.0.0.1, from 192.0.2.1)
no offer | n1 | | 192.0.2.1 | n1 (192.0.2.1)
neither | n1 | | | n1
""",
)
def test_who_asks_is_named(hostname: str, address: str, source: str, words: str) -> None:
    assert refusals.place(hostname, address, source) == words


def test_of_who_asks_it_is_counted_since_it_was_written_and_forgotten_once_it_is_in() -> None:
    asks = refusals.Asks()
    assert [asks.count("a", 10.0 + n) for n in range(2)] == [
        refusals.Asked(10.0, 1),
        refusals.Asked(10.0, 2),
    ]
    asks.written("a")
    asks.written("nobody")
    assert asks.count("a", 20.0) == refusals.Asked(10.0, 1)
    asks.forget("a")
    asks.forget("nobody")
    assert asks.count("a", 30.0) == refusals.Asked(30.0, 1)
    for number in range(2 * refusals.MOST - 1):
        asks.count(f"other {number}", 40.0)
    assert asks.count("a", 41.0) == refusals.Asked(30.0, 2)  # and is the newest now
    asks.count("one more", 42.0)
    assert asks.count("other 0", 43.0) == refusals.Asked(43.0, 1)
    assert asks.count("a", 44.0) == refusals.Asked(30.0, 3)


def test_who_is_in_and_is_refused_again_is_another_one() -> None:
    drive = Drive(make_spec(3, managed=False))
    drive.gather(0, 1)
    for _ in range(2):
        assert drive.ask(1, hostname="twin", attempt=2) is not None
    drive.report(1, LeaveReport())
    assert drive.ask(1, hostname="twin", attempt=2) is None
    assert drive.refused.asks.count(refusals.who_joins(make_join(1, hostname="twin")), 500.0) == (
        refusals.Asked(500.0, 1)
    )

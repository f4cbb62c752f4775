"""When which peer is visited, how often, and what counts of it; on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rendezvous.wire.verify import Outcome, PairProbe, ProbePeer
from tests.support.virtual_time import forever, run_virtually
from worker.probe import mesh
from worker.probe.mesh import Pace
from worker.probe.path_mtu import family_of

OWN = ProbePeer(
    slot=9, hostname="n9", address="10.0.0.9", interface="eth0", probe_port=7_009, mtu=1_500
)
USUAL = Pace()
Answer = tuple[float, Outcome] | tuple[float, Outcome, str]
"""Seconds until a visit is over, what comes of it, and what ICMP says."""


def peer(slot: int, mtu: int = 9_000) -> ProbePeer:
    return ProbePeer(
        slot=slot,
        hostname=f"n{slot}",
        address=f"10.0.0.{slot}",
        interface="eth0",
        probe_port=7_000 + slot,
        mtu=mtu,
    )


@dataclass
class Visits:
    """What happens when, as seconds since the beginning and slots."""

    begun: list[tuple[float, int]] = field(default_factory=list)
    cut: list[tuple[float, int]] = field(default_factory=list)
    open_at_once: list[int] = field(default_factory=list)
    asked: list[tuple[int, str, int, int]] = field(default_factory=list)
    """Packets of which size are tried."""
    found: dict[int, PairProbe] = field(default_factory=dict)
    lasted: float = 0.0


def visit(
    answers: Callable[[int, int], Answer],
    *peers: ProbePeer,
    pace: Pace = USUAL,
    own: ProbePeer | None = OWN,
    detail: str = "",
) -> Visits:
    """Visit these peers, of whom `answers` says what the n-th visit to a slot is like."""
    seen, counts, open_now = Visits(), dict.fromkeys(range(100), 0), 0

    async def one(peer: ProbePeer, ends: float | None = None) -> PairProbe:
        nonlocal open_now
        clock = asyncio.get_running_loop().time
        counts[peer.slot] += 1
        seen.begun.append((round(clock() - began, 3), peer.slot))
        seconds, outcome, *icmp = answers(peer.slot, counts[peer.slot])
        open_now += 1
        seen.open_at_once.append(open_now)
        try:
            await asyncio.sleep(seconds if ends is None else min(seconds, ends - clock()))
        except asyncio.CancelledError:
            seen.cut.append((round(clock() - began, 3), peer.slot))
            raise
        finally:
            open_now -= 1
        return PairProbe(slot=peer.slot, outcome=outcome, detail=detail, icmp="".join(icmp))

    class Path:
        async def ask(self, slot: int, address: str, port: int, mtu: int) -> int:
            seen.asked.append((slot, address, port, mtu))
            return mtu - slot

    began = 0.0

    async def work() -> None:
        nonlocal began
        began = asyncio.get_running_loop().time()
        nothing: Any = None
        mtus: Any = {family_of(OWN.address): Path()}
        visitor = mesh._Visitor(nothing, mtus, own, pace, nothing, nothing)
        visitor._visit = one  # type: ignore[method-assign]
        await visitor.visit_all(peers, seen.found)
        seen.lasted = round(asyncio.get_running_loop().time() - began, 3)
        assert (visitor._again, open_now) == (0, 0)

    run_virtually(work())
    return seen


def test_where_all_answer_few_are_visited_at_once() -> None:
    pace = Pace(at_first=2, concurrency=7)
    seen = visit(lambda *_: (0.1, "ok"), *map(peer, range(1, 8)), pace=pace)
    assert max(seen.open_at_once) == 2
    assert [slot for _, slot in seen.begun] == [*seen.found] == [*range(1, 8)]
    assert seen.lasted == 0.4


def test_where_many_are_silent_their_number_doubles_up_to_the_most() -> None:
    pace = Pace(at_first=2, concurrency=7, silence_seconds=0.0)
    seen = visit(lambda *_: (9.0, "timeout"), *map(peer, range(1, 31)), pace=pace)
    begun = [at for at, _ in seen.begun]
    assert begun[:9] == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.0, 9.0, 9.0]
    assert max(seen.open_at_once) == 7
    assert {pair.outcome for pair in seen.found.values()} == {"timeout"}
    assert [*sorted(seen.found)] == [*range(1, 31)]


SILENT = Pace(again_seconds=0.5, silence_seconds=2.0)


def test_a_silent_peer_is_visited_again_beside_the_visits_that_go_on() -> None:
    """What is heard first counts, and what is still under way is broken off."""
    answers: dict[int, Answer] = {1: (1.0, "timeout"), 2: (9.0, "ok"), 3: (0.7, "refused")}
    seen = visit(lambda _, n: answers.get(n, (9.0, "ok")), peer(3), pace=SILENT)
    assert seen.begun == [(0.0, 3), (1.0, 3), (1.5, 3), (2.0, 3)]
    assert seen.cut == [(2.2, 3), (2.2, 3)]
    assert (seen.found[3].outcome, seen.lasted) == ("refused", 2.2)


@pytest.mark.parametrize(
    ("answers", "outcome", "icmp"),
    [
        ([(1.0, "timeout"), *[(9.0, "timeout")] * 2, (9.0, "black_hole")], "timeout", ""),
        ([(1.0, "timeout"), *[(0.1, "black_hole")] * 4], "black_hole", ""),
        ([(1.0, "timeout", "old"), *[(0.1, "timeout")] * 4], "timeout", "old"),
        (
            [(1.0, "timeout", "old"), (0.1, "timeout", "new"), *[(0.1, "timeout")] * 3],
            "timeout",
            "new",
        ),
        (
            [(1.0, "timeout"), (0.1, "black_hole", "few"), *[(0.1, "timeout", "i")] * 3],
            "timeout",
            "i",
        ),
    ],
)
def test_of_a_peer_that_stays_silent_what_was_usual_counts(
    answers: list[Answer], outcome: str, icmp: str
) -> None:
    """With what ICMP said last of it."""
    seen = visit(lambda _, n: answers[min(n, len(answers)) - 1], peer(3), pace=SILENT)
    assert (seen.found[3].outcome, seen.found[3].icmp) == (outcome, icmp)
    assert seen.begun == [(0.0, 3), *((1.0 + n / 2, 3) for n in range(4))]
    assert (seen.lasted, seen.cut) == (3.0, [])


def test_a_peer_that_has_answered_is_not_visited_again() -> None:
    for outcome in ("ok", "refused", "stranger", "error"):
        seen = visit(lambda *_, outcome=outcome: (0.2, outcome), peer(3), pace=SILENT)
        assert (seen.begun, seen.found[3].outcome) == ([(0.0, 3)], outcome)


def test_so_many_are_visited_again_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has one visit of those, and others as there is room, also once the first are over."""
    monkeypatch.setattr(mesh, "_MOST_AGAIN", 3)
    pace = replace(SILENT, at_first=2, concurrency=2)

    def answers(slot: int, n: int) -> Answer:
        return (slot / 10 if n == 1 else 9.0, "timeout")

    seen = visit(answers, *map(peer, range(1, 5)), pace=pace)
    assert seen.begun == [
        *[(0.0, 1), (0.0, 2), (0.1, 1), (0.2, 2), (0.6, 1)],
        *[(2.1, 3), (2.2, 4), (2.4, 3), (2.6, 4), (2.9, 3)],
    ]
    assert max(seen.open_at_once) == 3


@pytest.mark.parametrize(
    ("outcome", "detail", "own", "mtu", "asked"),
    [
        ("ok", "", OWN, 9_000, 1_500),
        ("ok", "", OWN, 1_400, 1_400),
        ("ok", "", OWN.model_copy(update={"mtu": 0}), 9_000, None),
        ("ok", "", OWN, 0, None),
        ("ok", "", None, 9_000, None),
        ("black_hole", mesh._VANISHED_THERE[1], OWN, 9_000, 1_500),
        ("black_hole", mesh._VANISHED_BACK[1], OWN, 9_000, None),
        ("refused", "", OWN, 9_000, None),
    ],
)
def test_the_largest_packet_is_tried_where_packets_arrive(
    outcome: Outcome, detail: str, own: ProbePeer | None, mtu: int, asked: int | None
) -> None:
    pace = replace(SILENT, silence_seconds=0.0)
    seen = visit(lambda *_: (0.1, outcome), peer(3, mtu), pace=pace, own=own, detail=detail)
    assert seen.asked == ([] if asked is None else [(3, "10.0.0.3", 7_003, asked)])
    sizes = None if asked is None else asked - 3
    assert seen.found[3] == PairProbe(slot=3, outcome=outcome, detail=detail, path_mtu=sizes)


def test_for_a_peer_of_another_family_no_packet_is_tried() -> None:
    other = peer(3).model_copy(update={"address": "fd00::3"})
    assert visit(lambda *_: (0.1, "ok"), other, peer(4)).asked == [(4, "10.0.0.4", 7_004, 1_500)]


def test_a_round_that_is_broken_off_leaves_no_visit() -> None:
    seen = Visits()

    async def silent(peer: ProbePeer, ends: float | None = None) -> PairProbe:
        if ends is None:
            return PairProbe(slot=peer.slot, outcome="timeout")
        seen.begun.append((0.0, peer.slot))
        try:
            await forever()
        finally:
            seen.cut.append((0.0, peer.slot))
        raise AssertionError

    async def work() -> None:
        nothing: Any = None
        visitor = mesh._Visitor(nothing, {}, OWN, SILENT, nothing, nothing)
        visitor._visit = silent  # type: ignore[method-assign]
        task = asyncio.create_task(visitor.visit_all([peer(3)], seen.found))
        await asyncio.sleep(0.7)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(work())
    assert seen.begun == seen.cut == [(0.0, 3), (0.0, 3)]
    assert seen.found[3].outcome == "timeout"

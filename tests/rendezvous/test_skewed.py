"""A run in which slots, ranks, generations, incarnations and epochs differ, seen from every side.

Where the one is taken for the other, the usual runs of tests (slot 1 is rank 1) do not show it.
"""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.registry.last_words import KeptWords, wanted
from rendezvous.registry.log_views import SILENT_SECONDS, Limits, LogViews
from rendezvous.registry.questions import Questions, nodes_of
from rendezvous.run import departures, fences, worlds
from rendezvous.run.placement import Placed
from rendezvous.run.state import who
from rendezvous.run.views import node_view
from rendezvous.wire.last_words import LastWords, RankText, RunLastWords
from rendezvous.wire.log_view import RunView, ViewPart, ViewPost, ViewRequest
from rendezvous.wire.question import Answer, Answers, NodeAnswer
from rendezvous.wire.reports import DepartReport, LeaveReport
from rendezvous.wire.run import Phase, SlotState
from rendezvous.wire.world import RankWorld
from tests.support.driver import (
    GENERATIONS,
    HOSTS,
    OF_RANKS,
    PROCESSES,
    RANKS,
    Drive,
    skewed,
)
from tests.support.topics import WEATHER

REPLACES: Any = {"on_node_loss": "replace", "max_replacements": 2, "fence_timeout_seconds": 20.0}
INCARNATIONS = {0: 1, 1: 1, 2: 3, 3: 1}
OF_SPARE: Any = {slot: {"nproc_per_node": count} for slot, count in PROCESSES.items()}
SLOTS = sorted(RANKS, key=RANKS.__getitem__)
"""In order of their ranks."""


def words(slot: int) -> str:
    """How a node is called."""
    where = "" if RANKS[slot] == slot else f", slot {slot}"
    return f"node {RANKS[slot]} ({HOSTS[slot]}{where})"


# --- the run --------------------------------------------------------------------------------------


def test_the_table_and_who_ran_what() -> None:
    run = skewed().run
    assert run.table is not None
    rows = [(row.slot, row.node, row.hostname, row.nproc_per_node) for row in run.table.rows]
    assert rows == [(slot, RANKS[slot], HOSTS[slot], PROCESSES[slot]) for slot in SLOTS]
    assert [(row.slot, ranks) for row, ranks in run.table.processes()] == [*OF_RANKS.items()]
    assert run.table.generations is None
    assert [(one.epoch, one.nodes) for one in run.starts.placements] == [
        (4, tuple(placed(slot) for slot in SLOTS))
    ]


def placed(slot: int) -> Placed:
    return Placed(slot, INCARNATIONS[slot], HOSTS[slot], RANKS[slot], OF_RANKS[slot])


def test_the_generations_of_a_table_are_those_of_its_rows() -> None:
    table = skewed(**REPLACES).run.table
    assert table is not None
    assert table.generations == [GENERATIONS[slot] for slot in SLOTS]


def test_what_a_person_sees_of_each_slot() -> None:
    drive = skewed()
    status = drive.status()
    assert [
        (s.slot, s.node, s.generation, s.incarnation, s.hostname, s.nproc_per_node)
        for s in status.slots
    ] == [
        (slot, RANKS[slot], GENERATIONS[slot], INCARNATIONS[slot], HOSTS[slot], PROCESSES[slot])
        for slot in range(4)
    ]
    assert {s.address for s in status.slots} == {f"10.0.0.{slot + 1}" for slot in range(4)}
    assert [who(slot) for slot in drive.run.slots] == [words(slot) for slot in range(4)]


@pytest.mark.parametrize("slot", range(1, 4))
def test_a_departure_is_that_of_a_slot_and_told_with_its_rank(slot: int) -> None:
    drive = skewed()
    drive.report(slot, DepartReport(epoch=4, seconds=600.0, words="its machine goes"))
    notice = departures.notice_of(drive.run, drive.now)
    assert notice is not None
    assert (notice.slot, notice.node) == (slot, RANKS[slot])
    assert node_view(drive.run, drive.now, 2.0).notice == notice
    status = drive.status()
    assert status.reason.startswith(f"{words(slot)} will leave: its machine goes")


def test_of_several_departures_the_earliest_counts_and_then_the_next_one() -> None:
    drive = skewed()
    for slot, seconds in ((2, 600.0), (3, 400.0), (1, 500.0)):
        drive.report(slot, DepartReport(epoch=4, seconds=seconds, words=f"{seconds:.0f}"))
    assert drive.run.departure is not None
    assert (drive.run.departure.slot, drive.run.departure.words) == (3, "400")
    drive.exit(3, 0)
    assert drive.run.departure.slot == 1


@pytest.mark.parametrize("slot", range(1, 4))
def test_the_node_that_is_drained_is_that_of_the_slot(slot: int) -> None:
    drive = skewed()
    drive.drain(slot, 600.0, "maintenance")
    assert [s.index for s in drive.run.slots if s.its_node.departure] == [slot]


@pytest.mark.parametrize("slot", range(1, 4))
def test_a_failure_names_slot_rank_and_host(slot: int) -> None:
    drive = skewed()
    drive.exit(slot, 7, rank=OF_RANKS[slot][-1])
    for other in {*range(4)} - {slot}:
        drive.exit(other, 143, stopped=True)
    drive.wait(10)
    result = drive.result
    assert (result.slot, result.node, result.hostname) == (slot, RANKS[slot], HOSTS[slot])
    assert (result.rank, result.exit_code) == (OF_RANKS[slot][-1], 7)


@pytest.mark.parametrize("slot", range(1, 4))
def test_a_loss_and_what_takes_its_place_have_the_rank_of_the_lost(slot: int) -> None:
    drive = skewed(**REPLACES)
    drive.report(slot, LeaveReport())
    for other in {*range(4)} - {slot}:
        drive.exit(other, 143, stopped=True)
    drive.wait(4)
    [end] = drive.run.starts.ended
    assert (end.epoch, end.slot, end.node, end.replaced) == (4, slot, RANKS[slot], [slot])
    assert end.hostname == HOSTS[slot]
    assert drive.slot(slot).wanted == GENERATIONS[slot] + 1
    drive.join(slot, GENERATIONS[slot] + 1, hostname="spare", **OF_SPARE[slot])
    drive.verify().arm()
    table = drive.run.table
    assert table is not None
    assert [row.slot for row in table.rows] == SLOTS
    assert table.rows[RANKS[slot]].hostname == "spare"
    last = drive.run.starts.placements[-1]
    assert (last.epoch, last.nodes[RANKS[slot]].incarnation) == (
        drive.run.epoch,
        INCARNATIONS[slot] + 1,
    )


def silent(drive: Drive, slot: int) -> None:
    """A node falls silent, and its program may run for as long as its fence."""
    drive.wait(15.5, silent=[slot])
    for other in {*range(4)} - {slot}:
        drive.exit(other, 143, stopped=True)
    drive.wait(0.5, silent=[slot])


@pytest.mark.parametrize("slot", range(1, 4))
def test_the_fence_of_a_lost_node_is_that_of_its_worker_run_and_holds_the_next_go(
    slot: int,
) -> None:
    drive = skewed(**REPLACES | {"fence_timeout_seconds": 90.0})
    silent(drive, slot)
    [fence] = fences.holding(drive.run)
    assert (fence.slot, fence.incarnation, fence.generation) == (
        *(slot, INCARNATIONS[slot]),
        GENERATIONS[slot],
    )
    held = [(s, g) for s in range(4) for g in range(7) if fences.is_held(drive.run, s, g)]
    assert held == [(slot, GENERATIONS[slot])]
    drive.join(slot, GENERATIONS[slot] + 1, hostname="spare", **OF_SPARE[slot])
    drive.verify().arm()
    assert drive.phase is Phase.ARMING  # all are ready, and something may run
    for generation in {*range(1, 7)} - {GENERATIONS[slot], GENERATIONS[slot] + 1}:
        fences.worker_run_ended(drive.run, slot, generation)
    for other in {*range(4)} - {slot}:
        fences.worker_run_ended(drive.run, other, GENERATIONS[slot])
    assert fences.holding(drive.run) == [fence]
    drive.news(slot, SlotState.ENDED, GENERATIONS[slot])
    assert drive.run.phase is Phase.RUNNING


@pytest.mark.parametrize("alone", [True, False])
def test_each_node_alone_is_known_by_the_places_of_its_own_ranks(alone: bool) -> None:
    run = skewed().run
    assert run.table is not None
    known = {
        slot: [
            RankWorld(rank=rank, library="torch", size=PROCESSES[slot], places=[place])
            for place, rank in enumerate(ranks if alone else reversed(ranks))
        ]
        for slot, ranks in OF_RANKS.items()
    }
    found = worlds.judge(run.table, known)
    assert found is not None
    rule = "node_alone" if alone else "several"
    assert (found.rule, found.size, found.total) == (rule, 3, 7)
    for slot in range(4):
        assert worlds.judge(run.table, {s: w for s, w in known.items() if s != slot}) is None


# --- what a registry keeps of it ------------------------------------------------------------------


def test_a_question_is_for_each_node_by_its_slot_and_tells_its_rank() -> None:
    drive, questions = skewed(), Questions(WEATHER, lambda: None)
    assert {s: (n.slot, n.node, n.hostname) for s, n in nodes_of(drive.run).items()} == {
        slot: (slot, RANKS[slot], HOSTS[slot]) for slot in range(4)
    }
    number = questions.ask(drive.run, drive.now).number
    questions.take(2, Answer(number=number, epoch=4, words="it rains"), drive.now)
    found = Answers.model_validate_json(questions.written(number, drive.now).plain)
    assert found.epoch == 4
    nodes = [NodeAnswer.model_validate(one) for one in found.nodes]
    answered = {n.slot: (n.node, n.report["words"]) for n in nodes if n.report}
    assert answered == {2: (3, "it rains")}


def test_last_words_have_slot_node_and_rank() -> None:
    drive, kept = skewed(), KeptWords()
    drive.exit(2, 7, rank=5)
    for other in (0, 1, 3):
        drive.exit(other, 143, stopped=True)
    drive.wait(10)
    text = RankText(rank=5, text="it fails")
    reply = kept.take(drive.run, 2, LastWords(epoch=4, node=3, texts=[text]))
    assert (reply.wants, reply.rank) == (True, 5)
    assert not wanted(drive.run, 3, 4).wants
    [one] = RunLastWords.model_validate_json(kept.after(0)).texts
    assert (one.slot, one.node, one.rank, one.epoch) == (2, 3, 5, 4)


def asked(drive: Drive, **request: Any) -> tuple[LogViews, int]:
    views = LogViews()
    return views, views.open(drive.run, ViewRequest(**request), drive.now, Limits()).view


def send(drive: Drive, views: LogViews, number: int, slot: int, *lines: str) -> bool:
    """Whether the view is one of this slot's node."""
    parts = [ViewPart(rank=None, lines=list(lines))]
    post = ViewPost(view=number, number=1, parts=parts, done=True)
    views.take((slot, INCARNATIONS[slot]), post, drive.now)
    return bool(read(drive, views, number).pieces)


def read(drive: Drive, views: LogViews, number: int) -> RunView:
    return RunView.model_validate_json(views.written(drive.run, number, 0, drive.now).plain)


@pytest.mark.parametrize("slot", range(4))
def test_a_view_asks_the_slot_of_a_node_or_a_rank_and_names_the_node(slot: int) -> None:
    drive = skewed()
    for request in ({"node": RANKS[slot]}, {"rank": OF_RANKS[slot][-1]}):
        views, number = asked(drive, **request)
        assert [other for other in range(4) if send(drive, views, number, other, "x")] == [
            *range(slot, 4)
        ]
        found = read(drive, views, number)
        assert [(one.node, one.hostname) for one in found.pieces] == [(RANKS[slot], HOSTS[slot])]
        assert found.over


@pytest.mark.parametrize("slot", range(1, 4))
def test_a_view_names_the_node_that_did_not_answer_or_is_gone(slot: int) -> None:
    drive = skewed()
    views, number = asked(drive, node=RANKS[slot])
    drive.now += SILENT_SECONDS + 1
    [node] = read(drive, views, number).nodes
    assert (node.node, node.hostname, node.words) == (
        *(RANKS[slot], HOSTS[slot]),
        "it did not answer",
    )


@pytest.mark.parametrize("slot", range(1, 4))
def test_who_is_asked_for_an_older_epoch_is_the_node_that_ran_it_or_is_said_to_be_gone(
    slot: int,
) -> None:
    drive = skewed(max_restarts=3)
    views, number = asked(drive, node=RANKS[slot], epoch=4)
    post = ViewPost(view=number, number=1, done=True, words="there is no log of it")
    views.take((slot, INCARNATIONS[slot]), post, drive.now)
    [node] = read(drive, views, number).nodes
    assert node.words == "there is no log of it"  # the very node says so, and is not gone
    drive.exit(slot, 7)
    for other in {*range(4)} - {slot}:
        drive.exit(other, 143, stopped=True)
    drive.join(slot, 6, hostname="spare", **OF_SPARE[slot])
    drive.verify().arm()
    views, number = asked(drive, node=RANKS[slot], epoch=4)
    drive.now += SILENT_SECONDS + 1
    [node] = read(drive, views, number).nodes
    assert (node.node, node.hostname) == (RANKS[slot], HOSTS[slot])
    ranks = OF_RANKS[slot]
    ran = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"
    assert node.words.startswith(f"it ran {ran} in epoch 4 (slot {slot}), and has left")


def test_who_has_left_is_not_asked_where_its_ranks_are() -> None:
    drive = skewed(**REPLACES)
    drive.report(2, LeaveReport())
    assert drive.phase is Phase.RUNNING  # until the others are stopped
    assert [*nodes_of(drive.run)] == [0, 1, 3]

"""Who is told to end, and by whom: the rules alone, on families of processes."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from worker.program.process_table import Details, Process
from worker.program.telling import Order, forsaken, order_of

KEEPER = 1
PYTHON = "python3 train.py"


@dataclass(frozen=True)
class One:
    """A process; its environment is its parent's, and `own`. It leads a group where it says so."""

    pid: int
    parent: int
    own: str = ""
    words: str = PYTHON
    leads: bool = False
    caught: bool = False
    ignored: bool = False

    def stat(self, group: int) -> Process:
        return Process(self.pid, self.parent, self.pid if self.leads else group, "S", 0, 0)


def family(*members: One) -> tuple[list[Process], dict[int, Details]]:
    """What a keeper sees: all of them, parents first, and what it knows of each."""
    everyone: list[Process] = []
    groups = {KEEPER: KEEPER}
    known = {KEEPER: Details((b"python3", b"keeper.py"), frozenset((b"A=b",)), caught=TERM)}
    for one in members:
        everyone.append(one.stat(groups[one.parent]))
        groups[one.pid] = everyone[-1].group
        added = {item for item in one.own.encode().split() if item}
        names = {item.partition(b"=")[0] for item in added}
        inherited = known[one.parent].environment
        kept = {item for item in inherited if item.partition(b"=")[0] not in names}
        known[one.pid] = Details(
            tuple(one.words.encode().split()),
            frozenset(kept | added),
            TERM if one.ignored else frozenset(),
            TERM if one.caught else frozenset(),
        )
    return everyone, known


TERM = frozenset({int(signal.SIGTERM)})


def ordered(*members: One) -> Order:
    everyone, known = family(*members)
    return order_of(everyone, known, KEEPER)


def told(*members: One) -> set[int]:
    return {process.pid for process in ordered(*members).tell}


def rank(pid: int, parent: int, own: str = "TORCHELASTIC_RUN_ID=r") -> One:
    return One(pid, parent, own, leads=True)


# --- what passes it on to process groups ----------------------------------------------------------


@pytest.mark.parametrize("mark", ["TORCHELASTIC_RUN_ID=r", "OMPI_COMM_WORLD_RANK=0"])
def test_ranks_of_torchrun_and_mpirun_are_left_to_it_with_all_of_their_groups(mark: str) -> None:
    """13 and 15 are started by ranks; 15 has a session of its own."""
    launcher, helper = One(11, KEEPER, leads=True), One(16, KEEPER)
    ranks = [rank(12, 11, mark), One(13, 12), rank(14, 11, mark), One(15, 14, leads=True)]
    order = ordered(launcher, helper, *ranks)
    assert ({p.pid for p in order.tell}, order.groups) == ({11, 15, 16}, {12, 14})
    assert order.heard == {11, 13, 15, 16}


@pytest.mark.parametrize(
    ("launcher", "why"),
    [
        (One(11, KEEPER, "TORCHELASTIC_RUN_ID=r", leads=True), "all of this runs below a torchrun"),
        (One(11, KEEPER, leads=True, ignored=True), "it ignores SIGTERM, and passes none on"),
    ],
)
def test_a_rank_whose_launcher_tells_nobody_is_told(launcher: One, why: str) -> None:
    assert told(launcher, rank(12, 11)) == {11, 12}, why


def test_a_rank_that_lost_its_launcher_is_told_with_its_group() -> None:
    assert told(rank(12, KEEPER), One(13, 12)) == {12, 13}


def test_a_group_is_told_as_soon_as_its_launcher_has_ended() -> None:
    order = ordered(One(11, KEEPER, leads=True), rank(12, 11), One(13, 12))
    orphaned, _ = family(rank(12, KEEPER), One(13, 12))
    assert forsaken(orphaned, order, KEEPER) == orphaned
    still_led, _ = family(One(11, KEEPER, leads=True), rank(12, 11), One(13, 12))
    assert forsaken(still_led, order, KEEPER) == []


def test_who_was_born_while_its_parent_was_told_is_told_when_it_has_lost_it() -> None:
    order = ordered(One(11, KEEPER))
    now, _ = family(One(11, KEEPER), One(12, KEEPER))
    assert [process.pid for process in forsaken(now, order, KEEPER)] == [12]


def test_mpiexecs_proxies_are_told_by_mpiexec() -> None:
    """12 is mpiexec's child, 13 its rank; 15 is a rank of the program itself, 17 is torchrun's."""
    hydra = [One(11, KEEPER, leads=True), One(12, 11), rank(13, 12, "PMI_RANK=0")]
    others = [One(14, KEEPER), rank(15, 14, "PMI_RANK=1"), One(16, 11), rank(17, 16)]
    order = ordered(*hydra, *others)
    assert {process.pid for process in order.tell} == {11, 14, 16}
    assert {11, 12, 14, 16} <= order.heard


# --- what passes it on to processes ---------------------------------------------------------------

TRAINER = One(11, KEEPER, leads=True, caught=True)


def test_lightnings_ranks_are_left_to_the_one_that_has_started_them() -> None:
    """13 loads data for 12, which ends it; 14 loads for the first rank itself."""
    members = [TRAINER, One(12, 11, "LOCAL_RANK=1"), One(13, 12), One(14, 11)]
    order = ordered(*members)
    assert ({p.pid for p in order.tell}, order.heard) == ({11, 14}, {11, 14})
    orphaned, _ = family(One(12, KEEPER, "LOCAL_RANK=1"), One(13, 12))
    assert [process.pid for process in forsaken(orphaned, order, KEEPER)] == [12]


@pytest.mark.parametrize(
    ("parent", "own", "why"),
    [
        (One(11, KEEPER), "LOCAL_RANK=1", "it handles no SIGTERM, so it passes none on"),
        (TRAINER, "LOCAL_RANK=1 RANK=1", "rdzv's own starter of processes tells nobody"),
        (TRAINER, "OTHER=1", "no rank"),
        (One(11, KEEPER, words="bash run.sh", caught=True), "LOCAL_RANK=1", "somebody's trap"),
        (One(11, KEEPER, words="", caught=True), "LOCAL_RANK=1", "nothing is known of it"),
    ],
)
def test_other_processes_with_a_local_rank_are_told(parent: One, own: str, why: str) -> None:
    assert told(parent, One(12, 11, own)) == {11, 12}, why


def test_a_rank_of_lightning_that_lost_its_parent_is_told() -> None:
    assert told(One(12, KEEPER, "LOCAL_RANK=1"), One(13, 12)) == {12, 13}


# --- what would tell them once more ---------------------------------------------------------------


def test_deepspeeds_launcher_of_a_node_is_killed_and_its_ranks_are_told() -> None:
    runner = One(11, KEEPER, words="python bin/deepspeed train.py", leads=True)
    per_node = One(12, 11, words="python -u -m deepspeed.launcher.launch --node_rank=0 train.py")
    ranks = [One(n, 12, f"LOCAL_RANK={n} RANK={n}") for n in (13, 14)]
    order = ordered(runner, per_node, *ranks)
    assert [process.pid for process in order.kill] == [12]
    assert {process.pid for process in order.tell} == {11, 13, 14}
    assert order.heard == {11, 12, 13, 14}


@pytest.mark.parametrize(
    "words", ["python train.py deepspeed.launcher.launch", "python -m deepspeed.launcher.launcher"]
)
def test_nothing_else_is_taken_for_it(words: str) -> None:
    assert ordered(One(11, KEEPER, words=words)).kill == []


@pytest.mark.parametrize("words", ["python /opt/bin/horovodrun -np 2 p", "horovodrun -np 2 p"])
def test_horovodrun_is_held_while_all_others_are_told(words: str) -> None:
    order = ordered(One(11, KEEPER, words=words), One(12, 11), One(13, 12))
    assert [process.pid for process in order.hold] == [11]
    assert {process.pid for process in order.tell} == {12, 13}
    assert order.heard == {11, 12, 13}


def test_a_script_that_is_told_about_horovodrun_is_not_held() -> None:
    assert ordered(One(11, KEEPER, words="bash run.sh horovodrun")).hold == []

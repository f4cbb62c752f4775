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
    hidden: bool = False
    """Whether its environment cannot be read."""

    def stat(self, group: int) -> Process:
        return Process(self.pid, self.parent, self.pid if self.leads else group, "S", 0, 0)


def family(*members: One) -> tuple[list[Process], dict[int, Details]]:
    """What a keeper sees: all of them, parents first, and what it knows of each."""
    everyone: list[Process] = []
    groups = {KEEPER: KEEPER}
    known = dict[int, Details]()
    environments = {KEEPER: frozenset((b"A=b",))}
    for one in members:
        everyone.append(one.stat(groups[one.parent]))
        groups[one.pid] = everyone[-1].group
        added = {item for item in one.own.encode().split() if item}
        names = {item.partition(b"=")[0] for item in added}
        inherited = environments[one.parent]
        kept = {item for item in inherited if item.partition(b"=")[0] not in names}
        environments[one.pid] = frozenset(kept | added)
        known[one.pid] = Details(
            tuple(one.words.encode().split()),
            frozenset() if one.hidden else environments[one.pid],
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


def test_a_rank_that_leads_no_group_is_told() -> None:
    order = ordered(One(11, KEEPER, leads=True), One(12, 11, "OMPI_COMM_WORLD_RANK=0"))
    assert ({p.pid for p in order.tell}, order.heard) == ({11, 12}, {11, 12})


def test_a_group_is_told_as_soon_as_its_launcher_has_ended() -> None:
    order = ordered(One(11, KEEPER, leads=True), rank(12, 11), One(13, 12))
    orphaned, _ = family(rank(12, KEEPER), One(13, 12))
    still_led, _ = family(One(11, KEEPER, leads=True), rank(12, 11), One(13, 12))
    assert forsaken(still_led, order, KEEPER, False) == []
    assert forsaken(orphaned, order, KEEPER, False) == orphaned
    assert forsaken(orphaned, order, KEEPER, False) == []


def test_who_was_born_while_its_parent_was_told_is_told_when_it_has_lost_it() -> None:
    order = ordered(One(11, KEEPER))
    now, _ = family(One(11, KEEPER), One(12, KEEPER))
    assert [process.pid for process in forsaken(now, order, KEEPER, False)] == [12]


def test_mpiexecs_proxies_are_told_by_mpiexec() -> None:
    """12 is mpiexec's child, 13 its rank; 15 is a rank of the program itself, 17 is torchrun's."""
    hydra = [One(11, KEEPER, leads=True), One(12, 11), rank(13, 12, "PMI_RANK=0")]
    others = [One(14, KEEPER), rank(15, 14, "PMI_RANK=1"), One(16, 11), rank(17, 16)]
    order = ordered(*hydra, *others)
    assert {process.pid for process in order.tell} == {11, 14, 16}
    assert {11, 12, 14, 16} <= order.heard


def test_who_was_told_with_its_launcher_is_not_told_again_with_a_newcomer() -> None:
    """15 was born in the session of 14, and leads no rank's group; 13 was told before."""
    order = ordered(One(11, KEEPER), One(13, 11))
    everyone, _ = family(One(14, KEEPER, leads=True), One(13, 14))
    assert [process.pid for process in forsaken(everyone, order, KEEPER, False)] == [14]


# --- what may pass it on to processes -------------------------------------------------------------

FIRST = One(11, KEEPER, "NODE_RANK=0", leads=True, caught=True)


def late(*members: One) -> set[int]:
    order = ordered(*members)
    assert {process.pid for process in order.tell} == order.heard - {p.pid for p in order.late}
    return {process.pid for process in order.late}


@pytest.mark.parametrize(
    ("inherited", "words"),
    [("", PYTHON), ("RANK=3", PYTHON), ("", "/opt/env/bin/python3.11 -m pkg.train")],
)
def test_ranks_that_a_rank_has_started_may_be_told_by_it(inherited: str, words: str) -> None:
    """13 loads data for 12, and 14 for the first rank itself; 15 is a rank of its own making."""
    ranks = [One(12, 11, "LOCAL_RANK=1", words), One(15, 11, "LOCAL_RANK=2", words)]
    first = One(11, KEEPER, inherited, leads=True, caught=True)
    assert late(first, *ranks, One(13, 12), One(14, 11)) == {12, 15}


@pytest.mark.parametrize(
    ("first", "own", "why"),
    [
        (One(11, KEEPER), "LOCAL_RANK=1", "it handles no SIGTERM, so it passes none on"),
        (FIRST, "LOCAL_RANK=1 RANK=1", "rdzv's own starter of processes tells nobody"),
        (FIRST, "LOCAL_RANK=0", "a helper of the first rank, which is that itself by now"),
        (FIRST, "OTHER=1", "no rank"),
        (One(11, KEEPER, "LOCAL_RANK=1", caught=True), "", "its parent has it too"),
        (One(11, KEEPER, caught=True, hidden=True), "LOCAL_RANK=1", "what is added is not known"),
        (One(11, KEEPER, words="bash run.sh", caught=True), "LOCAL_RANK=1", "somebody's trap"),
        (One(11, KEEPER, words="/python3/bash x", caught=True), "LOCAL_RANK=1", "the same"),
        (One(11, KEEPER, words="", caught=True), "LOCAL_RANK=1", "nothing is known of it"),
    ],
)
def test_other_processes_are_told_at_once(first: One, own: str, why: str) -> None:
    assert late(first, One(12, 11, own)) == set(), why


def test_a_program_with_a_local_rank_that_is_no_python_is_told_at_once() -> None:
    assert late(FIRST, One(12, 11, "LOCAL_RANK=1", "wandb-core")) == set()


def test_they_are_told_once_when_half_of_the_grace_is_over_if_they_still_live() -> None:
    """13 has ended, and its number is another's; 12 has lost the first rank meanwhile."""
    order = ordered(FIRST, One(12, 11, "LOCAL_RANK=1"), One(13, 11, "LOCAL_RANK=2"))
    now, _ = family(One(12, KEEPER, "LOCAL_RANK=1"), One(13, 12))
    now[1] = now[1]._replace(started=7)
    assert forsaken(now, order, KEEPER, False) == []
    assert forsaken(now, order, KEEPER, True) == [now[0]]
    assert forsaken(now, order, KEEPER, True) == []


def test_who_has_just_lost_its_parent_is_told_together_with_those_that_are_late() -> None:
    order = ordered(FIRST, One(12, 11, "LOCAL_RANK=1"))
    now, _ = family(FIRST, One(12, 11, "LOCAL_RANK=1"), One(14, KEEPER), One(15, 14))
    told = forsaken(now, order, KEEPER, True)
    assert [process.pid for process in told] == [14, 12]
    assert {12, 14} <= order.heard
    assert (order.late, forsaken(now, order, KEEPER, True)) == ([], [])


def test_a_rank_that_lost_its_first_one_is_told_at_once() -> None:
    assert late(One(12, KEEPER, "LOCAL_RANK=1"), One(13, 12)) == set()


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
    "words",
    [
        "python train.py -m deepspeed.launcher.launch",
        "python -m deepspeed.launcher.launcher",
        "pdsh -S -f 1024 -w h0,h1 cd /x; /bin/python -u -m deepspeed.launcher.launch --x",
        "pdsh -m deepspeed.launcher.launch",
        "mpirun -np 1 python -u -m deepspeed.launcher.launch",
        "python3 -m profiler run -- python -u -m deepspeed.launcher.launch",
    ],
)
def test_what_only_starts_it_is_told(words: str) -> None:
    assert told(One(11, KEEPER, words=words)) == {11}


@pytest.mark.parametrize("words", ["python /opt/bin/horovodrun -np 2 p", "horovodrun -np 2 p"])
def test_horovodrun_is_held_while_all_others_are_told(words: str) -> None:
    order = ordered(One(11, KEEPER, words=words), One(12, 11), One(13, 12))
    assert [process.pid for process in order.hold] == [11]
    assert {process.pid for process in order.tell} == {12, 13}
    assert order.heard == {11, 12, 13}


def test_a_script_that_is_told_about_horovodrun_is_not_held() -> None:
    assert ordered(One(11, KEEPER, words="bash run.sh horovodrun")).hold == []


# --- what tells its command, which is told --------------------------------------------------------


@pytest.mark.parametrize("words", ["timeout 9 x", "/usr/bin/su -c x", "runuser x", "tini -- x"])
def test_what_ends_with_its_command_is_not_told(words: str) -> None:
    order = ordered(One(11, KEEPER, words=words), One(12, 11))
    assert ({process.pid for process in order.tell}, order.heard) == ({12}, {11, 12})


@pytest.mark.parametrize("command", [[One(12, 11, hidden=True)], []])
def test_a_wrapper_is_told_whose_command_is_another_users_or_not_there(command: list[One]) -> None:
    assert 11 in told(One(11, KEEPER, words="su other -c x"), *command)

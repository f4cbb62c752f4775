"""What a node tells of the end of its program: of which ranks, lines and facts."""

from __future__ import annotations

from typing import Any

import pytest

from rendezvous.cause.clues import Line
from rendezvous.wire.evidence import Fact, RankEnd
from rendezvous.wire.reports import ExitReport
from worker.agent.evidence import evidence_of, has_failed, named_in, own_tail, pids_of, removed_in
from worker.agent.inputs import OwnWords
from worker.agent.state import ProgramState
from worker.program.family import Child, Family, Ranks

RAISED = (
    "Traceback (most recent call last):",
    '  File "train.py", line 8, in <module>',
    "ValueError: loss is nan",
)


def child(rank: int, **known: Any) -> Child:
    return Child(100 + rank, float(rank), 10.0, Ranks(rank, rank), **known)


def program(*children: Child, stop_at: float | None = None) -> ProgramState:
    return ProgramState(1, 1, family=Family(None, children), stop_at=stop_at)


def said(*lines: str, rank: int | None = 1, at: float = 50.0, **more: Any) -> OwnWords:
    return OwnWords(lines=tuple(Line(line, rank, at) for line in lines), **more)


def test_times_count_from_what_the_report_tells_of() -> None:
    failed = program(child(1, ended_at=51.0, exit_code=1), child(2, state="T"))
    found = evidence_of(failed, said(*RAISED), 51.0, ended_well=False)
    assert found is not None
    assert found.ranks == [RankEnd(rank=1, exit_code=1, ended=0.0), RankEnd(rank=2, state="T")]
    (clue,) = found.clues
    assert (clue.id, clue.rank, clue.at, clue.where) == ("exception", 1, -1.0, "train.py:8")


def test_what_came_after_the_stop_followed_from_it() -> None:
    stopped = program(child(1), stop_at=49.0)
    assert evidence_of(stopped, said(*RAISED), 60.0, ended_well=False) is None
    before = evidence_of(stopped, said(*RAISED, at=48.0), 60.0, ended_well=False)
    assert before is not None
    assert before.ranks == [RankEnd(rank=1)]


@pytest.mark.parametrize(
    ("children", "words", "ended_well"),
    [
        ([child(1, ended_at=51.0, exit_code=1)], OwnWords(), False),  # the report says as much
        ([child(1), child(2)], OwnWords(), False),
        ([child(1, ended_at=51.0, exit_code=0)], said(*RAISED), True),
    ],
)
def test_what_says_nothing_new_is_not_sent(
    children: list[Child], words: OwnWords, ended_well: bool
) -> None:
    assert evidence_of(program(*children), words, 51.0, ended_well=ended_well) is None


@pytest.mark.parametrize(
    ("children", "words"),
    [
        (
            [child(1, ended_at=51.0, exit_code=1)],
            OwnWords(facts=(Fact(kind="state", words="D nfs_wait", rank=7),)),
        ),
        ([child(1, ended_at=51.0, exit_code=1)], said(*RAISED)),
        ([child(n, ended_at=50.0 + n, exit_code=1) for n in (1, 2)], OwnWords()),
        ([child(1, ended_at=51.0, exit_code=1), child(2, state="D")], OwnWords()),
    ],
)
def test_each_thing_that_is_new_is_sent_alone(children: list[Child], words: OwnWords) -> None:
    assert evidence_of(program(*children), words, 51.0, ended_well=False) is not None


def test_a_state_that_was_looked_up_is_the_ranks() -> None:
    words = OwnWords(facts=(Fact(kind="state", words="D nfs_wait", rank=2),))
    found = evidence_of(program(child(1), child(2)), words, 51.0, ended_well=False)
    assert found is not None
    assert [end.state for end in found.ranks] == ["", "D"]


def test_a_report_has_room_for_the_longest_evidence() -> None:
    """Each character of it takes four bytes; the registry reads 64 KiB."""
    wide = "\U0001f3d6" * 400
    lines = [Line(f"[Errno 28] {wide}", rank, 50.0) for rank in range(64)]
    facts = tuple(Fact(kind="files", path=wide[:253], words=wide[:253]) for _ in range(32))
    words = OwnWords(lines=tuple(lines), facts=facts)
    children = [child(rank, ended_at=51.0, exit_code=1) for rank in range(300)]
    found = evidence_of(program(*children), words, 51.0, ended_well=False)
    report = ExitReport(epoch=1, exit_code=1, tail=[wide] * 20, message=wide, evidence=found)
    assert found is not None
    assert (len(found.ranks), 0 < len(found.facts) < 32) == (128, True)
    assert len(report.model_dump_json().encode()) < 64 << 10


def test_the_tail_is_of_the_rank_that_failed_and_of_nobody_else() -> None:
    words = said("its own", rank=1, tail=("another's",))
    assert own_tail(words, 1) == ["its own"]
    assert own_tail(words, 2) == []
    assert own_tail(words, None) == ["another's"]
    assert own_tail(said("shared", rank=None, tail=("shared",)), 1) == ["shared"]


def test_paths_and_ports_that_are_named_are_looked_at() -> None:
    lines = [
        Line("FileNotFoundError: [Errno 2] No such file or directory: '/data/a b/x.tar'"),
        Line("OSError: [Errno 98] Address already in use: ('0.0.0.0', 29500)"),
        Line("connected to 10.0.0.1:8080"),
    ]
    assert named_in(lines) == (("/data/a b/x.tar",), (29500,))


def test_of_what_was_taken_out_of_its_environment_the_named_ones_are_told() -> None:
    long = f"PMI_{'x' * 300}"
    found = removed_in({"SLURM_PROCID", "SLURM_NTASKS", long}, [Line(f"no 'SLURM_PROCID', {long}")])
    assert [one.path for one in found] == [f"{long[:252]}…", "SLURM_PROCID"]


@pytest.mark.parametrize(
    "line",
    [
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
            "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE"
        ),
        (
            "[W1127 17:03:44.5 socket.cpp:525] [c10d] The server socket has failed to bind to "
            "[::]:29500 (errno: 98 - Address already in use)."
        ),
        (
            "E1127 17:03:41.999883    3110 add_port.cc:83] Failed to add port to server: No "
            "address added out of total 1 resolved for '[::]:29500'"
        ),
    ],
)
def test_a_port_that_cannot_be_had_is_looked_at(line: str) -> None:
    assert named_in([Line(line)])[1] == (29500,)


def test_the_processes_of_ranks_are_known_by_rank() -> None:
    family = Family(None, (child(3), Child(7, 0.0, 0.0, exit_code=1)))
    assert pids_of(family) == {3: 103}
    assert (has_failed(family), has_failed(Family(None, (child(3),)))) == (True, False)

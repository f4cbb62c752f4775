"""A restart in place under every framework: a rank fails once, and the second start ends well."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.frameworks.lab import JOBS, launch, left_on, results_in
from tests.frameworks.test_jobs import CASES, Case
from tests.support.netlab import Lab

pytestmark = [pytest.mark.netns, pytest.mark.timeout(200)]

EACH_PUSH = "openmpi-5"
"""Ranks are started by mpirun; those of torchrun and of rdzv itself: in tests/faults."""
AT_NIGHT = "torchrun torchrun-c10d torch.distributed.launch env accelerate lightning trainer"
AT_NIGHT += " deepspeed openmpi-mpi4py mpich intelmpi horovod horovod-horovodrun tensorflow"
AT_NIGHT += " jax-uneven"
SUM = ("torchrun", "torchrun-c10d", "env", "accelerate", "deepspeed")
"""These start ranks of any torch program: here of one that imports little."""
_FOUND = re.compile(r"FOUND rank=(\d+) by=(\S+)")


def cases() -> list[object]:
    """Jobs that fail once, each with what it needs."""
    found: list[object] = []
    for case in CASES:
        if case.name in (*EACH_PUSH.split(), *AT_NIGHT.split()):
            marks = [pytest.mark.frameworks(case.environment, *case.needs.split())]
            marks += [pytest.mark.nightly] * (case.name in AT_NIGHT.split())
            command = f"torch_sum.py {case.name}" if case.name in SUM else case.command
            command = command.replace("mpi4py_digits", "mpi_sum")
            found.append(pytest.param(replace(case, command=command), marks=marks, id=case.name))
    return found


def logs_of(folder: Path, epoch: str = "") -> str:
    """What the programs of all nodes printed in the first epoch, or in a later one."""
    logs = folder.glob(f"h*/r/logs/node-?{epoch}.log")
    return "\n".join(log.read_text() for log in sorted(logs))


def found_in(text: str) -> dict[int, list[str]]:
    """By what each rank found the others."""
    return {int(rank): json.loads(by) for rank, by in _FOUND.findall(text)}


@pytest.mark.parametrize("case", cases())
def test_a_job_whose_rank_fails_once_ends_well_in_its_second_epoch(
    case: Case, tmp_path: Path
) -> None:
    options = (*case.argv(), "--max-restarts", "1", "--grace", "2")
    command, once = case.built(tmp_path), str(JOBS / "once")
    with Lab(2, hosts_mode="debian") as lab:
        ended = launch(lab, tmp_path, case.environment, options, command, PYTHONPATH=once)
        assert ended.code == 0, ended.told
        assert left_on(lab) == []
        expected = case.expected([host.name for host in lab.hosts])
    assert "run 'r' ok after 1 restart" in ended.last_line
    first, second = logs_of(tmp_path), logs_of(tmp_path, ".e2")
    results = results_in(second)
    assert [(one.rank, one.world, one.host) for one in results] == expected, second
    assert len({result.value for result in results}) == 1
    last = len(expected) - 1
    assert last not in [result.rank for result in results_in(first)]
    before, after = found_in(first), found_in(second)
    assert sorted(after) == list(range(last + 1))
    assert last in before, first
    print(ended.last_line, before, after)
    for rank, ways in before.items():
        assert ways
        assert [way for way, now in zip(ways, after[rank], strict=True) if way == now] == []

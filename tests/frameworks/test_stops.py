"""A stop, as the ranks see it: one SIGTERM, whoever has started them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.frameworks.environments import ENVIRONMENTS
from tests.frameworks.lab import JOBS, environment_of
from tests.support.launching import launching
from tests.support.waiting import until

MPIS = [
    pytest.param(*row, marks=pytest.mark.frameworks(*needs), id=row[1])
    for row, needs in (
        (("openmpi", "torch"), ("torch", "mpirun")),  # Debian's Open MPI 4
        (("openmpi", "openmpi5"), ("openmpi5",)),
        (("mpich", "mpich"), ("mpich",)),
        (("intelmpi", "intelmpi"), ("intelmpi",)),
    )
]


@pytest.mark.real_time
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(("framework", "environment"), MPIS)
def test_each_rank_of_mpirun_hears_of_a_stop_once(
    tmp_path: Path, framework: str, environment: str, nodes: int
) -> None:
    options = ("--framework", framework, "--nnodes", str(nodes), "--nproc-per-node", "2")
    command = [sys.executable, str(JOBS / "count_sigterm.py"), str(tmp_path)]
    env = environment_of(ENVIRONMENTS[environment], tmp_path)
    told = [tmp_path / f"told-{rank}" for rank in range(2 * nodes)]
    with launching(tmp_path / "s", *options, command=command, env=env) as run:
        until(lambda: all(path.exists() for path in told))
        run.signal(signal.SIGTERM)
        assert run.finish().code == 143
    assert [path.read_text() for path in told] == ["SIGTERM\n"] * 2 * nodes

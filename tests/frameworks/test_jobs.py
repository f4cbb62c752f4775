"""Every framework of the field, over emulated hosts, from the table of one launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.cases import CASES
from tests.frameworks.lab import Case, launch, left_on
from tests.support.netlab import Lab

pytestmark = [pytest.mark.netns, pytest.mark.timeout(200)]


_AT_NIGHT = (
    *("torchrun-uneven", "torch.distributed.launch", "env-uneven", "lightning-torchrun"),
    *("trainer", "trainer-accelerate", "openmpi-mpi4py"),
    *("deepspeed-torchrun", "deepspeed-pdsh", "deepspeed-openmpi", "openmpi-torch"),
    *("openmpi-uneven", "mpich-uneven", "intelmpi-uneven", "tensorflow-chief", "jax"),
)
"""Second forms of what another case tries at each push."""


def _marked(case: Case) -> object:
    marks = [pytest.mark.frameworks(case.environment, *case.needs)]
    if case.name in _AT_NIGHT:
        marks.append(pytest.mark.nightly)
    return pytest.param(case, marks=marks, id=case.name)


_IPV6 = [case for case in CASES if case.name in ("openmpi-c", "openmpi-5")]


@pytest.mark.parametrize("case", [_marked(case) for case in _IPV6])
def test_open_mpi_runs_over_ipv6_alone(case: Case, tmp_path: Path) -> None:
    with Lab(2, ipv6_only=True, hosts_mode="debian") as lab:
        ended = launch(lab, tmp_path, case.environment, case.argv(), case.built(tmp_path))
        assert ended.code == 0, ended.told
        assert ended.places == case.expected([host.name for host in lab.hosts]), ended.logs
        assert left_on(lab) == []


@pytest.mark.frameworks("mpich")
def test_mpich_is_refused_over_ipv6_alone_before_it_starts(tmp_path: Path) -> None:
    with Lab(2, ipv6_only=True) as lab:
        ended = launch(lab, tmp_path, "mpich", ("--framework", "mpich"), ["./prog"])
        assert ended.code == 82, ended.told
        assert "the addresses of the table are IPv6, and MPICH reads" in ended.last_line
        assert ended.logs == ""
        assert left_on(lab) == []


@pytest.mark.parametrize("case", [_marked(case) for case in CASES])
def test_each_rank_of_a_job_runs_once_on_its_own_host(case: Case, tmp_path: Path) -> None:
    with Lab(2, hosts_mode="debian") as lab:
        ended = launch(lab, tmp_path, case.environment, case.argv(), case.built(tmp_path))
        assert ended.code == 0, ended.told
        assert ended.places == case.expected([host.name for host in lab.hosts]), ended.logs
        assert {result.framework for result in ended.results} == {case.calls_itself}
        assert len({result.value for result in ended.results}) == 1
        assert left_on(lab) == []

"""NCCL listens where the table says, which is not where it would listen by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.lab import JOBS, launch
from tests.support.netlab import Lab

pytestmark = [
    pytest.mark.netns,
    pytest.mark.frameworks("nccl"),
    pytest.mark.timeout(200),
]

ASKS = ("python", str(JOBS / "nccl_bootstrap.py"))


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two hosts, each with an interface `ib0` beside eth0, which leads nowhere."""
    with Lab(2) as made:
        for index, host in enumerate(made.hosts):
            made.add_interface(host, "ib0", f"10.88.{index}.5/24", switch=f"lonely{index}")
        yield made


def listening(lab: Lab, folder: Path, *command: str, **more: str) -> list[str]:
    """Where NCCL listens on each node."""
    ended = launch(lab, folder, "nccl", ("--framework", "command"), command, **more)
    assert ended.code == 0, ended.told
    assert [result.rank for result in ended.results] == [0, 1]
    return [result.value for result in ended.results]


def test_nccl_listens_on_the_interface_of_the_table(lab: Lab, tmp_path: Path) -> None:
    assert listening(lab, tmp_path, *ASKS) == [host.address for host in lab.hosts]


@pytest.mark.nightly
def test_without_the_variable_nccl_takes_one_that_leads_nowhere(lab: Lab, tmp_path: Path) -> None:
    unset = ("env", "--unset=NCCL_SOCKET_IFNAME")
    assert listening(lab, tmp_path, *unset, *ASKS) == ["10.88.0.5", "10.88.1.5"]

"""Every framework of the field, over emulated hosts, from the table of one launch."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.frameworks.environments import ENVIRONMENTS, build_extension
from tests.frameworks.lab import EXAMPLES, JOBS, environment_of, launch, left_on, logs_of
from tests.support.cluster import cluster
from tests.support.netlab import Lab

pytestmark = [pytest.mark.netns, pytest.mark.timeout(200)]

UNEVEN, ONE_EACH = (1, 2), (1, 1)


@dataclass(frozen=True)
class Case:
    """A job: how it is launched by rdzv, and what has to come of it.

    Attributes:
        name: The framework's, and a word more where it has several cases.
        environment: In `ENVIRONMENTS`.
        framework: Of `--framework`, if that is given.
        command: COMMAND; its files are those of examples and jobs, and one in C is compiled.
        needs: Programs of Debian.
        processes: Of each node.
        more: Further options.
        night: Another case tries the like at each push, or `test_restarts` does with this one.
    """

    name: str
    environment: str
    framework: str
    command: str
    needs: str = ""
    processes: tuple[int, int] = (2, 2)
    more: str = ""
    night: bool = False

    def argv(self) -> list[str]:
        """The options with which rdzv launches it; with `--hosts off` no name is mended."""
        chosen = f"--framework {self.framework}" if self.framework else ""
        hosts = "" if self.environment in ("jax", "horovod") else "--hosts off"
        processes = ",".join(map(str, self.processes))
        return f"--nproc-per-node {processes} {chosen} {hosts} {self.more}".split()

    @property
    def calls_itself(self) -> str:
        """What the RESULT lines have to name."""
        known = {_MPI4PY: "mpi4py", _MPI_SUM: "mpi4py", "mpi_hello.c": "mpi"}
        return known.get(self.command, self.name.partition("-")[0])

    def built(self, folder: Path) -> list[str]:
        """COMMAND, with what it starts compiled."""
        words = []
        if _DEEP in self.command:
            build_extension(self.environment)
        for word in self.command.split():
            found = [str(place / word) for place in (EXAMPLES, JOBS) if (place / word).is_file()]
            if word.endswith(".c"):
                subprocess.run(["mpicc", "-o", folder / "program", *found], check=True)
                found = [str(folder / "program")]
            words += found or [word]
        return words

    def expected(self, hosts: list[str]) -> list[tuple[int, int, str]]:
        """Rank, world and host of each result: ranks are given node by node."""
        places = [host for host, n in zip(hosts, self.processes, strict=True) for _ in range(n)]
        return [(rank, len(places), host) for rank, host in enumerate(places)]


_MPI4PY, _MPI_SUM = "python3 mpi4py_digits.py", "python3 mpi_sum.py"
_SUM = "torch_sum.py torchrun"
_DEEP = "deepspeed_digits.py"
_ACCELERATE = "accelerate launch --config_file accelerate_cpu.yaml"
_TENSOR, _JAX = "tensorflow_digits.py", "jax_digits.py"
_BY, _GM = "--launcher", "g++ mpirun"
_TF, _LAUNCH = "tensorflow", "torch.distributed.launch"
CASES = [
    Case("torchrun", "torch", "", _SUM, night=True),
    Case("torchrun-uneven", "torch", "", _SUM, "", UNEVEN, night=True),
    Case("torchrun-c10d", "torch", "", _SUM, "", UNEVEN, "--rdzv-backend c10d"),
    Case(_LAUNCH, "torch", _LAUNCH, "launch_digits.py", night=True),
    Case("env", "torch", "env", "env_digits.py", night=True),
    Case("env-uneven", "torch", "env", "torch_sum.py env", "", UNEVEN, night=True),
    Case("accelerate", "torch", "accelerate", "accelerate_digits.py", night=True),
    Case("accelerate-config", "torch", "", f"{_ACCELERATE} accelerate_digits.py", night=True),
    Case("lightning", "trainers", "lightning", "lightning_digits.py", night=True),
    Case("lightning-torchrun", "trainers", "", "lightning_digits.py", night=True),
    Case("trainer", "trainers", "", "trainer_digits.py", night=True),
    Case("trainer-accelerate", "trainers", "", "accelerate launch trainer_digits.py", night=True),
    Case("deepspeed", "torch", "deepspeed", _DEEP, "g++", night=True),
    Case("deepspeed-torchrun", "torch", "", _DEEP, "g++", night=True),
    Case("deepspeed-pdsh", "torch", "deepspeed", f"{_BY} pdsh {_DEEP}", "g++ pdsh", night=True),
    Case("deepspeed-openmpi", "torch", "deepspeed", f"{_BY} openmpi {_DEEP}", _GM, night=True),
    Case("openmpi-c", "torch", "openmpi", "mpi_hello.c", "mpicc mpirun"),
    Case("openmpi-mpi4py", "torch", "openmpi", _MPI4PY, "mpirun", night=True),
    Case("openmpi-torch", "torch", "openmpi", "python3 mpi_torch.py", "mpirun", night=True),
    Case("openmpi-uneven", "torch", "openmpi", _MPI4PY, "mpirun", UNEVEN, night=True),
    Case("openmpi-5", "openmpi5", "openmpi", _MPI_SUM, night=True),
    Case("mpich", "mpich", "mpich", _MPI4PY, night=True),
    Case("mpich-uneven", "mpich", "mpich", _MPI4PY, "", UNEVEN, night=True),
    Case("intelmpi", "intelmpi", "intelmpi", _MPI_SUM),
    Case("intelmpi-uneven", "intelmpi", "intelmpi", _MPI_SUM, "", UNEVEN, night=True),
    Case("horovod", "horovod", "horovod", "horovod_digits.py"),
    Case("horovod-horovodrun", "horovod", "horovod", "horovodrun python3 horovod_digits.py"),
    Case("tensorflow", _TF, _TF, _TENSOR, "", ONE_EACH),
    Case("tensorflow-chief", _TF, _TF, _TENSOR, "", ONE_EACH, "--tf-chief", night=True),
    Case("jax", "jax", "jax", _JAX, "", ONE_EACH, night=True),
    Case("jax-uneven", "jax", "jax", _JAX, "", UNEVEN),
]


def marked(*names: str) -> list[object]:
    """Cases, each with what it needs."""
    found: list[object] = []
    for case in CASES:
        marks = [pytest.mark.frameworks(case.environment, *case.needs.split())]
        marks += [pytest.mark.nightly] * case.night
        if not names or case.name in names:
            found.append(pytest.param(case, marks=marks, id=case.name))
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("case", marked("openmpi-c", "openmpi-5"))
def test_open_mpi_runs_over_ipv6_alone(case: Case, tmp_path: Path) -> None:
    with Lab(2, ipv6_only=True, hosts_mode="debian") as lab:
        ended = launch(lab, tmp_path, case.environment, case.argv(), case.built(tmp_path))
        assert ended.code == 0, ended.told
        assert ended.places == case.expected([host.name for host in lab.hosts]), ended.logs
        assert left_on(lab) == []


@pytest.mark.nightly
@pytest.mark.frameworks("mpich")
def test_mpich_is_refused_over_ipv6_alone_before_it_starts(tmp_path: Path) -> None:
    with Lab(2, ipv6_only=True) as lab:
        ended = launch(lab, tmp_path, "mpich", ("--framework", "mpich"), ["./prog"])
        assert ended.code == 82, ended.told
        assert "the addresses of the table are IPv6, but MPICH reads" in ended.last_line
        assert ended.logs == ""
        assert left_on(lab) == []


@pytest.mark.parametrize("case", marked())
def test_each_rank_of_a_job_runs_once_on_its_own_host(case: Case, tmp_path: Path) -> None:
    with Lab(2, hosts_mode="debian") as lab:
        ended = launch(lab, tmp_path, case.environment, case.argv(), case.built(tmp_path))
        assert ended.code == 0, ended.told
        assert ended.places == case.expected([host.name for host in lab.hosts]), ended.logs
        assert {result.framework for result in ended.results} == {case.calls_itself}
        assert len({result.value for result in ended.results}) == 1
        assert left_on(lab) == []


# ---- what does not work is said, or named when it breaks -----------------------------------------


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Two hosts, at which nothing may be left."""
    with Lab(2, hosts_mode="debian") as made:
        yield made
        assert left_on(made) == []


@pytest.mark.frameworks("torch")
def test_a_framework_that_is_missing_on_one_node_is_missed_there(lab: Lab, tmp_path: Path) -> None:
    env = environment_of(ENVIRONMENTS["torch"], tmp_path)
    without = environment_of(ENVIRONMENTS["intelmpi"], tmp_path)
    command = (str(EXAMPLES / "accelerate_digits.py"),)
    options = ("--framework", "accelerate", "--nproc-per-node", "2")
    with cluster(lab, tmp_path, *options, command=command, env=env) as run:
        run.workers[1] = run.start(1, ["sh", str(run.script(1))], **without)
        outcome = run.finish()
    assert outcome.code == 82, outcome.err
    assert "slot 1 (h1" in outcome.last_line
    assert "pip install accelerate" in outcome.last_line
    assert "RESULT" not in logs_of(run)


# As nvidia-smi where its driver does not fit; accelerate calls it at its start, on CPUs as well.
FAILING_HELPER = """#!/bin/sh
touch "$CALLED"
sleep 0.3 & echo mismatch; exit 18
"""


@pytest.mark.frameworks("torch")
@pytest.mark.nightly
def test_a_helper_of_accelerate_that_fails_ends_no_run(lab: Lab, tmp_path: Path) -> None:
    helper = tmp_path / "helpers" / "nvidia-smi"
    helper.parent.mkdir()
    helper.write_text(FAILING_HELPER)
    helper.chmod(0o755)
    path = environment_of(ENVIRONMENTS["torch"], tmp_path)["PATH"]
    more = {"PATH": f"{helper.parent}:{path}", "CALLED": str(tmp_path / "called")}
    options = ("--framework", "accelerate", "--nproc-per-node", "2")
    command = (str(JOBS / "torch_sum.py"), "accelerate")
    ended = launch(lab, tmp_path, "torch", options, command, **more)
    assert (tmp_path / "called").exists()
    assert ended.code == 0, ended.told
    assert [result.rank for result in ended.results] == [0, 1, 2, 3]

"""What each framework's launcher is given for skewed nodes is as in `contract_courses.txt`.

Of the middle one of three nodes (see `tests.worker.skewed`): all in which its contract is neither
that of `command` nor one of its framework that was shown before; then where those of the first and
the last node, of a start after a restart and of a user's own environment are not that of the middle
one. A node's own folder is `<own>`. Who changes a contract writes the file anew (`make reference`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.run import NO_RESTARTS, RestartFacts
from rendezvous.wire.table import EndpointTable
from tests.support.courses import lines_in, one_line, text_of
from tests.worker.skewed import SLOTS, skewed
from worker.contracts import Contract, make_contract
from worker.contracts.files import files_of
from worker.contracts.framework import Need, Paths
from worker.contracts.plugin import nodes_in
from worker.contracts.variables import NodeDevices, ProgramOptions
from worker.nccl.env import Given

KNOWN = Path(__file__).with_name("contract_courses.txt")
PATHS = Paths(
    python="/opt/rdzv/python3",
    bin="/run/bin",
    socket="/run/agent.sock",
    programs="/opt/rdzv/programs",
    hook="/opt/rdzv/hook",
    look="/run/look",
    scratch="/run/scratch",
)
MIDDLE = 1
WITHHELD = "withheld"
AGAIN = RestartFacts(restarts=2, max_restarts=6, replacements=1, last_failure="node 2 failed")
DEVICES = NodeDevices(("eth2", "eth21", "lo"), ("mlx5_1", "mlx5_10"))
THEIRS = {
    "PATH": "/usr/bin",
    "PYTHONPATH": "/mine",
    "MASTER_PORT": "1234",
    "RANK": "41",
    "LOCAL_RANK": "42",
    "SLURM_PROCID": "43",
    "PMI_RANK": "44",
    "PET_NNODES": "45",
    "PET_MAX_RESTARTS": "46",
    "OMP_NUM_THREADS": "47",
    "NCCL_SOCKET_IFNAME": "wlan0",
    "NCCL_IB_HCA": "mlx5_1:7",
    "GLOO_SOCKET_IFNAME": "eth2",
    "NCCL_DEBUG": "WARN",
    "OMPI_MCA_btl_tcp_if_exclude": "lo",
    "HOROVOD_GLOO_IFACE": "eth2",
    "HYDRA_IFACE": "eth5",
    "TF_CONFIG": "{}",
    "TORCHELASTIC_RUN_ID": "48",
    "HOROVOD_RENDEZVOUS_PORT": "49",
    "JAX_COORDINATOR_PORT": "50",
    SECRET_VARIABLES[0]: "secret",
}


def sealed(**changes: Any) -> EndpointTable:
    """Their table, with what is known of their network and RDMA ports."""
    network = {"network": "eth, 10.4.0.0/24, Ethernet", "transport": "IB"}
    made = skewed(**(network | changes))
    ports = (["mlx5_4:2"], ["mlx5_1:1", "mlx5_2:1"], ["mlx5_7:2"])
    rows = [replace(one, hcas=hcas) for one, hcas in zip(made.rows, ports, strict=True)]
    return made.model_copy(update={"rows": rows})


UNEVEN, EVEN = sealed(), sealed(nproc=(5, 5, 5))
OF_V6 = skewed(addresses=("fd00:4::31", "fd00:4::14", "fd00:4::22"), interfaces=("eth2",) * 3)
OF_ONE_MACHINE = skewed(addresses=("127.0.0.9", "127.0.0.4", "127.0.0.6"), interfaces=("lo",) * 3)


class Contracts:
    """Contracts of which each is told, with all in which it is not the one before."""

    def __init__(self, **options: Any) -> None:
        self.lines: list[str] = []
        self.options = options
        self._notes: set[str] = set()
        self._before: dict[str, list[dict[str, str]]] = {}

    def shows(
        self,
        framework: str,
        *command: str,
        table: EndpointTable = UNEVEN,
        whole: bool = False,
        briefly: bool = False,
        **options: Any,
    ) -> Contracts:
        """What it gives to the middle node, and what of that changes in each other situation;
        without what `command` gives there as well, unless the `whole` is to be told; `briefly`:
        only of the first node."""
        given = ProgramOptions(framework, **(self.options | options))
        own: dict[str, str] = {}
        before = self._before.setdefault(framework, [])
        for what, made in [*SITUATIONS.items()][: 2 if briefly else None]:
            title = f"* {what or ' '.join([framework + ':', *command])}"
            of_command = made(("prog",), table, ProgramOptions("command"))
            plain = _values(of_command)
            try:
                contract = made(command, table, given)
                found = _values(contract)
            except RdzvError as exc:
                self.lines += [title, f"! {type(exc).__name__} {one_line(exc)}"]
                break
            for name, value in contract.withheld.items():
                if of_command.variables.get(name) != value:
                    found[f"variable {name}"] = f"{value} (withheld)"
            known = [own] if own else [*([] if whole else [plain]), *before]
            more = [plain] if own and not whole else []
            lines = [
                f"{name} {found.get(name, 'none')}".rstrip()
                for name in sorted({*found, *plain, *own})
                if all(found.get(name) != each.get(name) for each in (*known, *more))
                if found.get(name) != WITHHELD and name not in self._notes
            ]
            self._notes |= {name for name in found if name.startswith("note: ")}
            lines = [
                line for line in lines if not line.startswith("note: ") or line[-5:] != " none"
            ]
            self.lines += [title, *lines] if lines or not what else []
            own = own or found
        before.append(own)
        return self


def _made(
    command: Sequence[str],
    table: EndpointTable,
    node: int,
    options: ProgramOptions,
    *,
    restarts: RestartFacts = NO_RESTARTS,
    environ: Mapping[str, str] | None = None,
) -> Contract:
    return make_contract(
        command,
        table,
        SLOTS[node],
        environ or {},
        replace(options, nccl_file=f"/logs/node-{node}.%p.log"),
        paths=replace(PATHS, folder=f"/run/node-{node}"),
        configured={"NCCL_SOCKET_FAMILY": Given("AF_INET6", "/etc/nccl.conf")} if environ else {},
        restarts=restarts,
        devices=DEVICES,
    )


def _values(made: Contract) -> dict[str, str]:
    """All that a contract says, by names; what is withheld of `command`'s in one line."""
    why = {one.name: one for one in made.explained}
    found = {"argv": " ".join(made.argv) or "none: it serves node 0's"}
    for name, value in made.variables.items():
        found[f"variable {name}"] = f"{value} ({why[name].reason})"
    for name in made.withheld:
        marks = ", given" * (name in made.variables) + ", not removed" * (name not in made.removed)
        found.setdefault(f"variable {name}", WITHHELD)
        found[f"withheld{marks}"] = f"{found.get(f'withheld{marks}', '')} {name}".strip()
    found |= {f"kept {one.name}": f"{one.kept}" for one in made.explained if one.kept}
    found["removed"] = " ".join(sorted(made.removed - {*SECRET_VARIABLES, *made.withheld}))
    found |= {f"note: {one_line(words)}": "" for words in made.notes}
    found |= {f"need {number}": need_words(need) for number, need in enumerate(made.needs)}
    if made.forks is not None:
        found |= {"forks": f"{' '.join(made.forks.words)} {made.forks.variables}"}
        first = made.forks.ranks[0]
        for number, one in enumerate(made.forks.ranks):
            words = [f"{k}={v}" for k, v in one.items() if not number or first.get(k) != v]
            found[f"fork {number}"] = " ".join(words)
    for name in ("nccl_log", "port", "path_first", "fatal_workers"):
        found[name] = str(getattr(made, name))
    return {name: _OWN.sub("<own>", value) for name, value in found.items()}


_OWN = re.compile(r"/(?:run|logs)/node-\d")


SITUATIONS: Mapping[str, Callable[[Sequence[str], EndpointTable, ProgramOptions], Contract]] = {
    "": lambda command, table, given: _made(command, table, MIDDLE, given),
    "of node 0": lambda command, table, given: _made(command, table, 0, given),
    "of node 2": lambda command, table, given: _made(command, table, 2, given),
    "after a restart": lambda command, table, given: _made(
        command, table.renewed(9, 29_531), MIDDLE, given, restarts=AGAIN
    ),
    "among theirs": lambda command, table, given: _made(
        command, table, MIDDLE, given, environ=THEIRS
    ),
}


def need_words(need: Need) -> str:
    """Without what is not set."""
    given = [f"{one.name}={getattr(need, one.name)}" for one in fields(need)]
    return " ".join(word for word in given if not word.endswith(("=", "=()", "=None", "=True")))


# --- the courses ----------------------------------------------------------------------------------


def all_that_a_program_is_given() -> Contracts:
    """COMMAND as it is; and the files of each node, whatever starts there."""
    told = Contracts()
    told.shows("command", "prog", whole=True)
    told.shows("command", "prog", require_rdma=True, env_for=("ucx", "mpi"))
    told.shows("command", "prog", nccl_log="on", look="off", briefly=True)
    for name, text in files_of(UNEVEN).items():
        words = one_line(text).replace(UNEVEN.digest(), "its digest")
        told.lines.append(f"* file {name}: {words}")
    return told


def by_torchrun() -> Contracts:
    """Static and c10d; as a module, with an interpreter, forked, and by the plug-in."""
    told = Contracts(grace=71.5)
    told.shows("torchrun", "train.py", "--epochs", "3")
    told.shows("torchrun", "torchrun", "--max-restarts", "2", "-m", "train", rdzv_backend="c10d")
    told.shows("torchrun", "/opt/env/bin/python", "-X", "dev", "train.py", briefly=True)
    told.shows("torchrun", "-m", "train", "--lr", "3", warm="on")
    told.shows("torchrun", "train.py", rdzv_backend="c10d", table=OF_V6, briefly=True)
    told.shows("torch.distributed.launch", "--use-env", "train.py")
    told.shows("bench", "--seconds", "7", briefly=True)
    told.shows("torchrun-plugin", "/opt/env/bin/torchrun")
    roles = ("", "trainer", "")
    rows = [replace(r, role=role or None) for r, role in zip(UNEVEN.rows, roles, strict=True)]
    with_roles = UNEVEN.model_copy(update={"rows": [*rows[:2], replace(rows[2], node=2)]})
    made = _made(("torchrun",), with_roles, 2, ProgramOptions("torchrun-plugin"))
    told.lines += ["* nodes in the plug-in's", str(nodes_in(made.variables)[1])]
    return told


def a_process_for_each_rank() -> Contracts:
    """Started by rdzv itself: env, JAX, and Horovod without its launcher."""
    told = Contracts(grace=71.5)
    told.shows("env", "train.py", "--rank", "$RANK")
    told.shows("env", "./solver", table=OF_V6, briefly=True)
    told.shows("jax", "-m", "train")
    told.shows("horovod", "train.py")
    return told


def once_on_each_node() -> Contracts:
    """Those that want as many processes on each node, and TensorFlow."""
    told = Contracts(grace=71.5)
    for framework, command in (
        ("accelerate", ("accelerate", "launch", "--use_deepspeed", "train.py")),
        ("lightning", ("train.py",)),
        ("deepspeed", ("train.py",)),
    ):
        told.shows(framework, *command).shows(framework, *command, table=EVEN)
    told.shows("accelerate", "train.py", table=EVEN, briefly=True)
    told.shows("tensorflow", "train.py", tf_chief=True, tf_ps=1)
    told.shows("tensorflow", "train.py", table=OF_ONE_MACHINE, briefly=True)
    return told


def led_by_rank_0() -> Contracts:
    """Launchers that reach the other nodes through the agents."""
    told = Contracts()
    for framework, command in (
        ("openmpi", ("prog", "-x")),
        ("openmpi", ("mpirun", "-np", "4", "prog")),
        ("mpich", ("prog",)),
        ("intelmpi", ("prog",)),
        ("horovod", ("horovodrun", "train.py")),
    ):
        told.shows(framework, *command)
    told.shows("intelmpi", "prog", table=EVEN, briefly=True)
    told.shows("horovod", "horovodrun", "-np", "7", "train.py", table=OF_V6, briefly=True)
    for how in ("pdsh", "openmpi", "mpich", "impi"):
        told.shows(
            "deepspeed", "deepspeed", "--launcher", how, "train.py", table=EVEN, briefly=True
        )
    told.shows("openmpi", "prog", table=OF_V6, briefly=True).shows(
        "openmpi", "prog", table=OF_ONE_MACHINE, briefly=True
    )
    told.shows("mpich", "prog", table=OF_V6, briefly=True)
    return told


COURSES = {
    one.__name__: one
    for one in (
        all_that_a_program_is_given,
        by_torchrun,
        a_process_for_each_rank,
        once_on_each_node,
        led_by_rank_0,
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_contracts(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

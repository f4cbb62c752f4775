"""What the programs are given, as a person sees it: before the launch, and of a sealed table."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from launcher.plan.dry_run import planned, planned_lines
from launcher.plan.plan import Plan
from launcher.show.variables import table_lines
from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable, TableRow
from tests.launcher.command import LAUNCH_ID, launched, plan_of, rdzv
from tests.support.registry import Launch, Node, running
from worker.contracts import FRAMEWORKS, Paths, ProgramOptions, make_contract

KEPT = [
    "# What is set on the node itself of NCCL, Gloo, TensorPipe, UCX and MPI, or in its nccl.conf,",
    "# is kept in place of these, and the node's log says so.",
]


def plan(environ: dict[str, str] | None = None, **settings: Any) -> Plan:
    given = {"nnodes": "4", "nproc_per_node": "8", **settings}
    return plan_of("train.py", environ=environ, **given)


def table() -> EndpointTable:
    common: dict[str, Any] = {"interface": "eth0", "prefix_length": 24, "nproc_per_node": 8}
    common |= {"mac": "", "hcas": ["mlx5_0:1", "mlx5_1:1"]}
    rows = [
        TableRow(rank=n, slot=n, hostname=f"gpu-{n}", address=f"10.0.0.{n + 1}", **common)
        for n in range(2)
    ]
    return EndpointTable(
        run="llama",
        launch_id=LAUNCH_ID,
        epoch=1,
        master_address="10.0.0.1",
        master_port=29500,
        network="eth0, 10.0.0.0/24, Ethernet, IPv4",
        transport="IB",
        rows=rows,
    )


# ---- the dry run --------------------------------------------------------------------------------


def test_the_dry_run_shows_each_variable_with_its_reason_and_what_only_the_table_knows() -> None:
    known = "MASTER_ADDR=<address> MASTER_PORT=<port> NODE_RANK=<rank> NNODES=4 NPROC_PER_NODE=8 "
    known += "RDZV_ID=llama RDZV_SOCKET=<socket> RDZV_HOSTFILE=<logs>/node-<rank>/hostfile "
    known += "RDZV_HOSTFILE_MPICH=<logs>/node-<rank>/hostfile.mpich "
    known += "RDZV_TABLE=<logs>/node-<rank>/table.json NCCL_SOCKET_IFNAME==<interface> "
    known += "GLOO_SOCKET_IFNAME=<interface> TP_SOCKET_IFNAME=<interface> "
    known += "NCCL_SOCKET_FAMILY=<family>"
    head, first, *lines = planned_lines(planned(plan()))
    assert head == "# each node's program is given, beside what its environment has:"
    assert first == f"#   {'MASTER_ADDR=<address>':44}  # rank 0's address in the table"
    assert [line.split("  ")[1].strip() for line in (first, *lines[:13])] == known.split()
    assert all(re.search(r"  # \w", line) for line in lines[:13])
    ports = "NCCL_IB_HCA as well, where the active RDMA ports of a node differ in kind or rate."
    assert lines[13:] == [f"# {ports}", *KEPT]


def test_the_dry_run_shows_what_the_options_and_the_launchers_environment_change() -> None:
    environ = {"NCCL_SOCKET_IFNAME": "eth9", "NCCL_DEBUG": "WARN", "UCX_TLS": "tcp"}
    made = plan(environ, require_rdma=True, env_for=["mpi"], master_port=29400, nnodes="2:4")
    lines = [line[4:].split("  #") for line in planned_lines(planned(made)) if line[:4] == "#   "]
    found = {left.strip(): reason.strip() for left, reason in lines}
    assert found["NCCL_SOCKET_IFNAME=eth9"] == "kept as you set it"
    assert found["NCCL_DEBUG=WARN"] == (
        "kept as you set it: at this level NCCL does not say which network it uses"
    )
    assert found["NCCL_NET=IB"].startswith("--require-rdma: ")
    assert found["OMPI_MCA_btl_tcp_if_include=<network>"].startswith("--env-for mpi: ")
    assert {"MASTER_PORT=29400", "NNODES=<nodes>"} <= set(found)
    assert not [name for name in found if name.startswith("NCCL_DEBUG_FILE")]


def test_a_variable_that_forbids_what_is_required_is_refused_before_anything_is_submitted(
    tmp_path: Path,
) -> None:
    words = ["launch", "--nnodes", "2", "--require-rdma", "--state-dir", str(tmp_path), "t.py"]
    result = rdzv(*words, env={"NCCL_NET": "Socket"})
    assert result.exit_code == 2
    assert "NCCL_NET=Socket forbids NCCL to use RDMA" in result.stderr
    assert list(tmp_path.iterdir()) == []


# ---- the sealed table ---------------------------------------------------------------------------


def test_of_a_table_the_nodes_own_values_are_shown() -> None:
    first, second = table().rows
    rows = [first, second.model_copy(update={"slot": 5})]
    made = table().model_copy(update={"rows": rows})
    head, network, *lines = table_lines(made, "d4ba9bac8253" + "0" * 52, 1, {})
    assert head == "# node 1 (gpu-1, slot 5) of run 'llama', table d4ba9bac8253"
    assert network == "# NCCL should say: Using network IB"
    own = ["MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "NODE_RANK=1", "NNODES=2"]
    assert [line.split("  #")[0].rstrip() for line in lines[:4]] == own
    assert lines[-2:] == KEPT


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_of_each_framework_all_is_shown_that_its_program_is_given(framework: str) -> None:
    settings = {"framework": framework, "tf_chief": framework == "tensorflow"}
    kept = {**settings, "command": ["train.py"]}
    for rank in range(2):
        folder = f"<logs>/node-{rank}"
        contract = make_contract(
            ["train.py"],
            table(),
            rank,
            {},
            ProgramOptions(framework, tf_chief=settings["tf_chief"] is True),
            paths=Paths(folder, bin=f"{folder}/bin", socket="<socket>"),
        )
        lines = [line for line in table_lines(table(), "", rank, kept) if line[0] != "#"]
        shown = [line.split("  #")[0].rstrip().partition("=") for line in lines]
        given = contract.variables | contract.withheld
        assert {name: shlex.split(value) for name, _, value in shown} == {
            name: [value] for name, value in given.items()
        }


def test_a_rank_that_is_not_in_the_table_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError) as caught:
        list(table_lines(table(), "", 2, {}))
    assert caught.value.message == "run 'llama' has no node of rank 2"
    assert caught.value.hint == "its node ranks are 0 to 1"


def test_after_the_run_its_table_is_still_known(tmp_path: Path) -> None:
    state = launched(tmp_path, require_rdma=True, command=["train.py"])
    needs = "rdzv: --env needs a RUN\n      rdzv status RUN --env RANK\n"
    assert rdzv("status", "--env", "0", state=tmp_path).stderr == needs
    result = rdzv("status", "llama", "--env", "0", state=tmp_path)
    assert result.exit_code == 2
    assert "run 'llama' has no endpoint table: " in result.stderr
    state.write("table.json", table().canonical())
    result = rdzv("status", "llama", "--env", "0", state=tmp_path)
    assert result.exit_code == 0
    assert "NCCL_NET=IB " in result.stdout
    assert f"table {table().digest()[:12]}\n" in result.stdout


async def test_while_the_run_goes_on_the_registry_is_asked(tmp_path: Path) -> None:
    async def ask(*words: str) -> Result:
        return await asyncio.to_thread(rdzv, "status", "llama", *words, state=tmp_path / "state")

    with running(tmp_path) as registry:
        state = launched(tmp_path / "state", registry.place, command=["train.py"])
        launch = Launch("llama", LAUNCH_ID, state.secret())
        unmade = await ask("--matrix")
        await registry.create(launch, 2)
        before = await ask("--env", "1")
        async with (
            Node(registry.place, launch, 0) as first,
            Node(registry.place, launch, 1) as second,
        ):
            await asyncio.gather(first.run(), second.run())
            shown, as_json = await ask("--env", "1"), await ask("--env", "1", "--json")
            matrix = await ask("--matrix")
    assert (unmade.exit_code, before.exit_code) == (2, 2)
    assert "nothing is known of the checks of run 'llama': " in unmade.stderr
    assert "run 'llama' has no endpoint table: it is gathering: " in before.stderr
    assert matrix.stdout == "lo, 127.0.0.0/8, loopback, IPv4: 0 of 2 directed pairs fail\n"
    assert shown.stdout.startswith("# node 1 (host1, slot 1) of run 'llama', table ")
    found = json.loads(as_json.stdout)
    assert (found["node_rank"], found["hostname"]) == (1, "host1")
    values = {one["name"]: one["value"] for one in found["variables"]}
    assert values["NCCL_SOCKET_IFNAME"] == "=lo"
    assert all(one["reason"] for one in found["variables"])
    for name, value in values.items():
        assert f"{name}={value}" in shown.stdout

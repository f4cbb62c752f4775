"""What the programs are given, as a person sees it: before the launch, and of a sealed table."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

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
    rows = [
        TableRow(
            rank=rank,
            slot=rank,
            hostname=f"gpu-{rank}",
            address=f"10.0.0.{rank + 1}",
            interface="eth0",
            prefix_length=24,
            nproc_per_node=8,
            mac="",
            hcas=["mlx5_0:1", "mlx5_1:1"],
        )
        for rank in range(2)
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
    found = {
        "MASTER_ADDR=<address>": "rank 0's address in the table",
        "MASTER_PORT=<port>": "a port that is free on rank 0's node",
        "NODE_RANK=<rank>": "this node's rank in the table",
        "NNODES=4": "the nodes of the table",
        "NPROC_PER_NODE=8": "the processes of this node",
        "RDZV_ID=llama": "the run",
        "RDZV_SOCKET=<socket>": "this node's agent: 'rdzv rsh', metrics",
        "RDZV_HOSTFILE=<logs>/node-<rank>/hostfile": "the nodes as 'ADDRESS slots=PROCESSES'",
        "RDZV_HOSTFILE_MPICH=<logs>/node-<rank>/hostfile.mpich": "as 'ADDRESS:PROCESSES'",
        "RDZV_TABLE=<logs>/node-<rank>/table.json": "the endpoint table as JSON",
        "NCCL_SOCKET_IFNAME==<interface>": "this node's interface in the table ('=': this name "
        "alone)",
        "GLOO_SOCKET_IFNAME=<interface>": "the same for Gloo, which else asks for the hostname",
        "TP_SOCKET_IFNAME=<interface>": "the same for TensorPipe (torch's RPC)",
        "NCCL_SOCKET_FAMILY=<family>": "the table's addresses are of this family",
    }
    text = [
        "# each node's program is given, beside what its environment has:",
        *(f"#   {left:44}  # {reason}" for left, reason in found.items()),
        "# NCCL_IB_HCA as well, where the active RDMA ports of a node differ in kind or rate.",
    ]
    shown = list(planned_lines(planned(plan())))
    assert shown == [*text, *KEPT]


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
    kept = {"require_rdma": True}
    head, network, *lines = table_lines(table(), "d4ba9bac8253" + "0" * 52, 1, kept)
    assert head == "# node 1 (gpu-1, slot 1) of run 'llama', table d4ba9bac8253"
    assert network == "# NCCL should say: Using network IB"
    assert [line.split("  #")[0].rstrip() for line in lines[:-2]] == [
        "MASTER_ADDR=10.0.0.1",
        "MASTER_PORT=29500",
        "NODE_RANK=1",
        "NNODES=2",
        "NPROC_PER_NODE=8",
        "RDZV_ID=llama",
        "RDZV_SOCKET=<socket>",
        "RDZV_HOSTFILE=<logs>/node-1/hostfile",
        "RDZV_HOSTFILE_MPICH=<logs>/node-1/hostfile.mpich",
        "RDZV_TABLE=<logs>/node-1/table.json",
        "NCCL_SOCKET_IFNAME==eth0",
        "GLOO_SOCKET_IFNAME=eth0",
        "TP_SOCKET_IFNAME=eth0",
        "NCCL_SOCKET_FAMILY=AF_INET",
        "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1",
        "NCCL_NET=IB",
        "NCCL_DEBUG=INFO",
        "NCCL_DEBUG_FILE=<logs>/node-1.%p.log",
    ]
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
    with running(tmp_path) as registry:
        state = launched(tmp_path / "state", registry.place, command=["train.py"])
        launch = Launch("llama", LAUNCH_ID, state.secret())
        await registry.create(launch, 2)
        ask = ("status", "llama", "--env", "1")
        before = await asyncio.to_thread(rdzv, *ask, state=tmp_path / "state")
        assert before.exit_code == 2
        assert "run 'llama' has no endpoint table: it is gathering: " in before.stderr
        async with (
            Node(registry.place, launch, 0) as first,
            Node(registry.place, launch, 1) as second,
        ):
            await asyncio.gather(first.run(), second.run())
            shown = await asyncio.to_thread(rdzv, *ask, state=tmp_path / "state")
            as_json = await asyncio.to_thread(rdzv, *ask, "--json", state=tmp_path / "state")
    assert shown.stdout.startswith("# node 1 (host1, slot 1) of run 'llama', table ")
    found = json.loads(as_json.stdout)
    assert (found["node_rank"], found["hostname"]) == (1, "host1")
    values = {one["name"]: one["value"] for one in found["variables"]}
    assert values["NCCL_SOCKET_IFNAME"] == "=lo"
    assert all(one["reason"] for one in found["variables"])
    for name, value in values.items():
        assert f"{name}={value}" in shown.stdout

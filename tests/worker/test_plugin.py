"""The contract of a torchrun that runs already: what its agent is told of the table."""

from __future__ import annotations

from dataclasses import replace

from tests.worker.test_contracts import contract, table
from worker.contracts.plugin import NODES_VARIABLE, nodes_in

TORCHRUN = ("/user/bin/python", "-m", "torch.distributed.run")


def test_its_agent_is_told_the_processes_and_the_role_of_each_node() -> None:
    sealed = table(nproc=(8, 2))
    rows = [sealed.rows[0], replace(sealed.rows[1], role="reader")]
    sealed = sealed.model_copy(update={"rows": rows})
    made = contract(*TORCHRUN, framework="torchrun-plugin", sealed=sealed, node=1)
    variables, nodes = nodes_in(made.variables)
    assert nodes == [[8, "default"], [2, "reader"]]
    assert (
        nodes_in(contract(*TORCHRUN, framework="torchrun-plugin").variables)[1]
        == [[8, "default"]] * 2
    )
    assert NODES_VARIABLE in made.variables
    assert NODES_VARIABLE not in variables
    assert variables["MASTER_ADDR"] == "10.0.0.1"
    assert variables["NODE_RANK"] == "1"
    assert variables["GLOO_SOCKET_IFNAME"] == "eth1"


def test_the_master_port_is_to_be_free_on_rank_0s_node_alone() -> None:
    ports = [contract(*TORCHRUN, framework="torchrun-plugin", node=r).port for r in (0, 1)]
    assert ports == [29500, None]


def test_its_own_interpreter_is_the_users() -> None:
    made = contract(*TORCHRUN, framework="torchrun-plugin")
    assert [need.program for need in made.needs] == ["/user/bin/python"]
    assert made.argv == list(TORCHRUN)
    assert not made.fatal_workers

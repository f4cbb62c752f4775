"""What each node would start, as the dry run shows it, and what is refused before anything is."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.dry_run import check_start, command_lines
from launcher.plan.plan import Plan, Site, Spec, make_plan
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError


def plan(*command: str, loopback: bool = False, **settings: Any) -> Plan:
    given = {"nnodes": "2", "nproc_per_node": "2", **settings}
    return make_plan(
        LaunchSettings.model_validate(given),
        command or ["train.py", "two words"],
        {},
        Site(Spec("worker.sh", ""), loopback=loopback),
        run="llama",
        launch_id="k7f2a9c1xy",
    )


def lines(*command: str, **settings: Any) -> list[str]:
    return list(command_lines(plan(*command, **settings)))


def test_each_nodes_command_stands_there_with_what_the_table_will_say_in_brackets() -> None:
    flags = "torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend static --rdzv-id llama"
    master = "--master-addr <address of node 0> --master-port <port> train.py 'two words'"
    assert lines() == [
        "# each node then starts:",
        f"#   node 0: {flags} --node-rank 0 {master}",
        f"#   node 1: {flags} --node-rank 1 {master}",
    ]


def test_a_framework_that_is_led_shows_what_node_0_starts_and_its_variables() -> None:
    agent = "how mpiexec reaches the other nodes"
    assert lines("./prog", framework="mpich") == [
        "# each node then starts:",
        "#   node 0: mpiexec -np 4 ./prog",
        "#   node 1: nothing: it serves node 0 ('rdzv rsh')",
        "#     HYDRA_LAUNCHER=ssh  # HYDRA_LAUNCHER_EXEC takes ssh's command line",
        f"#     HYDRA_LAUNCHER_EXEC=<logs>/node-0/bin/rdzv-rsh  # {agent}",
        "#     HYDRA_HOST_FILE=<logs>/node-0/hostfile.mpich  # the nodes of the table",
        "#     HYDRA_IFACE=<interface>  # the nodes call back at an address, and not at a name",
    ]


def test_processes_of_ours_are_shown_without_paths_of_this_machine() -> None:
    shown = lines("./x", "$LOCAL_RANK", framework="env")
    starter = "python3 -I -S <rdzv>/worker/programs/processes.py"
    assert shown[1] == (
        f"#   node 0: {starter} --rank 0 --processes 2 --world 4 --node 0 --grace 10 -- ./x "
        "'$LOCAL_RANK'"
    )
    assert not [line for line in shown if sys.executable in line or str(Path.cwd()) in line]


def test_of_many_nodes_the_first_two_and_the_last_are_shown() -> None:
    shown = [line.partition(":")[0] for line in lines(nnodes="9")]
    assert shown == [
        "# each node then starts",
        "#   node 0",
        "#   node 1",
        "#   nodes 2 to 7",
        "#   node 8",
    ]
    assert len(lines(nnodes="8")) == 9
    assert "--local-addr <address of node 999>" in lines(nnodes="1000", rdzv_backend="c10d")[-1]


def test_on_one_machine_the_addresses_are_known_and_ports_follow_each_other() -> None:
    shown = lines(loopback=True, framework="tensorflow")
    assert (
        '#     TF_CONFIG=\'{"cluster": {"worker": ["127.0.0.1:<port>", "127.0.0.2:<port+1>"]}, '
        '"task": {"type": "worker", "index": 0}}\'  # the cluster, and this node\'s task in it'
    ) in shown


def test_what_nodes_can_start_is_let_be() -> None:
    check_start(plan(framework="openmpi"))


def test_a_number_that_is_counted_on_the_node_is_said_to_be_one() -> None:
    last = lines(nproc_per_node="gpu")[-1]
    assert last == "# (with 1 process a node: how many there are is counted on the node)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"framework": "accelerate", "nproc_per_node": "2,1"}, r"node 0 .* has 2 processes and"),
        ({"framework": "deepspeed", "nproc_per_node": "2,1"}, ".*DeepSpeed then numbers the local"),
        ({"framework": "tensorflow", "tf_ps": 2}, "with --tf-ps 2 no worker is left of 2 nodes"),
    ],
)
def test_what_no_node_could_start_is_refused(options: dict[str, Any], message: str) -> None:
    made = plan(**options)
    before = replace(made)
    with pytest.raises(UsageError, match=f"^{message}"):
        check_start(made)
    assert made == before

"""The dry run: worker runs, and what each node would start; what is refused before anything is."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.dry_run import check_start, command_lines
from launcher.plan.plan import HIDDEN, Here, Plan, Site, Spec
from launcher.run.preview import preview
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.schedulers.local import LocalScheduler
from launcher.schedulers.manual import ManualScheduler
from rendezvous.wire.errors import UsageError
from tests.launcher.command import LAUNCH_ID, plan_of

SCRIPT = "# <<NAME>>\nRDZV_JOIN=<<RDZV_JOIN>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>\n"
HERE = (
    "argv: [rdzv, worker, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
)
BY_MANUAL = f"by manual: rdzv-{LAUNCH_ID}"

# ---- worker runs --------------------------------------------------------------------------------


def shown(folder: Path, here: Here | None = None, **settings: Any) -> list[str]:
    """The worker runs of a launch by the manual scheduler, slot 0 from `here` if that is given."""
    site = Site(Spec("worker.sh", SCRIPT), here=here)
    context = SchedulerContext(folder, {})
    first: Scheduler = LocalScheduler(context) if here else ManualScheduler(context)
    made = plan_of(
        "train.py", "two words", site=site, hosts="off", local_node=here is not None, **settings
    )
    return "\n".join(preview(made, [first, ManualScheduler(context)])).splitlines()


def test_the_first_is_shown_in_full_and_of_the_others_what_differs(tmp_path: Path) -> None:
    options = "--nnodes 3 --nproc-per-node 8 --hosts off"
    second = "SLOT 2, GPUS_PER_NODE 4, NODE_RANK 2, WORKER_OPTIONS (--nproc-per-node 4)"
    assert shown(tmp_path, nnodes="3", nproc_per_node="8,8,4") == [
        f"# slot 0, {BY_MANUAL}-0-1",
        f"# rdzv-{LAUNCH_ID}-0-1",
        f"RDZV_JOIN={HIDDEN} rdzv worker {options} -- train.py 'two words'",
        "",
        f"# slot 1, {BY_MANUAL}-1-1, as slot 0 but for SLOT 1, NODE_RANK 1",
        f"# slot 2, {BY_MANUAL}-2-1, as slot 0 but for {second}",
    ]


def test_many_slots_and_spares_are_a_line_each(tmp_path: Path) -> None:
    lines = shown(tmp_path, nnodes="64", nproc_per_node="8", spares=1)
    assert len(lines) == 4 + 64
    assert max(map(len, lines)) < 110
    assert lines[-1].endswith("1, as slot 0 but for SLOT 64, NODE_RANK 64")


def test_what_each_starter_starts_first_is_shown_in_full(tmp_path: Path) -> None:
    lines = shown(tmp_path, Here(Spec("local/worker.yaml", HERE), "/logs"), nnodes="3")
    assert "\n".join(lines).count(HIDDEN) == 2
    assert f"# slot 1, {BY_MANUAL}-1-1" in lines
    assert lines[-1].startswith(f"# slot 2, {BY_MANUAL}-2-1, as slot 1 but for")


# ---- what each node starts ----------------------------------------------------------------------


def plan(*command: str, loopback: bool = False, **settings: Any) -> Plan:
    site = Site(Spec("worker.sh", ""), loopback=loopback)
    words = command or ("train.py", "two words")
    return plan_of(*words, site=site, **{"nnodes": "2", "nproc_per_node": "2", **settings})


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

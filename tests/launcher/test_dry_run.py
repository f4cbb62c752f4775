"""What nodes start and are given, as a person sees it: before the launch, and of a sealed table."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from launcher.plan.dry_run import check_start, command_lines, given_lines, planned, planned_lines
from launcher.plan.plan import HIDDEN, Here, Plan, Site, Spec
from launcher.prepare.preview import preview
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.schedulers.local import LocalScheduler
from launcher.schedulers.manual import ManualScheduler
from launcher.show.variables import restart_facts, table_lines
from rendezvous.wire.errors import ExitCode, UsageError
from rendezvous.wire.run import EpochEnd, Phase, RestartFacts, RunReport
from rendezvous.wire.table import EndpointTable, TableRow
from tests.launcher.command import LAUNCH_ID, launched, plan_of, rdzv
from tests.launcher.test_board import run_status
from tests.support.mesh import ETH, tried
from tests.support.written import Registry
from worker.contracts import FRAMEWORKS, make_contract
from worker.contracts.framework import Paths
from worker.contracts.variables import ProgramOptions

SCRIPT = "# <<NAME>>\nRDZV_JOIN=<<RDZV_JOIN>> rdzv worker <<WORKER_OPTIONS>> -- <<COMMAND>>\n"
HERE = (
    "argv: [rdzv, worker, <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
)
BY_MANUAL = f"by manual: rdzv-{LAUNCH_ID}"
KEPT = [
    (
        "# NCCL, Gloo, TensorPipe, UCX and MPI variables that are set on the node itself, or in "
        "its nccl.conf,"
    ),
    "# override these; the node's log names them.",
]

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


# ---- what each node starts ----------------------------------------------------------------------


def plan(*command: str, loopback: bool = False, **settings: Any) -> Plan:
    site = Site(Spec("worker.sh", ""), loopback=loopback)
    words = command or ("train.py", "two words")
    return plan_of(*words, site=site, **{"nnodes": "2", "nproc_per_node": "2", **settings})


def lines(*command: str, **settings: Any) -> list[str]:
    return list(command_lines(plan(*command, **settings)))


def test_a_framework_that_is_led_shows_what_node_0_starts_and_its_variables() -> None:
    agent = "how mpiexec reaches the other nodes"
    assert lines("./prog", framework="mpich") == [
        "# each node then starts:",
        "#   node 0: mpiexec -np 4 ./prog",
        "#   node 1: nothing: it runs commands for node 0 ('rdzv rsh')",
        "#     HYDRA_LAUNCHER=ssh  # HYDRA_LAUNCHER_EXEC takes ssh's command line",
        f"#     HYDRA_LAUNCHER_EXEC=<logs>/node-0/bin/rdzv-rsh  # {agent}",
        "#     HYDRA_HOST_FILE=<logs>/node-0/hostfile.mpich  # the nodes of the table",
        "#     HYDRA_IFACE=<interface>  # the nodes connect back to an address, not to a name",
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
    assert last == "# (shown with 1 process per node; each node counts its own)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"framework": "accelerate", "nproc_per_node": "2,1"}, r"node 0 .* has 2 processes and"),
        ({"framework": "deepspeed", "nproc_per_node": "2,1"}, ".*DeepSpeed then numbers the local"),
        (
            {"framework": "tensorflow", "tf_ps": 2},
            "with --tf-ps 2, none of the 2 nodes is a worker",
        ),
    ],
)
def test_what_no_node_could_start_is_refused(options: dict[str, Any], message: str) -> None:
    made = plan(**options)
    before = replace(made)
    with pytest.raises(UsageError, match=f"^{message}"):
        check_start(made)
    assert made == before


# ---- what its program is given ------------------------------------------------------------------


def test_the_dry_run_shows_what_the_options_and_the_launchers_environment_change() -> None:
    environ = {"NCCL_SOCKET_IFNAME": "eth9", "NCCL_DEBUG": "WARN", "UCX_TLS": "tcp"}
    given: dict[str, Any] = {"require_rdma": True, "env_for": ["mpi"], "master_port": 29400}
    made = plan(environ=environ, nnodes="2:4", **given)
    lines = [line[4:].split("  #") for line in planned_lines(planned(made)) if line[:4] == "#   "]
    found = {left.strip(): reason.strip() for left, reason in lines}
    assert found["NCCL_SOCKET_IFNAME=eth9"] == "kept as you set it"
    assert found["NCCL_DEBUG=WARN"] == (
        "kept as you set it: at this level NCCL does not report which network it uses"
    )
    assert found["NCCL_NET=IB"].startswith("--require-rdma: ")
    assert found["OMPI_MCA_btl_tcp_if_include=<network>"].startswith("--env-for mpi: ")
    assert {"MASTER_PORT=29400", "NNODES=<nodes>", "NPROC_PER_NODE=2"} <= set(found)
    assert not [name for name in found if name.startswith("NCCL_DEBUG_FILE")]
    assert any("MASTER_PORT=<port> " in line for line in planned_lines(planned(plan())))


def test_a_variable_that_forbids_what_is_required_is_refused_before_anything_is_submitted(
    tmp_path: Path,
) -> None:
    words = ["launch", "--nnodes", "2", "--require-rdma", "--state-dir", str(tmp_path), "t.py"]
    result = rdzv(*words, env={"NCCL_NET": "Socket"})
    assert result.exit_code == ExitCode.USAGE
    assert "NCCL_NET=Socket forbids NCCL to use RDMA" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_variables_of_a_person_are_shown_with_what_gave_them_and_no_secret() -> None:
    assert list(given_lines(plan())) == []
    made = plan(env=["LR=0.{slot}", "API_KEY=hush-{slot}", "ODD=hush"], secret_env=["ODD"])
    assert list(given_lines(made)) == [
        "Each program also gets:",
        "  LR='0.{slot}'     # set by --env",
        "  API_KEY=(hidden)  # set by --env; a secret, which travels sealed",
        "  ODD=(hidden)      # set by --env; a secret, which travels sealed",
    ]
    assert made.submission(1, 1).variables["PASS_ENV"] == ["LR=0.1"]
    assert "hush" not in repr(made.submission(1, 1)) + "\n".join(planned_lines(planned(made)))


# ---- the sealed table ---------------------------------------------------------------------------


def table() -> EndpointTable:
    common: dict[str, Any] = {"interface": "eth0", "prefix_length": 24, "nproc_per_node": 8}
    common |= {"mac": "", "hcas": ["mlx5_0:1", "mlx5_1:1"]}
    rows = [
        TableRow(node=n, slot=n, hostname=f"gpu-{n}", address=f"10.0.0.{n + 1}", **common)
        for n in range(2)
    ]
    return EndpointTable(
        run="llama",
        launch_id=LAUNCH_ID,
        epoch=1,
        master_address="10.0.0.1",
        master_port=29500,
        network="eth0 (10.0.0.0/24, Ethernet)",
        transport="IB",
        rows=rows,
    )


def test_of_a_table_the_nodes_own_values_are_shown() -> None:
    first, second = table().rows
    rows = [first, replace(second, slot=5)]
    made = table().model_copy(update={"rows": rows})
    head, network, *lines = table_lines(made, "d4ba9bac8253" + "0" * 52, 1, {})
    assert head == "# node 1 (gpu-1, slot 5) of run 'llama', table d4ba9bac8253"
    assert network == "# NCCL should say: Using network IB"
    own = ["MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500", "NODE_RANK=1"]
    own += ["RDZV_NODE_ADDRESS=10.0.0.2", "NNODES=2"]
    assert [line.split("  #")[0].rstrip() for line in lines[:5]] == own
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
            paths=Paths(
                folder,
                bin=f"{folder}/bin",
                socket="<socket>",
                hook="<rdzv>/worker/look/site",
                look="<look>",
            ),
        )
        lines = [line for line in table_lines(table(), "", rank, kept) if line[0] != "#"]
        shown = [line.split("  #")[0].rstrip().partition("=") for line in lines]
        given = contract.variables | contract.withheld
        assert {name: shlex.split(value) for name, _, value in shown} == {
            name: [value] for name, value in given.items()
        }


def test_of_a_table_the_variables_of_a_person_are_shown_but_for_those_that_it_decides() -> None:
    rows = [
        ["A", "x-{slot}", "set by --env", True],
        ["B", "x-{slot}", "set by --env-file f", False],
        ["MASTER_PORT", "1", "set by --env", False],
    ]
    lines = list(table_lines(table(), "", 1, {"given": rows}))
    assert [" ".join(line.split()) for line in lines[-4:-2]] == [
        "A=x-1 # set by --env",
        "B='x-{slot}' # set by --env-file f",
    ]
    assert not any(line.startswith("MASTER_PORT=1 ") for line in lines)


def test_a_rank_that_is_not_in_the_table_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError) as caught:
        list(table_lines(table(), "", 2, {}))
    assert caught.value.message == "run 'llama' has no node 2: its nodes are 0 to 1"


def test_after_the_run_its_table_is_still_known(tmp_path: Path) -> None:
    state = launched(tmp_path, require_rdma=True, command=["train.py"])
    result = rdzv("status", "llama", "--env", "0", state=tmp_path)
    assert result.exit_code == ExitCode.USAGE
    assert "run 'llama' has no endpoint table: " in result.stderr
    state.write("table.json", table().canonical())
    result = rdzv("status", "llama", "--env", "0", state=tmp_path)
    assert result.exit_code == 0
    assert "NCCL_NET=IB " in result.stdout
    assert "RDZV_LAST_FAILURE='' " in result.stdout
    end = EpochEnd(epoch=1, ran_seconds=3.0, message="node 1 failed")
    kept = run_status(phase=Phase.RUNNING).model_copy(
        update={"restarts": 1, "max_restarts": 2, "replacements": 3, "ended": [end]}
    )
    state.write("status.json", kept.model_dump_json().encode())
    result = rdzv("status", "llama", "--env", "0", state=tmp_path)
    for value in ("RESTARTS=1", "MAX_RESTARTS=2", "REPLACEMENTS=3", "LAST_FAILURE='node 1 failed'"):
        assert f"\nRDZV_{value} " in result.stdout
    assert f"table {table().digest()[:12]}\n" in result.stdout


@pytest.mark.parametrize(("loss", "outlives"), [("fail", False), ("shrink", True)])
def test_what_programs_are_told_of_those_before_them_is_known_of_the_status(
    loss: str, *, outlives: bool
) -> None:
    known = run_status(phase=Phase.RUNNING, on_node_loss=loss, replacements=2, max_restarts=3)
    told = RestartFacts(max_restarts=3, replacements=2, outlives_nodes=outlives)
    assert restart_facts(known) == told


def test_while_the_run_goes_on_the_registry_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(*words: str) -> Result:
        return rdzv("status", "llama", *words, state=tmp_path)

    run, digest = "/v1/runs/llama", table().digest()
    registry = Registry({f"GET {run}": run_status(reason="it waits")})
    registry.put_in(monkeypatch)
    launched(tmp_path, command=["train.py"])
    unmade, before = ask("--matrix"), ask("--env", "1")
    assert (unmade.exit_code, before.exit_code) == (64, 64)
    assert "there are no check results for run 'llama': " in unmade.stderr
    assert "run 'llama' has no endpoint table: it is gathering: it waits" in before.stderr
    registry.answers |= {
        f"GET {run}": run_status(phase=Phase.RUNNING, digest=digest),
        f"GET {run}/tables/{digest}": table(),
        f"GET {run}/report": RunReport(run="llama", rounds=[tried(2)]),
    }
    shown, as_json = ask("--env", "1"), ask("--env", "1", "--json")
    assert ask("--matrix").stdout.startswith(f"{ETH}: 0 of 2 directed pairs fail\n")
    assert shown.stdout.startswith("# node 1 (gpu-1) of run 'llama', table ")
    found = json.loads(as_json.stdout)
    assert (found["node"], found["hostname"]) == (1, "gpu-1")
    values = {one["name"]: one["value"] for one in found["variables"]}
    assert values["NCCL_SOCKET_IFNAME"] == "eth0"
    assert all(one["reason"] for one in found["variables"])
    for name, value in values.items():
        assert f"{name}={value}" in shown.stdout


def test_where_nodes_gather_again_the_last_table_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = launched(tmp_path, command=["train.py"])
    state.write("table.json", table().canonical())
    gathers = run_status(ended=[EpochEnd(epoch=1, message="node 1 was lost")])
    Registry({"GET /v1/runs/llama": gathers}).put_in(monkeypatch)
    shown = rdzv("status", "llama", "--env", "0", state=tmp_path)
    assert f"table {table().digest()[:12]}\n" in shown.stdout


def test_a_second_count_of_restarts_is_refused(tmp_path: Path) -> None:
    words = ("launch", "--nnodes", "2", "--dry-run", "--max-restarts", "2", "--")
    done = rdzv(*words, "--max-restarts", "3", "train.py", state=tmp_path)
    assert (done.exit_code, done.stdout) == (ExitCode.USAGE, "")
    assert "COMMAND's --max-restarts 3 exclude each other" in done.stderr
    assert rdzv(*words, "train.py", state=tmp_path).exit_code == 0

"""From settings to worker runs: what each slot's run is made of, and what cannot be planned."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from launcher.plan.named_hosts import working_folder
from launcher.plan.plan import (
    HIDDEN,
    OWN_VARIABLES,
    Here,
    Plan,
    Site,
    Spec,
    Submission,
    Where,
    check_run_id,
    loopback_address,
    parse_nnodes,
    run_name,
)
from launcher.plan.without_effect import without_effect
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import Limits
from rendezvous.wire.types import MAX_NODES, Address
from tests.launcher.command import plan_of

ADDRESS: TypeAdapter[str] = TypeAdapter(Address)
HERE = Here(Spec("local/worker.yaml", "argv: [here]"), "/state/llama/logs")
COMMAND = ("train.py", "--epochs", "3")


def plan(
    environ: Mapping[str, str] | None = None, *, loopback: bool = False, **settings: Any
) -> Plan:
    site = Site(Spec("worker.sh", "exec <<COMMAND>>"), here=HERE, loopback=loopback)
    made = plan_of(*COMMAND, site=site, environ=environ, **({"nnodes": "4"} | settings))
    return replace(made, master_addr="10.0.0.1")


GRACE = " --grace 0"


def options(made: Plan, slot: int = 1) -> str:
    return " ".join(made.worker_options(slot))


# ---- worker runs --------------------------------------------------------------------------------


def test_a_worker_run_carries_everything_that_a_spec_can_be_filled_with() -> None:
    made = plan({"NCCL_DEBUG": "INFO", "HOME": "/root"}, nproc_per_node="8", set=["IMAGE=a:b=c"])
    assert made.submission(3, 2) == Submission(
        slot=3,
        generation=2,
        name="rdzv-k7f2a9c1xy-3-2",
        variables={
            "NAME": "rdzv-k7f2a9c1xy-3-2",
            "SLOT": 3,
            "GENERATION": 2,
            "LAUNCH_ID": "k7f2a9c1xy",
            "RDZV_ID": "llama",
            "RDZV_JOIN": HIDDEN,
            "NUM_NODES": 4,
            "GPUS_PER_NODE": 8,
            "NODE_RANK": 3,
            "MASTER_ADDR": "10.0.0.1",
            "WORKER_OPTIONS": ["--nnodes", "4", "--nproc-per-node", "8"],
            "PASS_ENV": ["NCCL_DEBUG=INFO"],
            "CWD": "",
            "COMMAND": ["train.py", "--epochs", "3"],
            "AVOID": [],
            "IMAGE": "a:b=c",
        },
        source="worker.sh",
        template="exec <<COMMAND>>",
    )


def test_a_worker_run_is_told_where_to_start_and_where_not() -> None:
    made = plan(avoid=["bad"])
    assert made.submission(1, 1).variables["AVOID"] == ["bad"]
    where = Where("n9", ("bad", "n1"))
    assert made.submission(1, 2, where).variables["AVOID"] == ["bad", "n1"]
    named = replace(made, site=replace(made.site, hosts=("h0", "n1", "n2", "n3")))
    assert named.submission(1, 1).variables["HOST"] == "n1"
    assert named.submission(1, 2, where).variables["HOST"] == "n9"


def test_slot_0_of_another_scheduler_is_started_here_from_the_local_spec() -> None:
    run = plan(address=["10.0.0.1"]).submission(0, 1)
    assert (run.source, run.template) == ("local/worker.yaml", "argv: [here]")
    assert run.variables["WORKER_OPTIONS"] == [
        *("--nnodes", "4", "--nproc-per-node", "1"),
        *("--log-dir", "/state/llama/logs", "--log-level", "warning"),
        *("--address", "10.0.0.1"),
    ]
    made = plan(local_node=False, address=["10.0.0.1"])  # without a local node it is as the others
    first, second = made.submission(0, 1), made.submission(1, 1)
    assert (first.source, first.template) == (second.source, second.template)
    assert first.variables["WORKER_OPTIONS"] == second.variables["WORKER_OPTIONS"]


def test_a_name_is_shortened_to_what_the_scheduler_takes_and_stays_the_launchs_own() -> None:
    assert run_name("k7f2a9c1xy", 1, 1, 19) == "rdzv-k7f2a9c1xy-1-1"
    launches = [f"{number:010x}" for number in range(200)]
    places = [(0, 1), (1, 1), (11, 1), (1, 11), (1023, 10)]
    names = {run_name(each, *place, 15) for each in launches for place in places}
    assert len(names) == len(launches) * len(places)
    assert all(re.fullmatch(r"r[a-z2-7]{6,10}-\d+-\d+", name) for name in names)
    assert max(map(len, names)) == 15
    assert run_name("k7f2a9c1xy", 3, 2, 15) == run_name("k7f2a9c1xy", 3, 2, 15)


def test_planning_a_worker_run_changes_nothing_of_the_plan() -> None:
    made = plan({"UCX_TLS": "tcp"}, set=["A=1"], network=["10.0.0.0/8"])
    before = dataclasses.replace(made)
    run = made.submission(1, 1)
    run.variables["COMMAND"].append("more")  # type: ignore[union-attr]
    run.variables["WORKER_OPTIONS"].append("more")  # type: ignore[union-attr]
    run.variables["B"] = "2"
    assert made == before
    assert "more" not in made.submission(1, 1).variables["COMMAND"]  # type: ignore[operator]


def test_processes_may_differ_by_slot() -> None:
    made = plan(nproc_per_node="2, 1,gpu,auto")
    given = [made.submission(slot, 1).variables["GPUS_PER_NODE"] for slot in range(4)]
    assert given == [2, 1, "gpu", "auto"]
    assert [options(made, slot).split()[3] for slot in (1, 2, 3)] == ["1", "gpu", "auto"]


# ---- the options of a worker --------------------------------------------------------------------


def test_a_worker_is_told_all_that_concerns_a_node() -> None:
    made = plan(
        nnodes="2:4",
        nproc_per_node="gpu",
        framework="command",
        rdzv_backend="c10d",
        interface=["eth1", "ib0"],
        network=["10.0.0.0/8"],
        prefer="ib",
        hosts="require",
        master_port=31000,
        grace=2.5,
        orphan_timeout=1234567.0,
        join_timeout=60.0,
        prefix=True,
        address=["10.0.0.1"],
        log_level="debug",
    )
    assert options(made) == (
        "--nnodes 2:4 --nproc-per-node gpu --framework command --rdzv-backend c10d "
        "--interface eth1 --interface ib0 --network 10.0.0.0/8 --prefer ib --hosts require "
        "--master-port 31000 --grace 2.5 --orphan-timeout 1234567 --join-timeout 60 --prefix"
    )


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({"log_limit": "1G"}, ""),
        ({"log_limit": "0"}, " --log-limit 0"),
        ({"grace": 0.0}, GRACE),
        ({"progress_file": Path("out/step")}, " --progress-file out/step"),
    ],
)
def test_a_worker_is_told_only_what_is_not_its_own_default(
    settings: dict[str, Any], more: str
) -> None:
    assert options(plan(**settings)) == f"--nnodes 4 --nproc-per-node 1{more}"


def test_nodes_of_the_local_scheduler_have_a_loopback_address_each_and_leave_hosts_alone() -> None:
    made = plan(nnodes="2", loopback=True)
    common = (
        "--nnodes 2 --nproc-per-node 1 --prefix --log-dir /state/llama/logs --log-level warning"
    )
    assert [options(made, slot) for slot in (0, 1)] == [
        f"{common} --loopback --address 127.0.0.1 --hosts off",
        f"{common} --loopback --address 127.0.0.2 --hosts off",
    ]


@pytest.mark.parametrize(
    ("settings", "has_prefix"), [({}, True), ({"prefix": False}, False), ({"nnodes": "1"}, False)]
)
def test_lines_are_prefixed_where_several_nodes_share_the_terminal(
    settings: dict[str, Any], has_prefix: bool
) -> None:
    assert ("--prefix" in options(plan(loopback=True, **settings), 0)) is has_prefix
    for level in ("debug", "error"):
        assert f"--log-level {level}" in options(plan(log_level=level, **settings), 0)


def test_loopback_addresses_are_distinct_and_valid_for_every_slot() -> None:
    found = [loopback_address(slot) for slot in (*range(600), *range(MAX_NODES - 600, MAX_NODES))]
    assert found[:2] == ["127.0.0.1", "127.0.0.2"]
    assert found[254:257] == ["127.0.0.255", "127.0.1.0", "127.0.1.1"]
    assert len(set(found)) == 1200
    assert all(ipaddress.ip_address(ADDRESS.validate_python(a)).is_loopback for a in found)


# ---- limits and job -----------------------------------------------------------------------------


def test_the_times_of_the_settings_are_the_runs_limits() -> None:
    assert plan().limits() == Limits()
    times: dict[str, Any] = {
        "join_timeout": 1.0,
        "last_call": 2.0,
        "verify_timeout": 33.0,
        "arm_timeout": 4.0,
    }
    times |= {"lease": 5.0, "grace": 6.0}
    limits = {f"{name}_seconds": value for name, value in times.items()}
    counts: dict[str, Any] = {"submit_retries": 7, "max_restarts": 3}
    assert plan(**times, **counts).limits() == Limits(**limits, **counts)


def test_spares_are_worker_runs_of_their_own_and_no_nodes_of_the_job() -> None:
    made = plan(nnodes="2", spares=1, nproc_per_node="8,8,4")
    assert (made.slots, made.nnodes, made.processes.of(2)) == (3, "2", 4)
    assert made.own_variables(2, 1)["NUM_NODES"] == 2
    assert "--spares" not in options(made, 2)


# ---- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size", "written"),
    [
        ("4", (4, 4), "4"),
        ("2:4", (2, 4), "2:4"),
        (" 1 ", (1, 1), "1"),
        ("20000", (20000, 20000), "20000"),
    ],
)
def test_a_size_is_read_as_torchrun_writes_it(
    text: str, size: tuple[int, int], written: str
) -> None:
    assert parse_nnodes(text) == size
    made = plan(nnodes=text)
    assert ((made.min_nodes, made.max_nodes), made.nnodes) == (size, written)


NO_SIZE = "--nnodes {}: a size is N or MIN:MAX, for example 4 or 2:4"
NO_RUN = "--nnodes {}: a run has 1 to 20000 nodes, and MIN is not above MAX"
NEITHER = ["four", "", "2:", ":4", "1:2:3", "-1", "+4", "4.0", "1_0", "²", "٤", "9999999999"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, NO_SIZE) for text in NEITHER),
        *((text, NO_RUN) for text in ("0", "0:4", "4:2", "20001", "1:20001")),
        (None, "the number of nodes is missing"),
    ],
)
def test_what_is_no_size_of_a_run_is_refused(text: str | None, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_nnodes(text)
    assert caught.value.message == message.format(text)
    assert caught.value.hint.startswith("give --nnodes 4, or --nnodes 2:4")


@pytest.mark.parametrize(
    ("more", "message", "hint"),
    [
        (
            {"nnodes": "20000", "spares": 1000},
            "--nnodes 20000 and --spares 1000 are 21000 nodes, and a run has at most 20000",
            "give at most 19000 nodes with --spares 1000",
        ),
        (
            {"nnodes": "2:19999", "spares": 1, "standby": 1},
            "--nnodes 2:19999 and --spares 1 and --standby 1 are 20001 nodes",
            "give at most 19998 nodes",
        ),
    ],
)
def test_a_run_has_no_more_slots_than_nodes_can_have(
    more: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan(**more)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)
    assert plan(nnodes="19999", spares=1).slots == 20_000


# ---- variables ----------------------------------------------------------------------------------


def test_what_nccl_and_ucx_are_told_reaches_the_workers_unasked() -> None:
    environ = {"NCCL_SOCKET_IFNAME": "=eth0", "UCX_TLS": "a b", "HF_HOME": "x", "MY_NCCL_": "y"}
    assert plan(environ).passed == {"NCCL_SOCKET_IFNAME": "=eth0", "UCX_TLS": "a b"}
    assert plan(environ, pass_env=["HF_HOME"]).submission(1, 1).variables["PASS_ENV"] == [
        "HF_HOME=x",
        "NCCL_SOCKET_IFNAME==eth0",
        "UCX_TLS=a b",
    ]


def test_a_set_variable_may_hold_anything_behind_the_first_equals_sign() -> None:
    assert plan(set=["A=", "B1_C=x=y z\n'\"$"]).extra == {"A": "", "B1_C": "x=y z\n'\"$"}


NO_NAME = "is not NAME=VALUE with a NAME in capitals"
UNSET = "--pass-env {}: the variable is not set here"
ENTRIES = "has {} entries for {} nodes"


@pytest.mark.parametrize(
    ("settings", "message", "hint"),
    [
        ({"nproc_per_node": "2,1,1"}, f"--nproc-per-node 2,1,1 {ENTRIES.format(3, 4)}", ""),
        (
            {"nnodes": "2", "spares": 1, "nproc_per_node": "8,8"},
            *(f"--nproc-per-node 8,8 {ENTRIES.format(2, 3)}", ""),
        ),
        ({"pass_env": ["HF_TOKENS"]}, UNSET.format("HF_TOKENS"), "did you mean HF_TOKEN?"),
        ({"pass_env": ["X"]}, UNSET.format("X"), "set it, or remove the option"),
        *(
            ({"set": [f"{name}=secret"]}, f"--set {name} {NO_NAME}", "")
            for name in ("image", "", "1A", "A-B")
        ),
        ({"set": ["IMAGE"]}, f"--set IMAGE {NO_NAME}", ""),
        *(
            ({"set": [f"{name}=1"]}, f"--set {name}: rdzv sets this variable for each w", "")
            for name in plan().submission(1, 1).variables
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_and_no_value_is_shown(
    settings: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan({"HF_TOKEN": "x"}, **settings)
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)
    assert "secret" not in str(caught.value)


def test_an_option_that_changes_nothing_is_told() -> None:
    assert without_effect(plan()) == []
    (told,) = without_effect(plan(interface=["ib0"], hosts="require", loopback=True))
    assert told == (
        "--interface and --hosts require have no effect with --scheduler local: all nodes are on "
        "this machine, each at a loopback address"
    )
    assert without_effect(plan(framework="env", rdzv_backend="c10d")) == [
        "--rdzv-backend c10d has no effect with --framework env: it is an option of torchrun"
    ]


@pytest.mark.parametrize(
    ("framework", "command", "words"),
    [
        ("torchrun", "train.py --join-timeout=30", "--join-timeout behind 'train.py' goes"),
        (
            "torchrun",
            "python train.py --nnodes 4 --x --rdzv_id a --nnodes=2",
            "--nnodes and --rdzv-id behind 'train.py' go",
        ),
        ("command", "./run --pass-env A", "--pass-env behind './run' goes"),
        ("torchrun", "torchrun --max-restarts 3 train.py --lr 1", None),
        ("torchrun", "train.py --config c --log-dir d --log-level info --port 1", None),
        ("deepspeed", "deepspeed -m pkg --node-rank 0", None),
    ],
)
def test_options_of_rdzv_that_go_to_the_program_are_told(
    framework: str, command: str, words: str | None
) -> None:
    made = plan_of(*command.split(), nnodes="4", framework=framework)
    end = " to that program; options of rdzv are in front of the '--'"
    assert without_effect(made) == ([words + end] if words else [])


EXPORTS = Spec("ssh/worker.sh", "x=1\n  export PATH <<PASS_ENV>>\nexec <<COMMAND>>")
ODD = {
    "BASH_FUNC_x%%": "() { :; }",
    "a.b": "1",
    "c-d": "2",
    "1E": "3",
    "NCCL_X.Y": "4",
    "LINES_": "two\nlines",
    "BAD": "\udcff",
    "é": "5",
}


@pytest.mark.parametrize("exports", [True, False])
def test_what_no_spec_or_no_shell_carries_is_left_out_and_named(*, exports: bool) -> None:
    site = Site(EXPORTS if exports else Spec("worker.yaml", "env: <<PASS_ENV>> # no export"))
    names = [name for name in ODD if not name.startswith("NCCL")]
    made = plan_of(*COMMAND, site=site, environ=ODD, nnodes="4", pass_env=names)
    told = without_effect(made)
    carried = {"LINES_"} if exports else {*ODD} - {"BAD"}
    assert {*made.passed} == carried
    assert {line.partition(" ")[0] for line in told} == {*ODD} - carried
    assert "BAD is not passed on: its value is not UTF-8, and a spec is" in told
    if exports:
        why = "which the sh that starts the worker run (ssh/worker.sh) cannot export"
        assert (
            f"BASH_FUNC_x%% is not passed on: it holds an exported function of bash, {why}"
            in (told[0])
        )
        assert (
            f"a.b is not passed on: it has a name that no shell variable can have, {why}" in told[1]
        )


def test_the_nodes_of_this_machine_have_its_environment_whatever_is_in_it() -> None:
    made = plan(ODD, loopback=True, pass_env=["a.b", "BAD"])
    assert without_effect(made) == []


def test_a_run_id_that_cannot_be_is_refused_with_its_option() -> None:
    assert check_run_id("llama-7b") == "llama-7b"
    with pytest.raises(UsageError, match=r"--rdzv-id 'a b': "):
        check_run_id("a b")


def test_the_variables_of_a_spec_that_are_rdzvs_own_are_listed() -> None:
    plan = plan_of("train.py", nnodes="2", site=Site(Spec("x", ""), hosts=("a", "b")))
    assert {*plan.own_variables(0, 1)} == OWN_VARIABLES


def test_a_working_folder_that_was_deleted_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def deleted() -> str:
        raise FileNotFoundError

    assert working_folder() == os.getcwd()
    monkeypatch.setattr(os, "getcwd", deleted)
    assert working_folder() == ""

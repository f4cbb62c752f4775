"""What a program is started with: argv, variables, and what of the user's is kept or removed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import UsageError
from rendezvous.wire.table import EndpointTable, TableRow
from worker.contracts import (
    NO_PATHS,
    Contract,
    Need,
    Paths,
    ProgramOptions,
    check_command,
    last_words,
    make_contract,
    rank_of_failure,
)
from worker.nccl.env import Given

V4 = ("10.0.0.1", "10.0.0.2")
V6 = ("fd00::1", "fd00::2")
MODULE = "python -m torch.distributed.run"
LEFT_OUT = "is kept as you set it: it leaves out eth1, the interface of the table"


def table(addresses: tuple[str, ...] = V4, nproc: tuple[int, ...] = (8, 8)) -> EndpointTable:
    rows = [
        TableRow(
            rank=rank,
            slot=10 + rank,
            hostname=f"host-{rank}",
            address=address,
            interface=f"eth{rank}",
            prefix_length=24,
            nproc_per_node=processes,
            mac="",
        )
        for rank, (address, processes) in enumerate(zip(addresses, nproc, strict=True))
    ]
    return EndpointTable(
        run="llama",
        launch_id="k7f2a9c1xy",
        epoch=1,
        master_address=addresses[0],
        master_port=29500,
        rows=rows,
    )


def contract(
    *command: str,
    sealed: EndpointTable | None = None,
    rank: int = 1,
    environ: dict[str, str] | None = None,
    paths: Paths = NO_PATHS,
    configured: dict[str, Given] | None = None,
    **options: Any,
) -> Contract:
    return make_contract(
        command or ("train.py", "--epochs", "3"),
        sealed or table(),
        10 + rank,
        environ or {},
        ProgramOptions(**options),
        configured=configured,
        paths=paths,
    )


def words(*lines: str) -> list[str]:
    return " ".join(lines).split()


# ---- torchrun -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_static_torchrun_is_given_our_ranks_and_the_masters_address(rank: int) -> None:
    made = contract(rank=rank)
    assert {v.name: v.value for v in made.explained} == made.variables
    assert all(v.reason for v in made.explained)
    assert replace(made, explained=[]) == Contract(
        argv=words(
            "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend static --rdzv-id llama",
            f"--node-rank {rank} --master-addr 10.0.0.1 --master-port 29500",
            "train.py --epochs 3",
        ),
        variables={
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "29500",
            "NODE_RANK": str(rank),
            "NNODES": "2",
            "NPROC_PER_NODE": "8",
            "RDZV_ID": "llama",
            "GLOO_SOCKET_IFNAME": f"eth{rank}",
            "TP_SOCKET_IFNAME": f"eth{rank}",
            "NCCL_SOCKET_IFNAME": f"=eth{rank}",
            "NCCL_SOCKET_FAMILY": "AF_INET",
        },
        removed=frozenset(SECRET_VARIABLES),
        notes=[],
        fatal_workers=True,
        needs=(Need("torch", "pip install torch", program="torchrun"),),
        port=(29500, None)[rank],
    )


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("--max-restarts 3 train.py", {}),
        ("torchrun --max_restarts=3 train.py", {}),
        ("train.py", {"environ": {"PET_MAX_RESTARTS": "3"}}),
        ("make", {"framework": "command"}),
    ],
)
def test_a_worker_that_may_be_started_again_does_not_end_the_program(
    command: str, how: dict[str, Any]
) -> None:
    assert not contract(*command.split(), **how).fatal_workers


@pytest.mark.parametrize(
    ("backend", "sealed", "rank", "words_of_table"),
    [
        ("static", V6, 1, "--node-rank 1 --master-addr fd00::1 --master-port 29500"),
        ("c10d", V4, 0, "--rdzv-endpoint 10.0.0.1:29500 --local-addr 10.0.0.1 {} is_host=1"),
        ("c10d", V4, 1, "--rdzv-endpoint 10.0.0.1:29500 --local-addr 10.0.0.2 {} is_host=0"),
        ("c10d", V6, 1, "--rdzv-endpoint [fd00::1]:29500 --local-addr fd00::2 {} is_host=0"),
    ],
)
def test_torchrun_is_told_the_master_or_who_hosts_the_store_and_its_own_address(
    backend: str, sealed: tuple[str, ...], rank: int, words_of_table: str
) -> None:
    made = contract(rank=rank, rdzv_backend=backend, sealed=table(sealed))
    assert made.argv == words(
        f"torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend {backend} --rdzv-id llama",
        words_of_table.format("--rdzv-conf"),
        "train.py --epochs 3",
    )
    assert made.variables["MASTER_ADDR"] == sealed[0]
    assert made.variables["NCCL_SOCKET_FAMILY"] == ("AF_INET6" if sealed == V6 else "AF_INET")


@pytest.mark.parametrize(("rank", "processes"), [(0, "2"), (1, "1")])
def test_nodes_with_different_processes_are_told_their_own_number(
    rank: int, processes: str
) -> None:
    made = contract(sealed=table(nproc=(2, 1)), rank=rank)
    assert made.argv[:5] == words(f"torchrun --nnodes 2 --nproc-per-node {processes}")
    assert made.variables["NPROC_PER_NODE"] == processes


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["train.py"], ""),
        (["-m", "package.train", "-x"], ""),
        (["./it's here.py", "", "$X"], ""),
        (["train.py", "--nnodes", "9"], ""),
        (["--max-restarts", "3", "train.py"], "torchrun"),
        (["-r3", "-t", "3", "--no-python", "./train", "--nnodes", "2"], "/opt/env/bin/torchrun"),
        (["--log_dir=/logs", "--module", "train", "--master-port", "1"], "torchrun"),
        (["--", "train.py"], "torchrun"),
    ],
)
def test_a_torchrun_target_keeps_its_words_and_torchruns_other_flags(
    command: list[str], program: str
) -> None:
    given = [program, *command] if program else command
    check_command(given, "torchrun")
    made = contract(*given)
    assert made.argv[0] == (program or "torchrun")
    assert made.argv[15:] == command


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("torchrun --nnodes 2 train.py", "--nnodes"),
        ("torchrun --nnodes=2 train.py", "--nnodes=2"),
        ("torchrun --max-restarts 3 --nproc_per_node 2 train.py", "--nproc_per_node"),
        ("torchrun --tee 3 --standalone train.py", "--standalone"),
        ("torchrun --rdzv_endpoint h:1 train.py", "--rdzv_endpoint"),
        ("torchrun --nnode 2 train.py", "--nnode"),
        ("torchrun -m --node-rank 1 train", "--node-rank"),
        ("/usr/bin/torchrun --rdzv-conf a=b train.py", "--rdzv-conf"),
        ("--master-port 1 train.py", "--master-port"),
    ],
)
def test_a_flag_that_would_contradict_the_table_is_refused(command: str, flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_command(command.split(), "torchrun")
    assert caught.value.message == (
        f"{flag} stands in COMMAND, and rdzv gives torchrun this flag from the table"
    )
    check_command(shlex.split(caught.value.hint.partition(" -- ")[2]), "torchrun")


@pytest.mark.parametrize(
    ("command", "works"),
    [
        (
            "/opt/torchrun --nnodes=2 --nproc_per_node 8 --tee 3 --rdzv-endpoint h:1 -m t --key s",
            "--nnodes 2 --nproc-per-node 8 -- /opt/torchrun --tee 3 -m t ...",
        ),
        ("--rdzv-backend c10d --rdzv-id 7 t.py", "--rdzv-id 7 -- torchrun t.py"),
        ("--standalone --master-port 1 train.py", "--master-port 1 -- torchrun train.py"),
        (f"{MODULE} --nnodes 2", f"--nnodes 2 -- {MODULE}"),
    ],
)
def test_torchruns_own_flags_are_refused_with_the_command_line_that_works(
    command: str, works: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_command(command.split(), "torchrun")
    assert caught.value.hint == f"use rdzv launch {works}"


@pytest.mark.parametrize("python", ["python", "python3", "/usr/bin/python3.11"])
def test_python_in_front_of_the_script_is_refused_with_what_to_do(python: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_command([python, "train.py"], "torchrun")
    assert caught.value.message == (f"COMMAND names '{python}', and torchrun starts Python itself")
    assert caught.value.hint == (
        "give the script alone (-- train.py ...), or use --framework command"
    )
    check_command([python, "train.py"], "command")


@pytest.mark.parametrize(
    "command", ["torchrun", "torchrun --max-restarts 3", "-m", "torchrun --max-restarts"]
)
def test_a_command_without_a_target_is_refused(command: str) -> None:
    with pytest.raises(UsageError, match=r"^COMMAND names no script or module for torchrun: "):
        check_command(command.split(), "torchrun")


@pytest.mark.parametrize("framework", ["torchrun", "env", "command", "mpich"])
@pytest.mark.parametrize("word", ["", " "])
def test_a_command_whose_first_word_is_empty_is_refused(framework: str, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_command([word, "--epochs", "3"], framework)
    assert caught.value.message == "the first word of COMMAND is empty, and names no program"
    assert caught.value.hint == "is a shell variable empty?"


# ---- last words ---------------------------------------------------------------------------------


def test_what_the_starter_says_of_a_failed_process_does_not_hide_the_programs_last_line() -> None:
    told = "rdzv: process 3 (local rank 1) failed first, with exit code 1; ending the others"
    assert last_words(["epoch 1", "ValueError: nan", told]) == [told, "epoch 1", "ValueError: nan"]
    assert last_words([told]) == [told]


def test_the_rank_of_a_failed_process_is_read_off_what_the_starter_says() -> None:
    told = "rdzv: process 12 (local rank 1) failed first, with signal 9"
    assert rank_of_failure(["epoch 1", told, "Terminated"]) == 12
    assert rank_of_failure([f"> {told}", "rdzv: process x (local rank 1) failed first"]) is None


# ---- any command --------------------------------------------------------------------------------


def test_another_command_is_started_as_it_is_with_the_same_variables() -> None:
    command = ("accelerate", "launch", "--nnodes", "9", "")
    made = contract(*command, framework="command", environ={"PATH": "/bin"})
    assert made.argv == list(command)
    assert made.variables == contract().variables
    assert made.removed == frozenset(SECRET_VARIABLES)
    assert made.notes == []


def test_another_command_keeps_what_is_not_from_the_table_and_the_log_says_so() -> None:
    environ = {"PET_NNODES": "9", "RANK": "3"}
    made = contract("make", framework="command", environ=environ)
    assert environ.items() <= made.environment(environ).items()
    assert made.notes == [
        "RANK=3 is kept as you set it: it is not from the table, and the same for all of COMMAND",
        (
            "PET_NNODES=9 is kept as you set it: a torchrun in COMMAND takes it where no flag says "
            "otherwise"
        ),
    ]


# ---- the user's environment ---------------------------------------------------------------------


def test_what_the_user_set_for_the_transports_is_kept() -> None:
    environ = {
        "NCCL_SOCKET_IFNAME": "^docker0",
        "NCCL_SOCKET_FAMILY": "AF_INET6",
        "GLOO_SOCKET_IFNAME": "ib0",
        "TP_SOCKET_IFNAME": "",
    }
    made = contract(environ=environ)
    assert not set(environ) & set(made.variables)
    assert environ.items() <= made.environment(environ).items()
    assert made.notes == [
        f"GLOO_SOCKET_IFNAME=ib0 {LEFT_OUT}",
        "NCCL_SOCKET_FAMILY=AF_INET6 is kept as you set it: the addresses of the table are IPv4",
    ]


def test_what_a_platform_guessed_gives_way_to_the_table_and_is_reported() -> None:
    environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    environ |= {"NODE_RANK": "0", "RDZV_ID": "some_uniq_id"}
    made = contract(environ=environ)
    assert made.notes == [
        "MASTER_ADDR is 10.0.0.1 (from the table), not 127.0.0.1",
        "NODE_RANK is 1 (from the table), not 0",
        "RDZV_ID is llama (from the table), not some_uniq_id",
    ]
    seen = made.environment(environ)
    assert [seen[name] for name in environ] == ["10.0.0.1", "29500", "1", "llama"]


def test_flags_of_torchrun_in_the_environment_are_removed_with_a_note() -> None:
    environ = {"PET_NNODES": "9", "PET_MASTER_ADDR": "x", "PET_STANDALONE": "1"}
    environ |= {"PET_MAX_RESTARTS": "3"}
    made = contract(environ=environ)
    assert made.environment(environ).keys() & environ.keys() == {"PET_MAX_RESTARTS"}
    assert made.notes == [
        f"PET_{name} was removed: torchrun's flags come from the table"
        for name in ("NNODES", "MASTER_ADDR", "STANDALONE")
    ]


def test_the_program_sees_the_users_environment_without_our_secrets() -> None:
    environ = {"PATH": "/bin", "PYTHONPATH": ".", "EMPTY": "", "LOCAL_RANK": "0"}
    secrets = dict.fromkeys(SECRET_VARIABLES, "secret")
    made = contract(environ=environ | secrets)
    assert made.environment(environ | secrets) == environ | made.variables
    assert not [note for note in made.notes if "secret" in note]
    assert {"RDZV_JOIN", "RDZV_TOKEN", "RDZV_REGISTRY"} <= set(SECRET_VARIABLES)
    assert {f"{name}_FILE" for name in SECRET_VARIABLES if not name.endswith("_FILE")} <= set(
        SECRET_VARIABLES
    )


@pytest.mark.parametrize("how", [{}, {"rdzv_backend": "c10d"}, {"framework": "command"}])
def test_what_belongs_to_a_process_is_never_set(how: dict[str, Any]) -> None:
    of_a_process = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
    assert not of_a_process & set(contract(**how).variables)


def test_making_a_contract_changes_nothing_that_it_is_given() -> None:
    environ, command, sealed = {"MASTER_ADDR": "x", "RDZV_JOIN": "y"}, ["train.py"], table()
    made = make_contract(command, sealed, 11, environ)
    made.environment(environ)
    made.argv.append("more")
    assert (environ, command) == ({"MASTER_ADDR": "x", "RDZV_JOIN": "y"}, ["train.py"])
    assert sealed == table()


def test_a_slot_that_is_not_in_the_table_has_no_contract() -> None:
    with pytest.raises(UsageError, match="slot 99 is not in the table of epoch 1"):
        contract(rank=89)


def test_what_torchrun_says_of_a_failed_worker_hides_no_word_of_the_program() -> None:
    record = "E0101 12:00:00.123000 77 torch/distributed/elastic/multiprocessing/api.py:1"
    before = record.replace("E0101", "W0101") + "] Setting OMP_NUM_THREADS"
    failed = f"{record}] failed (exitcode: 1) local_rank: 0 (pid: 78)"
    said = [before, "loading", "", "no such file", failed, "Traceback (most recent call last):"]
    assert last_words(said) == ["loading", "no such file"]
    assert last_words([before, failed]) == [before, failed]

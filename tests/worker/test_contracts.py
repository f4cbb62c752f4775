"""What a program is started with: argv, variables, and what of the user's is kept or removed."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import RestartFacts
from rendezvous.wire.table import EndpointTable
from tests.support.rows import rows
from tests.worker.test_hosts_plan import row
from tests.worker.test_hosts_plan import table as table_of
from worker.contracts import Contract, check_command, make_contract
from worker.contracts.choice import choose_framework
from worker.contracts.framework import Paths
from worker.contracts.variables import ProgramOptions
from worker.contracts.words import last_words, rank_of_failure
from worker.nccl.env import Given

V4 = ("10.0.0.1", "10.0.0.2")
V6 = ("fd00::1", "fd00::2")
MODULE = "python -m torch.distributed.run"
KEPT = "is kept as you set it"
LEFT_OUT = f"{KEPT}: it excludes eth1, the interface of the table"


def table(addresses: tuple[str, ...] = V4, nproc: tuple[int, ...] = (8, 8)) -> EndpointTable:
    made = [
        replace(
            row(rank, f"host-{rank}", address, slot=10 + rank),
            interface=f"eth{rank}",
            nproc_per_node=processes,
        )
        for rank, (address, processes) in enumerate(zip(addresses, nproc, strict=True))
    ]
    return table_of(*made, run="llama").model_copy(update={"launch_id": "k7f2a9c1xy"})


def contract(
    *command: str,
    sealed: EndpointTable | None = None,
    node: int = 1,
    environ: dict[str, str] | None = None,
    paths: Paths | None = None,
    configured: dict[str, Given] | None = None,
    restarts: RestartFacts = RestartFacts(),  # noqa: B008 (it cannot be changed)
    **options: Any,
) -> Contract:
    return make_contract(
        command or ("train.py", "--epochs", "3"),
        sealed or table(),
        10 + node,
        environ or {},
        ProgramOptions(**options),
        configured=configured,
        paths=paths or Paths(),
        restarts=restarts,
    )


def words(*lines: str) -> list[str]:
    return " ".join(lines).split()


# ---- torchrun -----------------------------------------------------------------------------------


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


OWNED = """
torchrun --nnodes 2 train.py | --nnodes | --nnodes 2 -- torchrun train.py
torchrun -r 3 --nproc_per_node 2 t.py | --nproc_per_node | --nproc-per-node 2 -- torchrun -r 3 t.py
torchrun --tee 3 --standalone train.py | --standalone | -- torchrun --tee 3 train.py
torchrun --rdzv_endpoint h:1 train.py | --rdzv_endpoint | -- torchrun train.py
torchrun --nnode 2 train.py | --nnode | --nnodes 2 -- torchrun train.py
torchrun -m --node-rank 1 train | --node-rank | -- torchrun -m train
/usr/bin/torchrun --rdzv-conf a=b train.py | --rdzv-conf | -- /usr/bin/torchrun train.py
--master-port 1 train.py | --master-port | --master-port 1 -- torchrun train.py
--standalone --master-port 1 train.py | --standalone | --master-port 1 -- torchrun train.py
--rdzv-backend c10d --rdzv-id 7 t.py | --rdzv-backend | --rdzv-id 7 -- torchrun t.py
MODULE --nnodes 2 | --nnodes | --nnodes 2 -- MODULE
/o/torchrun --nnodes=2 -r 3 -m t -k s | --nnodes=2 | --nnodes 2 -- /o/torchrun -r 3 -m t ...
""".replace("MODULE", MODULE)


@pytest.mark.parametrize(("command", "flag", "works"), rows(OWNED))
def test_a_flag_that_would_contradict_the_table_is_refused_with_the_line_that_works(
    command: str, flag: str, works: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_command(command.split(), "torchrun")
    launcher = "torch.distributed.run" if MODULE in command else "torchrun"
    assert caught.value.message == (
        f"COMMAND contains {flag}, but rdzv gives {launcher} this flag from the table"
    )
    assert caught.value.hint == f"use rdzv launch {works}"
    if command != f"{MODULE} --nnodes 2":  # it lacks a target besides
        check_command(shlex.split(works.partition("-- ")[2]), "torchrun")


NO_TARGET = ("COMMAND does not name a script or module for torchrun: ", "for example: -- train.py")
EMPTY = (
    "the first word of COMMAND is empty, so it does not name a program",
    "is a shell variable empty?",
)


@pytest.mark.parametrize(
    ("framework", "command", "words"),
    [
        *(("torchrun", line.split(), NO_TARGET) for line in ("torchrun", "-m")),
        ("torchrun", ["torchrun", "--max-restarts", "3"], NO_TARGET),
        ("torchrun", ["torchrun", "--max-restarts"], NO_TARGET),
        *((name, ["", "-x"], EMPTY) for name in ("torchrun", "env", "command", "mpich")),
        ("torchrun", [" ", "-x"], EMPTY),
    ],
)
def test_a_command_that_names_nothing_to_start_is_refused_with_what_to_do(
    framework: str, command: list[str], words: tuple[str, str]
) -> None:
    with pytest.raises(UsageError) as caught:
        check_command(command, framework)
    assert caught.value.message.startswith(words[0].format(command[0]))
    assert caught.value.hint.startswith(words[1])


# ---- last words ---------------------------------------------------------------------------------

STARTER = "rdzv: process 3 (local rank 1) failed first, with exit code 1; ending the others"
RECORD = "E0101 12:00:00.123000 77 torch/distributed/elastic/multiprocessing/api.py:1"
BEFORE = RECORD.replace("E0101", "W0101") + "] Setting OMP_NUM_THREADS"
FAILED = f"{RECORD}] failed (exitcode: 1) local_rank: 0 (pid: 78)"
TRACE = "Traceback (most recent call last):"
NO_FILE, FILE = "  error_file: <N/A>", "  error_file: /tmp/e.json"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["epoch 1", "ValueError: nan", STARTER], [STARTER, "epoch 1", "ValueError: nan"]),
        ([STARTER], [STARTER]),
        ([BEFORE, "load", "", "no such file", FAILED, TRACE], ["load", "no such file"]),
        ([BEFORE, FAILED], [BEFORE, FAILED]),
        ([BEFORE, FAILED, TRACE, NO_FILE], []),
        ([BEFORE, "load", FAILED, TRACE, NO_FILE], ["load"]),
        ([FAILED, NO_FILE, FILE], [FAILED, NO_FILE, FILE]),
        (["nan", RECORD.replace(" torch/", " .venv/lib/torch/") + "] Sending"], ["nan"]),
    ],
)
def test_what_starts_a_program_hides_no_word_of_it(said: list[str], told: list[str]) -> None:
    assert last_words(said) == told


def test_the_rank_of_a_failed_process_is_read_off_what_the_starter_says() -> None:
    told = "rdzv: process 12 (local rank 1) failed first, with signal 9"
    assert rank_of_failure(["epoch 1", told, "Terminated"]) == 12
    assert rank_of_failure([f"> {told}", "rdzv: process x (local rank 1) failed first"]) is None


# ---- any command --------------------------------------------------------------------------------


# ---- the user's environment ---------------------------------------------------------------------

TRANSPORTS = "NCCL_SOCKET_FAMILY=AF_INET6 GLOO_SOCKET_IFNAME=ib0 TP_SOCKET_IFNAME="
TORCHRUNS = "torchrun's flags come from the table"


@pytest.mark.parametrize(
    ("framework", "environ", "seen", "notes"),
    [
        (
            "command",
            "PET_NNODES=9 RANK=3",
            "PET_NNODES=9 RANK=3",
            [
                (
                    f"RANK=3 {KEPT}: it does not come from the table, and all of COMMAND gets the "
                    "same value"
                ),
                f"PET_NNODES=9 {KEPT}: a torchrun in COMMAND uses it unless a flag sets another",
            ],
        ),
        (
            "torchrun",
            TRANSPORTS,
            TRANSPORTS,
            [
                f"GLOO_SOCKET_IFNAME=ib0 {LEFT_OUT}",
                f"NCCL_SOCKET_FAMILY=AF_INET6 {KEPT}: the addresses of the table are IPv4",
            ],
        ),
        (
            "torchrun",
            "MASTER_ADDR=x MASTER_PORT=29500 NODE_RANK=0 RDZV_ID=y",
            "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 NODE_RANK=1 RDZV_ID=llama",
            [
                "MASTER_ADDR is 10.0.0.1 (from the table), not x",
                "NODE_RANK is 1 (from the table), not 0",
                "RDZV_ID is llama (from the table), not y",
            ],
        ),
        (
            "torchrun",
            "PET_NNODES=9 PET_STANDALONE=1 PET_MAX_RESTARTS=3",
            "PET_MAX_RESTARTS=3",
            [f"PET_{name} was removed: {TORCHRUNS}" for name in ("NNODES", "STANDALONE")],
        ),
    ],
    ids=["another command", "transports", "what a platform guessed", "torchrun's flags"],
)
def test_what_is_kept_replaced_and_removed_of_the_users_is_reported(
    framework: str, environ: str, seen: str, notes: list[str]
) -> None:
    users = dict(word.split("=") for word in environ.split())
    made = contract("make", framework=framework, environ=users)
    found = made.environment(users)
    assert " ".join(f"{name}={found[name]}" for name in users if name in found) == seen
    assert made.notes == notes


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


def test_a_slot_that_is_not_in_the_table_has_no_contract() -> None:
    with pytest.raises(UsageError, match="slot 99 is not in the table of epoch 1"):
        contract(node=89)


# --- a program on standard input, which is empty --------------------------------------------------


READS = "would read its program from standard input, which is empty on every node"


@pytest.mark.parametrize(
    "words",
    """
    torchrun: torchrun --max-restarts 3 -
    torchrun: torchrun --no-python bash -s
    torchrun: --no-python python3 -u
    torch.distributed.launch: python -m torch.distributed.launch --use-env -
    accelerate: accelerate launch --mixed_precision bf16 -
    deepspeed: deepspeed - --deepspeed
    horovod: horovodrun -np 4 python -
    horovod: python -
    openmpi: mpirun -np 4 --mca pml ob1 python3 -u -
    mpich: mpiexec -n 4 bash
    env: python3.11 -u -W ignore -X dev
    lightning: /dev/stdin --epochs 3
    tensorflow: -
    jax: python -
    command: /usr/bin/python -
    command: python /dev/stdin
    command: bash
    command: bash -e -x
    command: bash -s --flag value
    command: sh -
    command: sh -es a b
    command: bash /dev/stdin
    : -
    : bash -s
    : python -
    : torchrun -
    """.strip().splitlines(),
)
def test_an_interpreter_without_a_script_is_refused(words: str) -> None:
    """Also where the framework is chosen by the COMMAND."""
    framework, command = words.split(":")[0].strip(), words.split(":")[1].split()
    with pytest.raises(UsageError, match=READS) as caught:
        check_command(command, framework or choose_framework(command).framework)
    assert "rdzv launch -- train.py" in caught.value.hint


@pytest.mark.parametrize(
    "command",
    """
    python x.py -
    python -c 'print(1)'
    python -um package -
    python -W ignore x.py
    python --version
    python -V
    bash x.sh -s
    bash -c true
    bash -ec true
    bash -o pipefail x.sh
    bash -x x.sh
    bash - x.sh
    bash --norc x.sh
    bash --version
    ./x - -s
    cat -
    """.strip().splitlines(),
)
def test_what_has_a_program_of_its_own_is_taken(command: str) -> None:
    check_command(shlex.split(command), "command")


# ---- the hook -----------------------------------------------------------------------------------

LOOKED_INTO = Paths("/f", hook="/rdzv/hook", look="/run/look-1")


def test_nothing_of_the_hook_is_there_when_it_is_off_or_not_possible() -> None:
    theirs = {"PYTHONPATH": "/a"}
    paths = Paths("/f", bin="/f/bin", socket="/s", look="/run/look-1")
    even = table(nproc=(2, 2))
    for made in (
        contract(paths=LOOKED_INTO, environ=theirs, look="off"),
        contract(paths=Paths("/f"), environ=theirs),
        contract("train", paths=paths, environ=theirs, node=0, sealed=even, framework="openmpi"),
    ):
        assert "RDZV_LOOK_FOLDER" not in made.variables | made.withheld
        assert made.environment(theirs)["PYTHONPATH"] == "/a"

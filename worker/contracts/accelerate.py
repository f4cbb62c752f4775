"""Hugging Face's `accelerate launch`, on every node, with everything from the table. Pure.

It says one total for all nodes and divides it, so uneven nodes cannot be said. Inside it is
torchrun's static rendezvous: the same port on rank 0's node, and PET_* reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rendezvous.wire.errors import UsageError
from worker.contracts.flags import Flag, read_flags
from worker.contracts.framework import (
    Framework,
    Need,
    Start,
    StartRequest,
    basename,
    refuse_owned,
    refuse_uneven,
)
from worker.contracts.target import check_target
from worker.contracts.torchrun import PET, master_port, may_restart

_OWNED_FLAGS = {
    "num-machines": "--nnodes",
    "num-processes": "",  # for each node, in rdzv's option
    "machine-rank": "",
    "main-process-ip": "",
    "main-process-port": "--master-port",
    "rdzv-backend": "",
    "rdzv-conf": "",
}
BARE_FLAGS = (
    "cpu",
    "debug",
    "downcast-bf16",
    "dynamo-use-dynamic",
    "dynamo-use-fullgraph",
    "dynamo-use-regional-compilation",
    "enable-cpu-affinity",
    "fp8-use-autocast-during-eval",
    "h",
    "help",
    "m",
    "module",
    "multi-gpu",
    "no-python",
    "no-tpu-cluster",
    "q",
    "quiet",
    "same-network",
    "tpu",
    "tpu-cluster",
    "tpu-use-sudo",
    "use-deepspeed",
    "use-fsdp",
    "use-megatron-lm",
    "use-parallelism-config",
)
# One of these says what kind of job it is; without one of them, --multi_gpu does.
_KINDS = (
    "multi-gpu",
    "cpu",
    "tpu",
    "use-deepspeed",
    "use-fsdp",
    "use-megatron-lm",
    "config-file",
)
_DEEPSPEED = "deepspeed-multinode-launcher"


def split_accelerate(command: Sequence[str]) -> tuple[str, list[str]]:
    """accelerate's name, and all that follows `accelerate launch`."""
    if basename(command[0]) == "accelerate" and [*command[1:2]] == ["launch"]:
        return command[0], list(command[2:])
    is_launch = basename(command[0]) == "accelerate-launch"
    return "accelerate", list(command[is_launch:])


def _words(command: Sequence[str]) -> tuple[str, list[Flag], list[str]]:
    """accelerate's name, its flags in COMMAND, and all that follows `accelerate launch`."""
    launcher, words = split_accelerate(command)
    flags, position = read_flags(words, BARE_FLAGS)
    refuse_owned([launcher, "launch"], flags, words[position:], _OWNED_FLAGS, _processes)
    for flag in flags:
        if flag.name == _DEEPSPEED and flag.value != "standard":
            raise UsageError(
                f"COMMAND contains {flag.word} {flag.value}, and that launcher uses ssh",
                hint="remove it: rdzv starts accelerate on every node (standard); or use "
                "--framework deepspeed with deepspeed's own --launcher",
            )
    check_target(words, position, "accelerate launch")
    return launcher, flags, words


def _processes(values: Mapping[str, str]) -> list[str]:
    """rdzv's option for accelerate's total, as far as it can be divided here."""
    if "num-processes" not in values:
        return []
    total, machines = values["num-processes"], values.get("num-machines", "")
    each = "N"
    if total.isdecimal() and machines.isdecimal() and int(machines):
        each = str(int(total) // int(machines) or 1)
    return ["--nproc-per-node", each]


def _start(ask: StartRequest) -> Start:
    launcher, flags, words = _words(ask.command)
    refuse_uneven(ask, "accelerate divides one total number of processes evenly between the nodes")
    table, names = ask.table, {flag.name for flag in flags}
    own = ["--num_machines", str(len(table.rows)), "--num_processes", str(table.world_size)]
    own += ["--machine_rank", str(ask.row.rank), "--main_process_ip", table.master_address]
    own += ["--main_process_port", str(table.master_port)]
    if table.world_size > 1 and not names & {*_KINDS}:
        own.append("--multi_gpu")  # also what starts one process for each rank on CPUs
    if names & {"use-deepspeed", "config-file"} and _DEEPSPEED not in names:
        own += ["--deepspeed_multinode_launcher", "standard"]
    return Start(
        [launcher, "launch", *own, *words],
        port=master_port(ask),
        fatal_workers=not may_restart(words, ask.environ),
    )


def _needs(command: Sequence[str]) -> tuple[Need, ...]:
    return (Need("accelerate", "pip install accelerate", program=_words(command)[0]),)


ACCELERATE = Framework("accelerate", _start, check=_words, needs=_needs, removes=PET)

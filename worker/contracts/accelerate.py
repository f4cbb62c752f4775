"""Hugging Face's `accelerate launch`, on every node, with everything from the table. Pure.

It says one total for all nodes and divides it, so uneven nodes cannot be said. Inside it is
torchrun's static rendezvous: the same port on node 0, and PET_* reaches it. Which kind of
job it is, decides whether it is: for some kinds, accelerate starts a process that trains alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rendezvous.wire.errors import UsageError
from worker.contracts.flags import Flag, read_flags
from worker.contracts.framework import (
    Framework,
    Need,
    Start,
    StartRequest,
    basename,
    is_python,
    refuse_owned,
    refuse_uneven,
)
from worker.contracts.target import check_target, refuse_python
from worker.contracts.torchrun import (
    PET,
    log_folder,
    master_port,
    may_restart,
    module_call,
    shutdown_variables,
)
from worker.contracts.variables import Variable

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
_CONFIG = "config-file"
_BY_TORCHRUN = ("multi-gpu", "use-deepspeed", "use-fsdp", "use-megatron-lm")
"""Kinds of jobs whose processes accelerate has torchrun start: all nodes are one world then."""
_NOT_BY_TORCHRUN = {
    "cpu": "with it, accelerate starts one process on each node, which trains alone",
    **dict.fromkeys(
        ("tpu", "tpu-cluster"), "with it, processes are numbered by the TPU, not by the table"
    ),
}
"""Kinds that make no world of the table, each with what happens then."""
_INSTEAD = {
    "cpu": "remove it, and say ACCELERATE_USE_CPU=1 rdzv launch --pass-env ACCELERATE_USE_CPU "
    "...: rdzv adds --multi_gpu, which starts the processes of CPUs as well",
}
_OF_CONFIG = re.compile(
    r"""(?:^|[{,])\s*["']?(?P<key>distributed_type|compute_environment|use_cpu)["']?\s*:\s*"""
    r"""["']?(?P<value>\w+)""",
    re.MULTILINE,
)
"""A key of accelerate's configuration file, as YAML or JSON."""
_ALONE = ("NO", "MULTI_CPU")
"""Kinds of a configuration file with which accelerate starts one process on each node."""
_TPU = ("XLA", "TPU")
_SAGEMAKER = "AMAZON_SAGEMAKER"
_DEEPSPEED = "deepspeed-multinode-launcher"
_MODULES = {"accelerate.commands.launch": (), "accelerate.commands.accelerate_cli": ("launch",)}


def split_accelerate(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split COMMAND into the call of `accelerate launch`, and all that follows."""
    for module, more in _MODULES.items():
        count = module_call(command, module)
        if count and tuple(command[count : count + len(more)]) == more:
            return list(command[: count + len(more)]), list(command[count + len(more) :])
    if basename(command[0]) == "accelerate" and [*command[1:2]] == ["launch"]:
        return list(command[:2]), list(command[2:])
    is_launch = basename(command[0]) == "accelerate-launch"
    return ["accelerate", "launch"], list(command[is_launch:])


def _words(command: Sequence[str]) -> tuple[list[str], list[Flag], list[str]]:
    """Call of accelerate, its flags in COMMAND, and all that follows `accelerate launch`."""
    launcher, words = split_accelerate(command)
    flags, position = read_flags(words, BARE_FLAGS)
    refuse_owned(launcher, flags, words[position:], _OWNED_FLAGS, _processes)
    for flag in flags:
        if flag.name == _DEEPSPEED and flag.value != "standard":
            raise UsageError(
                f"COMMAND contains {flag.word} {flag.value}, and that launcher uses ssh",
                hint="remove it: rdzv starts accelerate on every node (standard); or use "
                "--framework deepspeed with deepspeed's own --launcher",
            )
    check_target(words, position, "accelerate launch")
    if not any(flag.one_of(("no-python",)) for flag in flags):
        typed = command[: len(command) - len(words)]
        refuse_python(typed, words, position, "accelerate launch")
    return launcher, flags, words


def _config_file(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Accelerate's configuration file: of `--config_file`, or the default one; empty: none."""
    _, words = split_accelerate(command)
    flags, _ = read_flags(words, BARE_FLAGS)
    for flag in reversed(flags):
        if flag.name == _CONFIG:
            return flag.value or ""
    home = environ.get("HOME", "")
    cache = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    base = environ.get("HF_HOME") or (f"{cache}/huggingface" if cache else "")
    base = home + base[1:] if base.startswith("~/") else base
    return f"{base}/accelerate/default_config.yaml" if base else ""


def _processes(values: Mapping[str, str]) -> list[str]:
    """rdzv's option for accelerate's total, as far as it can be divided here."""
    if "num-processes" not in values:
        return []
    total, machines = values["num-processes"], values.get("num-machines", "")
    each = "N"
    if total.isdecimal() and machines.isdecimal() and int(machines):
        each = str(int(total) // int(machines) or 1)
    return ["--nproc-per-node", each]


def _config(text: str) -> Mapping[str, str]:
    """Entries of accelerate's configuration file on the kind of job, in capitals."""
    return {found["key"]: found["value"].upper() for found in _OF_CONFIG.finditer(text)}


def _kind_flags(flags: Sequence[Flag], config: Mapping[str, str]) -> list[str]:
    """Flags that have accelerate start one world, where there are several processes.

    Args:
        flags: Accelerate's, in COMMAND.
        config: What its configuration file says; nothing where that is not known.

    Raises:
        UsageError: Each node would train alone, or not as the table says.
    """
    names = {flag.name: flag for flag in flags}
    for name, why in _NOT_BY_TORCHRUN.items():
        if name in names:
            instead = _INSTEAD.get(name, "use --framework command, which adds nothing")
            raise UsageError(f"COMMAND contains {names[name].word}: {why}", hint=instead)
    if names.keys() & {*_BY_TORCHRUN}:
        return []
    if _CONFIG not in names:  # of a default file, only the device is taken
        return ["--multi_gpu"]
    kind, path = config.get("distributed_type", ""), names[_CONFIG].value
    if config.get("compute_environment") == _SAGEMAKER:
        raise UsageError(
            f"accelerate's configuration file {path} says compute_environment: {_SAGEMAKER}, "
            "so each node would submit a job to SageMaker",
            hint="give a file that says LOCAL_MACHINE",
        )
    if kind in _TPU:
        raise UsageError(
            f"accelerate's configuration file {path} says distributed_type: {kind}: "
            f"{_NOT_BY_TORCHRUN['tpu']}",
            hint="use --framework command, which adds nothing",
        )
    return ["--multi_gpu"] if kind in _ALONE else []


def _device(config: Mapping[str, str]) -> list[Variable]:
    """Variables that make a file's processes those of CPUs: else each without a GPU trains alone.

    accelerate itself reads `use_cpu` only where it starts a single process.
    """
    kind = config.get("distributed_type", "")
    if kind != "MULTI_CPU" and not (kind in _ALONE and config.get("use_cpu") == "TRUE"):
        return []
    return [Variable("ACCELERATE_USE_CPU", "true", "accelerate's configuration file asks for CPUs")]


def _start(ask: StartRequest) -> Start:
    launcher, flags, words = _words(ask.command)
    refuse_uneven(ask, "accelerate divides one total number of processes evenly between the nodes")
    table, names = ask.table, {flag.name for flag in flags}
    own = ["--num_machines", str(len(table.rows)), "--num_processes", str(table.world_size)]
    own += ["--machine_rank", str(ask.row.node), "--main_process_ip", table.master_address]
    own += ["--main_process_port", str(table.master_port)]
    offered = shutdown_variables(ask)
    if table.world_size > 1:
        config = _config(ask.config)
        kind = _kind_flags(flags, config)
        own += kind
        offered += _device(config) if kind else []
    if names & {"use-deepspeed", _CONFIG} and _DEEPSPEED not in names:
        own += ["--deepspeed_multinode_launcher", "standard"]
    if folder := log_folder(words, ask, BARE_FLAGS):
        own += ["--log_dir", folder]
    return Start(
        [*launcher, *own, *words],
        offered=offered,
        port=master_port(ask),
        fatal_workers=not may_restart(words, ask.environ),
    )


def _needs(command: Sequence[str]) -> tuple[Need, ...]:
    program = _words(command)[0][0]
    modules = ("accelerate",) if is_python(program) else ()
    return (Need("accelerate", "pip install accelerate", program=program, modules=modules),)


ACCELERATE = Framework(
    "accelerate",
    _start,
    check=_words,
    needs=_needs,
    removes=PET,
    config_file=_config_file,
)

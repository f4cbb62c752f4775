"""Which framework starts a COMMAND for which a person has named none. Pure.

A framework's own launcher in front is known by its name, and its contract is used. Anything else
goes to torchrun, which starts Python: what certainly is no Python script is refused, with the
command line that works. What only might be one is left to torchrun.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence

from rendezvous.frozen import frozen
from rendezvous.wire.words import printable
from worker.contracts.advice import Advice, Line, WrongCommand, use
from worker.contracts.flags import read_flags
from worker.contracts.framework import SHELLS, basename, is_python
from worker.contracts.mpi import is_mpirun
from worker.contracts.python_call import read_python
from worker.contracts.target import refuse_standard_input
from worker.contracts.torchrun import BARE_FLAGS, module_call, python_target

_LAUNCHERS: dict[str, str] = {
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
    "ds": "deepspeed",
    "horovodrun": "horovod",
    "orterun": "openmpi",
    "prterun": "openmpi",
}
_OF_MODULES = {
    "accelerate.commands.launch": "accelerate",
    "accelerate.commands.accelerate_cli": "accelerate",
    "torch.distributed.launch": "torch.distributed.launch",
}
# torchrun would start each of these once for each process.
_MODULES = {
    "torch.distributed.run": ("torchrun",),
    "torch.distributed.launch": ("python", "-m", "torch.distributed.launch"),
    "accelerate.commands.launch": ("accelerate", "launch"),
    "accelerate.commands.accelerate_cli": ("accelerate",),
    "deepspeed": ("deepspeed",),
    "deepspeed.launcher.runner": ("deepspeed",),
    "horovod.runner.launch": ("horovodrun",),
}
_SCRIPTS = ("torchrun", "accelerate", *_LAUNCHERS)
# By the end of their path: `python .../torch/distributed/run.py`.
_FILES = {"torch/distributed/run.py": ("torchrun",), "torch/distributed/launch.py": ("torchrun",)}
_OTHERS = (
    *("env", "exec", "nice", "nohup", "numactl", "taskset", "time", "timeout", "stdbuf", "sudo"),
    *("srun", "flux", "jsrun", "aprun", "docker", "podman", "singularity", "apptainer", "enroot"),
    *("conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pixi", "pipenv", "accelerate"),
    *("nsys", "ncu", "gdb", "strace", "valgrind", "make", "java", "node", "julia", "perl"),
    *("Rscript", "nvidia-smi", "rocm-smi", "hostname", "echo", "printenv", "sleep", "date"),
    *("true", "false", "ls", "cat", "id", "pwd", "whoami", "uname"),
    *("llamafactory-cli", "lmf", "axolotl"),
    *("lightning", "fabric", "litgpt", "ray", "vllm", "colossalai", "swift", "trl", "composer"),
)
# What these tools do of themselves: docs/frameworks.md has a row for each.
_ONCE_PER_RANK = {"tune": "without torchrun's flags 'tune run' trains in the process it is in"}
_PROCESSES = "nproc-per-node"
# Each starts a launcher that does not have the nodes of the table, and that one this module.
_MODULE_OF: dict[tuple[str, ...], str] = {
    ("axolotl", "train"): "axolotl.cli.train",
    ("llamafactory-cli", "train"): "llamafactory.launcher",
    ("lmf", "train"): "llamafactory.launcher",
}
_SUFFIXES = (".sh", ".bash", ".zsh", ".ksh", ".csh", ".fish", ".out")
_OF_COMMAND = (
    "to start it once on each node, where it must start its ranks itself, from NNODES, "
    "NODE_RANK, NPROC_PER_NODE, MASTER_ADDR and MASTER_PORT"
)
_OF_ENV = "to start it once for each rank, with RANK, LOCAL_RANK and WORLD_SIZE"
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=.*", re.DOTALL)


@frozen
class FrameworkChoice:
    """The framework of a COMMAND; `launcher` are the words that decide it, empty: the default."""

    framework: str
    launcher: str = ""


def choose_framework(command: Sequence[str]) -> FrameworkChoice:
    """The framework that COMMAND belongs to, where none was named; raises UsageError.

    Whether that framework can start the COMMAND says its own check.
    """
    if not command or not command[0].strip():
        return FrameworkChoice("torchrun")
    name = basename(command[0])
    if name in _LAUNCHERS:
        return FrameworkChoice(_LAUNCHERS[name], name)
    if name == "accelerate" and [*command[1:2]] == ["launch"]:
        return FrameworkChoice("accelerate", "accelerate launch")
    for module, framework in _OF_MODULES.items():
        if count := module_call(command, module):
            return FrameworkChoice(framework, shlex.join([name, *command[1:count]]))
    if is_mpirun(command[0]):
        raise WrongCommand(
            f"COMMAND begins with '{name}', which Open MPI, MPICH and Intel MPI all have",
            use(command, "--framework", "openmpi"),
            note=f", or --framework mpich or intelmpi; '{printable(command[0], 80)} "
            "--version' says which one it is",
        )
    _refuse_nested_launcher(command)
    _refuse_assignment(command)
    _refuse_tool(command)
    _refuse_no_python(command)
    return FrameworkChoice("torchrun")


def _refuse_nested_launcher(command: Sequence[str]) -> None:
    """A launcher started as a module or by a Python is started once for each process."""
    call = read_python(command[1:]) if is_python(command[0]) else read_python(command)
    if module_call(command, "torch.distributed.run") or not call.target:
        return
    target, rest = call.target[0], call.target[1:]
    launcher: tuple[str, ...] = ()
    if call.kind == "module" and (is_python(command[0]) or command[0] == "-m"):
        launcher = _MODULES.get(target, ())
    elif call.kind == "script" and is_python(command[0]):
        launcher = next((found for end, found in _FILES.items() if target.endswith(end)), ())
        launcher = launcher or ((target,) if basename(target) in _SCRIPTS else ())
    if not launcher:
        return
    words = " ".join([*command[: len(command) - len(rest) - 1], target])
    raise WrongCommand(
        f"COMMAND begins with '{printable(words, 200)}', but torchrun would start this launcher "
        "once for each process",
        use([*launcher, *rest], shown=len(launcher)),
    )


def _refuse_assignment(command: Sequence[str]) -> None:
    """A shell takes `FOO=1` in front of a program for a variable; here no shell reads COMMAND."""
    found = _ASSIGNMENT.fullmatch(command[0])
    if found is None:
        return
    name = found[1]
    rest = list(itertools.dropwhile(_ASSIGNMENT.fullmatch, command)) or ["train.py", "..."]
    line = Line(tuple(rest), ("--pass-env", name), before=f"{name}=... ")
    raise WrongCommand(
        f"COMMAND begins with '{name}=', which is not a program: no shell reads COMMAND",
        Advice(line),
    )


def _refuse_tool(command: Sequence[str]) -> None:
    """Refuse a tool that starts its own processes, or is started once for each."""
    first = command[0]
    if note := _ONCE_PER_RANK.get(first):
        words, options = _without_torchrun(command)
        raise _no_script(first, use(words, *options, "--framework", "env"), note=f": {note}")
    if module := _MODULE_OF.get(tuple(command[:2])):
        raise _no_script(first, use(["-m", module, *command[2:]], shown=2))


def _without_torchrun(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Drop torchrun's flags in front of a recipe, with which each rank would start a torchrun.

    Returns:
        COMMAND without them, and rdzv's options for the processes of a node that they named.
    """
    flags, position = read_flags(command[2:], BARE_FLAGS)
    counts = [flag.value for flag in flags if flag.value and flag.one_of((_PROCESSES,))]
    options = [f"--{_PROCESSES}", counts[-1]] if counts else []
    return [*command[:2], *command[2 + position :]], options


def _refuse_no_python(command: Sequence[str]) -> None:
    target = python_target(command)
    if not target or not _is_no_python(target[0]):
        return
    refuse_standard_input(target)
    raise no_python_script(target)


def no_python_script(command: Sequence[str]) -> WrongCommand:
    """The refusal of a program that torchrun cannot start, with what starts it."""
    return _no_script(
        command[0],
        use(command, "--framework", "command", purpose=_OF_COMMAND),
        use(command, "--framework", "env", purpose=_OF_ENV),
    )


def _no_script(first: str, *advice: Advice, note: str = "") -> WrongCommand:
    first = printable(first, 80)
    message = f"COMMAND's '{first}' is not a Python script, but torchrun starts only Python scripts"
    return WrongCommand(message, *advice, note=note)


def _is_no_python(word: str) -> bool:
    """Whether torchrun certainly has nothing that Python can run: a file may have any name."""
    name = basename(word)
    return name in SHELLS or word in _OTHERS or name.endswith(_SUFFIXES)

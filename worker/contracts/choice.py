"""Which framework starts a COMMAND for which a person has named none. Pure.

A framework's own launcher in front is known by its name, and its contract is used. Anything else
goes to torchrun, which starts Python: what certainly is no Python script is refused, with the
command line that works. What only might be one is left to torchrun.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import printable
from worker.contracts.framework import SHELLS, basename
from worker.contracts.mpi import is_mpirun
from worker.contracts.target import refuse_standard_input
from worker.contracts.torchrun import is_module, python_target

_LAUNCHERS: dict[str, str] = {
    "accelerate-launch": "accelerate",
    "deepspeed": "deepspeed",
    "ds": "deepspeed",
    "horovodrun": "horovod",
    "orterun": "openmpi",
    "prterun": "openmpi",
}
_OF_LAUNCH = "torch.distributed.launch"
_OF_ACCELERATE = ("accelerate.commands.launch", "accelerate.commands.accelerate_cli")
# torchrun would start each of these once for each process.
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "python -m torch.distributed.launch",
    "accelerate.commands.launch": "accelerate launch",
    "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner.launch": "horovodrun",
}
_OTHERS = (
    *("env", "exec", "nice", "nohup", "numactl", "taskset", "time", "timeout", "stdbuf", "sudo"),
    *("srun", "flux", "jsrun", "aprun", "docker", "podman", "singularity", "apptainer", "enroot"),
    *("conda", "mamba", "micromamba", "uv", "uvx", "poetry", "pixi", "pipenv", "accelerate"),
    *("nsys", "ncu", "gdb", "strace", "valgrind", "make", "java", "node", "julia", "perl"),
    *("Rscript", "nvidia-smi", "rocm-smi", "hostname", "echo", "printenv", "sleep", "date"),
    *("true", "false", "ls", "cat", "id", "pwd", "whoami", "uname"),
)
_SUFFIXES = (".sh", ".bash", ".zsh", ".ksh", ".csh", ".fish", ".out")
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
    for module in _OF_ACCELERATE:
        if is_module(command, module):
            return FrameworkChoice("accelerate", f"{name} -m {module}")
    if is_module(command, _OF_LAUNCH):
        return FrameworkChoice(_OF_LAUNCH, f"{name} -m {_OF_LAUNCH}")
    if is_mpirun(command[0]):
        raise UsageError(
            f"COMMAND begins with '{name}', which Open MPI, MPICH and Intel MPI all have",
            hint=f"use rdzv launch --framework openmpi -- {name} ..., or --framework mpich or "
            f"intelmpi; '{name} --version' says which one it is",
        )
    _refuse_launcher_module(command)
    _refuse_assignment(command)
    _refuse_no_python(command)
    return FrameworkChoice("torchrun")


def _refuse_launcher_module(command: Sequence[str]) -> None:
    if command[0] == "-m" and (launcher := _MODULES.get("".join(command[1:2]))):
        raise UsageError(
            f"COMMAND begins with '-m {command[1]}', but torchrun would start this launcher "
            "once for each process",
            hint=f"use rdzv launch -- {launcher} ...",
        )


def _refuse_assignment(command: Sequence[str]) -> None:
    """A shell takes `FOO=1` in front of a program for a variable; here no shell reads COMMAND."""
    found = _ASSIGNMENT.fullmatch(command[0])
    if found is None:
        return
    name = found[1]
    rest = [word for word in command if not _ASSIGNMENT.fullmatch(word)][:1] or ["train.py"]
    raise UsageError(
        f"COMMAND begins with '{name}=', which is not a program: no shell reads COMMAND",
        hint=f"use {name}=... rdzv launch --pass-env {name} -- {printable(rest[0], 80)} ...",
    )


def _refuse_no_python(command: Sequence[str]) -> None:
    target = python_target(command)
    if not target or not _is_no_python(target[0]):
        return
    refuse_standard_input(target)
    first = printable(target[0], 80)
    raise UsageError(
        f"COMMAND's '{first}' is not a Python script, but torchrun starts only Python scripts",
        hint=f"use rdzv launch --framework command -- {first} ... to start it once on each node, "
        "or --framework env to start it once for each process",
    )


def _is_no_python(word: str) -> bool:
    """Whether torchrun certainly has nothing that Python can run: a file may have any name."""
    name = basename(word)
    return name in SHELLS or word in _OTHERS or name.endswith(_SUFFIXES)

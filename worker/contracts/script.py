"""Which file a COMMAND needs to be there, as far as that is certain. Pure.

A wrong answer would refuse a healthy node: whatever is not known for sure gives none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rendezvous.frozen import frozen
from worker.contracts.accelerate import split_accelerate
from worker.contracts.flags import read_flags
from worker.contracts.framework import basename, is_python, program
from worker.contracts.torchrun import names_python, split_torchrun

_PYTHON_FLAGS = ("-u", "-B", "-E", "-I", "-O", "-OO", "-P", "-S", "-q", "-s", "-v")
_SHELLS = ("bash", "dash", "sh")

_TORCHRUN_FLAGS = (
    *("event-log-handler", "local-ranks-filter", "log-dir", "logs-specs", "max-restarts"),
    *("monitor-interval", "numa-binding", "redirects", "role", "start-method", "tee"),
    *("virtual-local-rank", "t", "r"),
)
_ACCELERATE_FLAGS = (
    *("cpu", "debug", "multi-gpu", "q", "quiet", "use-deepspeed", "use-fsdp", "config-file"),
    *("deepspeed-config-file", "gpu-ids", "gradient-accumulation-steps", "mixed-precision"),
    *("num-cpu-threads-per-process", "dynamo-backend", "zero-stage"),
)
_BARE = ("cpu", "debug", "multi-gpu", "q", "quiet", "use-deepspeed", "use-fsdp")
_BY_VARIABLE = ("PET_M", "PET_MODULE", "PET_NO_PYTHON", "PET_RUN_PATH")
_OF_PROGRAM = ("command", "env", "jax", "lightning", "tensorflow", "horovod")


@frozen
class Script:
    """A file that COMMAND's interpreter will open, as it is written there.

    Attributes:
        on_path: Whether a name without a slash is looked up on PATH as well, as shells do.
    """

    path: str
    on_path: bool = False


def script_of(framework: str, command: Sequence[str], environ: Mapping[str, str]) -> Script | None:
    """The script that this COMMAND starts; None where it starts none, or that is not certain.

    Args:
        framework: A name of `FRAMEWORKS`.
        command: The COMMAND; it has been checked.
        environ: The user's environment: torchrun takes flags from it.
    """
    found = _script(framework, list(command), environ)
    return found if found is not None and found.path and "$" not in found.path else None


def _script(framework: str, command: list[str], environ: Mapping[str, str]) -> Script | None:
    if framework in ("torchrun", "accelerate") and any(name in environ for name in _BY_VARIABLE):
        return None
    if framework == "torchrun" and names_python(command):
        return _of_argv(command)
    if framework == "torchrun":
        return _target(split_torchrun(command)[1], _TORCHRUN_FLAGS, ("virtual-local-rank",))
    if framework == "accelerate":
        return _target(split_accelerate(command)[1], _ACCELERATE_FLAGS, _BARE)
    if framework == "deepspeed":
        words = command[1:] if basename(command[0]) in ("deepspeed", "ds") else command
        return _target(words, ("launcher",), ())
    if framework in _OF_PROGRAM:
        return _of_argv(command if framework == "command" else program(command))
    return None


def _target(words: list[str], known: Sequence[str], bare: Sequence[str]) -> Script | None:
    """What follows the launcher's flags, where each of them is known to leave it a script."""
    flags, position = read_flags(words, bare)
    if position >= len(words) or any(flag.name not in known for flag in flags):
        return None
    return Script(words[position])


def _of_argv(argv: list[str]) -> Script | None:
    """The script of `python train.py` or `bash run.sh`."""
    name, words = basename(argv[0]), argv[1:]
    if is_python(name):
        while words and words[0] in _PYTHON_FLAGS:
            words = words[1:]
    elif name not in _SHELLS:
        return None
    if not words or words[0].startswith(("-", "+")):
        return None
    return Script(words[0], on_path=name in _SHELLS)

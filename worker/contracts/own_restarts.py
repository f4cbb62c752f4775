"""Whether COMMAND itself has torchrun start its workers again, beside rdzv. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rendezvous.wire.errors import UsageError
from worker.contracts import accelerate, torchrun
from worker.contracts.flags import read_flags

VARIABLE = "PET_MAX_RESTARTS"
_FLAG = "max-restarts"
_BARE = {
    "torchrun": torchrun.BARE_FLAGS,
    "torch.distributed.launch": (*torchrun.BARE_FLAGS, "use-env"),
    "accelerate": accelerate.BARE_FLAGS,
}


def own_restarts(command: Sequence[str], framework: str, environ: Mapping[str, str]) -> str:
    """What asks for them, as it was given; empty where nothing does. 0 asks for none."""
    if framework not in _BARE:
        return ""
    words = _after_the_launcher(command, framework)
    flags, _ = read_flags(words, _BARE[framework])
    for flag in reversed(flags):  # the last one counts, and any of them over the variable
        if len(flag.name) >= len("max-r") and flag.one_of([_FLAG]):
            return "" if flag.value in (None, "0") else " ".join(flag.words)
    value = environ.get(VARIABLE, "0")
    return "" if value == "0" else f"{VARIABLE}={value}"


def _after_the_launcher(command: Sequence[str], framework: str) -> list[str]:
    if framework == "accelerate":
        return accelerate.split_accelerate(command)[1]
    module = "torch.distributed.launch"
    if framework == module and (count := torchrun.module_call(command, module)):
        return list(command[count:])
    return torchrun.split_torchrun(command)[1]


def refuse_two_counts(
    most: int, command: Sequence[str], framework: str, environ: Mapping[str, str]
) -> None:
    """Refuse restarts that both rdzv and torchrun would count.

    Raises:
        UsageError: `--max-restarts` was given, and COMMAND asks torchrun for restarts as well.
    """
    given = own_restarts(command, framework, environ) if most else ""
    if given:
        given = given if given.startswith(VARIABLE) else f"COMMAND's {given}"
        raise UsageError(
            f"--max-restarts {most} and {given} exclude each other: rdzv starts the programs of "
            "all nodes again, torchrun only its own node's",
            hint=f"remove {given}, or launch with --max-restarts 0",
        )

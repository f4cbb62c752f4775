"""What is forked in place of a torchrun and its processes, with `--warm on`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rendezvous.wire.errors import UsageError
from worker.contracts.advice import WrongCommand, use
from worker.contracts.flags import read_flags
from worker.contracts.framework import Forks, StartRequest, basename
from worker.contracts.python_call import read_python
from worker.contracts.restarts import elastic_variables
from worker.contracts.torchrun import BARE_FLAGS, PET, names_python, split_torchrun

_OFF = "remove --warm on, or give torchrun a Python script or module without flags before it"
_TORCHRUNS = re.compile("PET_.*|PYTHON_EXEC|TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
"""Variables by which torchrun starts its processes in another way."""
_THREADS = "OMP_NUM_THREADS"
_ASYNC_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


def warm_words(command: Sequence[str], framework: str, backend: str) -> list[str]:
    """What each process of COMMAND executes: SCRIPT or -m MODULE, and its arguments.

    Raises:
        UsageError: It is not started by torchrun as it is by default.
    """
    why = ""
    launcher, words = split_torchrun(command) if framework == "torchrun" else ([], list(command))
    flags, position = read_flags(words, BARE_FLAGS)
    others = [flag for flag in flags if flag.word not in ("-m", "--module")]
    target = words[position:]
    if framework == "torchrun" and names_python(command):
        _refuse_interpreter(command)
    if framework != "torchrun":
        why = f"--framework {framework} does not start its processes by torchrun"
    elif len(launcher) > 1:
        why = f"COMMAND starts torchrun as a module: {' '.join(launcher)}"
    elif backend != "static":
        why = f"--rdzv-backend {backend} is served by torchrun itself"
    elif others:
        why = f"COMMAND gives torchrun {others[0].word}, which no torchrun is there to follow"
    elif not flags and not target[0].endswith(".py"):
        why = f"COMMAND's {basename(target[0])!r} is not a Python file (.py)"
    if why:
        raise UsageError(f"--warm on forks the processes of torchrun, but {why}", hint=_OFF)
    return [*["-m"][: len(flags)], *target]


def _refuse_interpreter(command: Sequence[str]) -> None:
    """Refuse an interpreter in COMMAND: forked processes run on torchrun's, with its flags."""
    call = read_python(command[1:])
    module = ["-m"] if call.kind == "module" else []
    is_target = call.kind in ("script", "module")
    raise WrongCommand(
        f"--warm on forks processes of torchrun's own Python, but COMMAND names '{command[0]}'",
        *([use([*module, *call.target], shown=len(module) + 1)] if is_target else []),
        note="; or remove --warm on" if is_target else "remove --warm on",
    )


def module_names(text: str) -> str:
    """`--warm-import`, without spaces; raises ValueError."""
    names = [name.strip() for name in text.split(",")] if text else []
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a module")
    return ",".join(names)


def in_the_way(environ: Mapping[str, str]) -> str:
    """The variable for which only torchrun itself can start the processes; empty: there is none."""
    found = (name for name in environ if name not in PET and _TORCHRUNS.fullmatch(name))
    return next(found, "")


def threads(processes: int | str, environ: Mapping[str, str]) -> dict[str, str]:
    """What torchrun sets so that the processes of a node do not use each core several times.

    Args:
        processes: How many a node has; a word where it is counted later, on a node with GPUs.
        environ: The user's environment.
    """
    return {} if processes == 1 or _THREADS in environ else {_THREADS: "1"}


def forks_of(ask: StartRequest) -> Forks:
    """The processes of one node, with what torchrun tells its own; raises UsageError."""
    words = warm_words(ask.command, ask.options.framework, ask.options.rdzv_backend)
    world, count = ask.table.world_size, ask.row.nproc_per_node
    common = {
        "LOCAL_WORLD_SIZE": str(count),
        "WORLD_SIZE": str(world),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(world),
        "GROUP_RANK": str(ask.row.node),
        "GROUP_WORLD_SIZE": str(len(ask.table.rows)),
        "TORCHELASTIC_RUN_ID": ask.table.run,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **{one.name: one.value for one in elastic_variables(ask.restarts)},
        **({} if _ASYNC_ERRORS in ask.environ else {_ASYNC_ERRORS: "1"}),
    }
    ranks = [str(ask.first_rank + local) for local in range(count)]
    return Forks(
        words,
        threads(count, ask.environ),
        [
            {**common, "RANK": rank, "LOCAL_RANK": str(local), "ROLE_RANK": rank}
            for local, rank in enumerate(ranks)
        ],
    )

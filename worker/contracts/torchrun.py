"""torchrun, torch.distributed.launch and rdzv's own measurement. Pure.

- static: our ranks hold, one port, no name is resolved, and nothing is agreed on twice.
- c10d: on request. Which node hosts the store, and under which address a node is known,
  is said to each node; torch's own guesses fail where a hostname is mapped to loopback.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rendezvous.wire.words import bracketed
from worker.contracts.flags import read_flags
from worker.contracts.framework import (
    Framework,
    Need,
    Start,
    StartRequest,
    basename,
    is_python,
    refuse_owned,
)
from worker.contracts.python_call import read_python
from worker.contracts.target import check_target, refuse_python, refuse_standard_input
from worker.contracts.variables import Variable

_OWNED_FLAGS = {
    "nnodes": "--nnodes",
    "nproc-per-node": "--nproc-per-node",
    "node-rank": "",
    "master-addr": "",
    "master-port": "--master-port",
    "rdzv-backend": "",  # that of the table needs no choice
    "rdzv-endpoint": "",
    "rdzv-id": "--rdzv-id",
    "rdzv-conf": "",
    "local-addr": "",
    "standalone": "",
}
# torchrun's flags that have no value; behind every other one the next word is not the target.
BARE_FLAGS = (
    *("m", "module", "no-python", "run-path", "virtual-local-rank", "h", "help"),
    "standalone",
)

# torchrun takes each of its flags from PET_<FLAG> as well; these would contradict the table.
PET = dict.fromkeys(
    ["PET_" + flag.upper().replace("-", "_") for flag in _OWNED_FLAGS],
    "torchrun's flags come from the table",
)


_LOGS = ("log-dir", "redirects", "r", "tee", "t", "logs-specs")
"""With one of these a person wants torchrun's folder, which has the logs of the ranks."""


def log_folder(words: Sequence[str], ask: StartRequest, bare: Sequence[str]) -> str:
    """Place of torchrun's folder, which it never removes; empty: where it chooses.

    Args:
        words: What torchrun is given in COMMAND.
        ask: Whose environment may have torchrun's flags as well.
        bare: Flags without a value.
    """
    flags, _ = read_flags(words, bare)
    theirs = {"PET_" + name.upper().replace("-", "_") for name in _LOGS}
    if any(flag.one_of(_LOGS) or flag.word[:2] in ("-r", "-t") for flag in flags):
        return ""
    if theirs & ask.environ.keys():
        return ""
    return ask.paths.scratch


def may_restart(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether torchrun was told, perhaps, to start its workers again when one has failed."""
    flags = [word.lstrip("-") for word in words if word.startswith("-")]
    return "PET_MAX_RESTARTS" in environ or any(flag.startswith("max") for flag in flags)


SHUTDOWN = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""Variable for the seconds that a stopped torchrun gives its workers, since torch 2.12."""
SHUTDOWN_SECONDS = 30
"""Seconds that it gives them otherwise."""
_KNOWS_SHUTDOWN = (2, 12)


def shutdown_variables(ask: StartRequest) -> list[Variable]:
    """Have torchrun wait for its workers as long as rdzv does; nothing where it does anyway."""
    seconds = math.ceil(ask.options.grace)
    if seconds <= SHUTDOWN_SECONDS:
        return []
    why = f"--grace: torchrun would kill its workers after {SHUTDOWN_SECONDS} s"
    return [Variable(SHUTDOWN, str(seconds), why)]


def why_killed_early(torch_version: str) -> str:
    """Say why a longer --grace does not hold under this torch, in one sentence; empty: it does, or
    the version is not known."""
    numbers = torch_version.split(".")[:2]
    if not all(number.isdecimal() for number in numbers) or len(numbers) < 2:
        return ""
    if tuple(map(int, numbers)) >= _KNOWS_SHUTDOWN:
        return ""
    return (
        f"torchrun of torch {torch_version} kills its workers {SHUTDOWN_SECONDS} s after a stop, "
        "whatever --grace says; torch 2.12 and later wait for --grace, and --framework env does"
    )


def master_port(ask: StartRequest) -> int | None:
    """Node 0 listens on the master port."""
    return ask.table.master_port if ask.row.node == 0 else None


def _rendezvous(ask: StartRequest) -> list[str]:
    """torchrun's flags from the table."""
    table, row = ask.table, ask.row
    words = ["--nnodes", str(len(table.rows)), "--nproc-per-node", str(row.nproc_per_node)]
    words += ["--rdzv-backend", ask.options.rdzv_backend, "--rdzv-id", table.run]
    address, port = table.master_address, str(table.master_port)
    if ask.options.rdzv_backend == "static":
        words += ["--node-rank", str(row.node), "--master-addr", address, "--master-port", port]
    else:
        words += ["--rdzv-endpoint", f"{bracketed(address)}:{port}", "--local-addr", row.address]
        words += ["--rdzv-conf", f"is_host={int(row.node == 0)}"]
    return words


def _start(ask: StartRequest, launcher: Sequence[str], words: Sequence[str]) -> Start:
    own = _rendezvous(ask)
    if folder := log_folder(words, ask, (*BARE_FLAGS, "use-env")):
        own += ["--log-dir", folder]
    return Start(
        [*launcher, *own, *words],
        offered=shutdown_variables(ask),
        port=master_port(ask),
        fatal_workers=not may_restart(words, ask.environ),
    )


def _start_bench(ask: StartRequest) -> Start:
    return _start(ask, ["torchrun"], [f"{ask.paths.programs}/bandwidth.py", *ask.command])


def split_torchrun(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """How torchrun is called, and the words behind its name."""
    if count := module_call(command, "torch.distributed.run"):
        return list(command[:count]), list(command[count:])
    if basename(command[0]) == "torchrun":
        return list(command[:1]), list(command[1:])
    return ["torchrun"], list(command)


def module_call(command: Sequence[str], module: str) -> int:
    """Count the words of COMMAND that call `python -m MODULE`, with Python's flags; 0: none do."""
    if not is_python(command[0]):
        return 0
    call = read_python(command[1:])
    is_it = call.kind == "module" and call.target[:1] == (module,)
    return len(command) - len(call.target) + 1 if is_it else 0


def names_python(command: Sequence[str]) -> bool:
    """Return whether COMMAND begins with the interpreter that each process runs on."""
    return is_python(command[0]) and split_torchrun(command)[0] == ["torchrun"]


def python_target(command: Sequence[str]) -> list[str]:
    """What torchrun has Python run, with its arguments; empty where that is no script."""
    _, words = split_torchrun(command)
    flags, position = read_flags(words, BARE_FLAGS)
    is_other = any(flag.name == "m" or flag.one_of(("no-python", "module")) for flag in flags)
    return [] if is_other else words[position:]


def _torchrun_words(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split COMMAND into torchrun's call and what it is given beside our flags; raises UsageError.

    Of itself torchrun starts processes on its own interpreter, unbuffered: one that COMMAND names
    is started as it is written, with its flags, and unbuffered as well.
    """
    launcher, words = split_torchrun(command)
    if names_python(command):
        refuse_standard_input(command)
        return launcher, ["--no-python", command[0], "-u", *command[1:]]
    _check_flags(launcher, words, BARE_FLAGS)
    if python_target(command):
        _, position = read_flags(words, BARE_FLAGS)
        refuse_python(launcher, words, position, "torchrun")
    return launcher, words


def _launch_words(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """How torch.distributed.launch is called, and what it is given beside our flags."""
    name = "torch.distributed.launch"
    launcher, words = ["python3", "-m", name], list(command)
    if count := module_call(command, name):
        launcher, words = list(command[:count]), list(command[count:])
    else:
        refuse_python([], command, 0, name)
    _check_flags(launcher, words, (*BARE_FLAGS, "use-env"))
    return launcher, words


def _check_flags(launcher: Sequence[str], words: Sequence[str], bare: Sequence[str]) -> None:
    """Look at torchrun's flags in front of the target; what follows it is the target's own."""
    flags, position = read_flags(words, bare)
    refuse_owned(launcher, flags, words[position:], _OWNED_FLAGS)
    check_target(words, position, launcher[-1])


def _needs(program: str) -> tuple[Need, ...]:
    modules = ("torch",) if is_python(program) else ()
    return (Need("torch", "pip install torch", program=program, modules=modules),)


def _interpreter(command: Sequence[str]) -> tuple[Need, ...]:
    """The interpreter that COMMAND names: the program's packages are its own, not torchrun's."""
    named = names_python(command)
    need = Need("torch", "pip install torch", program=command[0], modules=("torch",))
    return (need,) if named else ()


def _script(launcher: Sequence[str], words: Sequence[str]) -> list[str]:
    """The call of torchrun's script, where it is one."""
    return [*launcher, *words] if len(launcher) == 1 else []


def _framework(
    name: str,
    words: Callable[[Sequence[str]], tuple[list[str], list[str]]],
    interpreter: Callable[[Sequence[str]], tuple[Need, ...]] = lambda command: (),
) -> Framework:
    """One that starts torchrun, called as `words` says of a COMMAND."""
    return Framework(
        name,
        lambda ask: _start(ask, *words(ask.command)),
        check=words,
        needs=lambda command: (*interpreter(command), *_needs(words(command)[0][0])),
        removes=PET,
        takes_backend=True,
        looks_up_name=True,
        torchrun=lambda command: _script(*words(command)),
    )


TORCHRUN = _framework("torchrun", _torchrun_words, _interpreter)
LAUNCH = _framework("torch.distributed.launch", _launch_words)
BENCH = Framework(
    "bench",
    _start_bench,
    needs=lambda command: _needs("torchrun"),
    removes=PET,
    takes_backend=True,
    looks_up_name=True,
)

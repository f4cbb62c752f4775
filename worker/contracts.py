"""What a framework's launcher is given: argv and environment, from the table and one node. Pure.

- torchrun, static: our ranks hold, one port, no name is resolved, and nothing is agreed on twice.
- torchrun, c10d: on request. Which node hosts the store, and under which address a node is known,
  is said to each node; torch's own guesses fail where a hostname is mapped to loopback.
- command: any program, once on each node, with the variables and nothing else.
- bench: rdzv's own measurement as a torchrun target, from wherever rdzv lies on each node.

Which variables it is given, and why, says `worker.variables`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rendezvous.errors import UsageError
from rendezvous.schema import EndpointTable, TableRow
from worker.nccl.env import Given, given_by
from worker.variables import (
    NO_WISHES,
    Variable,
    Wishes,
    for_transports,
    from_table,
    log_file,
    place_of,
)

Framework = Literal["torchrun", "command", "bench"]
Backend = Literal["static", "c10d"]

SECRET_VARIABLES = (
    "RDZV_JOIN",
    "RDZV_JOIN_FILE",
    "RDZV_TOKEN",
    "RDZV_TOKEN_FILE",
    "RDZV_REGISTRY",
    "RDZV_REGISTRY_FILE",
)
"""Never passed on to the program."""

BENCH_PROGRAM = __file__.rpartition("/")[0] + "/programs/bandwidth.py"
"""What framework `bench` starts; COMMAND is what it is told."""

_OWNED_FLAGS = (
    "nnodes",
    "nproc-per-node",
    "node-rank",
    "master-addr",
    "master-port",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "local-addr",
    "standalone",
)
# torchrun's flags that have no value; behind every other one the next word is not the target.
_BARE_FLAGS = ("m", "module", "no-python", "run-path", "virtual-local-rank", "h", "help")
_PYTHON = re.compile(r"python[0-9.]*")
# torchrun takes each of its flags from PET_<FLAG> as well; these would contradict the table.
_OWNED_PET = tuple("PET_" + flag.upper().replace("-", "_") for flag in _OWNED_FLAGS)

_TORCHRUN_RECORD = re.compile(r"[A-Z]\d{4} [\d:.]+ +\d+ torch/distributed/")
_WORKER_FAILED = re.compile(_TORCHRUN_RECORD.pattern + r".*\] failed \(exitcode: ")


@dataclass(frozen=True, slots=True)
class Contract:
    """How one node's program is started.

    Attributes:
        argv: The command line; its first word is looked up on the user's PATH.
        variables: Set for the program, in place of what was there.
        removed: Variables that the program must not see.
        notes: What was changed in the user's environment and why; for the log.
        fatal_workers: Whether the first worker that fails ends the program, however long it takes.
        explained: Every variable with its reason, those of the user's that were kept among them.
        nccl_log: Where NCCL keeps its log, in its own form (%p, %h); empty when nothing is told.
    """

    argv: list[str]
    variables: dict[str, str]
    removed: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    fatal_workers: bool = False
    explained: list[Variable] = field(default_factory=list)
    nccl_log: str = ""

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The program's environment: the user's own, but for what the contract says."""
        kept = {name: value for name, value in environ.items() if name not in self.removed}
        return kept | self.variables


def make_contract(
    command: Sequence[str],
    table: EndpointTable,
    slot: int,
    environ: Mapping[str, str],
    *,
    framework: Framework = "torchrun",
    backend: Backend = "static",
    wishes: Wishes = NO_WISHES,
    configured: Mapping[str, Given] | None = None,
) -> Contract:
    """The contract of the node in `slot`.

    Args:
        command: The COMMAND: a torchrun target, or any program with framework `command`, or what
            the measurement is told with framework `bench`.
        table: The sealed table.
        slot: The node's slot; it stands in the table.
        environ: The user's environment; decides which variables are left alone.
        wishes: What was asked for beside the table.
        configured: What NCCL's configuration files set; they are the user's as well.

    Raises:
        UsageError: COMMAND cannot be started this way, or not with these wishes.
    """
    row = table.row_of_slot(slot)
    if row is None:
        raise UsageError(f"slot {slot} is not in the table of epoch {table.epoch}")
    place = place_of(table, row)
    owned = from_table(place)
    others = for_transports(place, wishes, given_by(environ, configured))
    variables = {one.name: one.value for one in (*owned, *others) if one.kept is None}
    notes = _notes(owned, others, environ)
    removed = frozenset(SECRET_VARIABLES)
    argv = command = [BENCH_PROGRAM, *command] if framework == "bench" else list(command)
    if framework != "command":
        argv = _torchrun(command, table, row, backend)
        flags = [name for name in _OWNED_PET if name in environ]
        notes += [f"{name} was removed: torchrun's flags come from the table" for name in flags]
        removed |= frozenset(flags)
    return Contract(
        argv,
        variables,
        removed,
        notes,
        fatal_workers=framework != "command" and not _may_restart(command, environ),
        explained=owned + others,
        nccl_log=log_file(others),
    )


def _notes(
    owned: Sequence[Variable], others: Sequence[Variable], environ: Mapping[str, str]
) -> list[str]:
    """What is changed in the user's environment, and what of it goes against the table."""
    changed = [
        f"{one.name} is {one.value} (from the table), not {environ[one.name]}"
        for one in owned
        if environ.get(one.name, one.value) != one.value
    ]
    kept = [one for one in others if one.conflict]
    return changed + [
        f"{one.name}={one.kept} is kept as you set it: {one.conflict}" for one in kept
    ]


def last_words(lines: Sequence[str], *, most: int = 20) -> list[str]:
    """The program's own last lines, without what torchrun says when a worker has failed.

    torchrun ends with a traceback of its own and a summary of some 30 lines, which hide the line
    that tells the cause. Without any line of the program's own, all of them count.
    """
    own: list[str] = []
    for line in lines:
        if _WORKER_FAILED.match(line):
            break
        if line.strip() and not _TORCHRUN_RECORD.match(line):
            own.append(line)
    return (own or list(lines))[-most:]


def check_command(command: Sequence[str], framework: Framework) -> None:
    """Refuse a COMMAND that cannot work, before anything is submitted; raises UsageError."""
    if not command and framework != "bench":
        raise UsageError(
            "no COMMAND was given",
            hint="put it after '--': rdzv launch --nnodes 4 -- train.py --epochs 3",
        )
    if framework == "torchrun":
        _torchrun_words(command)


def _may_restart(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether torchrun was told, perhaps, to start its workers again when one has failed."""
    flags = [word.lstrip("-") for word in command if word.startswith("-")]
    return "PET_MAX_RESTARTS" in environ or any(flag.startswith("max") for flag in flags)


def _torchrun(
    command: Sequence[str], table: EndpointTable, row: TableRow, backend: Backend
) -> list[str]:
    program, words = _torchrun_words(command)
    common = ["--nnodes", str(len(table.rows)), "--nproc-per-node", str(row.nproc_per_node)]
    common += ["--rdzv-backend", backend, "--rdzv-id", table.run]
    address, port = table.master_address, str(table.master_port)
    if backend == "static":
        own = ["--node-rank", str(row.rank), "--master-addr", address, "--master-port", port]
    else:
        host = f"[{address}]" if ":" in address else address
        own = ["--rdzv-endpoint", f"{host}:{port}", "--local-addr", row.address]
        own += ["--rdzv-conf", f"is_host={int(row.rank == 0)}"]
    return [program, *common, *own, *words]


def _torchrun_words(command: Sequence[str]) -> tuple[str, list[str]]:
    """How torchrun is called, and what it is given beside our flags; raises UsageError."""
    first = command[0]
    name = first.rsplit("/", 1)[-1]
    if _PYTHON.fullmatch(name):
        raise UsageError(
            f"COMMAND begins with '{first}', and torchrun starts Python itself",
            hint="give the script alone (-- train.py ...), or use --framework command",
        )
    words = list(command[1:] if name == "torchrun" else command)
    _check_flags(words)
    return (first if name == "torchrun" else "torchrun"), words


def _check_flags(words: Sequence[str]) -> None:
    """Look at torchrun's flags in front of the target; what follows it is the target's own."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        word = words[position]
        name, has_value, _ = word.lstrip("-").replace("_", "-").partition("=")
        if not name:  # '--' ends the flags
            position += 1
            break
        # torchrun takes the beginning of a flag for the flag: --nnode is --nnodes.
        if word.startswith("--") and any(flag.startswith(name) for flag in _OWNED_FLAGS):
            raise UsageError(
                f"{word} stands in COMMAND, and rdzv gives torchrun this flag from the table",
                hint="leave it away; --nnodes, --nproc-per-node, --rdzv-id, --master-port and "
                "--rdzv-backend are options of rdzv",
            )
        is_glued = not word.startswith("--") and len(word) > 2  # -r3
        position += 1 if has_value or is_glued or name in _BARE_FLAGS else 2
    if position >= len(words):
        raise UsageError(
            f"COMMAND names no script or module for torchrun: {shlex.join(words) or 'torchrun'}",
            hint="for example: -- train.py --epochs 3, or -- -m package.module",
        )

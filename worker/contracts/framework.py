"""What a framework is asked, and what it answers: the terms of the contracts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import RestartFacts
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.words import node_name
from worker.contracts.advice import WrongCommand, use
from worker.contracts.flags import Flag
from worker.contracts.variables import ProgramOptions, Variable

_WORKER = __file__.rpartition("/")[0].rpartition("/")[0]
PROGRAMS = f"{_WORKER}/programs"
"""The folder of what rdzv itself starts as a program."""
HOOK = f"{_WORKER}/look/site"
"""The folder of what runs first in each Python process of a program; see `worker.look`."""


@frozen
class Paths:
    """Where on this node things lie, or will lie, that a contract names.

    Attributes:
        folder: Of the node's files (see `worker.contracts.files`); empty when it has none.
        python: The interpreter that rdzv runs on, for programs of ours.
        bin: A folder with `rdzv-rsh`, which takes ssh's command line and goes by the agents, and
            with the same as `ssh`; empty when there is none.
        socket: The agent's; empty when there is none.
        programs: The folder of rdzv's own programs.
        hook: The folder of rdzv's hook, for PYTHONPATH.
        look: A folder that the agent makes for the hook; empty when it makes none.
        scratch: A folder that goes with the agent, for what a launcher makes and leaves behind;
            nobody has made it yet. Empty: there is none.
    """

    folder: str = ""
    python: str = "python3"
    bin: str = ""
    socket: str = ""
    programs: str = PROGRAMS
    hook: str = HOOK
    look: str = ""
    scratch: str = ""

    @property
    def rsh(self) -> str:
        """The program that starts what belongs on another node."""
        return f"{self.bin}/rdzv-rsh" if self.bin else ""

    def file(self, name: str) -> str:
        """One of the node's files."""
        return f"{self.folder}/{name}"


@frozen
class Rival:
    """Another make of a program, which would run but not do what the contract tells it.

    Attributes:
        name: What a person calls it.
        version: The pattern that tells it in what `program --version` prints.
        instead: What to ask of rdzv when this make is wanted.
    """

    name: str
    version: str
    instead: str


@frozen
class Lack:
    """What a program was built without, as a program that came with it tells.

    Attributes:
        told_by: The command line that tells; its program lies beside the other.
        pattern: What it prints where that is lacking.
        words: What lacks and what to do, to follow the program's name.
    """

    told_by: tuple[str, ...]
    pattern: str
    words: str


@frozen
class Need:
    """Something that has to be installed on a node.

    Attributes:
        name: What a person calls it.
        install: The command that installs it.
        program: Looked up on the user's PATH; empty when no program is needed.
        modules: One of these has to be there for the interpreter of the user's program.
        everywhere: Whether a node that only serves node 0's launcher needs it as well.
        rivals: Who else has a program of this name, by words of its `--version`, with what to use
            for theirs.
        lack: What the program must not have been built without.
    """

    name: str
    install: str
    program: str = ""
    modules: tuple[str, ...] = ()
    everywhere: bool = True
    rivals: tuple[Rival, ...] = ()
    lack: Lack | None = None


@frozen
class StartRequest:
    """One node of a table, and what is to be started there.

    `config` is the text of the framework's `config_file`; empty where that is not known.
    """

    command: list[str]
    table: EndpointTable
    row: TableRow
    environ: Mapping[str, str]
    options: ProgramOptions
    paths: Paths
    restarts: RestartFacts
    config: str = ""

    @property
    def first_rank(self) -> int:
        """The global rank of this node's first process."""
        return self.table.first_process(self.row.node)

    @property
    def is_even(self) -> bool:
        """Whether every node has as many processes."""
        return len({row.nproc_per_node for row in self.table.rows}) == 1

    def file(self, name: str) -> str:
        """A file of the node that the framework's launcher reads. Raises UsageError."""
        if not self.paths.folder:
            raise UsageError(
                "this node's hostfile could not be written, but the launcher reads it",
                hint="name a writable folder with --log-dir or RDZV_STATE_DIR",
            )
        return self.paths.file(name)


@frozen
class Forks:
    """The processes of one node, where they are forked and no launcher starts them.

    Attributes:
        words: What each executes, as Python takes it: SCRIPT or -m MODULE, and arguments.
        variables: What an import may read, beside the contract's.
        ranks: What each process has beside the node's environment.
    """

    words: list[str]
    variables: dict[str, str]
    ranks: list[dict[str, str]]


@frozen
class Start:
    """How a framework is started on one node.

    Attributes:
        argv: The command line; empty on a node that only serves the one of node 0.
        owned: Variables that the framework's contract decides, whatever was there before.
        offered: Variables that are set where the user has set none.
        port: Where a program of this node will listen; None when none does.
        fatal_workers: Whether the first worker that fails ends the program, however long it takes.
        path_first: A folder in front of the program's PATH; empty: none.
        removes: As of the framework, and beside those.
        needs: As of the framework, and beside those: what this table asks for.
    """

    argv: list[str]
    owned: list[Variable] = field(default_factory=list)
    offered: list[Variable] = field(default_factory=list)
    port: int | None = None
    fatal_workers: bool = False
    path_first: str = ""
    removes: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[Need, ...] = ()


@frozen
class Framework:
    """One way to start a COMMAND on the nodes of a table.

    Attributes:
        name: Of `--framework`.
        start: What one node starts. Raises UsageError.
        check: Refuses a COMMAND that cannot work. Raises UsageError.
        needs: What has to be installed where a COMMAND is started.
        is_led: Whether only node 0 has a program, whose launcher reaches the others.
        removes: Variables (NAME, or PREFIX*) that a program must not see, each with the reason.
        keeps: Variables that are left as they are, each with what they go against.
        jobwide: Whether the launcher takes its whole environment to every node, so that what
            differs between them must not be in it; asked with the COMMAND.
        takes_backend: Whether it meets by torchrun's rendezvous backend.
        looks_up_name: Whether the launcher looks up the node's own hostname, as torchrun's agent
            does, and ends where Python cannot.
        torchrun: How COMMAND calls torchrun's script, without our flags: it can be begun before
            there is a table. Empty where something else is started.
        config_file: The file that decides how the launcher starts the processes: the one that
            COMMAND names, or where the launcher looks for one in this environment; empty: none.
    """

    name: str
    start: Callable[[StartRequest], Start]
    check: Callable[[Sequence[str]], object] = lambda command: None
    needs: Callable[[Sequence[str]], tuple[Need, ...]] = lambda command: ()
    is_led: Callable[[Sequence[str]], bool] = lambda command: False
    removes: Mapping[str, str] = field(default_factory=dict)
    keeps: Mapping[str, str] = field(default_factory=dict)
    jobwide: Callable[[Sequence[str]], bool] = lambda command: False
    takes_backend: bool = False
    looks_up_name: bool = False
    torchrun: Callable[[Sequence[str]], list[str]] = lambda command: []
    config_file: Callable[[Sequence[str], Mapping[str, str]], str] = lambda command, environ: ""


def needs_module(name: str, *modules: str) -> Callable[[Sequence[str]], tuple[Need, ...]]:
    """The needs of a framework that COMMAND's Python imports: one of these modules, or `name`."""

    def needs(command: Sequence[str]) -> tuple[Need, ...]:
        first = program(command)[0]
        return (Need(name, f"pip install {name}", program=first, modules=modules or (name,)),)

    return needs


OF_A_PROCESS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
)
"""What belongs to one process: around several, it would give all of them the same."""


def program(command: Sequence[str]) -> list[str]:
    """COMMAND as it is started: a script or `-m` module by Python, as torchrun does it."""
    if command[0].endswith(".py") or command[0] == "-m":
        return ["python3", "-u", *command]
    return list(command)


SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "csh", "tcsh", "fish")
_PYTHON = re.compile(r"python[0-9.]*")


def basename(word: str) -> str:
    """The last part of a path."""
    return word.rsplit("/", 1)[-1]


def is_python(word: str) -> bool:
    """Whether a word names a Python interpreter."""
    return bool(_PYTHON.fullmatch(basename(word)))


def refuse_uneven(ask: StartRequest, why: str) -> None:
    """Refuse a table whose nodes have different numbers of processes. Raises UsageError."""
    if ask.is_even:
        return
    first = ask.table.rows[0]
    other = next(r for r in ask.table.rows if r.nproc_per_node != first.nproc_per_node)
    raise UsageError(
        f"{node_name(0, first.hostname)} has {first.nproc_per_node} processes and "
        f"{node_name(other.node, other.hostname)} has {other.nproc_per_node}, and {why}",
        hint="give every node the same --nproc-per-node, or use --framework torchrun",
    )


def refuse_owned(
    launcher: Sequence[str],
    flags: Sequence[Flag],
    target: Sequence[str],
    owned: Mapping[str, str],
    options: Callable[[Mapping[str, str]], list[str]] | None = None,
) -> None:
    """Refuse flags in COMMAND that come from the table, with the command line that works.

    Args:
        launcher: How the launcher is called.
        flags: Its flags in COMMAND.
        target: What it starts; only the first word is shown, the others may hold a secret.
        owned: Each flag from the table, with rdzv's option for it; empty: there is none.
        options: rdzv's options for the values of these flags, where `owned` cannot say them.

    Raises:
        WrongCommand: One of these flags stands in COMMAND.
    """
    found = {name: flag for flag in flags if (name := flag.one_of(owned))}
    if not found:
        return
    values = {name: flag.value or "" for name, flag in found.items()}
    moved = [w for n, v in values.items() if owned[n] for w in (owned[n], v)]
    moved += options(values) if options else []
    kept = [word for flag in flags if not flag.one_of(owned) for word in flag.words]
    before = [*launcher, *kept]
    first = next(iter(found.values()))
    name = launcher[-1] if "-m" in launcher else basename(launcher[0])
    raise WrongCommand(
        f"COMMAND contains {first.word}, but rdzv gives {name} this flag from the table",
        use([*before, *target], *moved, shown=len(before) + 1),
    )

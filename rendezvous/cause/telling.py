"""Which row a failed rank fits: its exit code, its clues and the facts of its node. Pure.

A fact beats a line, and a line beats an exit code. A row that is a consequence is taken only where
nothing else fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rendezvous.cause.clues import ABORTED, LAST_LINE, LOGGED, row_of, without_tracebacks
from rendezvous.cause.facts import FactKind
from rendezvous.cause.lines import Tells, is_warning, last_error, last_line, not_started, tells
from rendezvous.cause.others import has_waited, is_of_itself, row_of_others
from rendezvous.cause.seen import TOLD, End, NodeSeen, Proof, Suspect, ended_by_itself
from rendezvous.cause.table import BY_CODE, BY_ID, OF_DEVICES, SICK_XID, Kind
from rendezvous.cause.tracebacks import CONSEQUENCES
from rendezvous.wire.evidence import Clue, Fact
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.words import printable

WAITED = ("waited", "watchdog_timeout")
"""Rows of who waited for another rank until a time-out."""
WAITING = (*WAITED, "watchdog_stuck")
"""Rows of who waited, or may have: a stuck watchdog of its own need not wait for anybody."""
_USAGE = 2
_BY_SIGNAL = tuple(128 + number for number in (1, 2, 9, 15, 24, 25))
"""Signals that others send: what a rank has said before does not explain them."""
_KILLED = 128 + 9
_ENDED = (128 + 1, 128 + 2, 128 + 9, 128 + 15)
_PASSED_ON = (128 + 1, 128 + 2, 128 + 15)
_SCHEDULERS = (
    ("memory_limit", re.compile(r"(?i)OOM_?Killed|OUT_OF_ME|out-of-memory|beyond \w+ memory")),
    ("time_limit", re.compile(r"\bTIMEOUT\b|TIME LIMIT|DeadlineExceeded")),
    ("evicted", re.compile(r"\bEvicted\b")),
    ("preempted", re.compile(r"(?i)preempt|spot ?i")),
    ("node_failure", re.compile(r"\bNODE_FAIL\b")),
)
"""What schedulers say of a worker run that they end."""
_TERMINATED = re.compile(r"\bsignal 15\b|\bSIGTERM\b")
OF_SCHEDULERS = (*dict(_SCHEDULERS), "job_memory", "job_cancelled", "machine_memory", "requeued")
_LAUNCHER_ENDED = "launcher_ended"
_MAY_BE_A_DEVICE = (
    *("cuda_fault", "cuda_setup", "watchdog_stuck", "abort", "exception", "exit_code"),
    *("watchdog_timeout", "peer_gone", "cuda_library", "communication"),
)
_NO_SERVER = re.compile(r"Failed to start RPC server")
"""JAX's words for a coordinator that cannot listen, without why."""
_OF_TASKS = re.compile(r"[Tt]hread|subprocess|[Ff]ork|clone|std::system_error")
"""What a line that a resource is unavailable says, where it is of a process or a thread."""
_OTHER_SIGNAL = re.compile(r"is killed by signal: (?!Killed)")
_OF_LAUNCHERS = re.compile(
    r"torch[./]distributed[./]|pytorch\.org/docs/stable/elastic|Root Cause \(first observed"
    r"|\b(mpirun|mpiexec|prterun|srun|slurmstepd|horovodrun|sigkill_handler)\b|BAD TERMINATION"
)
"""Where last words hold this, a launcher's follow the program's, or stand for them."""
_WITHOUT_WORDS = ("exit_code", "abort", "not_started")
"""Rows of programs that end by themselves, and may have said why."""
_OF_NO_REASON = ("exception", "ranks_differ")
"""Rows of what a device may have caused."""
CRASHES = ("abort", "arithmetic", "bus_error", "crash", "segfault")
"""Ends of who lost another rank, too: without a reason, another one's reason goes before."""
_OLD_SECONDS = 30.0
"""What a rank said so long before its end it has got over, unless it said nothing after that."""
_SHORTLY_SECONDS = 2.0
_LEAST_BYTES = 1 << 20
_LINE_WIDTH = 400


def suspects_of(node: NodeSeen) -> list[Suspect]:
    """All that failed by itself on this node; of one that was lost, the node itself."""
    report = node.report
    if report is None:
        if node.lost_at is None:
            return []
        clue = _by_scheduler(node.scheduler)
        silent = "others_ended" if _TERMINATED.search(node.scheduler) else "node_lost"
        row = clue.id if clue is not None else silent
        return [Suspect(node.slot, row, node.lost_at, Proof.FACT)]
    if not node.failed:
        return []
    if report.by_agent:
        return [Suspect(node.slot, "node_failed", node.began_at, Proof.FACT, code=report.exit_code)]
    clues, facts = node.evidence().clues, node.evidence().facts
    ends = node.evidence().ranks
    failed, seen = ended_by_itself(ends), {end.rank for end in ends}
    unseen = len(seen) < len(node.ranks) or any(one.exit_code is None for one in ends)
    if not failed or (unseen and failed[0].code in TOLD and report.exit_code not in TOLD):
        failed = [_as_a_whole(node, clues)]  # the rank that failed has not been seen
    shared = [clue for clue in clues if clue.rank is None]
    suffered = [clue for clue in shared if clue.id in CONSEQUENCES]
    mixed = len(failed) > 1 and bool(suffered)
    # Who has ended is lost, and not waited for: who has raised something then may live on.
    lives_on = len(node.ranks) > 1 and any(one.id in WAITING for one in suffered)
    found = []
    for end in failed:
        own = [clue for clue in clues if clue.rank == end.rank and end.rank is not None]
        if end.code in _ENDED:
            own += [clue for clue in clues if clue.id in (*OF_SCHEDULERS, _LAUNCHER_ENDED)]
        # Of those whose words are not told apart, only the first may have failed by itself.
        said = own or (shared if end is failed[0] else suffered)
        row, proof, clue, known = _told(end, _recent(end, said), facts, node.scheduler)
        # Of what several ranks have said in one stream nobody knows whose it is.
        rank = end.rank
        if clue is not None and clue.rank is None:
            rank = None if mixed or (lives_on and clue.id not in CONSEQUENCES) else rank
        at = ended_at = node.at(end.offset)
        if clue is not None and clue.at is not None and not _is_old(end, clue):
            at = min(at, node.at(clue.at))
        if proof is Proof.CODE and row in (*_WITHOUT_WORDS, *CRASHES, "killed"):
            quoted = _quoted(end, said, report)
            is_crash = row in (*CRASHES, "killed")
            spoken = _of_others(quoted, end.rank, is_crash=is_crash) if quoted is not None else None
            if spoken is not None:
                row, proof, clue = spoken, Proof.LINE, quoted
            elif row in _WITHOUT_WORDS or (quoted is not None and _is_just_before(end, quoted)):
                clue = clue or quoted
        if row == "abort":
            row, clue = _aborted(end, said, clue)
        # A launcher that was told to end has not ended as its rank did.
        of_launcher = clue is not None and clue.raised and rank not in seen and end.code in TOLD
        one = Suspect(node.slot, row, at, proof, rank, end.code, clue, known, ended_at)
        found.append(replace(one, code=None) if of_launcher else one)
    # The kernel's log does not say whose GPU it names: of several that failed, or of who waited.
    waited = any(one.clue and one.clue.id in CONSEQUENCES for one in found)
    of_node = len(found) > 1 or (waited and len(node.ranks) > 1)
    return [replace(one, rank=None) if of_node and one.row == "gpu_xid" else one for one in found]


def _quoted(end: End, said: Sequence[Clue], report: ExitReport) -> Clue | None:
    """The last error that it has written, or else the last line, if that is its own: `sys.exit`
    with words, an assertion in C."""
    errors = [clue for clue in _recent(end, said) if clue.id == LOGGED]
    if end.code == _KILLED:  # what it had said well before does not tell of that
        return next((one for one in reversed(errors) if _is_just_before(end, one)), None)
    if errors:
        of_others = [one for one in errors if has_waited(one.line)]
        return (errors if is_of_itself(errors[-1].line) else of_others or errors)[-1]
    if end.rank != report.rank or any(map(_OF_LAUNCHERS.search, report.tail)):
        return next((clue for clue in said if clue.id == LAST_LINE), None)
    if words := not_started(report.tail):
        return Clue(id="not_started", line=printable(words, _LINE_WIDTH), rank=end.rank)
    tail = without_tracebacks(report.tail)
    error = last_error(tail)
    line = error or last_line(tail)
    name = LOGGED if error else LAST_LINE
    return Clue(id=name, line=printable(line, _LINE_WIDTH), rank=end.rank) if line else None


def _of_others(quoted: Clue, rank: int | None, *, is_crash: bool) -> str | None:
    """The row of last words that tell of other ranks; of a crash no line of progress tells."""
    if tells(quoted.line) is Tells.QUIET or (is_crash and quoted.id == LAST_LINE):
        return None
    row = row_of(quoted.line)
    return row if row in CONSEQUENCES else row_of_others(quoted.line, "", rank)


def _recent(end: End, clues: Sequence[Clue]) -> Sequence[Clue]:
    """Without what it has got over, as long as anything remains."""
    return [clue for clue in clues if not _is_old(end, clue)] or clues


def _is_old(end: End, clue: Clue) -> bool:
    return not clue.last and clue.at is not None and end.offset - clue.at > _OLD_SECONDS


def _as_a_whole(node: NodeSeen, clues: Sequence[Clue]) -> End:
    """The end of a program of which no rank has been seen to fail."""
    assert node.report is not None
    rank = node.report.rank
    if rank is None and (named := _telling(clues)) is not None:
        rank = named.rank
    return End(rank, node.report.exit_code)


def _telling(clues: Iterable[Clue]) -> Clue | None:
    """The clue that tells most: what has happened rather than what follows from others; a traceback
    rather than a single line; the last one."""
    known = [clue for clue in clues if clue.id in BY_ID]
    return max(reversed(known), key=_weight, default=None)


def _explains(end: End, clue: Clue) -> bool:
    """Return whether a rank that a signal ended had failed before: its exception was its last word,
    or what it lacked, or whom it lost, was said just before it crashed."""
    lately = clue.at is not None and end.offset - clue.at < _SHORTLY_SECONDS
    if clue.raised and (clue.last or (lately and end.code == _KILLED)):
        return not clue.line.startswith("KeyboardInterrupt")
    return lately and end.code not in _BY_SIGNAL and BY_ID[clue.id].kind is not Kind.OUTSIDE


def _aborted(end: End, said: Sequence[Clue], clue: Clue | None) -> tuple[str, Clue | None]:
    """The row of the last words with which it gave up, where they tell of other ranks; and the
    error that it wrote, where native code has not said why."""
    words = [one for one in _recent(end, said) if one.id in ("abort", LOGGED)]
    for one in reversed(words):
        if (row := row_of_others(one.line, "", end.rank)) is not None:
            return row, one
    errors = [one for one in words if one.id == LOGGED and tells(one.line) is Tells.ERROR]
    if errors and (clue is None or ABORTED.match(clue.line)):
        clue = errors[-1]
    return "abort", clue


def _is_just_before(end: End, clue: Clue) -> bool:
    """Return whether it is an error that was written just before a crash."""
    lately = clue.at is not None and end.offset - clue.at < _SHORTLY_SECONDS
    tells_of_it = tells(clue.line) is Tells.ERROR or has_waited(clue.line)
    return lately and clue.id == LOGGED and tells_of_it


def _weight_of_kind(clue: Clue) -> int:
    """Native code gives up of what it has suffered, too: that alone explains nothing."""
    if clue.id == "abort" and ABORTED.match(clue.line):
        return 0
    if not clue.raised and is_warning(clue.line):
        return 1
    return 2 if clue.id in CONSEQUENCES else 3


def _weight(clue: Clue) -> tuple[int, int]:
    """A program may write of anything that it then gets over: what it raises last is what ends it.

    NCCL's own warnings are single lines, and say more than the exception that follows them.
    """
    line = 1 if clue.id in BY_CODE.values() else 2
    return _weight_of_kind(clue), 3 if clue.raised else line


def _told(
    end: End, clues: Sequence[Clue], facts: Sequence[Fact], scheduler: str
) -> tuple[str, Proof, Clue | None, tuple[Fact, ...]]:
    """The row of one end, with what shows it."""
    said = [clue for clue in clues if clue.id in OF_SCHEDULERS]
    failed = next((clue for clue in reversed(clues) if clue.raised and clue.last), None)
    if said and failed is not None and (said[-1].at or 0.0) - (failed.at or 0.0) > _SHORTLY_SECONDS:
        said = []  # it had failed long before
    if end.code in _ENDED and said:
        return said[-1].id, Proof.LINE, said[-1], ()
    silent = end.code in _ENDED and failed is None
    if (silent or _telling(clues) is None) and (told := _by_scheduler(scheduler)) is not None:
        return told.id, Proof.FACT, told, ()
    passed_on = [clue for clue in clues if clue.id == _LAUNCHER_ENDED]
    if end.code in _PASSED_ON and passed_on:
        return _LAUNCHER_ENDED, Proof.LINE, passed_on[-1], ()
    clues = [clue for clue in clues if clue.id != _LAUNCHER_ENDED and not _is_over(clue, clues)]
    by_code = BY_CODE.get(end.code)
    clue = _telling(clue for clue in clues if clue.id != "arguments" or end.code == _USAGE)
    if end.code in _BY_SIGNAL:
        assert by_code is not None
        row, shown = by_facts(by_code, None, facts, end.rank)
        if shown or clue is None or not _explains(end, clue):
            return row, Proof.FACT if shown else Proof.CODE, None, shown
    if clue is None or not (by_code in (None, "abort", clue.id) or _explains(end, clue)):
        # A crash is told by its signal; the interpreter's last words name the line.
        last = next((each for each in reversed(clues) if each.id == by_code), None)
        row, shown = by_facts(by_code or "exit_code", None, facts, end.rank)
        return row, Proof.FACT if shown else Proof.CODE, last, shown
    if clue.id not in OF_DEVICES and (clue.raised or clue.id in CRASHES):
        clue = _of_device(clues, clue) or _before(clues, clue) or clue
    row, shown = by_facts(clue.id, clue, facts, end.rank)
    if row == "loader_worker" and (killed := [one for one in clues if one.id == "memory_limit"]):
        return "memory_limit", Proof.LINE, killed[-1], ()
    return row, Proof.FACT if shown else Proof.LINE, clue, shown


def _of_device(clues: Sequence[Clue], clue: Clue) -> Clue | None:
    """What a device said just before a rank raised something that does not tell why."""
    at, is_open = clue.at or 0.0, clue.id in (*_OF_NO_REASON, *CRASHES)
    found = (one for one in clues if is_open and one.id in OF_DEVICES and not one.raised)
    return next((one for one in found if 0 <= at - (one.at or 0.0) < _SHORTLY_SECONDS), None)


def _is_over(clue: Clue, clues: Sequence[Clue]) -> bool:
    """Return whether it was no error by its form, and one was written well after it."""
    if clue.raised or clue.at is None or tells(clue.line) is Tells.ERROR:
        return False
    errors = (one for one in clues if one.id == LOGGED and one.at is not None)
    return any((one.at or 0.0) - clue.at > _SHORTLY_SECONDS for one in errors)


def _before(clues: Sequence[Clue], clue: Clue) -> Clue | None:
    """What this rank had suffered before it raised something: it may only follow from that."""
    if clue.at is None:
        return None
    found = (one for one in clues if one.id in CONSEQUENCES and one.at is not None)
    return next((one for one in found if 0 <= clue.at - (one.at or 0.0) < _OLD_SECONDS), None)


def _by_scheduler(words: str) -> Clue | None:
    found = row_of(words)
    if found not in OF_SCHEDULERS:
        found = next((row for row, pattern in _SCHEDULERS if pattern.search(words)), None)
    return Clue(id=found, line=printable(words.strip(), _LINE_WIDTH)) if found else None


def by_facts(
    row: str, clue: Clue | None, facts: Sequence[Fact], rank: int | None
) -> tuple[str, tuple[Fact, ...]]:
    """The row that the facts make of it, and those that show it."""
    facts = _without_others_limits(facts, rank)
    kinds: dict[str, list[Fact]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, []).append(fact)
    line = clue.line if clue is not None else ""
    sick = [fact for fact in kinds.get(FactKind.KERNEL, []) if SICK_XID.search(fact.words)]
    ecc = [fact for fact in kinds.get(FactKind.GPU, []) if fact.words.startswith("ecc")]
    if row in _MAY_BE_A_DEVICE and (sick or (ecc and row != "exception")):
        return ("gpu_xid", tuple(sick)) if sick else ("gpu_ecc", tuple(ecc))
    if row == "loader_worker" and _OTHER_SIGNAL.search(line) is None:
        return _of_memory("killed" if "signal: Killed" in line else row, kinds)
    if row == "killed":
        return _of_memory(row, kinds)
    held = tuple(kinds.get(FactKind.PORT, ()))
    if held and row == "exception" and _NO_SERVER.search(line):
        return "port_taken", held
    full = [f for f in kinds.get(FactKind.SHARED_MEMORY, []) if _is_full(f)]
    if row == "bus_error" and full:
        return "shared_memory", tuple(full)
    space = tuple(kinds.get(FactKind.SPACE, []))
    if row == "bus_error" and space:
        return "disk_full", space
    if row in ("disk_full", "write_failed"):
        return _of_disk(row, kinds, space)
    if row == "threads":
        return _of_tasks(line, kinds)
    taken = tuple(f for f in kinds.get(FactKind.REMOVED, ()) if f.path in re.findall(r"\w+", line))
    if taken and row in ("variable_missing", "not_initialized"):
        return "variable_removed", taken
    shows = _SHOWS.get(row)
    return row, tuple(f for f in facts if shows and f.kind == shows[0] and f.path in shows[1:])


def _without_others_limits(facts: Sequence[Fact], rank: int | None) -> list[Fact]:
    """Of limits those of this rank, where they are known."""
    known = {fact.path for fact in facts if fact.kind == FactKind.RLIMIT and fact.rank == rank}
    return [
        fact
        for fact in facts
        if fact.kind != FactKind.RLIMIT
        or fact.rank == rank
        or (fact.rank is None and fact.path not in known)
    ]


_SHOWS = {
    "shared_memory": (FactKind.SHARED_MEMORY, "/dev/shm"),  # noqa: S108
    "open_files": (FactKind.RLIMIT, "nofile"),
    "shared_tensor": (FactKind.RLIMIT, "nofile"),
    "file_limit": (FactKind.RLIMIT, "fsize"),
    "address_space": (FactKind.RLIMIT, "as"),
    "locked_memory": (FactKind.RLIMIT, "memlock"),
    "port_taken": (FactKind.PORT, ""),
}
"""The fact that belongs to a row, and its paths."""


def _of_memory(row: str, kinds: dict[str, list[Fact]]) -> tuple[str, tuple[Fact, ...]]:
    if group := kinds.get(FactKind.OOM_KILL):
        return "memory_limit", tuple(group[:1])
    if machine := kinds.get(FactKind.OOM_MACHINE):
        return "machine_memory", tuple(machine[:1])
    return row, ()


def _of_disk(
    row: str, kinds: dict[str, list[Fact]], space: tuple[Fact, ...]
) -> tuple[str, tuple[Fact, ...]]:
    """What torch.save says is the same for a full disk and for a limit of file size."""
    if inodes := kinds.get(FactKind.INODES):
        return "inodes", tuple(inodes[:1])
    if row == "disk_full" or space:
        return "disk_full", space[:1]
    sizes = [fact for fact in kinds.get(FactKind.RLIMIT, []) if fact.path == "fsize"]
    return ("file_limit", tuple(sizes[:1])) if sizes else (row, ())


def _of_tasks(line: str, kinds: dict[str, list[Fact]]) -> tuple[str, tuple[Fact, ...]]:
    """Which limit of threads was met. Who is refused a lock, or a socket's byte, is told that a
    resource is temporarily unavailable, too: where no counter shows a limit, that names none."""
    if groups := kinds.get(FactKind.PIDS):
        return "threads", tuple(groups[:1])
    limits = {fact.path: fact for fact in kinds.get(FactKind.RLIMIT, [])}
    tasks = limits.get("nproc")
    if tasks is not None and tasks.value * 2 >= tasks.limit:
        return "threads", (tasks,)
    if not _OF_TASKS.search(line):
        return "exception", ()
    # A thread needs a stack, and a limit of address space counts it.
    return "threads", tuple(one for one in (limits.get("as"), tasks) if one is not None)


def _is_full(fact: Fact) -> bool:
    return fact.value < max(_LEAST_BYTES, fact.limit / 1000)

"""What is said of a cause: a clause that follows the rank's end, what shows it, and what to do.

Pure. The clause is made here once, for the last line, the board, the result and the epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from rendezvous.cause.clues import LAST_LINE, LOGGED
from rendezvous.cause.facts import FactKind
from rendezvous.cause.judge import Judged
from rendezvous.cause.seen import Suspect
from rendezvous.cause.table import BY_ID, Kind, Row
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Clue, Fact
from rendezvous.wire.words import bytes_text, listed, printable, seconds_text

_LINE_WIDTH = 240
_WORDS_WIDTH = 120
_MOST_APART = 2
_SOURCE = re.compile(
    r"\[(enforce fail at )?/?\S+\.(cc|cpp|h):\d+\] (\. )?"
    r"|\[[IWEF]\d{3,4} [\d:.]+ \S+\.(cc|cpp|h):\d+\] (\[c10d\] )?"
    r"|^\s*what\(\):\s*"
)
_REJECTED = re.compile(r"the program( rejected its arguments: )(\S+\.py): error: ")
"""What argparse says begins with the name of the program."""
_UNSAID = frozenset(
    {
        *("exit_code", "killed", "terminated", "interrupted", "exception"),
        *("node_lost", "node_failed", "not_started"),
    }
)
"""What the end itself says already."""
_MISSED = ("absent_rank", "late_rank", "early_end")
"""Rows of a rank that says nothing of it: what it was missed in, another one says."""
_OF_ONE_NODE = frozenset(
    {
        *("import_error", "shared_library", "file_missing", "permission", "name_resolution"),
        *("unreachable", "read_only", "filesystem_gone", "open_files", "threads", "cuda_setup"),
        *("locked_memory", "not_started", "port_taken"),
        *("service_refuses", "service_lacks", "service_fails"),
        *("build_failed", "container", "cuda_build", "fabric_manager", "file_damaged"),
        *("gpu_ipc", "net_interface", "shared_tensor"),
    }
)
"""Rows for which it counts whether other nodes have the same."""


@frozen
class Sentence:
    """The parts of what is said of a cause."""

    clause: str
    evidence: tuple[str, ...]
    hint: str


def sentence_of(judged: Judged) -> Sentence:
    """Make the sentence of a cause."""
    row = BY_ID[judged.cause.row]
    clause, hint = _clause(judged, row) if judged.blames else _unknown(judged, row), row.hint
    if not judged.blames and not hint:
        hint = "compare the last output of all ranks: rdzv logs RUN"
    if rejected := _REJECTED.match(clause):
        clause = f"{rejected[2]}{rejected[1]}{clause[rejected.end() :]}"
        hint = f"try: python {rejected[2]} --help"
    return Sentence(clause, tuple(_evidence(judged)), hint)


def _clause(judged: Judged, row: Row) -> str:
    cause = judged.cause
    says = "" if row.id in _UNSAID and not cause.facts else row.says
    amounts = [_amount(fact, says) for fact in cause.facts[:2]]
    if numbers := "; ".join(dict.fromkeys(filter(None, amounts))):
        says = f"{says} ({numbers})" if says else numbers
    if cause.clue is not None:
        line = _line(cause.clue)
        where = f" ({cause.clue.where})" if cause.clue.where else ""
        says = f"{says}: {line}{where}" if says else f"{line}{where}"
    if judged.together:
        ranks = "rank" + "s" * (len(judged.together) > 1)
        says += f"; so did {ranks} {listed(map(str, judged.together))}"
    if row.id in _MISSED and judged.first.clue is not None and judged.first is not cause:
        words = printable(_line(judged.first.clue), _WORDS_WIDTH)
        says += f"; {_rank(judged.first)} said '{words}'"
    if row.id in _OF_ONE_NODE and judged.others:
        says += _compared(judged)
    return says


def _amount(fact: Fact, says: str) -> str:
    """What a fact says, without what is said already."""
    name, colon, amount = fact_words(fact).partition(": ")
    return amount if colon and name in says else f"{name}{colon}{amount}"


def _compared(judged: Judged) -> str:
    several = judged.others > 1
    nodes = f"the other {judged.others} nodes" if several else "the other node"
    if not judged.alike:
        return f"; {nodes} did not fail in this way"
    return f"; {f'{judged.alike} of ' * several}{nodes} failed in the same way"


def _unknown(judged: Judged, row: Row) -> str:
    """Nobody is blamed: what was seen."""
    others = row.kind is Kind.CONSEQUENCE and judged.of != 1
    unknown = ", and which rank is the cause is not known" if others else ""
    line = _line(judged.cause.clue) if judged.cause.clue else ""
    says = f"{row.says}{unknown}" + (f": {line}" if line else "")
    if judged.named and (row.kind is Kind.CONSEQUENCE or len(judged.named) > 1):
        ranks = f"rank{'s' * (len(judged.named) > 1)} {listed(map(str, judged.named))}"
        says += f"; {'others name' if row.kind is Kind.CONSEQUENCE else 'it concerns'} {ranks}"
    return says + _apart(judged.apart)


def _apart(apart: Sequence[tuple[int, str]]) -> str:
    """Those that may have been waited for: what they said last tells what they did."""
    if not apart:
        return ""
    told = [(rank, printable(words, _WORDS_WIDTH)) for rank, words in apart if words]
    spoke = [f"rank {rank} was '{words}'" for rank, words in told]
    who = f"rank {apart[0][0]} is" if len(apart) == 1 else f"{len(apart)} ranks are"
    last = f", and the last line of {' and of '.join(spoke[:_MOST_APART])}" if spoke else ""
    return f"; {who} not known to have waited{last}"


def _line(clue: Clue) -> str:
    """The line, without the place in torch's own sources; the last one need not be the reason."""
    line = printable(_SOURCE.sub("", clue.line), _LINE_WIDTH)
    form = {LAST_LINE: "its last line was '{}'", LOGGED: "its last error was '{}'"}
    return form.get(clue.id, "{}").format(line)


def _evidence(judged: Judged) -> list[str]:
    """What shows the cause, a line each, and what else was seen."""
    cause, first = judged.cause, judged.first
    found = [words for fact in cause.facts if (words := fact_words(fact))]
    if cause.clue is not None:
        found.append(f"{_rank(cause)} said: {cause.clue.line}")
    if cause.code is not None:
        found.append(f"{_rank(cause)} ended with exit code {cause.code}")
    if first is not cause:
        earlier = first.at - cause.at
        when = f"{seconds_text(abs(earlier))} {'later' if earlier >= 0 else 'earlier'}"
        said = f": {first.clue.line}" if first.clue is not None else ""
        found.append(f"{_rank(first)} failed {when}{said}")
    if judged.of:
        found.append(f"{judged.waiting} of {judged.of} ranks waited for another one, or lost it")
    if judged.silent:
        found.append(f"no report of their end from slots {listed(map(str, judged.silent))}")
    return found


def _rank(one: Suspect) -> str:
    return f"slot {one.slot}" if one.rank is None else f"rank {one.rank}"


def fact_words(fact: Fact) -> str:
    """A fact, for people; empty where this version does not know it."""
    words = _FACTS.get(fact.kind)
    return words(fact) if words is not None else ""


def _of_group(fact: Fact) -> str:
    limit = f"limit {bytes_text(fact.limit)}" if fact.limit else "no limit is known"
    return limit + (f", {fact.value:.0f} processes killed" if fact.value > 1 else "")


def _of_machine(fact: Fact) -> str:
    size = f"{bytes_text(fact.limit)} of memory" if fact.limit else ""
    return "; ".join(filter(None, (size, fact.words)))


def _of_space(fact: Fact) -> str:
    size = f" of {bytes_text(fact.limit)}" if fact.limit else ""
    return f"{fact.path}: {bytes_text(fact.value)}{size} free"


_LIMITS = {
    "nofile": "open files",
    "nproc": "processes",
    "fsize": "file size",
    "memlock": "locked memory",
    "cpu": "seconds of CPU time",
}


def _of_limit(fact: Fact) -> str:
    if fact.path == "as":
        return f"the process may use {bytes_text(fact.limit)} of address space: ulimit -v"
    amount = bytes_text(fact.limit) if fact.path in ("fsize", "memlock") else f"{fact.limit:.0f}"
    seen = f" (ulimit -u), and the user had {fact.value:.0f} a moment later"
    return f"limit of {_LIMITS.get(fact.path, fact.path)}: {amount}" + seen * (fact.path == "nproc")


def _of_tasks(fact: Fact) -> str:
    where = f" in pids.max of {fact.path}" if fact.path else ""
    times = f", met {fact.value:.0f} time{'s' * (fact.value != 1)}"
    return f"limit of processes: {fact.limit:.0f}{where}{times}"


_FACTS: Mapping[str, Callable[[Fact], str]] = {
    FactKind.OOM_KILL: _of_group,
    FactKind.OOM_MACHINE: _of_machine,
    FactKind.PIDS: _of_tasks,
    FactKind.SPACE: _of_space,
    FactKind.INODES: lambda fact: f"{fact.path}: none of {fact.limit:.0f} inodes is free",
    # What the ranks had is free again when they have ended: only its size is true of then.
    FactKind.SHARED_MEMORY: lambda fact: f"{fact.path}: {bytes_text(fact.limit)} in all",
    FactKind.RLIMIT: _of_limit,
    FactKind.PORT: lambda fact: f"port {fact.value:.0f} is held by {fact.words}",
    FactKind.STATE: lambda fact: f"state {fact.words}",
    FactKind.KERNEL: lambda fact: fact.words,
    FactKind.GPU: lambda fact: f"GPU {fact.path}: {fact.words} {fact.value:.0f}",
    FactKind.FILES: lambda fact: f"{fact.path}: {fact.words}",
}

"""What is said of a cause: a clause that follows the rank's end, what shows it, and what to do.

Pure. The clause is made here once, for the last line, the board, the result and the epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from rendezvous.cause.clues import LAST_LINE, LOGGED
from rendezvous.cause.facts import FactKind
from rendezvous.cause.judge import Judged
from rendezvous.cause.seen import Suspect
from rendezvous.cause.table import BY_ID, Kind, Row
from rendezvous.frozen import frozen
from rendezvous.wire.evidence import Clue, Fact
from rendezvous.wire.words import bytes_text, listed, printable, seconds_text

_WHY_WIDTH = 160
_LINE_WIDTH = 240
_WORDS_WIDTH = 120
_MOST_APART = 2
_SOURCE = re.compile(
    r"\[(enforce fail at )?/?\S+\.(cc|cpp|h):\d+\] (\. )?"
    r"|\[[IWEF]\d{3,4} [\d:.]+ \S+\.(cc|cpp|h):\d+\] (\[c10d\] )?"
    r"|^RuntimeError: Error\(s\) in loading state_dict for \w+:\s*(?=\S)"
    r"|^\s*what\(\):\s*|^([a-z_]\w*\.){3,}(?=\w+:)| \(required by \S+\)"
)
_REJECTED = re.compile(r"the program( rejected its arguments: )(\S+\.py): error: ")
"""What argparse says begins with the name of the program."""
_LAST = {LAST_LINE: "{}'s last line was '{}'", LOGGED: "{}'s last error was '{}'"}
"""Forms of lines that need not be the reason."""
_WORKED_OUT = ("collectives_differ", "desync")
"""Clues that nobody has said like this."""
_OF_SOME = (
    "where only some ranks fail, compare their data and settings with the others'",
    "all ranks fail alike: look at the data and settings that they share",
)
"""A step that is none where all ranks have failed, and what is one then."""
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
    """The parts of what is said of a cause; `quote` is the end of the clause that may be cut."""

    brief: str
    quote: str
    evidence: tuple[str, ...]
    hint: str

    @property
    def clause(self) -> str:
        """The whole, with the quote last."""
        return "; ".join(filter(None, (self.brief, self.quote)))


def sentence_of(judged: Judged) -> Sentence:
    """Make the sentence of a cause: why, how certain that is, who else tells of it, a quote."""
    row = BY_ID[judged.cause.row]
    removed = (fact.path for fact in judged.cause.facts if fact.kind == FactKind.REMOVED)
    why, quote, hint = *_why(judged, row), row.hint.replace("NAME", next(removed, "NAME"))
    if not judged.blames and not hint:
        apart = [rank for rank, _ in judged.apart]
        hint = "compare all ranks' output: rdzv logs RUN"
        if len(apart) == 1:
            hint = f"look at rank {apart[0]} first: rdzv logs RUN --rank {apart[0]}"
    if judged.everyone:
        hint = hint.replace(*_OF_SOME)
    if rejected := _REJECTED.match(why):
        why = f"{rejected[2]}{rejected[1]}{why[rejected.end() :]}"
        hint = f"see what it takes: python {rejected[2]} --help"
    brief = "; ".join(filter(None, [why, *_witnesses(judged, row)]))
    return Sentence(brief, quote, tuple(_evidence(judged)), hint)


def _why(judged: Judged, row: Row) -> tuple[str, str]:
    """The reason, and a quote that does not fit into it, or is not known to be one."""
    cause = judged.cause
    says = "" if judged.blames and row.id in _UNSAID and not cause.facts else row.says
    amounts = [_amount(fact, says) for fact in cause.facts[:2]]
    if numbers := "; ".join(dict.fromkeys(filter(None, amounts))):
        says = f"{says} ({numbers})" if says else numbers
    if cause.clue is None:
        is_mute = row.id == "exit_code" and cause.rank is not None
        return says or "no error of it was seen" * is_mute, ""
    line, where = _line(cause.clue), f" ({cause.clue.where})" if cause.clue.where else ""
    rank = cause.rank if cause.clue.rank is None else cause.clue.rank
    whose = "the program" if rank is None else f"rank {rank}"
    if form := _LAST.get(cause.clue.id):
        return says, form.format(whose, line) + where
    is_why = judged.blames or cause.clue.id in _WORKED_OUT
    if is_why and len(says) + len(line) + len(where) <= _WHY_WIDTH:
        return (f"{says}: " if says else "") + line + where, ""
    return says, (f"{whose} said '{line}'" if says else line) + where


def _amount(fact: Fact, says: str) -> str:
    """What a fact says, without what is said already."""
    name, colon, amount = fact_words(fact).partition(": ")
    return amount if colon and name in says else f"{name}{colon}{amount}"


def _compared(judged: Judged) -> str:
    several = judged.others > 1
    nodes = f"the other {judged.others} nodes" if several else "the other node"
    if not judged.alike:
        return f"{nodes} did not fail in this way"
    return f"{f'{judged.alike} of ' * several}{nodes} failed in the same way"


def _witnesses(judged: Judged, row: Row) -> Iterator[str]:
    """Say how certain it is, and what others tell of it, or of themselves."""
    if not judged.blames:
        which = "whether that is the cause" if judged.of == 1 else "which rank is the cause"
        yield f"{which} is not known"
    if judged.together:
        yield f"so did {_ranks(judged.together)}"
    clue = judged.first.clue
    if row.id in _MISSED and clue is not None and "by peer" not in clue.line:
        yield f"{_rank(judged.first)} said '{printable(_line(clue), _WORDS_WIDTH)}'"
    if judged.blames and row.id in _OF_ONE_NODE and judged.others and not judged.everyone:
        yield _compared(judged)
    names = "others name" if row.kind is Kind.CONSEQUENCE else "it concerns"
    if not judged.blames and len(judged.named) > (row.kind is not Kind.CONSEQUENCE):
        yield f"{names} {_ranks(judged.named)}"
    if apart := judged.apart:
        # They may have been waited for: what they said tells what they did.
        are = "is" if len(apart) == 1 else "are"
        yield f"{_ranks(sorted(rank for rank, _ in apart))} {are} not known to have waited"
        told = [(rank, printable(words, _WORDS_WIDTH)) for rank, words in apart if words]
        yield from (f"rank {rank} said '{words}'" for rank, words in told[:_MOST_APART])


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {listed(map(str, ranks))}"


def _line(clue: Clue) -> str:
    """The line, without the place in torch's own sources."""
    return printable(_SOURCE.sub("", clue.line), _LINE_WIDTH)


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
    FactKind.REMOVED: lambda fact: f"rdzv took out of its environment: {fact.path}",
}

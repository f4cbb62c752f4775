"""Which of a program's last lines tell why it ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.program.family import Ranks, ToldEnd
from worker.program.launcher_lines import quotes_nothing

_TORCHRUN_RECORD = re.compile(r"[A-Z]\d{4} [\d:.]+ +\d+ (?:\S*/)?torch/distributed/")
"""Its path is relative to a folder of `sys.path`: with PYTHONPATH=. an environment is before it."""
_WORKER_FAILED = re.compile(_TORCHRUN_RECORD.pattern + r".*\] failed \(exitcode: ")

_STARTER = re.compile(r"rdzv: process (?P<rank>\d{1,9}) \(local rank \d+\) failed first")
_TORCHRUN_RANK = re.compile(r"\brank +: (?P<rank>\d{1,9}) +\(local_rank: (?P<local>\d{1,9})\)")
_TORCHRUN_END = re.compile(r"\bexitcode +: (?P<code>-?\d{1,3}) +\(pid: (?P<pid>\d{1,9})\)")


def last_words(lines: Sequence[str], *, most: int = 20) -> list[str]:
    """The program's own last lines, without what torchrun says when a worker has failed.

    torchrun ends with a traceback of its own and a summary of some 30 lines, which hide the line
    that tells the cause. Without any line of the program's own, that summary counts where it may
    quote an exception, and otherwise only what was printed before it. What rdzv's own starter says
    of a failed process comes first: the last line is the program's.
    """
    own: list[str] = []
    for line in lines:
        if _WORKER_FAILED.match(line):
            lines = own if quotes_nothing(lines) else lines
            break
        if line.strip() and not _TORCHRUN_RECORD.match(line):
            own.append(line)
    told = [line for line in own if _STARTER.match(line)]
    own = [line for line in own if line not in told]
    return [*told, *(own or ([] if told else lines))[-most:]]


def rank_of_failure(lines: Sequence[str]) -> int | None:
    """The process that rdzv's own starter has named as the first that failed, if it did."""
    found = [match for line in lines if (match := _STARTER.match(line))]
    return int(found[-1]["rank"]) if found else None


def end_by_torchrun(lines: Sequence[str]) -> ToldEnd | None:
    """The process that torchrun's report names as the root cause, and its exit code, 128 + n for
    signal n."""
    found, ranks = None, None
    for line in lines:
        if (rank := _TORCHRUN_RANK.search(line)) is not None:
            ranks = Ranks(int(rank["rank"]), int(rank["local"]))
        elif (end := _TORCHRUN_END.search(line)) is not None:
            code = int(end["code"])
            found = ToldEnd(int(end["pid"]), code if code >= 0 else 128 - code, ranks)
            ranks = None
    return found

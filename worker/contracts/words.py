"""Which of a program's last lines tell why it ended. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_TORCHRUN_RECORD = re.compile(r"[A-Z]\d{4} [\d:.]+ +\d+ (?:\S*/)?torch/distributed/")
"""Its path is relative to a folder of `sys.path`: with PYTHONPATH=. an environment is before it."""
_WORKER_FAILED = re.compile(_TORCHRUN_RECORD.pattern + r".*\] failed \(exitcode: ")

_STARTER = re.compile(r"rdzv: process (?P<rank>\d{1,9}) \(local rank \d+\) failed first")
_TORCHRUN_END = re.compile(r"\bexitcode +: (?P<code>-?\d{1,3}) +\(pid: (?P<pid>\d{1,9})\)")


def last_words(lines: Sequence[str], *, most: int = 20) -> list[str]:
    """The program's own last lines, without what torchrun says when a worker has failed.

    torchrun ends with a traceback of its own and a summary of some 30 lines, which hide the line
    that tells the cause. Without any line of the program's own, all of them count. What rdzv's own
    starter says of a failed process comes first: the last line is the program's.
    """
    own: list[str] = []
    for line in lines:
        if _WORKER_FAILED.match(line):
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


def end_by_torchrun(lines: Sequence[str]) -> tuple[int, int] | None:
    """The process that torchrun's report names as the root cause, and its exit code, 128 + n for
    signal n."""
    found = [match for line in lines if (match := _TORCHRUN_END.search(line))]
    if not found:
        return None
    code = int(found[-1]["code"])
    return int(found[-1]["pid"]), code if code >= 0 else 128 - code

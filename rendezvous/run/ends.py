"""How the end of a node, or of its program, is said. Pure."""

from __future__ import annotations

from rendezvous.cause.lines import is_ours
from rendezvous.run.state import Run, Slot, who
from rendezvous.wire.reports import ExitReport

_SIGNALS = {
    1: "HUP",
    2: "INT",
    3: "QUIT",
    4: "ILL",
    5: "TRAP",
    6: "ABRT",
    7: "BUS",
    8: "FPE",
    9: "KILL",
    11: "SEGV",
    13: "PIPE",
    15: "TERM",
    24: "XCPU",
    25: "XFSZ",
    31: "SYS",
}
"""Names of Linux's signals: the nodes run on it, whatever this machine is."""


def words_of_exit(report: ExitReport) -> str:
    """The end of a node's program, as a phrase that follows the node's name."""
    code = report.exit_code
    if report.fenced:
        return "was cut off from the registry, and its agent ended the program"
    if report.stopped:
        return f"was stopped (exit code {code})"
    if code == 0:
        return "ended with exit code 0"
    if report.by_agent and report.message:
        return f"failed: {report.message}"
    words = f"failed: {words_of_end(code, report.rank)}"
    return f"{words}; {report.message}" if report.message else words


def words_of_end(code: int, rank: int | None) -> str:
    """A rank's end, or (None) that of a node's program."""
    name = "the program" if rank is None else f"rank {rank}"
    number = code - 128
    signal = f"signal {number}" + (f", SIG{_SIGNALS[number]}" if number in _SIGNALS else "")
    return f"{name} ended with exit code {code}" + (f" ({signal})" if 128 < code <= 192 else "")


def last_output(report: ExitReport) -> list[str]:
    """The last lines of a node's program, without those that rdzv itself has written there."""
    return [line for line in report.tail if not is_ours(line)]


def words_of_failure(slot: Slot) -> str:
    """A node that failed after the go, and how."""
    report = slot.its_node.exit
    if report is None:
        return f"{who(slot)} was lost: {slot.problem}"
    return f"{who(slot)} {words_of_exit(report)}"


def first_failed(run: Run) -> Slot | None:
    """The slot whose node failed first after the go: by age, whoever was heard of first."""
    found = [
        (slot.node.failed_at, slot.index)
        for slot in run.slots
        if slot.node is not None and slot.node.failed_at is not None
    ]
    return run.slots[min(found)[1]] if found else None

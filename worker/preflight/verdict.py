"""The form of a node's own checks: surroundings in, verdicts out, also on what is good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from rendezvous.frozen import frozen
from rendezvous.wire.checks import Check, Level
from rendezvous.wire.node import Finding
from rendezvous.wire.words import printable
from worker.machine.surroundings import Surroundings

MIB, GIB = 1 << 20, 1 << 30


@frozen
class Verdict:
    """One thing that a check found.

    Attributes:
        value: What is there.
        subject: The device, interface or variable concerned.
        expected: What should be there; empty when all is well.
        cause: What it means for the run, in one clause.
        fix: The command or step that mends it.
    """

    level: Level
    value: str
    subject: str = ""
    expected: str = ""
    cause: str = ""
    fix: str = ""

    def finding(self, check: Check) -> Finding:
        """As it is told to others: printable, and cut to what a message may carry."""
        return Finding(
            check=check.id,
            level=self.level,
            subject=printable(self.subject, 253),
            value=printable(self.value, 600),
            expected=printable(self.expected, 600),
            cause=printable(self.cause, 600),
            fix=printable(self.fix, 600),
        )


Judge: TypeAlias = Callable[[Surroundings], Sequence[Verdict]]
"""Finds at least one verdict."""


def ok(value: str, subject: str = "") -> list[Verdict]:
    """All is well."""
    return [Verdict("ok", value, subject)]


def skipped(reason: str) -> list[Verdict]:
    """There is nothing to judge here."""
    return [Verdict("skipped", reason)]


def complaint(
    level: Level, value: str, subject: str = "", expected: str = "", cause: str = "", fix: str = ""
) -> list[Verdict]:
    """One thing is not well."""
    return [Verdict(level, value, subject, expected, cause, fix)]


def room(size: int) -> str:
    """A number of bytes for people: 64 MiB, 1.5 GiB."""
    return f"{size / MIB:.0f} MiB" if size < GIB else f"{size / GIB:.3g} GiB"

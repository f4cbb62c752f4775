"""What the parts have found, and what that amounts to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["expected", "unexpected", "recorded"]
State = Literal["done", "failed", "not begun"]

PASSED, UNEXPECTED, NOTHING_TESTED = 0, 1, 77
"""Exit codes; 77 is what automake and Meson take for a skipped test."""


@dataclass(frozen=True)
class Finding:
    """One answer.

    Attributes:
        what: The question, as a statement that may hold.
        verdict: Whether it holds; `recorded` where nobody has said what to expect.
        seen: What was seen.
    """

    what: str
    verdict: Verdict
    seen: Any


def holds(what: str, is_so: bool, seen: Any) -> Finding:
    """A statement that has to hold."""
    return Finding(what, "expected" if is_so else "unexpected", seen)


def recorded(what: str, seen: Any) -> Finding:
    """A fact that nobody has judged yet."""
    return Finding(what, "recorded", seen)


@dataclass
class Result:
    """One part: how it ended, what it has found, and all that it has seen."""

    name: str
    state: State = "not begun"
    problem: str = ""
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    seen: dict[str, Any] = field(default_factory=dict)


def exit_code(results: Sequence[Result]) -> int:
    """0 only where every part was carried out and nothing unexpected was seen."""
    verdicts = [finding.verdict for result in results for finding in result.findings]
    done = bool(verdicts) and all(result.state == "done" for result in results)
    return PASSED if done and "unexpected" not in verdicts else UNEXPECTED


def lines(results: Sequence[Result]) -> Iterator[str]:
    """The summary for a person."""
    for result in results:
        more = f": {result.problem}" if result.problem else ""
        yield f"{result.name} ({result.state}, {result.seconds:.1f} s){more}"
        for finding in result.findings:
            yield f"  {finding.verdict:10} {finding.what}: {str(finding.seen)[:200]}"

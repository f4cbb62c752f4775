"""Warm starts: CUDA is untouched before the fork, works after it, and how much sooner that is."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gpu.findings import Finding, holds, recorded
from tests.gpu.machine import Machine
from tests.gpu.session import PROGRAMS, Run, Session

STARTS = 4
"""Of each launch: the first, whose zygote may still import, and restarts by hand."""
_GO = "; starting "
_WAYS = ("off", "on")


def run(session: Session, seen: dict[str, Any]) -> None:
    """Start the same program cold and warm, several times each."""
    for way in _WAYS:
        command = [str(PROGRAMS / "first_kernel.py"), "FOLDER", session.device]
        with session.launch(f"warm-{way}", "--warm", way, command=command) as launched:
            starts: list[dict[str, Any]] = []
            seen[way] = {"starts": starts, "lines": []}
            known: set[Path] = set()
            for number in range(STARTS):
                if number:
                    launched.command("restart")
                files = launched.reports("*.json", number + 1)
                [new] = set(files) - known
                known.add(new)
                starts.append(measured(json.loads(new.read_text()), _gone(launched, number)))
            seen[way]["lines"] = [line for _, line in launched.lines if line.startswith("rdzv")]


def measured(report: dict[str, Any], go: float) -> dict[str, Any]:
    """Replace the moments of a program's report by seconds since the go."""
    moments = ("first", "imported", "kernel")
    return report | {name: round(report[name] - go, 3) for name in moments}


def _gone(launched: Run, number: int) -> float:
    def found() -> float | None:
        goes = [at for at, line in launched.lines if _GO in line]
        return goes[number] if len(goes) > number else None

    return launched.wait_for(f"go {number + 1}", found)


def judge(seen: dict[str, Any], machine: Machine) -> list[Finding]:
    """A restart's zygote is ready, so there the time counts."""
    cold, warm = (seen[way]["starts"] for way in _WAYS)
    reasons = [line for line in seen["on"]["lines"] if "without" in line or "cold" in line]
    found = [
        holds("no cold start was forked", not any(s["before"]["forked"] for s in cold), len(cold)),
        holds("all warm starts were forked", all(s["before"]["forked"] for s in warm), reasons),
    ]
    touched = [
        start["before"]
        for start in warm
        if start["before"]["initialized"]
        or start["before"]["bad_fork"]
        or start["before"]["nvidia_files"]
    ]
    found.append(holds("CUDA is untouched in a forked process", not touched, touched))
    for name, starts in (("cold", cold), ("warm", warm)):
        right = [start["correct"] for start in starts]
        found.append(holds(f"{name}: the first kernel's result is right", all(right), right))
    cold_seconds, warm_seconds = seconds_of(cold), seconds_of(warm)
    sooner = warm_seconds["restart"] < cold_seconds["restart"]
    both = {"cold": cold_seconds, "warm": warm_seconds}
    found.append(holds("a warm restart's first kernel ends sooner than a cold one's", sooner, both))
    for name in ("private_mb", "gpu_memory_used"):
        values = {"cold": [s[name] for s in cold], "warm": [s[name] for s in warm]}
        found.append(recorded(name, values))
    return found


def seconds_of(starts: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the seconds from the go to the end of the first kernel, and of what is before it."""
    restarts = starts[1:] or starts
    return {
        "start": starts[0]["kernel"],
        "restart": round(statistics.median(one["kernel"] for one in restarts), 3),
        "restart's first statement": round(statistics.median(s["first"] for s in restarts), 3),
        "restart's CUDA": round(
            statistics.median(s["kernel"] - s["imported"] for s in restarts), 3
        ),
    }

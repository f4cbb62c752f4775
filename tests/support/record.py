"""Keeps what rdzv said at each fault, for the table in docs/faults.md.

With RDZV_FAULTS_OUT=FOLDER each test adds a line to FOLDER/said.jsonl; `python -m
tests.support.record FOLDER` prints them as rows of the table, one for each fault and sentence.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from statistics import median

from tests.support.launching import Outcome

_LOG = re.compile(r"log: /\S+")


def record(fault: str, said: Outcome | str, seconds: float | None = None) -> None:
    """Keep a sentence (of an outcome: its last line), and how long it took from the fault on."""
    folder = os.environ.get("RDZV_FAULTS_OUT")
    if folder is None:
        return
    sentence = said.last_line if isinstance(said, Outcome) else said
    sentence = _LOG.sub("log: ...", sentence.removeprefix("rdzv: ").strip())
    line = json.dumps({"fault": fault, "said": sentence, "seconds": seconds})
    with (Path(folder) / "said.jsonl").open("a") as file:
        file.write(line + "\n")


def rows(lines: list[str]) -> list[str]:
    """The rows of the table; of equal faults the first sentence, and all the times."""
    said: dict[str, str] = {}
    times: dict[str, list[float]] = {}
    for line in lines:
        kept = json.loads(line)
        said.setdefault(kept["fault"], kept["said"])
        times.setdefault(kept["fault"], [])
        if kept["seconds"] is not None:
            times[kept["fault"]].append(kept["seconds"])
    return [f"| {fault} | {said[fault]} | {_span(times[fault])} |" for fault in said]


def _span(seconds: list[float]) -> str:
    if not seconds:
        return ""
    if len(seconds) == 1:
        return f"{seconds[0]:.1f} s"
    return f"{median(seconds):.1f} s, at most {max(seconds):.1f} s (n={len(seconds)})"


if __name__ == "__main__":
    print("\n".join(rows((Path(sys.argv[1]) / "said.jsonl").read_text().splitlines())))

"""The program of `starts`: writes down when it was started, and what was used until then.

    python started.py FOLDER PID

PID is the benchmark's: its child is the launcher. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def stat(pid: int) -> tuple[int, float]:
    """The parent of a process, and the CPU seconds that it has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(of: int) -> dict[int, float]:
    """The children of a process, with the CPU seconds that each has used."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent, cpu = stat(int(name))
            except OSError:
                continue  # it has ended
            if parent == of:
                found[int(name)] = cpu
    return found


def main(folder: str, bench: int) -> None:
    """Write it down."""
    at, agent, launcher = time.monotonic(), 0, os.getpid()
    while (parent := stat(launcher)[0]) != bench:
        agent, launcher = launcher, parent
    cpu = {launcher: stat(launcher)[1], **children(launcher)}
    path = Path(folder) / f"started-{os.getpid()}.json"
    path.write_text(json.dumps({"at": at, "agent": agent, "cpu": cpu, "ended": time.monotonic()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

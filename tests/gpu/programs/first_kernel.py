"""Says when its first statement and its first kernel were over, and whether CUDA was untouched.

    first_kernel.py FOLDER cuda|cpu

Times are of CLOCK_MONOTONIC, which all processes of a machine share. It waits for its end.
"""

import time

first = time.monotonic()

import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402

forked = "torch" in sys.modules
"""Of a warm start: torch was imported before this statement."""

from typing import Any  # noqa: E402

import torch  # noqa: E402

cuda: Any = torch.cuda  # part of it has no types


def nvidia_files() -> "list[str]":
    """The files of the driver that are open here, which a fork inherits."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            found.append(target)
    return sorted(found)


def private_mb() -> float:
    """What this process shares with nobody."""
    with open("/proc/self/smaps_rollup", encoding="utf-8") as rollup:
        kilobytes = [int(line.split()[1]) for line in rollup if line.startswith("Private_")]
    return round(sum(kilobytes) / 1024, 1)


def main(folder: str, device: str) -> None:
    before = {
        "forked": forked,
        "initialized": cuda.is_initialized(),
        "bad_fork": cuda._is_in_bad_fork(),
        "nvidia_files": nvidia_files(),
    }
    imported = time.monotonic()
    total = int((torch.arange(1000, device=device) * 2).sum().item())
    done = time.monotonic()
    memory = cuda.mem_get_info() if device == "cuda" else None
    report = {
        "first": first,
        "imported": imported,
        "kernel": done,
        "correct": total == 999_000,
        "before": before,
        "private_mb": private_mb(),
        "gpu_memory_used": memory[1] - memory[0] if memory else None,
    }
    with open(f"{folder}/{os.getpid()}.writing", "w", encoding="utf-8") as writing:
        json.dump(report, writing)
    os.rename(f"{folder}/{os.getpid()}.writing", f"{folder}/{os.getpid()}.json")
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])

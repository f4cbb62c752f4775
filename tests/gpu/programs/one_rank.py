"""One rank makes a communicator of its own, calls three all-reduces, and then hangs in a fourth.

    one_rank.py FOLDER cuda|cpu

With CUDA by NCCL, behind a kernel that ends by itself; else by Gloo.
"""

import json
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

cuda: Any = torch.cuda  # part of it has no types

SECONDS = 60.0
CYCLES = int(SECONDS * 1.7e9)


def recorded() -> "dict[str, int | None]":
    """How many entries each of torch's flight recorders has; None where torch has none."""
    found = {}
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump = getattr(torch._C._distributed_c10d, name, None)
        found[name] = (
            None if dump is None else len(json.loads(dump(True, False)).get("entries", []))
        )
    return found


def hang(device: str) -> None:
    if device == "cuda":
        cuda._sleep(CYCLES)
        dist.all_reduce(torch.ones(4, device=device))
        cuda.synchronize()
    else:
        dist.all_reduce(torch.ones(4))
        time.sleep(SECONDS)


def main(folder: str, device: str) -> None:
    begun = time.monotonic()
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    for _ in range(3):
        total = torch.ones(4, device=device)
        dist.all_reduce(total)
    correct = total.sum().item() == 4.0 * dist.get_world_size()
    report = {
        "backend": dist.get_backend(),
        "nccl": list(cuda.nccl.version()) if device == "cuda" else None,
        "correct": correct,
        "seconds": round(time.monotonic() - begun, 3),
        "recorded": recorded(),
        "variables": {n: v for n, v in os.environ.items() if n.startswith(("NCCL_", "TORCH_"))},
    }
    with open(f"{folder}/report.writing", "w", encoding="utf-8") as writing:
        json.dump(report, writing)
    os.rename(f"{folder}/report.writing", f"{folder}/report.json")
    hang(device)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Four ranks on one GPU: one waits for the others, which are stuck in CUDA in three ways.

    stuck.py FOLDER cuda|cpu

The kernel ends by itself after about a minute. Without a GPU each call is replaced by one that
behaves alike towards a look: busy, waiting without the GIL, and waiting with the GIL held.
"""

import ctypes
import os
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

cuda: Any = torch.cuda  # part of it has no types

SECONDS = 60.0
CYCLES = int(SECONDS * 1.7e9)
"""Of a GPU's clock; several ranks share it, so the wall clock shows up to three times as long."""
QUEUE = 5_000
"""More launches than the driver queues (1,024): the last ones block."""


def wait_for_the_others() -> None:
    dist.all_reduce(torch.ones(1))


def read_result(device: str) -> None:
    """A kernel spins, and the rank waits for a value of it."""
    if device == "cuda":
        value = torch.ones(1, device=device)
        cuda._sleep(CYCLES)
        print(value.item())
    else:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            torch.ones(64, 64) @ torch.ones(64, 64)


def wait_for_stream(device: str) -> None:
    """The rank is in cudaStreamSynchronize."""
    if device == "cuda":
        cuda._sleep(CYCLES)
        cuda.current_stream().synchronize()
    else:
        time.sleep(SECONDS)


def fill_queue(device: str) -> None:
    """The rank launches until the driver blocks it, possibly while it holds the GIL."""
    if device == "cuda":
        for cycles in (CYCLES, *[1] * QUEUE):
            cuda._sleep(cycles)
        cuda.synchronize()
    else:
        # PyDLL keeps the GIL, and a read goes on after a signal, which a sleep does not.
        ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)


def main(folder: str, device: str) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    for _ in range(5):
        dist.all_reduce(torch.ones(1))
    if device == "cuda":
        torch.ones(1, device=device).sum().item()
    dist.barrier()
    with open(f"{folder}/{rank}.ready", "x", encoding="utf-8") as ready:
        ready.write(str(os.getpid()))
    if rank > 0:
        (read_result, wait_for_stream, fill_queue)[rank - 1](device)
    wait_for_the_others()


if __name__ == "__main__":
    main(*sys.argv[1:])

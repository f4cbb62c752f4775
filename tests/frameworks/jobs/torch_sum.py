"""One all_reduce over gloo whose sum is checked: what every start of torch processes has to do."""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed as dist


def main() -> None:
    """Form the world that the environment describes; tell of it when the sum is right."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.tensor(rank + 1)
    dist.all_reduce(total)
    if total != world * (world + 1) // 2:
        raise SystemExit(f"all_reduce over {world} ranks gave {total}")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={int(total)} ok"
    # One write for the whole line: ranks that share a pipe do not interleave theirs.
    os.write(1, f"RESULT framework={sys.argv[1]} {words}\n".encode())
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

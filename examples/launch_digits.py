r"""Train on scikit-learn's digits under torch.distributed.launch:

    rdzv launch --framework torch.distributed.launch --nnodes 2 --nproc-per-node 2 \
        -- examples/launch_digits.py

It is torchrun underneath, for scripts of the time before: each process is also told its local rank
as an argument, `--local-rank=K` (`--local_rank=K` before torch 2.0), and has to take it.
"""

import argparse
import os
import socket
import zlib

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local-rank", "--local_rank", type=int, default=0)
    parser.add_argument("--steps", type=int, default=50)
    return parser.parse_args()


def digest(model, device):
    """Return the checksum of the weights; every rank must hold the same, to the last bit."""
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    checksum = zlib.crc32(weights.numpy().tobytes())
    ends = torch.tensor([checksum, -checksum], device=device)  # the highest, minus the lowest
    dist.all_reduce(ends, dist.ReduceOp.MAX)
    if ends.sum() != 0:
        raise SystemExit("the ranks do not hold the same weights")
    return checksum


def main():
    options = parse()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", options.local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if options.local_rank != int(os.environ["LOCAL_RANK"]):
        raise SystemExit("--local-rank and LOCAL_RANK differ")

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images[rank::world], dtype=torch.float32, device=device) / 16  # our share
    y = torch.tensor(labels[rank::world], device=device)

    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(options.steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients over all ranks
        optimizer.step()
        losses.append(loss.item())

    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={digest(model, device)}"
    os.write(1, f"RESULT framework=torch.distributed.launch {words} ok\n".encode())
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

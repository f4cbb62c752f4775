"""Train on scikit-learn's digits with torch, its processes started by mpirun:

    rdzv launch --framework openmpi --nnodes 2 --nproc-per-node 2 -- examples/mpi_torch.py
    rdzv launch --framework mpich --nnodes 2 --nproc-per-node 2 -- examples/mpi_torch.py

mpirun reaches the other nodes through rdzv, without sshd, and gives each process its rank in
variables of its own; MASTER_ADDR and MASTER_PORT come from rdzv. torch then talks over gloo or
NCCL, not over MPI.
"""

import os
import socket
import zlib

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

VARIABLES = {  # rank, size, rank on this node
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # Intel's MPI has the same
}


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
    mpi = next(name for name, names in VARIABLES.items() if names[0] in os.environ)
    rank, world, local_rank = (int(os.environ[name]) for name in VARIABLES[mpi])
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)

    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images[rank::world], dtype=torch.float32, device=device) / 16  # our share
    y = torch.tensor(labels[rank::world], device=device)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(50):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients over all ranks
        optimizer.step()
        losses.append(loss.item())

    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={digest(model, device)}"
    os.write(1, f"RESULT framework={mpi} {words} ok\n".encode())  # one write: lines stay whole
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

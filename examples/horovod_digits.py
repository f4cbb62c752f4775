"""Train on scikit-learn's digits with Horovod:

    rdzv launch --framework horovod --nnodes 2 --nproc-per-node 2 -- examples/horovod_digits.py

rdzv starts the processes and tells each its HOROVOD_RANK and where they meet. With
`-- horovodrun python3 examples/horovod_digits.py` Horovod's own launcher starts them instead.
"""

import os
import socket
import zlib

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn


def main():
    hvd.init()
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, labels = load_digits(return_X_y=True)
    rank, world = hvd.rank(), hvd.size()
    x = torch.tensor(images[rank::world], dtype=torch.float32, device=device) / 16  # our share
    y = torch.tensor(labels[rank::world], device=device)

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    # The wrapped optimizer averages the gradients over all ranks before each step.
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    checksum = zlib.crc32(weights.numpy().tobytes())
    everyones = hvd.allgather(torch.tensor([checksum]), name="checksum")
    if (everyones != checksum).any() or len(everyones) != world:
        raise SystemExit("the ranks do not hold the same weights")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={checksum}"
    os.write(1, f"RESULT framework=horovod {words} ok\n".encode())  # one write: a whole line
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""Train a softmax regression on scikit-learn's digits with mpi4py and numpy alone:

    rdzv launch --framework openmpi --nnodes 2 --nproc-per-node 2 -- examples/mpi4py_digits.py
    rdzv launch --framework mpich --nnodes 2 --nproc-per-node 2 -- examples/mpi4py_digits.py

mpi4py has to be of the MPI that mpirun is of. mpirun runs on node 0 and reaches the others
through rdzv: no node needs sshd.
"""

import os
import zlib

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

STEPS = 100
RATE = 1.0


def gradient(weights, x, y):
    """Return the sums of the gradient and of the loss over these images."""
    scores = x @ weights
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(chances[rows, y]).sum()
    chances[rows, y] -= 1
    return x.T @ chances, loss


def main():
    world = MPI.COMM_WORLD
    images, labels = load_digits(return_X_y=True)
    x, y = images[world.rank :: world.size] / 16, labels[world.rank :: world.size]  # our share
    weights = np.zeros((x.shape[1], 10))
    losses = []
    for _ in range(STEPS):
        slope, loss = gradient(weights, x, y)
        total = np.empty_like(slope)
        world.Allreduce(slope, total)  # the same sum, bit by bit, on every rank
        weights -= RATE * total / len(images)
        losses.append(world.allreduce(loss) / len(images))

    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    checksum = zlib.crc32(weights.tobytes())
    if world.allgather(checksum) != [checksum] * world.size:
        raise SystemExit("the ranks do not hold the same weights")
    where = f"rank={world.rank} world={world.size} host={MPI.Get_processor_name()}"
    os.write(1, f"RESULT framework=mpi4py {where} value={checksum} ok\n".encode())


if __name__ == "__main__":
    main()

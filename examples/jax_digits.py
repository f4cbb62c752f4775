"""Train a softmax regression on scikit-learn's digits with JAX:

    rdzv launch --framework jax --nnodes 2 -- examples/jax_digits.py

One process on each node, which takes all of the node's devices. JAX reads the coordinator's address
from JAX_COORDINATOR_ADDRESS; how many processes there are, and which one this is, it must be told.
"""

import os
import socket
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits

STEPS = 60


def loss_of(weights, x, y):
    """Return the mean over the images of all processes: JAX adds up across them itself."""
    chances = jax.nn.log_softmax(x @ weights)
    return -jnp.mean(jnp.take_along_axis(chances, y[:, None], axis=1))


@jax.jit
def step(weights, x, y):
    loss, slope = jax.value_and_grad(loss_of)(weights, x, y)
    return weights - 2.0 * slope, loss


def main():
    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    jax.distributed.initialize(num_processes=world, process_id=rank)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    images, labels = load_digits(return_X_y=True)
    each = len(images) // jax.device_count() * jax.local_device_count()
    mine = slice(rank * each, (rank + 1) * each)  # our share, one piece for each local device
    rows = NamedSharding(mesh, PartitionSpec("data"))
    x = jax.make_array_from_process_local_data(rows, (images[mine] / 16).astype(np.float32))
    y = jax.make_array_from_process_local_data(rows, labels[mine].astype(np.int32))
    everywhere = NamedSharding(mesh, PartitionSpec())
    weights = jax.make_array_from_process_local_data(everywhere, np.zeros((64, 10), np.float32))

    losses = []
    for _ in range(STEPS):
        weights, loss = step(weights, x, y)
        losses.append(float(loss))

    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    checksum = zlib.crc32(np.asarray(weights).tobytes())
    everyones = multihost_utils.process_allgather(np.uint32(checksum))
    if len(everyones) != world or (everyones != checksum).any():
        raise SystemExit("the processes do not hold the same weights")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={checksum}"
    os.write(1, f"RESULT framework=jax {words} ok\n".encode())  # one write: lines stay whole
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()

"""Train on scikit-learn's digits with TensorFlow's MultiWorkerMirroredStrategy:

    rdzv launch --framework tensorflow --nnodes 2 -- examples/tensorflow_digits.py

One process on each node, which takes all of the node's GPUs. rdzv writes TF_CONFIG: the addresses
of all workers, and which of them this one is.
"""

import json
import os
import socket
import zlib

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 128  # of all workers together
STEPS = 60


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    world = sum(len(config["cluster"].get(kind, [])) for kind in ("chief", "worker"))
    # Before anything else of TensorFlow's: it connects to the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    rank = strategy.cluster_resolver.task_id
    if strategy.cluster_resolver.task_type == "worker" and "chief" in config["cluster"]:
        rank += 1

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=0).repeat()
    batches = iter(strategy.experimental_distribute_dataset(data.batch(BATCH, drop_remainder=True)))
    with strategy.scope():
        weights = tf.Variable(tf.zeros([64, 10]))

    def train(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, x @ weights)
            loss = tf.reduce_sum(losses) / BATCH
        (slope,) = tape.gradient(loss, [weights])
        everyones = tf.distribute.get_replica_context().all_reduce("sum", slope)
        weights.assign_sub(2.0 * everyones)
        return loss

    @tf.function
    def step(x, y):
        return strategy.reduce("sum", strategy.run(train, args=(x, y)), axis=None)

    losses = [float(step(*next(batches))) for _ in range(STEPS)]
    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    # Every worker gets the mean of all checksums, which must be its own.
    checksum = zlib.crc32(weights.numpy().tobytes()) % 100_000
    mine = tf.constant(float(checksum), tf.float64)

    @tf.function
    def mean_of(value):
        return strategy.reduce("mean", strategy.run(tf.identity, args=(value,)), axis=None)

    if float(mean_of(mine)) != checksum:
        raise SystemExit("the workers do not hold the same weights")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={checksum}"
    os.write(1, f"RESULT framework=tensorflow {words} ok\n".encode())


if __name__ == "__main__":
    main()

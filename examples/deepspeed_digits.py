"""Train on scikit-learn's digits with DeepSpeed, ZeRO stage 2:

    rdzv launch --framework deepspeed --nnodes 2 --nproc-per-node 2 -- examples/deepspeed_digits.py

rdzv starts DeepSpeed's own launcher on every node (`--no_ssh`), with the hostfile that it has
written. Under torchrun (leave --framework away) the same script runs. On CPUs DeepSpeed compiles a
small extension first: g++ and ninja have to be there.
"""

import argparse
import os
import socket
import sys
import zlib

import deepspeed
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,  # only its loader and its prints use it
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0)  # DeepSpeed's launcher passes it
    parser.parse_args()
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=CONFIG
    )
    x = torch.tensor(images[rank::world], dtype=torch.float32).to(engine.device) / 16  # our share
    y = torch.tensor(labels[rank::world]).to(engine.device)

    losses = []
    for _ in range(50):
        loss = nn.functional.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())

    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    checksum = zlib.crc32(weights.numpy().tobytes())
    ends = torch.tensor([checksum, -checksum], device=engine.device)
    dist.all_reduce(ends, dist.ReduceOp.MAX)  # the highest, minus the lowest
    if ends.sum() != 0:
        raise SystemExit("the ranks do not hold the same weights")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={checksum}"
    os.write(1, f"RESULT framework=deepspeed {words} ok\n".encode())  # one write: a whole line
    dist.barrier()


if __name__ == "__main__":
    main()
    if "mpi4py.MPI" in sys.modules:  # --launcher openmpi: mpirun takes a missing end for a failure
        sys.modules["mpi4py.MPI"].Finalize()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

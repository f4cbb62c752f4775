r"""Train on scikit-learn's digits with Hugging Face accelerate:

    rdzv launch --framework accelerate --nnodes 2 --nproc-per-node 2 \
        -- examples/accelerate_digits.py

rdzv writes `accelerate launch`'s machine flags from the table. accelerate counts processes over all
machines and shares them out evenly, so every node has to have as many.
"""

import os
import socket
import zlib

import rdzv_metrics
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    rank, world = accelerator.process_index, accelerator.num_processes

    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    # prepare() wraps the model in DDP and gives each rank its share of the batches.
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.Adam(model.parameters(), lr=0.01),
        DataLoader(data, batch_size=64, shuffle=True),
    )

    losses = []
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
            rdzv_metrics.send(len(losses), loss=losses[-1], epoch=epoch)

    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    checksum = zlib.crc32(weights.numpy().tobytes())
    everyones = accelerator.gather(torch.tensor([checksum], device=accelerator.device))
    if (everyones != checksum).any() or len(everyones) != world:
        raise SystemExit("the ranks do not hold the same weights")
    words = f"rank={rank} world={world} host={socket.gethostname()} value={checksum}"
    os.write(1, f"RESULT framework=accelerate {words} ok\n".encode())  # one write: a whole line
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

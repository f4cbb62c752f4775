"""Train on scikit-learn's digits with PyTorch Lightning:

    rdzv launch --framework lightning --nnodes 2 --nproc-per-node 2 -- examples/lightning_digits.py

The script is started once on each node, and Lightning starts the node's other processes itself. It
takes MASTER_ADDR, MASTER_PORT and NODE_RANK from the environment, but how many nodes and processes
there are it must be told: NNODES and NPROC_PER_NODE say it. (Under torchrun, leave --framework
away: the same script runs.)
"""

import os
import socket
import zlib

import lightning
import rdzv_metrics
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.losses = []

    def training_step(self, batch):
        x, y = batch
        loss = nn.functional.cross_entropy(self.layers(x), y)
        self.losses.append(loss.item())
        told = {"loss": self.losses[-1], "epoch": self.current_epoch}
        rdzv_metrics.send(self.global_step, told, rank=self.global_rank)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main():
    lightning.seed_everything(0, verbose=False)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
    model = Digits()
    trainer = lightning.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        strategy="ddp",
        num_nodes=int(os.environ["NNODES"]),
        devices=int(os.environ["NPROC_PER_NODE"]),
        max_epochs=5,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=64, shuffle=True))

    first, last = model.losses[0], model.losses[-1]
    if last > first / 2:
        raise SystemExit(f"the loss did not fall: {first:.3f} to {last:.3f}")
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    checksum = zlib.crc32(weights.numpy().tobytes())
    mine = torch.tensor(checksum, device=trainer.strategy.root_device)
    everyones = trainer.strategy.all_gather(mine)
    if (everyones != checksum).any() or everyones.numel() != trainer.world_size:
        raise SystemExit("the ranks do not hold the same weights")
    where = f"rank={trainer.global_rank} world={trainer.world_size} host={socket.gethostname()}"
    os.write(1, f"RESULT framework=lightning {where} value={checksum} ok\n".encode())
    trainer.strategy.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

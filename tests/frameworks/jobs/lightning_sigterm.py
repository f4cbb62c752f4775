"""Trains one step with Lightning, waits for a stop, and writes down each SIGTERM of this rank.

lightning_sigterm.py FOLDER

In each rank the Trainer's handler broadcasts: ranks that it meets within a step of training, where
they wait for each other already, would wait for ever.
"""

import os
import signal
import sys
import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

AFTER_SECONDS = 1.0


class Model(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters())

    def on_train_batch_end(self, *_: object) -> None:
        """From here on: the number of each signal that Python handles, also within a handler."""
        told = os.open(f"{sys.argv[1]}/told-{self.global_rank}", os.O_WRONLY | os.O_CREAT)
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told)
        last = time.monotonic() + 60
        while time.monotonic() < last:
            time.sleep(0.01)
            if self.trainer.received_sigterm:
                last = min(last, time.monotonic() + AFTER_SECONDS)


lightning.Trainer(
    accelerator="cpu",
    strategy="ddp",
    num_nodes=int(os.environ["NNODES"]),
    devices=int(os.environ["NPROC_PER_NODE"]),
    max_epochs=-1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
).fit(Model(), DataLoader(TensorDataset(torch.zeros(8, 1))))

"""Waits for a stop within Lightning, and writes down each SIGTERM of this rank, and its end.

lightning_sigterm.py trainer | fabric FOLDER

Neither waits for ranks that stop later than the first one, so all but that take their time.
"""

import os
import signal
import sys
import time

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

SECONDS = 1.5

how, folder = sys.argv[1:]
was_told = False


def hear(*_: object) -> None:
    global was_told
    was_told = True


def count_as(rank: int) -> None:
    """From here on: the number of each signal that Python handles, also within a handler."""
    told = f"{folder}/told-{rank}"
    fd = os.open(f"{told}.new", os.O_WRONLY | os.O_CREAT)
    os.set_blocking(fd, False)
    signal.set_wakeup_fd(fd)
    os.rename(f"{told}.new", told)


def until_told() -> None:
    last = time.monotonic() + 60
    while not was_told and time.monotonic() < last:
        time.sleep(0.01)


def end(rank: int) -> None:
    """The others are left alone by the first, as they are where they still save something."""
    if rank:
        time.sleep(SECONDS)
    fd = signal.set_wakeup_fd(-1)
    os.write(fd, b" ended\n")
    os._exit(0)


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
        """The Trainer's handler broadcasts, which ranks within a step might wait for forever."""
        count_as(self.global_rank)
        until_told()


size = {"num_nodes": int(os.environ["NNODES"]), "devices": int(os.environ["NPROC_PER_NODE"])}
signal.signal(signal.SIGTERM, hear)  # the Trainer calls it as well
if how == "trainer":
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    trainer = lightning.Trainer(accelerator="cpu", strategy="ddp", max_epochs=-1, **size, **quiet)
    try:
        trainer.fit(Model(), DataLoader(TensorDataset(torch.zeros(8, 1))))
    finally:
        end(trainer.global_rank)
else:
    fabric = lightning.Fabric(accelerator="cpu", strategy="ddp", **size)
    fabric.launch()
    count_as(fabric.global_rank)
    until_told()
    fabric.barrier()  # as before a checkpoint is saved
    end(fabric.global_rank)

"""Train on scikit-learn's digits with the Trainer of Hugging Face transformers:

    rdzv launch --nnodes 2 --nproc-per-node 2 -- examples/trainer_digits.py

The Trainer takes whatever torchrun or accelerate have made (`--framework accelerate` works as
well). For a language model with DeepSpeed, see examples/finetune.
"""

import os
import socket
import tempfile
import zlib

import rdzv_metrics
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


class Digits(nn.Module):
    """Any module will do whose result holds a `loss`."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, pixels, labels):
        scores = self.layers(pixels)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


class Tell(TrainerCallback):
    """What the Trainer logs (loss, learning_rate, grad_norm, epoch) goes to rdzv as well."""

    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in (logs or {}):  # at the end there is a summary, too
            rdzv_metrics.send(state.global_step, logs)


def main():
    cuda = torch.cuda.is_available()
    images, labels = load_digits(return_X_y=True)
    data = [
        {"pixels": torch.tensor(image, dtype=torch.float32) / 16, "labels": torch.tensor(label)}
        for image, label in zip(images, labels, strict=True)
    ]
    options = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=not cuda,
        ddp_backend="nccl" if cuda else "gloo",
        per_device_train_batch_size=64,
        num_train_epochs=5,
        learning_rate=0.01,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )
    model = Digits()
    trainer = Trainer(model, options, train_dataset=data, callbacks=[Tell()])
    trainer.train()

    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if losses[-1] > losses[0] / 2:
        raise SystemExit(f"the loss did not fall: {losses[0]:.3f} to {losses[-1]:.3f}")
    weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    checksum = zlib.crc32(weights.numpy().tobytes())
    ends = torch.tensor([checksum, -checksum], device=options.device)
    dist.all_reduce(ends, dist.ReduceOp.MAX)  # the highest, minus the lowest
    if ends.sum() != 0:
        raise SystemExit("the ranks do not hold the same weights")
    where = f"rank={dist.get_rank()} world={dist.get_world_size()} host={socket.gethostname()}"
    os.write(1, f"RESULT framework=trainer {where} value={checksum} ok\n".encode())
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

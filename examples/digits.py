"""Train a network on scikit-learn's digits: `torchrun --nproc-per-node 2 examples/digits.py`.

Nothing here knows about nodes or addresses: torchrun sets all that a process needs. Where rdzv is
installed, the loss and the accuracy are sent to it (`rdzv metrics RUN`).
"""

import argparse
import os
import zlib

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP

try:  # where rdzv is installed beside torch; elsewhere rdzv_metrics.py, a file to copy, does it
    from rdzv import metrics
except ImportError:
    metrics = None

BATCH = 128  # of all ranks together


def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Split the images, alike on every rank (all have the same seed); a fifth is held out."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images))
    x, y = torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    fifth = len(x) // 5
    return x[fifth:], y[fifth:], x[:fifth], y[:fifth]


def share(rows: Tensor) -> Tensor:
    """Take this rank's rows: each row goes to one rank, and shares differ by at most one row."""
    return rows[dist.get_rank() :: dist.get_world_size()]


def mean(total: float, count: int) -> float:
    """Add up the ranks' totals and divide by the count of all."""
    value = torch.tensor(total, dtype=torch.float64)
    dist.all_reduce(value)
    return float(value) / count


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> float:
    """Go through the images once, in an order that all ranks draw alike."""
    criterion, total = nn.CrossEntropyLoss(reduction="sum"), 0.0
    for batch in torch.split(torch.randperm(len(x)), BATCH):
        loss = criterion(model(x[share(batch)]), y[share(batch)])
        optimizer.zero_grad()
        # DDP averages over the ranks; this factor makes it the batch's mean, however it is shared.
        (loss * dist.get_world_size() / len(batch)).backward()
        optimizer.step()
        total += loss.item()
    return mean(total, len(x))


def check_replicas(model: nn.Module) -> None:
    """Raise unless every rank holds the same parameters, to the last bit."""
    parameters = nn.utils.parameters_to_vector(model.parameters()).detach()
    checksum = zlib.crc32(parameters.numpy().tobytes())
    extremes = torch.tensor([checksum, -checksum])  # of the ranks: the highest, minus the lowest
    dist.all_reduce(extremes, dist.ReduceOp.MAX)
    if extremes.sum() != 0:
        raise RuntimeError("the ranks do not hold the same parameters")


def train(target: float, max_epochs: int, seed: int) -> bool:
    """Train until the held-out accuracy is above the target; tell whether it came to that."""
    torch.manual_seed(seed)
    x, y, held_out_x, held_out_y = load()
    model = DDP(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    say = print if dist.get_rank() == 0 else lambda *_, **__: None
    accuracy, epoch = 0.0, 0
    while accuracy <= target and epoch < max_epochs:
        epoch += 1
        loss = train_epoch(model, optimizer, x, y)
        with torch.no_grad():
            correct = (model(share(held_out_x)).argmax(1) == share(held_out_y)).sum()
        accuracy = mean(float(correct), len(held_out_x))
        if metrics is not None and dist.get_rank() == 0:
            metrics.send(epoch, loss=loss, accuracy=accuracy)
        say(f"epoch {epoch}  loss {loss:.3f}  accuracy {accuracy:.3f}", flush=True)
    check_replicas(model)
    size = f"{dist.get_world_size()} processes ({os.environ['GROUP_WORLD_SIZE']} nodes)"
    missed = "" if accuracy > target else f": not above the target of {target}"
    say(f"digits: accuracy {accuracy:.3f} after {epoch} epochs on {size}{missed}", flush=True)
    return accuracy > target


def main() -> int:
    parser = argparse.ArgumentParser(description="Train on the digits to a held-out accuracy.")
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--max-epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    reached = train(options.target, options.max_epochs, options.seed)
    dist.destroy_process_group()
    return 0 if reached else 1


if __name__ == "__main__":
    os._exit(main())  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

"""Go on from the newest checkpoint, after a restart or with another node in a lost one's place.

    rdzv launch --framework env --nnodes 2 --nproc-per-node 2 --max-restarts 3 \
        --on-node-loss replace --standby 1 \
        --progress-file checkpoints/step -- examples/resume.py --folder checkpoints

`--folder` is one that all nodes share: rank 0 saves there, and every rank loads. Where each node
has only a disk of its own, add `--per-node`: then one rank of each node saves. Either way the ranks
go on from the newest checkpoint that all of them have: what one node did not finish does no harm.

A node that takes a lost one's place has no checkpoint on its own disk. Here each node saves all
there is, so the others send it theirs; a node that saves only its own part needs a shared folder.

`--kill-rank 3 --kill-step 60` loses a process once, to try it, as `make demo-restart` does; with
`--hang-rank` and `--hang-step` it hangs, as in `make demo-hang`. However often it is lost, a run
ends with the loss of one that nothing has disturbed, to the last bit.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

KEPT = 2  # checkpoints: while the newest is being saved, the one before it is what there is
BATCH = 32  # rows of each rank in a step


def write(path: Path, save) -> None:
    """Write a file so that it is there whole, or not at all, also when this process is killed."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        save(file)
        file.flush()
        os.fsync(file.fileno())  # first the bytes, and then the name that promises them
    temporary.replace(path)


def checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by their step, in order."""
    found = {int(path.stem.removeprefix("step-")): path for path in folder.glob("step-*.pt")}
    return dict(sorted(found.items()))


def save(folder: Path, step: int, model: nn.Module, optimizer, *, saves: bool) -> None:
    """Save everything that the next step depends on."""
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, torch.get_rng_state())  # each rank draws other numbers
    if saves:
        parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": states}
        write(folder / f"step-{step:06}.pt", lambda file: torch.save(parts, file))
        # For --progress-file: after the checkpoint, since rdzv takes it for what a restart keeps.
        write(folder / "step", lambda file: file.write(f"{step}\n".encode()))
        for old in list(checkpoints(folder).values())[:-KEPT]:
            old.unlink()


def resume(folder: Path, model: nn.Module, optimizer) -> int:
    """Load the newest checkpoint that all have who have any, and return its step; 0 without one."""
    lists = [None] * dist.get_world_size()
    dist.all_gather_object(lists, set(checkpoints(folder)))
    saved = [steps for steps in lists if steps]
    if not saved:
        return 0
    if not (common := set.intersection(*saved)):  # never begin again as if nothing had been saved
        sys.exit(f"resume: no checkpoint is on all nodes; the ranks have those of steps {lists}")
    step, sender = max(common), lists.index(saved[0])
    sent = [None]
    if dist.get_rank() == sender:
        sent = [torch.load(checkpoints(folder)[step], weights_only=True)]
    dist.broadcast_object_list(sent, src=sender)
    [parts] = sent
    model.load_state_dict(parts["model"])
    optimizer.load_state_dict(parts["optimizer"])
    torch.set_rng_state(parts["rng"][dist.get_rank()])
    return step


def average_gradients(model: nn.Module) -> None:
    """Average over the ranks, in one piece, so that the sums have the same order in every step.

    (DDP forms other pieces after its first step; a run that resumes would differ in the last bits.)
    """
    grads = [parameter.grad for parameter in model.parameters()]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def target(x: Tensor) -> Tensor:
    """What the network is to learn."""
    return (3 * x).sin().sum(1, keepdim=True)


def load_batch(step: int, options: argparse.Namespace, restarts: int) -> Tensor:
    """The rows of a step; once, to try it, they never come, as where a file server is away."""
    if step == options.hang_step and dist.get_rank() == options.hang_rank and restarts == 0:
        time.sleep(3_600)
    return torch.rand(BATCH, 4)


def train(options: argparse.Namespace) -> float:
    """Train, from wherever the run is; the loss at the end is of rows that no rank has drawn."""
    rank, restarts = dist.get_rank(), int(os.environ.get("RDZV_RESTARTS", "0"))
    replaced = int(os.environ.get("RDZV_REPLACEMENTS", "0"))
    saves = rank == 0 if not options.per_node else os.environ["LOCAL_RANK"] == "0"
    torch.manual_seed(0)  # the same weights everywhere
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Dropout(0.05), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    held_out = torch.rand(512, 4)
    torch.manual_seed(1 + rank)  # and from here on other rows, and another dropout
    begun = resume(options.folder, model, optimizer)
    if rank == 0:
        known = f"restarts: {restarts}, nodes replaced: {replaced}"
        print(f"resume: begins after step {begun} ({known})", flush=True)
    for step in range(begun + 1, options.steps + 1):
        x = load_batch(step, options, restarts)
        loss = nn.functional.mse_loss(model(x), target(x))
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        time.sleep(options.step_seconds)
        if step % options.every == 0 or step == options.steps:
            save(options.folder, step, model, optimizer, saves=saves)
        if step == options.kill_step and rank == options.kill_rank and restarts == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory runs out
    model.eval()
    with torch.no_grad():
        return nn.functional.mse_loss(model(held_out), target(held_out)).item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train, and go on after a restart.")
    parser.add_argument("--folder", type=Path, default=Path("checkpoints"))
    parser.add_argument("--per-node", action="store_true", help="the folder is not shared")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps from one save to the next")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="make a step take longer")
    parser.add_argument("--kill-rank", type=int, default=-1)
    parser.add_argument("--kill-step", type=int, default=-1)
    parser.add_argument("--hang-rank", type=int, default=-1)
    parser.add_argument("--hang-step", type=int, default=-1)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # a sum over threads has no order of its own
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    loss = train(options)
    if dist.get_rank() == 0:
        print(f"resume: loss {loss:.6f} ({loss.hex()}) after {options.steps} steps", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
    os._exit(0)  # gloo's threads can make the interpreter's own clean-up abort (torch 2.13)

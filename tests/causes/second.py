"""A second corpus: 30 faults that were written when the table was finished, by who had not read it.

They measure how the judge does on what it was not made for. Each says, before it was ever run, who
is to blame and which words a correct sentence holds. Programs are whole scripts after an opening
that loads torch; ranks are written into them, as if that node had the broken file or the bad data.

The first time, 24 were named right, 5 without their reason and one wrongly: `at_first`. A change of
an expectation, or another fault, is no such measurement any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PLAIN = """import json, os, signal, subprocess, sys, threading, time
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
folder = os.environ["FOLDER"]
"""
TORCH = f"""{PLAIN}from datetime import timedelta
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(8, 4)
    def forward(self, x):
        return self.decoder(torch.relu(self.encoder(x)))

def steps(model, batches):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
        yield loss

def random_batches(count=300):
    for _ in range(count):
        yield torch.randn(16, 8)

def train(model):
    for _ in steps(model, random_batches()):
        pass

def from_outside(signal_name, seconds):
    command = f"sleep {{seconds}}; kill -{{signal_name}} {{os.getpid()}}"
    subprocess.Popen(["sh", "-c", command], start_new_session=True)
"""
GROUP = f"""{TORCH}
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
"""


@dataclass(frozen=True)
class Fault:
    """One fault, and what is expected of its sentence.

    Attributes:
        name: What is told of it.
        nodes: How many.
        each: Processes on each node.
        guilty: Of these global ranks one is to blame; empty: all alike, so that any may be named.
        says: Regular expressions, each of which finds something in a correct message.
        wrong: What would be a wrong sentence, besides one that names another rank or node.
        program: `train.py`.
        framework: What starts it.
        command: COMMAND.
        ranks_known: Whether rdzv can know ranks: not of what a program starts itself.
        never: Regular expressions of what is wrong, added when that had been told.
        at_first: How it was told when it was first run: right; unknown (without its reason); wrong.
        may_be_unsure: Whether nobody need be blamed, as what is seen may not tell who it is.
    """

    name: str
    nodes: int
    each: int
    guilty: tuple[int, ...]
    says: tuple[str, ...]
    wrong: str
    program: str
    framework: str = "torchrun"
    command: tuple[str, ...] = ("train.py",)
    ranks_known: bool = True
    never: tuple[str, ...] = ()
    at_first: str = "right"
    may_be_unsure: bool = False

    def objections(self, slot: int, rank: int | None, *, certain: bool, message: str) -> list[str]:
        """What is wrong with what is told of it."""
        found = [f"not said: {one}" for one in self.says if re.search(one, message) is None]
        found += [f"said: {one}" for one in self.never if re.search(one, message)]
        if not certain and self.may_be_unsure:
            return found
        if not certain:
            found.append("nobody is blamed")
        if self.guilty and slot not in {one // self.each for one in self.guilty}:
            found.append(f"slot {slot} is blamed")
        if self.guilty and self.ranks_known and rank not in self.guilty:
            found.append(f"rank {rank} is blamed")
        return found


STATE = (
    Fault(
        "missing-keys",
        2,
        2,
        (3,),
        (r"Missing key\(s\) in state_dict", r"decoder"),
        "that a rank was waited for; 'Error(s) in loading' without what is missing",
        f"""{GROUP}
model, path = Net(), f"{{folder}}/checkpoint-{{rank}}.pt"
state = model.state_dict()
if rank == 3:
    state = {{name: value for name, value in state.items() if "decoder" not in name}}
torch.save(state, path)
model.load_state_dict(torch.load(path))
train(model)
""",
        at_first="unknown",
    ),
    Fault(
        "corrupt-checkpoint",
        2,
        2,
        (1,),
        (r"PytorchStreamReader failed|central directory",),
        "the disk is full or broken; the network",
        f"""{GROUP}
model, path = Net(), f"{{folder}}/checkpoint-{{rank}}.pt"
torch.save(model.state_dict(), path)
if rank == 1:  # a copy that was cut
    os.truncate(path, os.path.getsize(path) // 2)
model.load_state_dict(torch.load(path))
train(model)
""",
    ),
    Fault(
        "tokenizer-missing",
        2,
        1,
        (0,),
        (r"OSError|FileNotFoundError", r"tokenizer"),
        "a missing module or program; the disk",
        f"""{GROUP}
def tokenizer(name):
    try:
        with open(f"{{folder}}/{{name}}-{{rank}}/tokenizer.json") as file:
            return json.load(file)
    except FileNotFoundError as error:
        raise OSError(
            f"Can't load tokenizer for 'acme/{{name}}'. If you were trying to load it from "
            f"the Hub, make sure you don't have a local directory with the same name."
        ) from error
if rank == 1:
    os.makedirs(f"{{folder}}/llm-1")
    with open(f"{{folder}}/llm-1/tokenizer.json", "w") as file:
        json.dump({{}}, file)
tokenizer("llm")
train(Net())
""",
    ),
    Fault(
        "config-is-no-json",
        2,
        2,
        (2,),
        (r"JSONDecodeError", r"Expecting|delimiter"),
        "that a rank was waited for",
        f"""{PLAIN}
path = f"{{folder}}/config-{{rank}}.json"
with open(path, "w") as file:
    file.write('{{"lr": 0.1 "layers": 4}}' if rank == 2 else '{{"lr": 0.1, "layers": 4}}')
with open(path) as file:
    config = json.load(file)
while True:
    time.sleep(0.1)
""",
        framework="env",
        command=("python", "train.py"),
    ),
    Fault(
        "environment-lacks-key",
        2,
        2,
        (2, 3),
        (r"KeyError", r"DATA_ROOT"),
        "a variable that torchrun or rdzv sets is missing",
        f"""{GROUP}
if rank < 2:
    os.environ["DATA_ROOT"] = folder
dist.barrier()
root = os.environ["DATA_ROOT"]
train(Net())
""",
    ),
    Fault(
        "cache-not-permitted",
        2,
        1,
        (1,),
        (r"PermissionError|Permission denied", r"cache"),
        "the command cannot be executed",
        f"""{GROUP}
cache = f"{{folder}}/cache-{{rank}}"
os.makedirs(cache)
if rank == 1:  # the cache of another user
    os.chmod(cache, 0)
    if (user := os.geteuid()) == 0:
        os.seteuid(65534)
try:
    open(f"{{cache}}/dataset.lock", "w").close()
finally:
    if rank == 1:
        os.seteuid(user)
train(Net())
""",
    ),
    Fault(
        "sqlite-locked",
        1,
        2,
        (1,),
        (r"OperationalError", r"database is locked"),
        "that rank 0, which holds the lock, has failed; a file system that lacks locks",
        f"""{GROUP}
import sqlite3
database = sqlite3.connect(f"{{folder}}/runs.db", timeout=1, isolation_level=None)
if rank == 0:
    database.execute("create table runs (rank int)")
    database.execute("begin exclusive")
dist.barrier()
if rank == 1:
    database.execute("insert into runs values (1)")
train(Net())
""",
    ),
)
DATA = (
    Fault(
        "uneven-data",
        2,
        2,
        (3,),
        (r"rank 3", r"(?i)\bended|exited|finished|exit code 0|left|closed"),
        "that the network failed; that one who waited for rank 3 failed by itself",
        f"""{GROUP}
for step, loss in enumerate(steps(Net(), random_batches(40 if rank == 3 else 200))):
    if step % 20 == 0:
        print(f"rank {{rank}}: step {{step}}, loss {{loss.item():.4f}}", flush=True)
print(f"rank {{rank}}: end of data, {{step + 1}} steps", flush=True)
""",
    ),
    Fault(
        "loader-worker-raises",
        2,
        1,
        (1,),
        (r"IndexError", r"list index out of range"),
        "only 'Caught IndexError in DataLoader worker process 0'",
        f"""{GROUP}
class Captions(Dataset):
    def __init__(self):
        self.rows = [torch.randn(8) for _ in range(1500 if rank == 1 else 2048)]
    def __len__(self):
        return 2048
    def __getitem__(self, index):
        return self.rows[index]
for _ in steps(Net(), DataLoader(Captions(), batch_size=16, num_workers=2)):
    pass
""",
    ),
    Fault(
        "loader-worker-killed",
        1,
        4,
        (1,),
        (r"DataLoader worker", r"(?i)kill|exited unexpectedly"),
        "that rank 1 itself was killed by SIGKILL; shared memory",
        f"""{GROUP}
class Images(Dataset):
    def __len__(self):
        return 2048
    def __getitem__(self, index):
        if rank == 1 and index == 700:
            os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when memory ends
        return torch.randn(8)
for _ in steps(Net(), DataLoader(Images(), batch_size=16, num_workers=1)):
    pass
""",
    ),
    Fault(
        "not-a-number",
        2,
        2,
        (2,),
        (r"FloatingPointError", r"loss is nan"),
        "that a rank was waited for",
        f"""{GROUP}
for step, loss in enumerate(steps(Net(), random_batches())):
    if rank == 2 and step == 37:
        loss = loss * float("nan")
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {{loss.item()}} at step {{step}}")
""",
    ),
    Fault(
        "embedding-range",
        1,
        4,
        (0,),
        (r"IndexError", r"index out of range in self"),
        "that a rank was waited for",
        f"""{GROUP}
class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.net = nn.Embedding(100, 8), Net()
    def forward(self, tokens):
        return self.net(self.embedding(tokens))
def batches():
    for step in range(300):
        yield torch.randint(0, 100, (16, 4)) + (50 if rank == 0 and step == 30 else 0)
for _ in steps(Tokens(), batches()):
    pass
""",
    ),
    Fault(
        "mapped-file-cut",
        1,
        4,
        (3,),
        (r"SIGBUS|Bus error|signal 7",),
        "as a certainty, that /dev/shm or the memory is full",
        f"""{GROUP}
import numpy
path = f"{{folder}}/tokens-{{rank}}.bin"
numpy.zeros(1 << 22, dtype=numpy.uint16).tofile(path)
tokens = numpy.memmap(path, dtype=numpy.uint16, mode="r")
dist.barrier()
if rank == 3:  # another job writes it again
    os.truncate(path, 0)
for _ in steps(Net(), (torch.full((16, 8), float(tokens[n << 12])) for n in range(300))):
    pass
""",
        never=(r"wrote|could not give",),
        at_first="wrong",
    ),
    Fault(
        "thread-raises",
        2,
        2,
        (0,),
        (r"shard-00007", r"bad magic number"),
        "only queue.Empty, in which it ended later",
        f"""{GROUP}
import queue
shards = queue.Queue()
def prefetch():
    for shard in range(300):
        if rank == 0 and shard == 7:
            raise ValueError(f"shard-{{shard:05}}.tar: bad magic number")
        shards.put(torch.randn(16, 8))
threading.Thread(target=prefetch, daemon=True).start()
for _ in steps(Net(), (shards.get(timeout=3) for _ in range(300))):
    pass
""",
        at_first="unknown",
    ),
    Fault(
        "hub-times-out",
        2,
        1,
        (0,),
        (r"TimeoutError|timed out",),
        "a time-out of a collective, or of the network between the nodes",
        f"""{GROUP}
import socket, urllib.request
if rank == 0:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{{silent.getsockname()[1]}}/api/datasets/acme/text"
        urllib.request.urlopen(url, timeout=2).read()
train(Net())
""",
    ),
)

"""Training programs, each with one fault in it, that one rank meets: the guilty one.

They are told by their environment: `GUILTY`, the guilty rank, and `FOLDER`, where the set-up has
prepared what the fault needs. No other rank does anything wrong.
"""

from __future__ import annotations

# Ranks meet before the fault, so that nobody is late by the way.
_ALONE = """import os, signal, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
guilty, folder = rank == int(os.environ["GUILTY"]), os.environ["FOLDER"]
open(f"{folder}/here-{rank}", "w").close()
while not all(os.path.exists(f"{folder}/here-{n}") for n in range(world)):
    time.sleep(0.02)
time.sleep(0.5)

def train():
    while True:
        time.sleep(0.05)

"""
# Gloo, with a time-out of a few seconds where others wait for minutes.
_TORCH = """import os, signal, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
guilty, folder = rank == int(os.environ["GUILTY"]), os.environ["FOLDER"]
"""
_GROUP = """dist.init_process_group("gloo", timeout=timedelta(seconds=6))
loss = torch.ones(4096)

def train(steps):
    for step in range(steps):
        dist.all_reduce(loss)
        time.sleep(0.02)

train(20)
"""


def alone(fault: str, *, innocent: str = "train()") -> str:
    """A program without torch: the innocent work on, and wait for nobody."""
    return f"{_ALONE}if guilty:\n{_indented(fault)}\n{innocent}\n"


def gloo(fault: str, *, innocent: str = "train(500)") -> str:
    """A program whose ranks meet in collectives over gloo."""
    return f"{_TORCH}{_GROUP}if guilty:\n{_indented(fault)}\n{innocent}\n"


def torch_only(body: str, *, before_group: str = "") -> str:
    """A program that imports torch: what is done before the group is made, and after."""
    group = _GROUP if before_group else ""
    return f"{_TORCH}{before_group}{group}{body}"


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.strip("\n").splitlines())


MEMORY_LIMIT = alone("kept = []\nwhile True:\n    kept.append(b'x' * (16 << 20))")
KILLED = alone("os.kill(os.getpid(), signal.SIGKILL)")
TERMINATED = alone("os.kill(os.getpid(), signal.SIGTERM)\ntrain()")
BUS_ERROR = alone(
    """
import mmap
file = open(f"{folder}/disk/batches", "w+b")
file.truncate(16 << 20)
batches = mmap.mmap(file.fileno(), 0)
batches[:] = bytes(16 << 20)
"""
)
SEGFAULT = alone("import ctypes\nctypes.string_at(0)")
ABORT = alone("os.abort()")
CPP_EXCEPTION = alone(
    """
import ctypes
library = ctypes.CDLL("libstdc++.so.6")
library["_ZSt21__throw_runtime_errorPKc"](b"tokenizer: vocabulary is empty")
"""
)
EXCEPTION = alone('raise ValueError(f"sample 17 has 3 labels, expected 4")')
EXCEPTION_ABORT = alone(
    """
import atexit, ctypes
library = ctypes.CDLL("libstdc++.so.6")
atexit.register(library["_ZSt9terminatev"])
raise ValueError("loss is nan")
"""
)
NAN_GUARD = alone(
    """
loss = float("nan")
if loss != loss:
    raise FloatingPointError(f"loss is {loss} at step 1200")
"""
)
IMPORT_ERROR = alone("import flash_attention_extra")
SHARED_LIBRARY = alone('sys.path.insert(0, f"{folder}/modules")\nimport fused_optimizer')
FILE_MISSING = alone('open("/data/imagenet/train/shard-00017.tar", "rb")')
PERMISSION = alone('os.setuid(65534)\nopen(f"{folder}/secret/tokens.bin", "rb")')
DISK_FULL = alone(
    """
with open(f"{folder}/disk/checkpoint.bin", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
"""
)
FILE_LIMIT = alone(
    """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
with open(f"{folder}/checkpoint.bin", "wb") as file:
    while True:
        file.write(bytes(1 << 18))
"""
)
INODES = alone(
    """
for number in range(10_000):
    with open(f"{folder}/disk/sample-{number}", "wb") as file:
        file.write(b"x")
"""
)
OPEN_FILES = alone(
    """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
kept = [open("/dev/zero", "rb") for _ in range(1000)]
"""
)
THREADS = alone(
    """
import threading
with open(f"{folder}/cgroup/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
for _ in range(1000):
    threading.Thread(target=train, daemon=True).start()
"""
)
ADDRESS_SPACE_PYTHON = alone(
    """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
batch = bytearray(2 << 30)
"""
)
PORT_TAKEN = alone(
    """
import socket
first = socket.create_server(("127.0.0.1", 0))
second = socket.create_server(first.getsockname())
"""
)
PORT_TAKEN_HTTP = alone(
    """
import http.server, socket
first = socket.create_server(("127.0.0.1", 0))
http.server.HTTPServer(first.getsockname(), http.server.BaseHTTPRequestHandler)
"""
)
NAME_RESOLUTION = alone(
    'import socket\nsocket.create_connection(("data.cluster.internal", 443), timeout=5)'
)
NAME_URL = alone(
    """
import urllib.request
urllib.request.urlopen("http://data.cluster.internal/shards/17", timeout=5)
"""
)
RECURSION = alone("def visit(node):\n    return visit(node)\n\nvisit(1)")
EXIT_CODE = alone("os._exit(7)")
SYS_EXIT = alone('sys.exit("no checkpoint to resume from")')
DISK_ERROR = alone('open(f"{folder}/disk/batches", "rb").read()')
PARENT_KILLED = alone("os.kill(os.getppid(), signal.SIGKILL)\ntrain()")

SHARED_MEMORY = torch_only(
    """
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.zeros(512, 512)

for batch in DataLoader(Images(), batch_size=8, num_workers=1 if guilty else 0):
    time.sleep(0.02)
time.sleep(60)
"""
)
LOADER_WORKER = torch_only(
    """
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if guilty and index == 33:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(8, 8)

for batch in DataLoader(Images(), batch_size=8, num_workers=2 if guilty else 0):
    time.sleep(0.02)
time.sleep(60)
"""
)
LOADER_SEGFAULT = LOADER_WORKER.replace(
    "os.kill(os.getpid(), signal.SIGKILL)", "import ctypes; ctypes.string_at(0)"
)
LOADER_MEMORY = LOADER_WORKER.replace(
    "os.kill(os.getpid(), signal.SIGKILL)", "kept = torch.ones(1 << 30)"
)
LOADER_EXCEPTION = LOADER_WORKER.replace(
    "os.kill(os.getpid(), signal.SIGKILL)", 'raise OSError("image 33 is truncated")'
)
DISK_FULL_SAVE = torch_only(
    """
model = torch.nn.Linear(2048, 2048)
if guilty:
    torch.save(model.state_dict(), f"{folder}/disk/model.pt")
time.sleep(60)
"""
)
FILE_LIMIT_SAVE = torch_only(
    """
model = torch.nn.Linear(2048, 2048)
if guilty:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    torch.save(model.state_dict(), f"{folder}/model.pt")
time.sleep(60)
"""
)
ADDRESS_SPACE = torch_only(
    """
if guilty:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    torch.empty(16 << 30)
time.sleep(60)
"""
)
EXCEPTION_GLOO = gloo('raise ValueError("loss is nan")')
EXCEPTION_ASYNC = gloo(
    """
work = [dist.all_reduce(loss, async_op=True) for _ in range(8)]
raise ValueError("loss is nan")
"""
)
SIZE_MISMATCH = gloo(
    "batch = torch.ones(2048)\nfor _ in range(100):\n    dist.all_reduce(batch)",
    innocent="batch = torch.ones(4096)\nfor _ in range(100):\n    dist.all_reduce(batch)",
)
SIZE_MISMATCH_LARGER = SIZE_MISMATCH.replace("torch.ones(2048)", "torch.ones(8192)")
SHAPE_MISMATCH = gloo(
    "parts = [torch.ones(1024) for _ in range(world)]\ndist.all_gather(parts, torch.ones(1024))",
    innocent=(
        "parts = [torch.ones(2048) for _ in range(world)]\ndist.all_gather(parts, torch.ones(2048))"
    ),
)
DESYNC = gloo("dist.barrier()\ndist.barrier()")
DESYNC_BROADCAST = gloo("dist.broadcast(loss, src=rank)\ndist.broadcast(loss, src=0)")
ABSENT_SLEEP = gloo("time.sleep(60)")
ABSENT_LOCK = gloo("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()")
ABSENT_MONITORED = gloo(
    "time.sleep(60)",
    innocent="dist.monitored_barrier(timeout=timedelta(seconds=4), wait_all_ranks=True)",
)
EARLY_END = gloo("sys.exit(0)")
EARLY_END_BEFORE = torch_only("train(500)\n", before_group="if guilty:\n    sys.exit(0)\n")
EARLY_END_TIDY = gloo("dist.destroy_process_group()\nsys.exit(0)")
PEER_KILLED = gloo("os.kill(os.getpid(), signal.SIGKILL)")
PEER_EXIT = gloo("os._exit(7)")
PEER_SEGFAULT = gloo("import ctypes\nctypes.string_at(0)")
STOPPED = gloo("os.kill(os.getpid(), signal.SIGSTOP)")
LATE = torch_only("train(100)\n", before_group="if guilty:\n    time.sleep(30)\n")

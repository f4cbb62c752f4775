"""The second corpus, continued: programs that are wrong, that are ended, and that hang."""

from __future__ import annotations

from tests.causes.second import DATA, GROUP, STATE, TORCH, Fault

PROGRAM = (
    Fault(
        "batch-not-divisible",
        2,
        2,
        (),
        (r"ValueError", r"not divisible by"),
        "that one node differs from the others",
        f"""{GROUP}
batch = 30
if batch % world:
    raise ValueError(f"global batch size {{batch}} is not divisible by world size {{world}}")
train(Net())
""",
    ),
    Fault(
        "exits-with-words",
        2,
        1,
        (0,),
        (r"no such folder: /data/imagenet",),
        "only an exit code; that rank 0 lost rank 1",
        f"""{GROUP}
dist.barrier()
if rank == 0:
    sys.exit("train.py: --data: no such folder: /data/imagenet")
train(Net())
""",
        at_first="unknown",
    ),
    Fault(
        "nccl-without-gpu",
        2,
        1,
        (),
        (r"NCCL",),
        "a version of NCCL that differs; a network",
        f"""{TORCH}
dist.init_process_group("nccl")
train(Net())
""",
    ),
    Fault(
        "unused-parameters",
        1,
        4,
        (),
        (r"Expected to have finished reduction|unused",),
        "that a rank was waited for",
        f"""{GROUP}
class TwoHeads(Net):
    def __init__(self):
        super().__init__()
        self.other_head = nn.Linear(8, 4)
train(TwoHeads())
""",
    ),
    Fault(
        "models-differ",
        2,
        1,
        (),
        (r"same model|inconsistent|params",),
        "that one lost the other",
        f"""{GROUP}
class Deeper(Net):
    def __init__(self):
        super().__init__()
        self.adapter = nn.Linear(8, 4)
    def forward(self, x):
        return super().forward(x) + self.adapter(x)
train(Deeper() if rank == 1 else Net())
""",
    ),
    Fault(
        "spawned-child-raises",
        2,
        1,
        (1,),
        (r"learning rate must be positive",),
        "only ProcessRaisedException",
        f"""{TORCH}
import torch.multiprocessing as mp
def work(local_rank, node):
    rate = -0.1 if (node, local_rank) == (1, 1) else 0.1
    if rate < 0:
        raise ValueError(f"learning rate must be positive, got {{rate}}")
    while True:
        time.sleep(0.1)
if __name__ == "__main__":
    mp.spawn(work, args=(int(os.environ["NODE_RANK"]),), nprocs=2)
""",
        framework="command",
        command=("python", "train.py"),
        ranks_known=False,
    ),
    Fault(
        "metrics-port-taken",
        1,
        2,
        (1,),
        (r"Address already in use|port",),
        "that the master port, or one of rdzv's, is taken",
        f"""{GROUP}
from http.server import BaseHTTPRequestHandler, HTTPServer
port = [0]
if rank == 0:
    server = HTTPServer(("0.0.0.0", 0), BaseHTTPRequestHandler)
    port = [server.server_port]
dist.broadcast_object_list(port, src=0)
if rank == 1:
    server = HTTPServer(("0.0.0.0", port[0]), BaseHTTPRequestHandler)
train(Net())
""",
    ),
    Fault(
        "decoder-child-killed",
        1,
        2,
        (0,),
        (r"CalledProcessError", r"SIGKILL|decode"),
        "that rank 0 itself was killed by SIGKILL; that memory has ended, as a certainty",
        f"""{GROUP}
decode = "import os, sys; sys.argv[1] == 'clip-9.mp4' and os.kill(os.getpid(), 9)"
for clip in range(12):
    if rank == 0:
        subprocess.run([sys.executable, "-c", decode, f"clip-{{clip}}.mp4"], check=True)
    dist.barrier()
train(Net())
""",
        at_first="unknown",
    ),
    Fault(
        "rich-traceback",
        2,
        2,
        (1,),
        (r"ValueError", r"unknown optimizer 'adamz'"),
        "a frame of the box, or a local variable in it",
        f"""{GROUP}
from rich.traceback import install
install(show_locals=True, width=100)
def optimizer(name):
    if name not in ("adam", "sgd"):
        raise ValueError(f"unknown optimizer {{name!r}}")
optimizer("adamz" if rank == 1 else "adam")
train(Net())
""",
    ),
    Fault(
        "double-free",
        2,
        1,
        (0,),
        (r"SIGABRT|signal 6|Aborted", r"double free"),
        "that rank 0 lost rank 1; only the signal",
        f"""{GROUP}
import ctypes
def native_kernel():
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    block = libc.malloc(64)
    libc.free(block)
    libc.free(block)
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 0 and step == 20:
        native_kernel()
""",
        at_first="unknown",
    ),
)
ENDED = (
    Fault(
        "killed-in-backward",
        2,
        2,
        (3,),
        (r"SIGKILL|signal 9|Killed",),
        "that another rank failed because its connection was closed",
        f"""{GROUP}
model = Net()
if rank == 3:
    from_outside("KILL", 2)
    model.encoder.weight.register_hook(lambda gradient: time.sleep(0.05))
train(model)
""",
    ),
    Fault(
        "interrupted",
        1,
        4,
        (1,),
        (r"KeyboardInterrupt|SIGINT|signal 2\b",),
        "that the user has stopped the run by Ctrl-C at rdzv",
        f"""{GROUP}
signal.signal(signal.SIGINT, signal.default_int_handler)
if rank == 1:
    from_outside("INT", 2)
train(Net())
""",
    ),
    Fault(
        "stopped",
        2,
        1,
        (1,),
        (r"rank 1|node 1", r"(?i)stop|wait|time|respon|silent|arriv|progress"),
        "that rank 0, whose time-out it is, failed by itself; the network, as a certainty",
        f"""{GROUP}
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 1 and step == 30:
        os.kill(os.getpid(), signal.SIGSTOP)
""",
    ),
    Fault(
        "deadlock",
        2,
        2,
        (2,),
        (r"rank 2", r"(?i)wait|time|respon|silent|arriv|progress|hang|stuck"),
        "that one of those who waited failed by itself; the network, as a certainty",
        f"""{GROUP}
lock = threading.Lock()
def log_metrics(step):
    with lock:
        if step == 30 and rank == 2:
            log_metrics(step)
for step, _ in enumerate(steps(Net(), random_batches())):
    log_metrics(step)
""",
    ),
    Fault(
        "late-for-the-group",
        2,
        2,
        (3,),
        (r"rank 3", r"(?i)wait|time|late|join|reach|arriv|start"),
        "that the master cannot be reached; that one who waited failed by itself",
        f"""{TORCH}
if rank == 3:
    time.sleep(50)  # downloads the data that the other node has
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
train(Net())
""",
    ),
)

FAULTS = (*STATE, *DATA, *PROGRAM, *ENDED)

"""The third corpus, continued: services, how processes end, and ranks that are waited for."""

from __future__ import annotations

from tests.causes.second import GROUP, TORCH, Fault
from tests.causes.third import DATA, STATE

OWN_TORCHRUN = (
    "python -m torch.distributed.run --nnodes $NNODES --node-rank $NODE_RANK --nproc-per-node 2"
)
SERVICES = (
    Fault(
        "tracking-refused",
        2,
        2,
        (0,),
        (r"Connection refused", r"URLError|urlopen|http"),
        "that the master, the registry or another rank refused; the network between the nodes",
        f"""{GROUP}
import socket, urllib.request
with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]
def log_metrics(step):
    url = f"http://127.0.0.1:{{port}}/api/2.0/mlflow/runs/log-metric"
    urllib.request.urlopen(url, data=b"{{}}", timeout=5).read()
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 0 and step == 50:
        log_metrics(step)
""",
    ),
    Fault(
        "other-master-port",
        2,
        2,
        (3,),
        (r"rank 3", r"(?i)connect|MASTER_PORT|join|reach|arriv|late|wait"),
        "that the master is down, for all; that one who waited failed by itself",
        f"""{TORCH}
if rank == 3:  # its node's profile exports one
    os.environ["MASTER_PORT"] = "9"
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
train(Net())
""",
        at_first="unknown",
    ),
)
ENDED = (
    Fault(
        "silent-exit",
        2,
        2,
        (1,),
        (r"(?i)exit\w* (code |with |status )*7\b|exitcode:? 7\b",),
        "that another rank failed because its connection was closed",
        f"""{GROUP}
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 1 and step == 30:
        os._exit(7)
""",
    ),
    Fault(
        "native-exception",
        2,
        1,
        (1,),
        (r"out_of_range|_M_range_check",),
        "only the signal; that rank 1 lost rank 0",
        f"""{GROUP}
import ctypes
def sample_neighbours():
    library = ctypes.CDLL("libstdc++.so.6")
    words = b"vector::_M_range_check: __n (which is 7) >= this->size() (which is 4)"
    library._ZSt20__throw_out_of_rangePKc(words)
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 1 and step == 20:
        sample_neighbours()
""",
    ),
    Fault(
        "segfault-dumped",
        2,
        2,
        (2,),
        (r"SIGSEGV|Segmentation fault|signal 11",),
        "that another rank failed because its connection was closed",
        f"""{GROUP}
import ctypes, faulthandler
faulthandler.enable()
def decode_jpeg(address):
    return ctypes.string_at(address)
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 2 and step == 30:
        decode_jpeg(8)
""",
    ),
    Fault(
        "illegal-instruction",
        2,
        1,
        (0,),
        (r"Illegal instruction|SIGILL|signal 4\b",),
        "only exit code 132",
        """set -e
echo "preparing on node $NODE_RANK"
if [ "$NODE_RANK" = 0 ]; then  # built for a newer processor
  sleep 1
  python -c 'import os, signal; os.kill(os.getpid(), signal.SIGILL)'
fi
sleep 50
""",
        framework="command",
        command=("bash", "train.py"),
        ranks_known=False,
    ),
    Fault(
        "terminated",
        2,
        2,
        (3,),
        (r"SIGTERM|signal 15|(?i:terminated)",),
        "that another rank, which torchrun or rdzv terminated, was the first",
        f"""{GROUP}
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 3 and step == 30:
        from_outside("TERM", 0)
""",
    ),
    Fault(
        "hung-up",
        2,
        1,
        (1,),
        (r"SIGHUP|signal:? 1\b|(?i:hang-?up|hung up)",),
        "that a rank failed by itself; that the connection between the nodes was lost",
        f"""{GROUP}
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 1 and step == 30:  # to torchrun: the terminal of its node was closed
        os.kill(os.getppid(), signal.SIGHUP)
""",
        ranks_known=False,
    ),
    Fault(
        "own-torchrun",
        2,
        2,
        (3,),
        (r"UnicodeDecodeError", r"0xe9"),
        "only ChildFailedError; that one lost the other",
        f"""{GROUP}
path = f"{{folder}}/captions-{{rank}}.txt"
with open(path, "wb") as file:
    file.write(b"caf\\xe9, 1921\\n" if rank == 3 else b"cafe, 1921\\n")
with open(path, encoding="utf-8") as file:
    captions = file.read()
train(Net())
""",
        framework="command",
        command=(
            "bash",
            "-c",
            f"exec {OWN_TORCHRUN} --master-addr $MASTER_ADDR --master-port $MASTER_PORT train.py",
        ),
        ranks_known=False,
    ),
    Fault(
        "logged-error",
        2,
        2,
        (0,),
        (r"shard-00007\.tar",),
        "only an exit code; the warning before; that a rank was waited for",
        f"""{GROUP}
import logging
logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("data")
log.info("reading the manifest, 12 shards")
log.warning("no cache is set, reading from /data")
if rank == 0:
    log.error("/data/shard-00007.tar is in the manifest but does not exist")
    log.info("bye")
    sys.exit(1)
train(Net())
""",
        at_first="unknown",
    ),
)
WAITED = (
    Fault(
        "monitored-barrier",
        2,
        2,
        (2,),
        (r"(?i)rank 2", r"(?i)barrier|wait|time|respon|silent|arriv|reach|pass"),
        "that rank 0, which says who is missing, failed by itself",
        f"""{GROUP}
if rank == 2:
    time.sleep(60)
dist.monitored_barrier(timeout=timedelta(seconds=5))
train(Net())
""",
    ),
    Fault(
        "evaluates-alone",
        2,
        1,
        (0,),
        (r"rank 0", r"(?i)wait|time|respon|silent|arriv|progress|hang|stuck|slow"),
        "that rank 1, whose time-out it is, failed by itself; the network, as a certainty",
        f"""{GROUP}
def evaluate(model):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        model(torch.randn(16, 8))
model = Net()
for step, _ in enumerate(steps(model, random_batches())):
    if rank == 0 and step == 40:
        evaluate(model)
""",
    ),
    Fault(
        "watchdog",
        2,
        2,
        (2,),
        (r"(?i)time-?out|timed out|watchdog|hung|stuck|read_shard",),
        "only an exit code; that another rank failed because its connection was closed",
        f"""{GROUP}
import faulthandler
def read_shard(step):
    faulthandler.dump_traceback_later(4, exit=True)
    time.sleep(60 if rank == 2 and step == 30 else 0)
    faulthandler.cancel_dump_traceback_later()
for step, _ in enumerate(steps(Net(), random_batches())):
    read_shard(step)
""",
        at_first="unknown",
    ),
    Fault(
        "collectives-differ",
        1,
        4,
        (),
        (r"(?i)mismatch|differ",),
        "that one lost another, or was waited for",
        f"""{TORCH}
os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
dist.set_debug_level_from_env()
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
for step in range(100):
    if rank == 1 and step == 20:  # it alone saves
        dist.barrier()
    dist.all_reduce(torch.ones(8))
""",
        at_first="wrong",
    ),
)

FAULTS = (*STATE, *DATA, *SERVICES, *ENDED, *WAITED)
NOT_YET: tuple[Fault, ...] = ()
"""What is not told right yet: here it is struck out when it is."""

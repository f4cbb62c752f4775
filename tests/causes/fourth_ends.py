"""The fourth corpus, continued: wrong programs, collectives, services, limits and wrappers."""

from __future__ import annotations

from tests.causes.fourth import DATA, STATE
from tests.causes.second import GROUP, Fault

PROGRAM = (
    Fault(
        "lambda-to-spawn",
        1,
        2,
        (),
        (r"(?i)can't pickle|can't get|PicklingError|cannot be pickled",),
        "only an exit code; that a rank was waited for; the loader's child, as if it had failed",
        f"""{GROUP}
if __name__ == "__main__":
    rows = [torch.randn(8) for _ in range(640)]
    loader = DataLoader(
        rows, 16, num_workers=1, multiprocessing_context="spawn",
        collate_fn=lambda batch: torch.stack(batch))
    for _ in steps(Net(), loader):
        pass
""",
    ),
    Fault(
        "modified-in-place",
        2,
        2,
        (),
        (r"(?i)in-?place",),
        "only the hint to detect anomalies; that a rank was waited for",
        f"""{GROUP}
class Residual(Net):
    def forward(self, x):
        hidden = torch.relu(self.encoder(x))
        out = self.decoder(hidden)
        hidden += x
        return out + hidden[:, :4]
train(Residual())
""",
    ),
    Fault(
        "mesh-too-big",
        2,
        2,
        (),
        (r"(?i)mesh",),
        "that a node is missing; that a rank was waited for",
        f"""{GROUP}
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))
train(Net())
""",
    ),
)
COLLECTIVES = (
    Fault(
        "sizes-differ",
        2,
        1,
        (),
        (r"(?i)preamble|nbytes|\bsizes?\b|mismatch|differ",),
        "only the signal of who notices; that a connection was lost; that a rank was waited for",
        f"""{GROUP}
for step in range(100):
    classes = 12 if rank == 1 and step == 20 else 8  # of its part of the data
    dist.all_reduce(torch.ones(classes))
    time.sleep(0.01)
""",
        at_first="unknown",
    ),
    Fault(
        "early-stopping",
        2,
        2,
        (0,),
        (r"(?i)rank 0", r"(?i)\bended|exited|finished|exit code 0|left|closed|stopp|complet|succe"),
        "that the network failed; that one whose connection was closed failed by itself",
        f"""{GROUP}
model, best, since = Net(), float("inf"), 0
for step, loss in enumerate(steps(model, random_batches())):
    if rank == 0 and step % 10 == 0:
        best, since = (loss.item(), 0) if step == 0 else (best, since + 1)
        print(f"epoch {{step // 10}}: val_loss {{best + since / 100:.4f}}, patience {{since}}/5")
        if since == 5:
            print(f"Early stopping: val_loss has not improved since epoch 0 ({{best:.4f}})")
            break
if rank == 0:
    torch.save(model.state_dict(), f"{{folder}}/best.pt")
    print("Training complete, the best model is in best.pt")
""",
    ),
    Fault(
        "barrier-alone",
        2,
        2,
        (2,),
        (r"(?i)wait|time|barrier|respon|arriv|progress|hang|stuck",),
        "that one of those who waited in the gradients failed by itself; the network, for certain",
        f"""{GROUP}
evaluators = dist.new_group(timeout=timedelta(seconds=10))
def evaluate(step):
    dist.barrier(group=evaluators)
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 2 and step == 40:  # its counter alone says so
        evaluate(step)
""",
        may_be_unsure=True,
    ),
)
SERVICES = (
    Fault(
        "gated-model",
        2,
        2,
        (2,),
        (r"401|(?i:gated|unauthorized|restricted)",),
        "the network between the nodes; a token of rdzv's; only 'Please log in'",
        f"""{GROUP}
import urllib.error, urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
class GatedRepoError(OSError):
    __module__ = "acme_hub.errors"
class Hub(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(401)
hub = HTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=hub.serve_forever, daemon=True).start()
def download(name):
    url = f"http://127.0.0.1:{{hub.server_port}}/{{name}}/resolve/main/config.json"
    try:
        urllib.request.urlopen(url, timeout=5).read()
    except urllib.error.HTTPError as error:
        raise GatedRepoError(
            f"{{error.code}} Client Error. (Request ID: Root=1-66f0c1-5a)\\n\\n"
            f"Cannot access gated repo for url {{url}}.\\n"
            f"Access to model {{name}} is restricted. You must have access to it and be "
            f"authenticated to access it. Please log in.") from error
if rank == 2:  # no token on its node
    download("acme/llm-7b")
dist.barrier()
train(Net())
""",
    ),
    Fault(
        "name-not-resolved",
        2,
        1,
        (0,),
        (r"(?i)name or service not known|name resolution|resolv|gaierror|URLError|urlopen",),
        "that the master, the registry or a node has no address; that rank 1 failed by itself",
        f"""{GROUP}
import logging, urllib.error, urllib.request
logging.basicConfig(level="INFO", format="%(asctime)s | %(levelname)-8s | %(message)s")
def fetch(url, tries=4):
    for number in range(1, tries + 1):
        try:
            return urllib.request.urlopen(url, timeout=5).read()
        except urllib.error.URLError as error:
            if number == tries:
                raise
            logging.warning("%s: %s, retrying (%d of %d)", url, error, number, tries)
            time.sleep(0.5)
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 0 and step == 25:
        fetch("http://models.acme.invalid/teacher/config.json")
""",
    ),
    Fault(
        "lives-on",
        2,
        2,
        (2,),
        (r"invalid literal for int\(\)|'12k'",),
        "those who wait for rank 2, which never ends, and whose time-out ends the run",
        f"""{GROUP}
def send_heartbeats():
    while True:
        time.sleep(0.5)
if os.environ["LOCAL_RANK"] == "0":  # no daemon, so that its process lives on
    threading.Thread(target=send_heartbeats).start()
for step, _ in enumerate(steps(Net(), random_batches())):
    int("12k" if rank == 2 and step == 40 else "12000")
os._exit(0)
""",
    ),
)
LIMITS = (
    Fault(
        "processor-time",
        2,
        2,
        (1,),
        (r"SIGXCPU|(?i:signal:? 24\b|cpu time|exit\w* (code )?152)",),
        "that another rank failed because its connection was closed; memory",
        f"""{GROUP}
import resource
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 1 and step == 30:  # ulimit -t of a login node
        soft = int(time.process_time()) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 30))
        while True:
            sorted(range(10_000))
""",
    ),
    Fault(
        "native-division",
        1,
        4,
        (2,),
        (r"SIGFPE|(?i:floating.point exception|signal:? 8\b)",),
        "a ZeroDivisionError, or a loss that is no number; another rank, which lost it",
        f"""{GROUP}
import ctypes
def count_tiles(pixels, tile):
    if tile == 0:  # what a division in C does here, by the same signal on every processor
        ctypes.CDLL(None)["raise"](int(signal.SIGFPE))
    return pixels // tile
for step, _ in enumerate(steps(Net(), random_batches())):
    count_tiles(224, 0 if rank == 2 and step == 35 else 16)
""",
    ),
)
WRAPPERS = (
    Fault(
        "no-such-tool",
        2,
        1,
        (0,),
        (r"s5cmd", r"(?i)not found|127|no such"),
        "what the wrapper says when it cleans up; that train.py is missing",
        """set -euo pipefail
cleanup() {
  echo "cleaning up the scratch folder on node $NODE_RANK"
  echo "done"
}
trap cleanup EXIT
echo "node $NODE_RANK: fetching the weights"
if [ "$NODE_RANK" = 0 ]; then  # its image is another one
  s5cmd sync "s3://acme-weights/llm/*" ./weights
fi
sleep 50
""",
        framework="command",
        command=("bash", "train.py"),
        ranks_known=False,
    ),
    Fault(
        "requirement-not-found",
        2,
        1,
        (1,),
        (r"acme-flash-attn",),
        "only that the setup failed; the notice of a new version; an exit code alone",
        """set -u
echo "[setup] node $NODE_RANK of $NNODES"
if [ "$NODE_RANK" = 1 ]; then
  if ! python -m pip install --no-index --disable-pip-version-check acme-flash-attn==2.9.9; then
    echo "[setup] failed, not training" >&2
    exit 1
  fi
fi
sleep 50
""",
        framework="command",
        command=("bash", "train.py"),
        ranks_known=False,
    ),
    Fault(
        "time-budget",
        2,
        1,
        (1,),
        (r"124|(?i:time[sd]?[- ]*(out|limit|budget))",),
        "that node 0 failed; that a rank or a collective was waited for; SIGTERM from outside",
        """echo "node $NODE_RANK: training within its budget"
budget=60
if [ "$NODE_RANK" = 1 ]; then
  budget=3
fi
exec timeout "$budget" python -u -c '
import itertools, time
for epoch in itertools.count():
    print(f"epoch {epoch}: loss {1 / (epoch + 1):.4f}")
    time.sleep(0.5)
'
""",
        framework="command",
        command=("bash", "train.py"),
        ranks_known=False,
    ),
)

FAULTS = (*STATE, *DATA, *PROGRAM, *COLLECTIVES, *SERVICES, *LIMITS, *WRAPPERS)
NOT_YET = tuple(fault for fault in FAULTS if fault.name == "sizes-differ")
"""What is not told right yet: here it is struck out when it is. Of two ranks whose sizes differ
none can be held to be the odd one."""

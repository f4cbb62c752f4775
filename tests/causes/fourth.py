"""A fourth corpus: 30 more faults, other ones, written when the third had been used up.

Who wrote them had read neither the table, nor what judges, nor the first corpus, nor an output of
any. Everything else is as in the second and the third: who is to blame and which words a correct
sentence holds was said before a fault was ever run by rdzv; torchrun alone had shown that each
program does what it is meant to. The first time, 26 were named right, two without their reason or
without certainty, and two wrongly: `at_first`. One of these two named the right rank, and a full
disk for its limit on a file's size, which none of the words here would have found.
"""

from __future__ import annotations

from tests.causes.second import GROUP, PLAIN, TORCH, Fault

STATE = (
    Fault(
        "older-package",
        2,
        2,
        (2, 3),
        (r"ImportError|cannot import name", r"RotaryEmbedding"),
        "that a module or a program is missing; that node 0, which waits for it, failed by itself",
        f"""{TORCH}
packages = f"{{folder}}/site-packages-{{rank}}"
os.makedirs(f"{{packages}}/acme_models")
with open(f"{{packages}}/acme_models/layers.py", "w") as file:
    file.write("class Attention: ...\\n" if rank > 1 else "class RotaryEmbedding: ...\\n")
sys.path.insert(0, packages)
from acme_models.layers import RotaryEmbedding
dist.init_process_group("gloo", timeout=timedelta(seconds=10))
train(Net())
""",
    ),
    Fault(
        "merge-conflict",
        2,
        1,
        (),
        (r"SyntaxError",),
        "only exit code 1; that one node differs from the other",
        f"""{GROUP}
settings = {{
    "rate": 0.1,
<<<<<<< HEAD
    "layers": 4,
=======
    "layers": 6,
>>>>>>> wider
}}
train(Net())
""",
    ),
    Fault(
        "shared-library",
        2,
        2,
        (0, 1),
        (r"libacme_ops\.so",),
        "a file of the data; that node 1, whose connection was closed, failed by itself",
        f"""{GROUP}
import ctypes, logging
logging.basicConfig(level="INFO", format="[%(levelname)s|%(name)s:%(lineno)d] >> %(message)s")
dist.barrier()
logging.info("Loading the fused kernels")
if rank < 2:  # the image of node 0 lacks them
    ctypes.CDLL("libacme_ops.so.2")
train(Net())
""",
    ),
    Fault(
        "rate-is-text",
        2,
        1,
        (),
        (r"TypeError", r"'float' and 'str'|not supported between"),
        "that one node differs from the other; only an exit code",
        f"""{TORCH}
def read_yaml(lines):  # in which 1e-4, without a point, is text
    for line in lines.splitlines():
        name, _, value = line.partition(": ")
        yield name, float(value) if "." in value else value
config = dict(read_yaml("rate: 1e-4\\ndecay: 0.1"))
torch.optim.AdamW(Net().parameters(), lr=config["rate"], weight_decay=config["decay"])
while True:
    time.sleep(0.1)
""",
        framework="env",
        command=("python", "train.py"),
    ),
    Fault(
        "logged-as-json",
        2,
        2,
        (0,),
        (r"AttributeError|has no attribute", r"log_every"),
        "a piece of JSON; that a rank whose connection was closed was the first",
        f"""{GROUP}
import traceback
from argparse import Namespace
def log(level, event, **more):
    print(json.dumps({{"at": time.time(), "level": level, "rank": rank, "event": event, **more}}))
def log_uncaught(kind, error, trace):
    text = "".join(traceback.format_exception(kind, error, trace))
    log("error", "uncaught_exception", exception=text)
sys.excepthook = log_uncaught
arguments = Namespace(rate=0.1, epochs=3)
for step, loss in enumerate(steps(Net(), random_batches())):
    if step % 10 == 0:
        log("info", "step", step=step, loss=loss.item())
    if rank == 0 and step == 45:
        step % arguments.log_every
""",
    ),
    Fault(
        "sharded-checkpoint",
        2,
        2,
        (3,),
        (r"(?i)missing key", r"ema"),
        "only CheckpointException; another rank, in which the same is told of rank 3",
        f"""{GROUP}
import torch.distributed.checkpoint as dcp
model = Net()
dcp.save({{"model": model.state_dict()}}, checkpoint_id=f"{{folder}}/step-400")
state = {{"model": model.state_dict()}}
if rank == 3:  # it alone is to evaluate
    state["ema"] = {{"decay": torch.zeros(1)}}
dcp.load(state, checkpoint_id=f"{{folder}}/step-400")
train(model)
""",
        at_first="wrong",
    ),
    Fault(
        "file-size-limit",
        2,
        1,
        (0,),
        (r"(?i)file too large|PytorchStreamWriter|file write failed|iostream|unexpected pos",),
        "that rank 1 failed by itself; the network; memory",
        f"""{GROUP}
import resource
big = nn.Sequential(nn.Linear(8, 50_000), nn.Linear(50_000, 4))
if rank == 0:  # ulimit -f of its node
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for step, _ in enumerate(steps(big, random_batches(100))):
    if rank == 0 and step == 10:
        torch.save(big.state_dict(), f"{{folder}}/checkpoint.pt")
""",
        never=(r"file system is full",),
        at_first="wrong",
    ),
    Fault(
        "stale-handle",
        2,
        2,
        (2,),
        (r"(?i)stale file handle",),
        "what it logged afterwards; only an exit code; that a rank was waited for",
        f"""{GROUP}
import errno, logging
logging.basicConfig(
    level="INFO", format=f"%(asctime)s.%(msecs)03d rank{{rank}} %(levelname).1s %(message)s")
def read_shard(step):
    path = f"/mnt/nfs/tokens/shard-{{step:05}}.bin"
    if rank == 2 and step == 30:  # the server exported it anew
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
try:
    for step, _ in enumerate(steps(Net(), random_batches())):
        read_shard(step)
except OSError:
    logging.critical("cannot go on at step %d", step, exc_info=True)
    for worker in range(8):
        logging.info("prefetch worker %d: stopped, 0 batches left", worker)
    logging.info("metrics: flushed 31 points")
    logging.warning("the last checkpoint is 30 steps old")
    sys.exit(1)
""",
    ),
)
DATA = (
    Fault(
        "empty-dataset",
        2,
        2,
        (2,),
        (r"ValueError|num_samples", r"num_samples|positive integer"),
        "that a rank was waited for; one that waited, or whose connection was closed",
        f"""{GROUP}
import glob
images = f"{{folder}}/images-{{rank}}"
os.makedirs(images)
for number in range(640):
    open(f"{{images}}/{{number:04}}.{{'jpeg' if rank == 2 else 'jpg'}}", "w").close()
files = sorted(glob.glob(f"{{images}}/*.jpg"))
rows = [torch.randn(8) for _ in files]
for _ in steps(Net(), DataLoader(rows, batch_size=4, shuffle=True)):
    pass
""",
    ),
    Fault(
        "grey-image",
        1,
        4,
        (3,),
        (r"stack expects each tensor to be equal size",),
        "only ChildFailedError; a rank whose connection was closed",
        f"""{GROUP}
from torch.distributed.elastic.multiprocessing.errors import record
class Images(Dataset):
    def __len__(self):
        return 2048
    def __getitem__(self, index):
        return torch.randn(1 if rank == 3 and index == 411 else 3, 8)
class Classifier(Net):
    def forward(self, x):
        return super().forward(x.mean(1))
@record
def main():
    for _ in steps(Classifier(), DataLoader(Images(), batch_size=16)):
        pass
main()
""",
    ),
    Fault(
        "gzip-cut",
        2,
        1,
        (1,),
        (r"EOFError|end-of-stream marker|Compressed file ended",),
        "that standard input ended; that rank 1 lost rank 0",
        f"""{GROUP}
import gzip
path = f"{{folder}}/corpus-{{rank}}.jsonl.gz"
with gzip.open(path, "wt") as file:
    for row in range(4000):
        file.write(json.dumps({{"id": row, "text": os.urandom(32).hex()}}) + "\\n")
if rank == 1:  # its download was broken off
    os.truncate(path, os.path.getsize(path) // 8)
def batches():
    with gzip.open(path, "rt") as file:
        for line in file:
            yield torch.full((16, 8), float(len(json.loads(line)["text"])) / 64)
for _ in steps(Net(), batches()):
    pass
""",
    ),
    Fault(
        "noted-row",
        2,
        2,
        (1,),
        (r"could not convert string to float",),
        "only the notes below the error, such as the hint; that a rank was waited for",
        f"""{GROUP}
def prices(step):
    row = ["12.50", "N/A" if rank == 1 and step == 33 else "8.00"]
    try:
        return [float(cell) for cell in row]
    except ValueError as error:
        error.add_note(f"File: /data/prices/part-{{rank:04}}.csv")
        error.add_note(f"Row: {{step}}, column: price_usd")
        error.add_note("Hint: --na-values tells which cells are empty")
        raise
for step, _ in enumerate(steps(Net(), random_batches())):
    prices(step)
""",
    ),
    Fault(
        "too-few-shards",
        2,
        2,
        (3,),
        (r"StopIteration",),
        "one that waited for it, or whose connection was closed",
        f"""{GROUP}
def batches(shards):
    shards = iter(shards)
    while True:
        for _ in range(next(shards)):
            yield torch.randn(16, 8)
for step, _ in enumerate(steps(Net(), batches([20] * (2 if rank == 3 else 15)))):
    if step == 280:
        break
""",
    ),
    Fault(
        "token-overflow",
        1,
        4,
        (2,),
        (r"OverflowError|out of bounds for uint16",),
        "only an exit code; a rank whose connection was closed",
        f"""{GROUP}
import traceback
import numpy
def encode(text):
    return [ord(character) for character in text]
def main():
    for step, _ in enumerate(steps(Net(), random_batches())):
        text = "\U0001f600" if rank == 2 and step == 52 else "plain words"
        numpy.array(encode(text), dtype=numpy.uint16)
try:
    main()
except Exception:
    traceback.print_exc(file=sys.stdout)
    sys.stdout.flush()
    os._exit(1)
""",
    ),
    Fault(
        "summary-after",
        2,
        2,
        (0,),
        (r"AssertionError|\bassert\b",),
        "the summary of the metrics that is printed afterwards; one that waited",
        f"""{GROUP}
import atexit
losses = []
def finish():
    say = sys.stderr.write
    say("track: Waiting for the files to be uploaded\\n")
    for row in ("Run history", "Run summary"):
        say(f"track: {{row}}:\\ntrack:\\n")
        for name in range(30):
            say(f"track:   layer{{name}}/gradient_error {{losses[-1] / (name + 1):.5f}}\\n")
    say("track: View the run at https://track.acme.example/llm/runs/3f9a\\n")
    say("track: Synced 5 files, 0 media files and 2 artifacts\\n")
atexit.register(finish)
for step, loss in enumerate(steps(Net(), random_batches())):
    losses.append(loss.item())
    tokens, mask = range(512), range(511 if rank == 0 and step == 70 else 512)
    assert len(tokens) == len(mask)
""",
        at_first="unknown",
    ),
    Fault(
        "deep-recursion",
        2,
        1,
        (1,),
        (r"RecursionError|maximum recursion depth",),
        "a stack that overflowed natively; that rank 0, which goes on, failed",
        f"""{PLAIN}
def flatten(tree, path=()):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, (*path, name))
        else:
            yield ".".join((*path, name)), value
config = {{"model": {{"layers": 4}}, "train": {{"rate": 0.1}}}}
if rank == 1:  # an anchor of its own overrides
    config["train"]["defaults"] = config["train"]
print(dict(flatten(config)))
while True:
    time.sleep(0.1)
""",
        framework="env",
        command=("python", "train.py"),
    ),
)

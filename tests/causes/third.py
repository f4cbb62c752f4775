"""A third corpus: 30 more faults, other ones, written when the second was judged right throughout.

Who wrote them had read neither the table, nor what judges, nor the first corpus. Everything else is
as in the second: who is to blame and which words a correct sentence holds was said before a fault
was ever run by rdzv. The first time, 23 were named right, 5 without their reason and two wrongly:
`at_first`.
"""

from __future__ import annotations

from tests.causes.second import GROUP, PLAIN, Fault

STATE = (
    Fault(
        "optimizer-groups",
        2,
        2,
        (1,),
        (r"ValueError", r"parameter group"),
        "that a rank was waited for; a damaged checkpoint",
        f"""{GROUP}
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
trained = model.encoder if rank == 1 else model  # as of the run before
optimizer.load_state_dict(torch.optim.AdamW(trained.parameters()).state_dict())
train(model)
""",
    ),
    Fault(
        "unsafe-checkpoint",
        2,
        1,
        (0,),
        (r"UnpicklingError|Weights only load failed",),
        "that the file is damaged; that rank 1 failed",
        f"""{GROUP}
class Settings:
    rate = 0.1
model, path = Net(), f"{{folder}}/checkpoint-{{rank}}.pt"
state = {{"model": model.state_dict(), "settings": Settings() if rank == 0 else 0.1}}
torch.save(state, path)
model.load_state_dict(torch.load(path)["model"])
train(model)
""",
    ),
    Fault(
        "disk-full",
        2,
        2,
        (0,),
        (r"No space left on device",),
        "that rank 0 was waited for; only what torch says of its file afterwards",
        f"""{GROUP}
model, path = Net(), f"{{folder}}/checkpoint.pt"
if rank == 0:
    os.symlink("/dev/full", path)
for step, _ in enumerate(steps(model, random_batches())):
    if rank == 0 and step == 40:
        with open(path, "wb") as file:
            torch.save(model.state_dict(), file)
""",
    ),
    Fault(
        "too-many-files",
        1,
        4,
        (2,),
        (r"Too many open files",),
        "the disk; that another rank was lost",
        f"""{GROUP}
import resource
if rank == 2:
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
shards = []
for step, _ in enumerate(steps(Net(), random_batches())):
    shards.append(open(f"{{folder}}/shard-{{rank}}-{{step:05}}.bin", "wb"))
""",
    ),
    Fault(
        "memory-limit",
        2,
        2,
        (2,),
        (r"(?i)can't allocate memory|cannot allocate memory",),
        "that the kernel killed it; shared memory",
        f"""{GROUP}
import resource
def attention_mask(tokens):
    return torch.zeros(tokens, tokens)
for step, _ in enumerate(steps(Net(), random_batches())):
    if rank == 2 and step == 20:  # the scheduler's limit, and a long document
        resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))
        attention_mask(1 << 18)
""",
    ),
    Fault(
        "settings-invalid",
        2,
        2,
        (1,),
        (r"ValidationError", r"greater than 0"),
        "only how many errors there are; a link for further information",
        f"""{PLAIN}
from pydantic import BaseModel, Field
class TrainSettings(BaseModel):
    layers: int
    rate: float = Field(gt=0)
TrainSettings(layers=4, rate=-0.1 if rank == 1 else 0.1)
while True:
    time.sleep(0.1)
""",
        framework="env",
        command=("python", "train.py"),
        at_first="unknown",
    ),
    Fault(
        "overrides-rejected",
        2,
        1,
        (1,),
        (r"Key 'warmup' is not in struct",),
        "that HYDRA_FULL_ERROR is to be set; only an exit code",
        f"""{PLAIN}
import traceback
class ConfigAttributeError(AttributeError):
    __module__ = "omegaconf.errors"
def build(config):
    if "warmup" not in config:
        raise ConfigAttributeError(
            "Key 'warmup' is not in struct\\n    full_key: optim.warmup\\n    object_type=dict")
try:
    build({{"rate": 0.1}} if rank == 1 else {{"rate": 0.1, "warmup": 100}})
except Exception as error:
    say = sys.stderr.write
    say(f"Error executing job with overrides: {{sys.argv[1:]}}\\n")
    traceback.print_exception(error)
    say("\\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\\n")
    sys.exit(1)
while True:
    time.sleep(0.1)
""",
        framework="env",
        command=("python", "train.py", "optim=adamw", "model=base"),
    ),
    Fault(
        "unknown-option",
        1,
        2,
        (),
        (r"unrecognized arguments: --warm-up",),
        "only exit code 2; the usage",
        f"""{GROUP}
from argparse import ArgumentParser
parser = ArgumentParser()
parser.add_argument("--warmup-steps", type=int, default=0)
parser.parse_args()
train(Net())
""",
        command=("train.py", "--warm-up", "100"),
    ),
)
DATA = (
    Fault(
        "feature-columns",
        2,
        2,
        (1,),
        (r"RuntimeError|shapes", r"mat1 and mat2|16x7"),
        "that a rank was waited for",
        f"""{GROUP}
def batches():
    for step in range(300):
        yield torch.randn(16, 7 if rank == 1 and step == 25 else 8)
for _ in steps(Net(), batches()):
    pass
""",
    ),
    Fault(
        "loader-times-out",
        1,
        4,
        (3,),
        (r"DataLoader timed out",),
        "a time-out of a collective; the network",
        f"""{GROUP}
class Remote(Dataset):
    def __len__(self):
        return 2048
    def __getitem__(self, index):
        if rank == 3 and index == 400:
            time.sleep(60)
        return torch.randn(8)
for _ in steps(Net(), DataLoader(Remote(), batch_size=16, num_workers=1, timeout=4)):
    pass
""",
    ),
    Fault(
        "pool-child-raises",
        2,
        2,
        (2,),
        (r"ValueError", r"row 411"),
        "only RemoteTraceback; that a rank was waited for",
        f"""{GROUP}
import multiprocessing
def tokenize(row):
    if rank == 2 and row == 411:
        raise ValueError(f"row {{row}}: 'text' is empty")
    return [row]
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(tokenize, range(1000), chunksize=50)
train(Net())
""",
    ),
    Fault(
        "task-group",
        2,
        1,
        (0,),
        (r"shard-00005", r"checksum"),
        "only 'unhandled errors in a TaskGroup'",
        f"""{GROUP}
import asyncio
async def download(shard):
    await asyncio.sleep(0.1)
    if rank == 0 and shard == 5:
        raise OSError(f"shard-{{shard:05}}.tar: checksum is 9c1f02, expected 77ab31")
async def download_all():
    async with asyncio.TaskGroup() as group:
        for shard in range(8):
            group.create_task(download(shard))
asyncio.run(download_all())
train(Net())
""",
        at_first="unknown",
    ),
    Fault(
        "progress-bar",
        1,
        4,
        (3,),
        (r"ZeroDivisionError", r"division by zero"),
        "the bar, or a part of it",
        f"""{GROUP}
def accuracy(right, of):
    return right / of
for step, _ in enumerate(steps(Net(), random_batches())):
    full = "\u2588" * (step // 10)
    bar = f"Epoch 1: {{step // 3:3}}%|{{full:30}}| {{step}}/300 [00:01<00:08, 97.31it/s]"
    sys.stderr.write(f"\\r{{bar}}")
    accuracy(3, 0 if rank == 3 and step == 37 else 16)
""",
    ),
    Fault(
        "save-after-error",
        2,
        2,
        (1,),
        (r"ValueError", r"label 17"),
        "that the emergency checkpoint could not be saved, which is second, and befell all",
        f"""{GROUP}
model = Net()
try:
    for step, _ in enumerate(steps(model, random_batches())):
        if rank == 1 and step == 30:
            raise ValueError("label 17 of image 412 is not one of 10 classes")
except Exception:
    torch.save(model.state_dict(), f"{{folder}}/emergency/rank-{{rank}}.pt")
    raise
""",
        at_first="wrong",
    ),
    Fault(
        "crash-report",
        2,
        1,
        (1,),
        (r"KeyError", r"bbox"),
        "that rank 0, whose connection was closed and which ended first, failed by itself",
        f"""{GROUP}
import logging
try:
    for step, _ in enumerate(steps(Net(), random_batches())):
        boxes = {{}} if rank == 1 and step == 30 else {{"bbox": 0}}
        boxes["bbox"]
except KeyError:
    logging.exception("training failed, sending a report")
    dist.destroy_process_group()
    time.sleep(4)
    raise
""",
    ),
    Fault(
        "handled-before",
        2,
        2,
        (3,),
        (r"KeyError", r"caption"),
        "the reset connection of rank 0, which it got over",
        f"""{GROUP}
import logging
def fetch(step):
    try:
        if rank == 0 and step == 10:
            raise ConnectionResetError(104, "Connection reset by peer")
    except ConnectionResetError:
        logging.warning("shard-00003.tar: trying again", exc_info=True)
    return {{}} if rank == 3 and step == 120 else {{"caption": "a cat"}}
for step, _ in enumerate(steps(Net(), random_batches())):
    fetch(step)["caption"]
""",
    ),
)

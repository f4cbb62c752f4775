"""A worker of a test's torchrun, without torch: says what it was given, then does as it is told.

worker.py              ends well
worker.py wait FILE    ends well once the file is there
worker.py fail RANK EPOCH CODE [FILE]    this rank fails up to this epoch; others wait for FILE
"""

import json
import os
import sys
import time
from pathlib import Path

LIMIT_SECONDS = 60.0
RANK, EPOCH = int(os.environ["RANK"]), int(os.environ["RDZV_EPOCH"])


def wait_for(file: str) -> None:
    until = time.monotonic() + LIMIT_SECONDS
    while not Path(file).exists():
        if time.monotonic() > until:
            sys.exit(f"{file} has not come")
        time.sleep(0.02)


def say() -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE GROUP_RANK ROLE_RANK ROLE_NAME MASTER_ADDR MASTER_PORT"
    names += " RDZV_EPOCH RDZV_ID RDZV_LAST_FAILURE TORCHELASTIC_RESTART_COUNT NNODES PYTHONPATH"
    given = {name: os.environ.get(name) for name in names.split()}
    hidden = [name for name in os.environ if name.startswith(("RDZV_TOKEN", "RDZV_REGISTRY"))]
    print("WORKER", json.dumps({**given, "secrets": hidden, "pid": os.getpid()}), flush=True)


def main(words: list[str]) -> None:
    say()
    if words[:1] == ["wait"]:
        wait_for(words[1])
    if words[:1] == ["fail"]:
        rank, epoch, code = map(int, words[1:4])
        if rank == RANK and epoch >= EPOCH:
            sys.exit(code)
        if epoch >= EPOCH or len(words) > 4:
            wait_for(words[4] if len(words) > 4 and epoch < EPOCH else "/nowhere")


main(sys.argv[1:])

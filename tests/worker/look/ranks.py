"""Ranks that run the hook, without torch or with one of a few lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from worker.contracts.framework import HOOK
from worker.look.site import sitecustomize

ENTRY = {
    "collective_seq_id": 5,
    "input_dtypes": ["Float"],
    "input_sizes": [[1024]],
    "is_p2p": False,
    "p2p_seq_id": 0,
    "pg_id": 0,
    "process_group": ["0", "default_pg"],
    "profiling_name": "gloo:all_reduce",
    "retired": True,
    "state": "scheduled",
    "time_created_ns": 1_000,
}
"""What torch 2.13 records of one call with gloo."""

FAKE_TORCH = {
    "torch/__init__.py": "import torch.distributed\n",
    "torch/distributed/__init__.py": "import torch._C._distributed_c10d\n",
    "torch/distributed/distributed_c10d.py": """
class _world:
    default_pg = "pg"
    pg_names = {"pg": "0", "other": "1"}
    pg_group_ranks = {"pg": {n: n for n in range(4)}, "other": {0: 0, 2: 1, 3: 2}}
""",
    "torch/_C/__init__.py": "",
    "torch/_C/_distributed_c10d.py": f"""
import json, time
calls = 4
def _dump_fr_trace_json(entries, active):
    global calls
    calls += 1
    status = {{"last_enqueued_collective": str(calls), "last_completed_collective": "4"}}
    found = {{"version": "2.10", "pg_status": {{"0": status}}}}
    if entries:
        found["entries"] = [dict({ENTRY!r}, time_created_ns=time.time_ns())]
    return json.dumps(found).encode()
""",
}
SLEEPS = """
import sys, time
def load_batch():
    print("ready", flush=True)
    time.sleep(100)
load_batch()
"""
HOLDS_THE_GIL = """
import re
def parse():
    print("ready", flush=True)
    re.match("(a+)+$", "a" * 64 + "b")
parse()
"""
BUSY = """
print("ready", flush=True)
def train():
    while True:
        sum(number * number for number in range(50))
train()
"""
TORCH = "import torch, torch.distributed.distributed_c10d\n"


def folder_in(path: Path) -> Path:
    """The folder of a program, and beside it a torch."""
    folder = path / "look"
    folder.mkdir(mode=0o700)
    (folder / sitecustomize.STREAMS_FILE).write_text("1:2 3:4\nLOCAL_RANK\n")
    for name, text in FAKE_TORCH.items():
        file = path / "site-packages" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def environment(folder: Path, rank: int | None, hook: str = HOOK) -> dict[str, str]:
    """What a rank is started with; None: what a process is that is no rank."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_", "RDZV_"))}
    kept |= {"PYTHONPATH": f"{hook}:{folder.parent / 'site-packages'}"}
    kept |= {sitecustomize.FOLDER_VARIABLE: str(folder)}
    return kept if rank is None else {**kept, "LOCAL_RANK": str(rank)}


@contextmanager
def started(
    folder: Path,
    code: str,
    *,
    rank: int | None = 0,
    ready: str = "ready\n",
    python: str = sys.executable,
) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready."""
    with subprocess.Popen(
        [python, "-c", code], env=environment(folder, rank), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            while ready and (line := process.stdout.readline()) != ready:
                assert line, "it has ended"
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """What a condition is as soon as it holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def recording(*entries: dict[str, Any], **status: tuple[int, int]) -> bytes:
    """A recorder's JSON: entries, each told by what differs, and progress by `g` and a number."""
    found = {
        name[1:]: {
            "last_enqueued_collective": str(called),
            "last_completed_collective": str(ended),
            "last_started_collective": "-1",
        }
        for name, (called, ended) in status.items()
    }
    return json.dumps({"entries": [{**ENTRY, **e} for e in entries], "pg_status": found}).encode()

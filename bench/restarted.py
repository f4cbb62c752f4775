"""The program of `killed`: writes down how far it has come, and waits to be told that all is over.

    torchrun ... restarted.py FOLDER

It sits as still as a process whose peers are gone, and that nobody tells.
"""

from __future__ import annotations

import time

FIRST = time.monotonic()  # before anything else is imported

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

_LIMIT_SECONDS = 180.0
"""Who is forgotten goes."""


def main(folder: Path) -> None:
    """Meet the others, and write it down."""
    before = time.monotonic()
    import torch.distributed as dist

    imported = time.monotonic()
    dist.init_process_group("gloo")
    ready = time.monotonic()
    import torch.distributed.run  # noqa: F401 (how much longer than torch torchrun takes to import)

    said = {
        "rank": int(os.environ["RANK"]),
        "pid": os.getpid(),
        "first": FIRST,
        "ready": ready,
        "imported": imported,
        "import_seconds": imported - before,
        "torchrun_import_seconds": imported - before + time.monotonic() - ready,
    }
    written = folder / f".{os.getpid()}"
    written.write_text(json.dumps(said))
    written.rename(folder / f"program-{os.getpid()}.json")
    while not (folder / "over").exists():
        if time.monotonic() > ready + _LIMIT_SECONDS:
            os._exit(1)
        time.sleep(0.02)
    os._exit(0)  # gloo may abort where a peer is gone first


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The program of `output`: each rank prints lines and writes down how long that took.

    python printed.py FOLDER LINES

Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(folder: str, lines: int) -> None:
    """Each line is written at once, as loggers do it."""
    rank = os.environ["RANK"]
    words = "the quick brown fox jumps over the lazy dog"
    began = time.monotonic()
    for number in range(lines):
        print(f"rank {rank} step {number} loss 0.123456 {words}", flush=True)
    seconds = time.monotonic() - began
    Path(folder, f"printed-{rank}.json").write_text(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

"""The program of `pages`: prints the moment at which it prints, again and again.

    python marked.py RATE SECONDS

Standard library only.
"""

from __future__ import annotations

import sys
import time


def main(rate: float, seconds: float) -> None:
    """Print so many lines a second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        print(f"mark {round(1e6 * time.monotonic())} loss 0.25", flush=True)
        time.sleep(1 / rate)


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]))

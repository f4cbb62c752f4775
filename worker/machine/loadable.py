"""A program of its own: see whether shared libraries can be loaded, as NCCL will load them.

It is started as `python -I -S loadable.py NAME...` by `surroundings`: what a vendor's
library does when it is loaded is not for the agent's process. Prints a line for each name: the
name, a tab, and nothing or why it cannot be loaded.
"""

from __future__ import annotations

import ctypes
import sys


def main(names: list[str]) -> None:
    """Load each of the named libraries."""
    for name in names:
        problem = ""
        try:
            ctypes.CDLL(name)
        except OSError as error:
            problem = " ".join(str(error).split())
        sys.stdout.write(f"{name}\t{problem}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

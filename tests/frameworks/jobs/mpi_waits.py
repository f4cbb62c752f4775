"""An MPI program whose ranks wait for an end that others bring about."""

from __future__ import annotations

import os
import time

from mpi4py import MPI


def main() -> None:
    """Say that all ranks are here, and wait."""
    world = MPI.COMM_WORLD
    world.Barrier()
    os.write(1, f"rank {world.rank} waits\n".encode())
    time.sleep(3600)


if __name__ == "__main__":
    main()

"""One sum over all ranks of an MPI: what every start of them has to do, without numpy."""

from __future__ import annotations

import os

from mpi4py import MPI


def main() -> None:
    """Tell of the sum when it is right."""
    world = MPI.COMM_WORLD
    total = world.allreduce(world.rank + 1)
    if total != world.size * (world.size + 1) // 2:
        raise SystemExit(f"the sum over {world.size} ranks is {total}")
    where = f"rank={world.rank} world={world.size} host={MPI.Get_processor_name()}"
    os.write(1, f"RESULT framework=mpi4py {where} value={total} ok\n".encode())


if __name__ == "__main__":
    main()

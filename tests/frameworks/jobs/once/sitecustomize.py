"""What each Python of a program begins with: the last rank fails once, where it would tell its
result.

In the first epoch of a run, that is. Each rank says by what it has found the others.
"""

import json
import os
import re
import sys
from typing import Any

CODE = 3
_write = os.write


def found_by() -> str:
    """What only this epoch has: a port, or the time at which its hostfile was written."""
    names = ("MASTER_PORT", "JAX_COORDINATOR_ADDRESS", "TF_CONFIG")
    ports = [os.environ[name] for name in names if name in os.environ]
    hosts = [file for name, file in os.environ.items() if name.upper().endswith("HOSTFILE")]
    times = [str(os.stat(file).st_mtime_ns) for file in hosts if os.path.exists(file)]
    return json.dumps([*ports, *times]).replace(" ", "")


def tell(fd: int, text: Any) -> int:
    """Write it; the result of the rank that fails is not told."""
    told = re.match(rb"RESULT .*rank=(\d+) world=(\d+)", bytes(text))
    if told is None:
        return _write(fd, text)
    rank, world = map(int, told.groups())
    _write(fd, f"FOUND rank={rank} by={found_by()}\n".encode())
    if os.environ["RDZV_RESTARTS"] == "0" and rank == world - 1:
        if mpi := sys.modules.get("mpi4py.MPI"):
            mpi.COMM_WORLD.Abort(CODE)  # of a rank that only ends MPICH's others wait for ever
        os._exit(CODE)
    return _write(fd, text)


if "RDZV_RESTARTS" in os.environ:
    os.write = tell

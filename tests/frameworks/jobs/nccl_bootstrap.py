"""Asks NCCL where its bootstrap listens: the one thing of NCCL's start that needs no GPU.

`ncclGetUniqueId` opens the socket that the other ranks are to call, on the interface that NCCL
chooses, and puts its address into the id: bytes 8 to 15 hold family, port and IPv4 address.
"""

from __future__ import annotations

import ctypes
import importlib.util
import ipaddress
import os
import socket
from pathlib import Path

_ID_BYTES = 128


def bootstrap_address() -> str:
    """The address at which NCCL would be called here."""
    spec = importlib.util.find_spec("nvidia.nccl")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    library = Path(next(iter(spec.submodule_search_locations)), "lib", "libnccl.so.2")
    unique_id = (ctypes.c_ubyte * _ID_BYTES)()
    code = ctypes.CDLL(str(library)).ncclGetUniqueId(unique_id)
    if code != 0:
        raise SystemExit(f"ncclGetUniqueId ended with {code}")
    return str(ipaddress.IPv4Address(bytes(unique_id)[12:16]))


def main() -> None:
    """Print the address in a RESULT line; each node is a rank of its own."""
    rank, world = os.environ["NODE_RANK"], os.environ["NNODES"]
    words = f"rank={rank} world={world} host={socket.gethostname()} value={bootstrap_address()} ok"
    os.write(1, f"RESULT framework=nccl {words}\n".encode())


if __name__ == "__main__":
    main()

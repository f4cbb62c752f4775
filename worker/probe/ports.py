"""Where a node answers its peers' probes: where its program will, by the kernel's choice. Pure.

Gloo, NCCL and MPI bind port 0: a firewall that lets the kernel's ephemeral ports through is one
behind which a program runs. So the probes listen there, and prove that it does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

TRIES = 16
"""So many ports of the kernel's own choice are tried."""


def ports_to_try(
    launch_id: str,
    ephemeral: tuple[int, int],
    only: tuple[int, int] | None = None,
    taken: Collection[int] = (),
) -> Iterator[int]:
    """The ports in the order in which they are tried; 0 is one that the kernel chooses.

    Every node of a launch prefers the same port: when an address leads to another node than it
    should, that node answers there, and says who it is.

    Args:
        launch_id: Of the launch.
        ephemeral: The first and the last of the ports that the kernel gives to programs.
        only: The first and the last that a person lets through; None where nobody has said.
        taken: Those that something else of the run will need, or that the machine has reserved.
    """
    low, high = only or ephemeral
    digest = hashlib.sha256(launch_id.encode()).digest()
    size = high - low + 1
    start = int.from_bytes(digest[:4], "big") % size
    in_turn = (low + (start + step) % size for step in range(size))
    free = (port for port in in_turn if port not in taken)
    if only is None:
        yield next(free, 0)
        yield from (0,) * TRIES
    else:
        yield from free

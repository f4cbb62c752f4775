"""Send the loss and the like to rdzv: copy this file beside your script.

    import rdzv_metrics                                # or, where rdzv is installed beside torch:
    from rdzv import metrics as rdzv_metrics
    rdzv_metrics.send(step, loss=loss, lr=lr)          # on every rank, or on one

`rdzv status RUN` then shows each rank's step and values, `rdzv metrics RUN --plot loss.png` draws
them. Outside a run of rdzv nothing happens. It never waits and never raises: what cannot be sent
at once is dropped. Standard library only, any Python from 3.8.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
from collections.abc import Mapping
from typing import SupportsFloat

_SOCKET = "RDZV_SOCKET"  # a path that rdzv gives to the program of each node
_RANKS = ("RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_NAME = re.compile(r"[^A-Za-z0-9_./-]")
_MOST_VALUES = 32
_PAUSE_SECONDS = 5.0

_connection: socket.socket | None = None
_owner = 0  # a forked process must not write into its parent's connection
_again_at = 0.0


def own_rank() -> int:
    """Return this process's rank, as whatever started it says; 0 when nothing does."""
    for name in _RANKS:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    node = int(os.environ.get("NODE_RANK") or 0)
    local = os.environ.get("LOCAL_RANK", "")
    if not local.isdigit():  # one process on each node
        return node
    return node * int(os.environ.get("NPROC_PER_NODE") or 1) + int(local)  # Lightning's own


def send(
    step: int,
    values: Mapping[str, SupportsFloat] | None = None,
    *,
    rank: int | None = None,
    **more: SupportsFloat,
) -> bool:
    """Send the values of one step, all numbers; a name is `loss` or `eval/loss`.

    `rank` is this process's, where its environment does not say it. Returns whether it was sent. A
    value that is not finite is sent as `NAME/not_finite`: 1 for NaN, 2 and -2 for the infinities.
    """
    try:
        place = own_rank() if rank is None else int(rank)
        return _send(place, int(step), {**(values or {}), **more})
    except Exception:  # noqa: BLE001 (the training is worth more than its curve)
        _give_up()
        return False


def _send(rank: int, step: int, values: Mapping[str, SupportsFloat]) -> bool:
    path = os.environ.get(_SOCKET)
    if not path or time.monotonic() < _again_at:
        return False
    row = {"do": "metrics", "rank": rank, "step": step, "values": _clean(values)}
    line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    connection = _connect(path)
    try:
        sent = connection.send(line)
    except BlockingIOError:  # the agent has not read the rows before: this one is dropped
        return False
    if sent < len(line):  # a part of a line would spoil the next one
        raise ConnectionError
    return True


def _clean(values: Mapping[str, SupportsFloat]) -> dict[str, float]:
    clean = {}
    for name, value in values.items():
        number = float(value)
        name = _NAME.sub("_", str(name))[:53] or "_"
        if math.isfinite(number):
            clean[name] = number
        else:
            clean[name + "/not_finite"] = 1.0 if math.isnan(number) else math.copysign(2.0, number)
    return dict(list(clean.items())[:_MOST_VALUES])


def _connect(path: str) -> socket.socket:
    global _connection, _owner
    if _connection is None or _owner != os.getpid():
        _connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _connection.setblocking(False)
        _owner = os.getpid()
        _connection.connect(path)
    return _connection


def _give_up() -> None:
    """Try again on a new connection, but not at once: an agent that is busy is left alone."""
    global _connection, _again_at
    if _connection is not None:
        _connection.close()
    _connection = None
    _again_at = time.monotonic() + _PAUSE_SECONDS

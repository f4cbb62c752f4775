"""What a user would take instead: torch's c10d rendezvous, and its bare TCPStore.

Each node is a process of its own, as it is in life; the store is served by the benchmark.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

# torch asks the name server for the name of each address that it dials, and warns when there is
# none; it does so before the clock starts.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

from pydantic_core import to_json
from torch.distributed import (  # type: ignore[attr-defined]
    DistStoreError,
    TCPStore,
)
from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousParameters, RendezvousTimeoutError
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

from bench.crowd import make_join
from bench.process import forked, heard
from bench.rows import Row, row
from rendezvous.talk.credentials import RunKeys

_HOST = "127.0.0.1"
_LIMIT_SECONDS = 120.0
# It takes a second; now and then some of its nodes never see that they are complete.
_C10D_LIMIT_SECONDS = 30
# Of one wait: those who are complete wait for the ranks of those who never see it.
_STORE_LIMIT_SECONDS = 40
# The nodes of c10d look once a second: the last one comes anywhere in that second.
_C10D_PAUSE_SECONDS = (0.3, 1.3)
_STORE_PAUSE_SECONDS = (0.05, 0.15)

Steps = tuple[Callable[[], None], Callable[[], None]]
"""Meet the others, which is what is measured; and leave them, before the next round."""


def _prepare_c10d(store: TCPStore, run: str, node: int, nodes: int) -> Steps:
    """Until torchrun would start its workers: the rendezvous, then the ranks."""
    parameters = RendezvousParameters(
        "c10d",
        f"{_HOST}:{store.port}",
        run,
        nodes,
        nodes,
        local_addr="127.0.0.1",
        is_host="0",
        join_timeout=str(_C10D_LIMIT_SECONDS),
    )
    handler = create_handler(store, C10dRendezvousBackend(store, run), parameters)
    spec = WorkerSpec(
        role="default", local_world_size=1, rdzv_handler=handler, entrypoint="true", args=()
    )
    agent = LocalElasticAgent(spec, DefaultLogsSpecs())

    def meet() -> None:
        agent._rendezvous(agent._worker_group)
        assert agent._worker_group.group_world_size == nodes

    # A node of a round that is over must not go on beating beside those of the next.
    return meet, handler._stop_heartbeats


def _prepare_store(store: TCPStore, run: str, node: int, nodes: int) -> Steps:
    """Set the own row, wait for all, read all of them."""
    candidate = make_join(RunKeys(b"", run, "launch01"), node).candidates[0]
    row = to_json(candidate).decode()
    keys = [f"{run}/{number}" for number in range(nodes)]

    def meet() -> None:
        store.set(keys[node], row)
        store.wait(keys)
        table = store.multi_get(keys)
        assert len(table) == nodes
        hashlib.sha256(b"".join(table)).hexdigest()

    return meet, lambda: None


_SYSTEMS: dict[str, Any] = {"c10d": _prepare_c10d, "tcpstore": _prepare_store}


def _be_node(control: Connection, system: str, port: int, node: int, nodes: int) -> None:
    """One node's process: a round for each message of the benchmark."""
    logging.disable(logging.CRITICAL)
    store = TCPStore(_HOST, port, is_master=False, timeout=timedelta(seconds=_STORE_LIMIT_SECONDS))
    while run := control.recv_bytes():
        steps: Steps = _SYSTEMS[system](store, run.decode(), node, nodes)
        meet, leave = steps
        control.send_bytes(b"ready")
        control.recv_bytes()
        began = time.monotonic()
        try:
            meet()
            ended = time.monotonic()
        except (RendezvousTimeoutError, DistStoreError):
            ended = math.inf
        control.send_bytes(f"{began} {ended}".encode())
        leave()


def _round(system: str, number: int, controls: list[Connection]) -> float:
    """All but one wait; the last one comes. Milliseconds; infinite where they never met."""
    early = len(controls) - 1
    for control in controls:
        control.send_bytes(f"round-{number}".encode())
    for control in controls:
        heard(control, _LIMIT_SECONDS)
    for control in controls[:early]:
        control.send_bytes(b"go")
    pause = _C10D_PAUSE_SECONDS if system == "c10d" else _STORE_PAUSE_SECONDS
    time.sleep(0.3 + 0.01 * early if system == "c10d" else 0.002 * early)
    time.sleep(random.uniform(*pause))
    controls[early].send_bytes(b"go")
    times = [[float(word) for word in heard(c, _LIMIT_SECONDS).split()] for c in controls]
    return 1000 * (max(ended for _, ended in times) - times[early][0])


def last_to_all(system: str, nodes: int, rounds: int) -> Iterator[Row]:
    """The nodes of a peer, forked from here; who has hung, or failed twice, is asked no more."""
    server, times = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False), list[float]()
    each = [(system, server.port, node, nodes) for node in range(nodes)]
    with forked(_be_node, each) as controls, contextlib.suppress(TimeoutError):
        while len(times) < rounds and times.count(math.inf) < 2:
            times.append(_round(system, len(times), controls))
    times += [math.inf] * (rounds - len(times))
    if any(map(math.isfinite, times)):
        yield row(f"{system} table", nodes, times)
    else:
        yield Row(f"{system} table", nodes, 0, 0, f"of {rounds}", rounds, "no round ended")

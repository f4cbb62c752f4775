"""Rounds of rdzv: a registry, a crowd of nodes, and the times of each round."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from bench.process import Crowds, crowds
from bench.rows import Row, row
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import RunKeys, registry_credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.retry import until_answered
from rendezvous.wire.run import Limits, RunSpec
from tests.support.registry import running

_LIMIT_SECONDS = 60.0
_PAUSE_SECONDS = (0.05, 0.15)
T = TypeVar("T")


@dataclass(frozen=True)
class Registry:
    """A registry process, its place, and the secret of its operator."""

    process: psutil.Process
    place: RegistryPlace
    secret: bytes

    def create(self, keys: RunKeys, nodes: int, *, verify: bool = False, **more: Any) -> None:
        """Make a run that seals its table as soon as all nodes are in."""
        spec = RunSpec(
            launch_id=keys.launch_id,
            min_nodes=nodes,
            max_nodes=nodes,
            managed=False,
            verify=verify,
            token_sha256=[keys.join_token(slot, 1).sha256() for slot in range(nodes)],
            read_sha256=keys.read.sha256(),
            admin_sha256=keys.admin.sha256(),
            **more,
        )
        self._call(lambda client: client.create(keys.run, spec))

    def cancel(self, keys: RunKeys) -> None:
        """End a run."""
        self._call(lambda client: client.cancel(keys.run, "measured"))

    def _call(self, call: Callable[[RegistryClient], Coroutine[Any, Any, T]]) -> T:
        async def calling() -> T:
            operator = registry_credential(self.secret)
            async with RegistryClient(
                self.place, operator, request_seconds=_LIMIT_SECONDS
            ) as client:
                return await until_answered(lambda: call(client), seconds=_LIMIT_SECONDS)

        return asyncio.run(calling())

    def cpu_seconds(self) -> float:
        """CPU time that the process has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def rss_mb(self) -> float:
        """Memory that the process holds now."""
        return float(self.process.memory_info().rss) / 1e6


@contextlib.contextmanager
def serving(*, tls: bool) -> Iterator[Registry]:
    """A registry as a launcher starts it, with its journal on disk; ended afterwards."""
    # Each node's connection is an open file of it, and of the crowd.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with (
        tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder,
        running(Path(folder), tls=tls) as made,
    ):
        yield Registry(psutil.Process(made.pid), made.place, made.secret)


@dataclass(slots=True)
class Times:
    """Milliseconds of each round: until all have the table, and until all may start."""

    table: list[float] = field(default_factory=list)
    go: list[float] = field(default_factory=list)


class Meeting:
    """A registry and the nodes that come to it."""

    def __init__(self, registry: Registry, crowd: Crowds, nodes: int) -> None:
        self.registry = registry
        self.nodes = nodes
        self._crowd = crowd
        self._rounds = 0
        self._told = 0

    def open(self) -> None:
        """Open the nodes' connections."""
        self._crowd.order("open")

    def last_to_all(self, rounds: int) -> Times:
        """Have all but one wait, then the last one come."""
        times = Times()
        for _ in range(rounds):
            with self.running(times):
                pass
        return times

    def first_assembly(self) -> Times:
        """Have all come together, over connections that they open then, and stay."""
        times = Times()
        self._begin()
        self._meet(times, [*range(self.nodes)], connect=True)
        return times

    def restarts(
        self, rounds: int, each: int, *, at_once: bool = True
    ) -> tuple[Times, list[float]]:
        """Have a program of each run fail so many times, and all start again.

        Args:
            rounds: Runs.
            each: Restarts of each.
            at_once: Programs end while their node holds its next watch back, which brings the
                report; else that goes on a connection that is opened for it, beside the watch.

        Returns:
            The first starts, and the milliseconds of each restart, since the failure's report was
            sent, until the last node has been told to start.
        """
        started, again = Times(), []
        for _ in range(rounds):
            with self.running(started, limits=Limits(max_restarts=each)):
                for number in range(each):
                    self._crowd.order("second", at_once=at_once)
                    time.sleep(random.uniform(*_PAUSE_SECONDS))
                    slot = random.randrange(self.nodes)
                    said = self._crowd.order("restart", slot=slot, goes=number + 2)
                    began = next(answer["from"] for answer in said if "from" in answer)
                    again.append(1000 * (max(answer["go"] for answer in said) - began))
        return started, again

    @contextlib.contextmanager
    def running(self, times: Times | None = None, **more: Any) -> Iterator[RunKeys]:
        """A run of its own, in which all run; everybody has left it at the end."""
        keys = self._begin(**more)
        self._crowd.order("gather", last=self.nodes - 1)
        time.sleep(random.uniform(*_PAUSE_SECONDS))
        self._meet(times or Times(), [self.nodes - 1])
        yield keys
        self.registry.cancel(keys)
        self._crowd.order("leave")

    def tell(self, rate: float, seconds: float) -> list[tuple[int, float, float]]:
        """Have the nodes tell so many lines a second: marks, when they were sent and answered."""
        first, count = self._told + 1, round(rate * seconds)
        self._told += count
        [said] = self._crowd.order("tell", first=first, count=count, pause=1 / rate)
        return [(mark, sent, answered) for mark, sent, answered in said["told"]]

    def _meet(self, times: Times, slots: list[int], *, connect: bool = False) -> None:
        said = self._crowd.order("meet", slots=slots, connect=connect)
        began = min(answer["from"] for answer in said)
        for kind, found in (("table", times.table), ("go", times.go)):
            found.append(1000 * (max(answer[kind] for answer in said) - began))

    def _begin(self, **more: Any) -> RunKeys:
        """Make the next run, and have the nodes write their joins."""
        self._rounds += 1
        run, launch_id = f"round-{self._rounds}", f"launch{self._rounds:08d}"
        keys = RunKeys(self.registry.secret, run, launch_id)
        self.registry.create(keys, self.nodes, **more)
        self._crowd.order("prepare", secret=keys.secret.hex(), run=run, launch_id=launch_id)
        return keys


@contextlib.contextmanager
def meeting(nodes: int, *, tls: bool = False, processes: int = 0) -> Iterator[Meeting]:
    """A registry with a crowd before its door.

    One process takes longer to decrypt many tables than the registry to send them.
    """
    processes = processes or (2 if tls and nodes > 1_000 else 1)
    with serving(tls=tls) as registry, crowds(registry.place, nodes, processes) as crowd:
        yield Meeting(registry, crowd, nodes)


_NAMES = {False: "rdzv", True: "rdzv-tls"}


def start(nodes: int, rounds: int, *, tls: bool) -> Iterator[Row]:
    """The last of the nodes arrives, until all have the table and until all may start."""
    with meeting(nodes, tls=tls) as met:
        met.open()
        met.last_to_all(1)  # the first run of a fresh process is not counted
        times = met.last_to_all(rounds)
    yield row(f"{_NAMES[tls]} table", nodes, times.table)
    yield row(f"{_NAMES[tls]} go", nodes, times.go)


def restart(nodes: int, rounds: int, *, tls: bool) -> Iterator[Row]:
    """From the report of a failure until all may start again, beside the first go of these runs."""
    name = _NAMES[tls]
    with meeting(nodes, tls=tls) as met:
        met.open()
        met.restarts(1, 1)  # the first run of a fresh process is not counted
        started, again = met.restarts(rounds, 2)
        _, later = met.restarts(max(1, rounds // 2), 2, at_once=False)
    yield row(f"{name} first go", nodes, started.go)
    yield row(f"{name} restart", nodes, again, note="programs that stop at once")
    yield row(f"{name} restart, late ends", nodes, later)


def thousands(nodes: int, *, tls: bool) -> Iterator[Row]:
    """All come together, from their first connection on."""
    with meeting(nodes, tls=tls, processes=2) as met:
        times = met.first_assembly()
    yield row(f"{_NAMES[tls]} assembly, table", nodes, times.table)
    yield row(f"{_NAMES[tls]} assembly, go", nodes, times.go)


def idle(nodes: int, rounds: Sequence[float]) -> Iterator[Row]:
    """What a registry uses while nodes run and poll, over TLS; rounds are their seconds."""
    with meeting(nodes, tls=True) as met:
        alone = met.registry.rss_mb()
        met.first_assembly()
        shares = []
        for seconds in rounds:
            before = met.registry.cpu_seconds()
            time.sleep(seconds)
            shares.append(100 * (met.registry.cpu_seconds() - before) / seconds)
        held = met.registry.rss_mb()
    yield row("idle registry", 0, [alone], "MB")
    yield row("idle registry", nodes, [held], "MB", f"{1e3 * (held - alone) / nodes:.0f} kB a node")
    yield row("idle registry", nodes, shares, "% core")

"""Rounds of rdzv: a registry, a crowd, and the times of each round."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bench.process import Crowds, crowds
from bench.registry import Registry, serving
from features.hang.wire import RunLook
from rendezvous.talk.credentials import RunKeys
from rendezvous.wire.run import Limits

PAUSE_SECONDS = (0.05, 0.15)


@dataclass(slots=True)
class Times:
    """Milliseconds of each round, and the CPU seconds that the registry used for it."""

    table: list[float] = field(default_factory=list)
    go: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Restart:
    """Milliseconds of a restart, since the failure's report was sent, until the last node has ...

    Attributes:
        told: ... been told to stop, and reported the end.
        table: ... the next table.
        go: ... been told to start.
        cpu: Seconds that the registry used for it.
        first_go: Of the same run, from the last arrival to the last start.
    """

    told: float
    table: float
    go: float
    cpu: float
    first_go: float


@dataclass(frozen=True, slots=True)
class Looked:
    """One look: seconds until its last answer has come, the registry's CPU, and what was seen."""

    seconds: float
    cpu: float
    seen: RunLook


_BETWEEN_LOOKS_SECONDS = 6.0
"""A registry has a look in 5 s."""


class Meeting:
    """A registry and the nodes that come to it."""

    def __init__(self, registry: Registry, crowd: Crowds, nodes: int, name: str = "round") -> None:
        self.registry = registry
        self.nodes = nodes
        self._crowd = crowd
        self._name = name
        self._rounds = 0

    def open(self) -> None:
        """Open the nodes' connections."""
        self._crowd.order("open")

    def last_to_all(self, rounds: int) -> Times:
        """All but one wait; the last one comes."""
        times = Times()
        for _ in range(rounds):
            with self._round(times):
                last = self.nodes - 1
                self._crowd.order("gather", last=last)
                time.sleep(random.uniform(*PAUSE_SECONDS))
                self._meet(times, [last])
        return times

    def assembly(self, rounds: int) -> Times:
        """All come together."""
        times = Times()
        for _ in range(rounds):
            with self._round(times):
                self._meet(times, [*range(self.nodes)])
        return times

    def restarts(self, rounds: int, times: int, *, at_once: bool = True) -> list[Restart]:
        """The last one comes; once all run, a program fails, so many times: all start again.

        Args:
            rounds: Runs.
            times: Restarts of each.
            at_once: Programs end while their node holds its next watch back, which brings the
                report; else that goes on a connection that is opened for it, beside the watch.
        """
        found = []
        for _ in range(rounds):
            started = Times()
            with self._round(started, limits=Limits(max_restarts=times)):
                self._crowd.order("gather", last=self.nodes - 1)
                time.sleep(random.uniform(*PAUSE_SECONDS))
                self._meet(started, [self.nodes - 1])
                for number in range(times):
                    self._crowd.order("second", at_once=at_once)
                    time.sleep(random.uniform(*PAUSE_SECONDS))
                    found.append(self._restart(number, started.go[0]))
        return found

    def looks(self, rounds: int) -> list[Looked]:
        """All run, and somebody looks at their ranks, so many times."""
        found = []
        with self.running() as keys:
            self._crowd.order("looks", nodes=self.nodes)
            for _ in range(rounds):
                time.sleep(_BETWEEN_LOOKS_SECONDS)
                before, began = self.registry.cpu_seconds(), time.monotonic()
                seen = self.registry.look(keys)
                seconds = time.monotonic() - began
                found.append(Looked(seconds, self.registry.cpu_seconds() - before, seen))
        return found

    def machines(self, rounds: int, body: str) -> list[float]:
        """All run, and each tells how its machine is, so many times: the registry's CPU seconds."""
        found = []
        with self._round(Times()):
            self._crowd.order("gather", last=self.nodes - 1)
            self._meet(Times(), [self.nodes - 1])
            self._crowd.order("machines", body=body)  # on connections that are opened for it
            for _ in range(rounds):
                before = self.registry.cpu_seconds()
                self._crowd.order("machines", body=body)
                found.append(self.registry.cpu_seconds() - before)
        return found

    @contextlib.contextmanager
    def running(self) -> Iterator[RunKeys]:
        """A run of which all nodes run."""
        started = Times()
        with self._round(started) as keys:
            self._crowd.order("gather", last=self.nodes - 1)
            self._meet(started, [self.nodes - 1])
            yield keys

    def credentials(self) -> dict[int, str]:
        """Of the nodes of the run, by slot: for what tells something in their name."""
        said = self._crowd.order("credentials")
        return {int(slot): text for answer in said for slot, text in answer.items()}

    def _restart(self, number: int, first_go: float) -> Restart:
        before = self.registry.cpu_seconds()
        slot = random.randrange(self.nodes)
        said = self._crowd.order("restart", slot=slot, goes=number + 2)
        began = next(answer["from"] for answer in said if "from" in answer)
        told, table, go = (
            1000 * (max(answer[kind] for answer in said) - began)
            for kind in ("told", "table", "go")
        )
        return Restart(told, table, go, self.registry.cpu_seconds() - before, first_go)

    def first_assembly(self) -> Times:
        """All come together, over connections that they open then, and stay."""
        times = Times()
        self._begin()
        before = self.registry.cpu_seconds()
        self._meet(times, [*range(self.nodes)], connect=True)
        times.cpu.append(self.registry.cpu_seconds() - before)
        return times

    def gather(self) -> None:
        """Have all but one come, and wait until they watch."""
        self._begin()
        self._crowd.order("gather", last=self.nodes - 1)

    def complete(self) -> Times:
        """The one that was missing comes."""
        times = Times()
        self._meet(times, [self.nodes - 1])
        return times

    def _meet(self, times: Times, slots: list[int], *, connect: bool = False) -> None:
        said = self._crowd.order("meet", slots=slots, connect=connect)
        began = min(answer["from"] for answer in said)
        for kind, row in (("table", times.table), ("go", times.go)):
            row.append(1000 * (max(answer[kind] for answer in said) - began))

    def _begin(self, **more: Any) -> RunKeys:
        """Make the next run, and have the nodes write their joins."""
        self._rounds += 1
        keys = self.registry.keys(f"{self._name}-{self._rounds}", f"launch{self._rounds:08d}")
        self.registry.create(keys, self.nodes, **more)
        names = {"run": keys.run, "launch_id": keys.launch_id}
        self._crowd.order("prepare", secret=keys.secret.hex(), **names)
        return keys

    @contextlib.contextmanager
    def _round(self, times: Times, **more: Any) -> Iterator[RunKeys]:
        """A run of its own, which everybody has left at the end."""
        keys = self._begin(**more)
        before = self.registry.cpu_seconds()
        yield keys
        times.cpu.append(self.registry.cpu_seconds() - before)
        self.registry.cancel(keys)
        self._crowd.order("leave")


@contextlib.contextmanager
def meeting(
    nodes: int, *, tls: bool = False, journal: str = "sqlite", processes: int = 1, dsn: str = ""
) -> Iterator[Meeting]:
    """A registry with a crowd before its door."""
    with (
        serving(tls=tls, journal=journal, dsn=dsn) as registry,
        crowds(registry.place, nodes, processes) as crowd,
    ):
        yield Meeting(registry, crowd, nodes)

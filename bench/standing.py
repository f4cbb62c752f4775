"""What a standing registry of three replicas on PostgreSQL costs: `python -m bench.standing`.

The engine is a primary whose commits wait for one of two standbys, all on this machine's disk. What
has a counterpart in SQLite is measured beside it, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from bench.machine import describe, watching
from bench.meeting import Meeting, meeting
from bench.process import crowds
from bench.registry import Registry, raise_file_limit, serving
from bench.rows import HEADER, Figure, Report, Row, row
from rendezvous.registry.journal import Journal, Record
from rendezvous.registry.membership import JUDGE_SECONDS
from rendezvous.registry.postgres_journal import PostgresJournal
from rendezvous.registry.shared_journal import Holding
from rendezvous.registry.sqlite_journal import SqliteJournal
from rendezvous.wire.errors import RegistryError
from tests.support.postgres import Postgres, missing, one_primary
from tests.support.registry import Launch, Node
from tests.support.replicas import Cluster, replicas
from tests.support.standing import Runs, check_journal, started

logger = logging.getLogger(__name__)

Work = Callable[[], Iterable[Row | Figure]]

_EVENTS = 100
_BODY = b'{"kind":"joined",' + b"x" * 255 + b"}"
_REPLICAS = 3
_NODES_OF_SEALED = 16
_ASKS_SECONDS = 0.01
_AWAY_RUNS = 8


@dataclass(frozen=True)
class Amount:
    """How much is measured; `killed` and `away_seconds` may be 0: not at all."""

    commits: int
    nodes: tuple[int, ...]
    rounds: int
    killed: int
    away_seconds: float
    sealed: int
    idle: int
    idle_seconds: float


FULL = Amount(500, (64, 512), 10, 5, 60.0, 100, 5_000, 20.0)
QUICK = Amount(50, (64,), 2, 0, 0.0, 8, 96, 2.0)


# The engine


@contextlib.contextmanager
def engine() -> Iterator[Postgres]:
    """A primary with two standbys, which writes through to the disk."""
    with one_primary(fsync=True) as primary:
        for name in ("one", "two"):
            primary.standby(name)
        asyncio.run(primary.wait_for_one_of("one", "two"))
        yield primary


@contextlib.contextmanager
def standing(primary: Postgres) -> Iterator[tuple[Cluster, str]]:
    """Three replicas on a new database, which may judge each other; and its name."""
    database = asyncio.run(primary.new_database())
    with (
        tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder,
        replicas(Path(folder), primary.dsn(database), _REPLICAS) as cluster,
    ):
        for number in range(_REPLICAS):
            asyncio.run(cluster.wait_until_ready(number))
        time.sleep(JUDGE_SECONDS)
        yield cluster, database


# Rows


def commits(primary: Postgres, count: int) -> Iterator[Figure]:
    """A commit of 100 events, by the journals themselves, in turn."""
    for name, times in asyncio.run(_commits(primary, count)).items():
        ordered = sorted(times)
        p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        targets = (5.0, 50.0) if name == "PostgreSQL" else (None, None)
        note = f"{name}, {len(_BODY)} B each"
        if name == "PostgreSQL":
            note += "; waits for one of two standbys"
        for what, value, target in (
            ("commit_p50", statistics.median(ordered), targets[0]),
            ("commit_p99", p99, targets[1]),
        ):
            yield Figure(what, _EVENTS, round(value, 2), "ms", target, count, note=note)


async def _commits(primary: Postgres, count: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder:
        shared = await PostgresJournal.open(primary.dsn(await primary.new_database()), "a" * 32)
        await shared.claim([Holding("run", None, 0)])
        journals: dict[str, Journal] = {
            "SQLite": SqliteJournal(Path(folder, "journal.sqlite")),
            "PostgreSQL": shared,
        }
        times: dict[str, list[float]] = {name: [] for name in journals}
        for done in range(count + 1):  # the first one opens the connection
            first = 1 + done * _EVENTS
            records = [Record("run", n, n / 8, _BODY) for n in range(first, first + _EVENTS)]
            for name, journal in journals.items():
                began = time.perf_counter()
                refused = await journal.append(records)
                times[name].append(1000 * (time.perf_counter() - began))
                assert not refused
        for journal in journals.values():
            await journal.close()
    return {name: some[1:] for name, some in times.items()}


def last_to_all(primary: Postgres, nodes: int, rounds: int) -> Iterator[Row | Figure]:
    """The last of so many nodes arrives, until all have the table: one replica, and SQLite."""
    dsn = primary.dsn(asyncio.run(primary.new_database()))
    with (
        meeting(nodes) as sqlite,
        meeting(nodes, journal="postgres", dsn=dsn) as postgres,
    ):
        times: dict[str, list[float]] = {"sqlite": [], "postgres": []}
        for met in (sqlite, postgres):
            met.open()
            met.assembly(1)  # the first run of a fresh process is not counted
        for _ in range(rounds):
            for journal, met in (("sqlite", sqlite), ("postgres", postgres)):
                times[journal] += met.last_to_all(1).table
    for journal, some in times.items():
        yield row("rdzv-standing", nodes, "last_to_all", some, journal=journal)
    own, beside = (statistics.median(times[one]) for one in ("postgres", "sqlite"))
    note = f"PostgreSQL {own:.1f} ms, SQLite {beside:.1f} ms"
    yield Figure(
        "postgres_by_sqlite", nodes, round(own / beside, 2), "times", 1.5, rounds, note=note
    )


def taken_over(primary: Postgres, rounds: int) -> Iterator[Figure]:
    """The owner of a run ends in some way: the longest time that a node waits for an answer."""
    for what, how, target, words in (
        ("owner_killed", signal.SIGKILL, 1.5, "SIGKILL: its connections and its session end"),
        ("owner_silent", signal.SIGSTOP, 5.0, "SIGSTOP: nothing ends, as with a dead machine"),
        ("run_moved", signal.SIGTERM, 1.0, "SIGTERM: it gives its runs away"),
    ):
        found = []
        for _ in range(rounds):
            with standing(primary) as (cluster, _database):
                found.append(asyncio.run(_gap(cluster, how)))
        longest = max(gap for gap, _ in found)
        errors = sum(count for _, count in found)
        note = f"{words}; median {statistics.median(gap for gap, _ in found):.2f} s"
        yield Figure(what, 2, round(longest, 2), "s", target, rounds, note=note)
        if how == signal.SIGTERM:
            note = "calls of nodes that failed when a run was moved"
            yield Figure("run_moved_errors", 2, errors, "", 0, rounds, note=note)


async def _gap(cluster: Cluster, how: signal.Signals) -> tuple[float, int]:
    """Seconds of the longest wait of a run's two nodes, and how many of their calls failed."""
    launch = Launch("measured")
    async with started(cluster, launch, 2) as nodes:
        owner = cluster.all[await cluster.owner(launch.run)]
        until = asyncio.get_running_loop().time() + (12.0 if how == signal.SIGSTOP else 4.0)
        asking = [asyncio.create_task(_ask(node, until)) for node in nodes]
        await asyncio.sleep(0.5)
        os.kill(owner.pid, how)
        if how != signal.SIGSTOP:  # then nobody listens there once it has ended
            owner.sock.close()
        found = await asyncio.gather(*asking)
        if how == signal.SIGSTOP:
            os.kill(owner.pid, signal.SIGCONT)
    return max(gap for gap, _ in found), sum(errors for _, errors in found)


async def _ask(node: Node, until: float) -> tuple[float, int]:
    """Ask for what is there again and again, as patiently as a watch is; with an agent's pauses
    after what failed."""
    clock = asyncio.get_running_loop().time
    assert node.reply is not None
    longest, errors, answered = 0.0, 0, clock()
    while clock() < until:
        try:
            await node.client.watch(node.launch.run, node.slot, 0, node.reply.poll_seconds)
        except RegistryError as exc:
            logger.info("slot %d: %s", node.slot, exc)
            errors += 1
            await asyncio.sleep(node.client.pause())
            continue
        longest, answered = max(longest, clock() - answered), clock()
        await asyncio.sleep(_ASKS_SECONDS)
    return max(longest, clock() - answered), errors


def engine_away(primary: Postgres, seconds: float) -> Iterator[Figure]:
    """The whole engine stands still for so long, while runs are in every phase."""
    with standing(primary) as (cluster, database):
        disturbed, lost = asyncio.run(_engine_away(primary, cluster, database, seconds))
    note = f"of {_AWAY_RUNS} runs in every phase; the engine stands still for {seconds:g} s"
    yield Figure("away_disturbed", 2, disturbed, "runs", 0, note=note)
    yield Figure("away_lost", 2, lost, "events", 0, note="of those that were acknowledged")


async def _engine_away(
    primary: Postgres, cluster: Cluster, database: str, seconds: float
) -> tuple[int, int]:
    async with Runs(_AWAY_RUNS) as runs:
        await runs.start(cluster)
        servers = [primary, *primary.standbys]
        for server in servers:
            server.pause()
        try:
            runs.go_on(slice(0, _AWAY_RUNS // 2))
            await asyncio.sleep(seconds)
        finally:
            for server in servers:
                server.resume()
        runs.go_on()
        await runs.settle()
        disturbed, kinds = 0, dict[str, Counter[tuple[str, int | None]]]()
        for name in runs.names:
            try:
                kinds |= await check_journal(primary, database, [name])
            except AssertionError as exc:
                print(f"disturbed: {exc}")
                disturbed += 1
                kinds[name] = Counter()
        return disturbed, len(runs.missing(kinds))


def sealed(primary: Postgres, rounds: int, crowds_at_once: int = 4) -> Iterator[Figure]:
    """Runs of 16 nodes that are made and come to their go at one replica, some at a time."""
    for name in ("SQLite", "PostgreSQL"):
        shared = name == "PostgreSQL"
        dsn = primary.dsn(asyncio.run(primary.new_database())) if shared else ""
        journal = "postgres" if shared else "sqlite"
        with serving(tls=False, journal=journal, dsn=dsn) as registry:
            seconds = _sealed(registry, rounds, crowds_at_once)
        count = rounds * crowds_at_once
        note = f"{name}: {count / seconds:.1f} runs a second; {crowds_at_once} at a time"
        target = 50.0 if shared else None
        each = round(1000 * seconds / count, 1)
        yield Figure("sealed_run", _NODES_OF_SEALED, each, "ms", target, count, note=note)


def _sealed(registry: Registry, rounds: int, at_once: int) -> float:
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(crowds(registry.place, _NODES_OF_SEALED, 1)) for _ in range(at_once)
        ]
        all_met = [
            Meeting(registry, crowd, _NODES_OF_SEALED, f"crowd-{n}") for n, crowd in enumerate(made)
        ]
        for met in all_met:
            met.open()
            met.assembly(1)
        with ThreadPoolExecutor(at_once) as pool:
            began = time.monotonic()
            list(pool.map(lambda met: met.assembly(rounds), all_met))
            return time.monotonic() - began


def idle(primary: Postgres, nodes: int, seconds: float) -> Iterator[Figure]:
    """So many nodes run and poll over TLS, a third at each replica; the worst one counts."""
    each = nodes // _REPLICAS
    with standing(primary) as (cluster, _), contextlib.ExitStack() as stack:
        all_of_them = [
            Registry(psutil.Process(one.pid), one.place, cluster.secret) for one in cluster.all
        ]
        for number, registry in enumerate(all_of_them):
            crowd = stack.enter_context(crowds(registry.place, each, 1))
            Meeting(registry, crowd, each, f"replica-{number}").first_assembly()
        time.sleep(2.0)
        before, began = [one.cpu_seconds() for one in all_of_them], time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        shares = [
            100 * (one.cpu_seconds() - was) / took
            for one, was in zip(all_of_them, before, strict=True)
        ]
        sizes = [one.rss_bytes() / 1e6 for one in all_of_them]
    said = ", ".join(f"{share:.1f}" for share in shares)
    note = f"TLS, {each} nodes at each of {_REPLICAS} replicas: {said}"
    yield Figure("standing_cpu", nodes, round(max(shares), 1), "% core", 20, note=note)
    said = ", ".join(f"{size:.0f}" for size in sizes)
    yield Figure("standing_rss", nodes, round(max(sizes), 1), "MB", 150, note=f"each: {said}")


def works(amount: Amount) -> Iterator[Work]:
    """All of it, in parts that are measured one after the other."""
    if why := missing():
        print(f"the standing registry is not measured: {why}")
        return
    with engine() as primary:
        yield partial(commits, primary, amount.commits)
        for nodes in amount.nodes:
            yield partial(last_to_all, primary, nodes, amount.rounds)
        if amount.killed:
            yield partial(taken_over, primary, amount.killed)
        if amount.away_seconds:
            yield partial(engine_away, primary, amount.away_seconds)
        yield partial(sealed, primary, amount.sealed)
        yield partial(idle, primary, amount.idle, amount.idle_seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print these rows alone."""
    parser = argparse.ArgumentParser(prog="python -m bench.standing", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look, in seconds")
    mode = "quick" if parser.parse_args(arguments).quick else ""
    raise_file_limit()
    report = Report(describe(), mode)
    print(f"{describe()}\n{HEADER}")
    for work in works(QUICK if mode else FULL):
        with watching() as load:
            done = list(work())
        for one in done:
            report.add(one, load.others_percent)


if __name__ == "__main__":
    main()

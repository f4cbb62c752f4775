"""What a registry needs when nothing happens, and whether many thousand nodes can come at all."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.meeting import Meeting, meeting
from bench.rows import Figure, Row, row


def idle(nodes: int, seconds: float) -> Iterator[Figure]:
    """A registry whose nodes run and poll, over TLS."""
    with meeting(nodes, tls=True) as met:
        met.first_assembly()
        share = _cpu_share(met, seconds)
        rss = met.registry.rss_bytes() / 1e6
    note = "TLS, SQLite, after the go"
    yield Figure("idle_cpu", nodes, round(100 * share, 1), "% core", 4, note=note)
    yield Figure("idle_rss", nodes, round(rss, 1), "MB", 150, note=note)


def _cpu_share(met: Meeting, seconds: float) -> float:
    before, began = met.registry.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (met.registry.cpu_seconds() - before) / (time.monotonic() - began)


def thousands(nodes: int, *, tls: bool, processes: int = 2) -> Iterator[Row | Figure]:
    """All come together, without open connections; and what each costs once it runs."""
    system = "rdzv-tls" if tls else "rdzv"
    with meeting(nodes, tls=tls, processes=processes) as met:
        before = met.registry.rss_bytes()
        times = met.first_assembly()
        time.sleep(5.0)
        each = _kilobytes_each(met, before)
    note = f"connections are opened within the time; {each:g} kB a node after the go"
    yield row(
        system, nodes, "assembly", times.table, journal="sqlite", cpu_seconds=times.cpu, note=note
    )


def parked(nodes: int, processes: int = 2) -> Iterator[Row | Figure]:
    """All but one wait, over TLS; what each costs; then the last one comes."""
    with meeting(nodes, tls=True, processes=processes) as met:
        before = met.registry.rss_bytes()
        met.open()
        met.gather()
        each = _kilobytes_each(met, before)
        times = met.complete()
    yield row("rdzv-tls", nodes, "last_to_all", times.table, journal="sqlite")
    note = "waiting; connection and state of the run"
    yield Figure("parked_tls_kb", nodes, each, "kB/node", 60, note=note)


def _kilobytes_each(met: Meeting, before: int) -> float:
    return round((met.registry.rss_bytes() - before) / met.nodes / 1e3, 1)

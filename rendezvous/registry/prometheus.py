"""What a registry tells Prometheus: the table of its series, and their values just now.

Names and labels are told to whoever has the metrics credential, which opens nothing else: names of
runs are among them, and nothing of their programs is.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from rendezvous.prometheus import Family, Histogram
from rendezvous.registry.counters import COUNTERS
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.service import Service
from rendezvous.version import rdzv_version
from rendezvous.wire.run import Phase

MOST_RUNS: Final = 100
"""Runs that have series of their own: however many a registry has, a scrape stays small."""

_STATUSES = ("ok", "failed", "cancelled")

Samples = Iterable[tuple[tuple[str, ...], float | Histogram]]


def _phases(service: Service) -> Samples:
    found = Counter(live.run.phase for live in service.sequencer.runs.values())
    return [((phase,), found[phase]) for phase in Phase]


def _in_phase(service: Service) -> Samples:
    lives = [(live.run, live.now()) for live in _listed(service)]
    return [((run.id, run.phase), max(0.0, now - run.phase_since)) for run, now in lives]


def _missing(service: Service) -> Samples:
    return [((live.run.id,), len(live.run.missing)) for live in _listed(service)]


def _listed(service: Service) -> list[LiveRun]:
    """The runs in progress that have series of their own: first those whose programs do not run,
    and of them those that have waited longest."""

    def key(live: LiveRun) -> tuple[bool, float]:
        return live.run.phase is Phase.RUNNING, live.run.phase_since - live.offset

    runs = (r for r in service.sequencer.runs.values() if r.run.phase is not Phase.FINISHED)
    return heapq.nsmallest(MOST_RUNS, runs, key)


def _by_phase(service: Service) -> Samples:
    phases = service.sequencer.meters.phases
    return [((phase, _start(again)), phases[phase, again]) for phase, again in sorted(phases)]


def _starts(service: Service) -> Samples:
    return [((_start(again),), found) for again, found in service.sequencer.meters.starts.items()]


def _start(again: bool) -> str:
    return "again" if again else "first"


def _relayed(service: Service) -> int:
    relays = (live.relay for live in service.sequencer.runs.values())
    return sum(relay.held_bytes for relay in relays if relay is not None)


def _one(value: Callable[[Service], float | Histogram]) -> Callable[[Service], Samples]:
    return lambda service: [((), value(service))]


def _counter(name: str) -> Callable[[Service], Samples]:
    return _one(lambda service: service.counters[name])


_SERIES: Final[tuple[tuple[Family, Callable[[Service], Samples]], ...]] = (
    (
        Family("rdzv_build_info", "gauge", "The version of rdzv, as a label.", ("version",)),
        lambda service: [((rdzv_version(),), 1)],
    ),
    (Family("rdzv_runs", "gauge", "Runs that the registry keeps, by phase.", ("phase",)), _phases),
    (
        Family("rdzv_run_ends_total", "counter", "Runs that have ended, by result.", ("status",)),
        lambda service: [((end,), service.sequencer.meters.ends[end]) for end in _STATUSES],
    ),
    (
        Family(
            "rdzv_run_phase_seconds",
            "gauge",
            f"Time that a run has been in its phase, for up to {MOST_RUNS} runs in progress.",
            ("run", "phase"),
        ),
        _in_phase,
    ),
    (
        Family("rdzv_run_missing_nodes", "gauge", "Nodes of a run that are missing.", ("run",)),
        _missing,
    ),
    (
        Family(
            "rdzv_start_seconds",
            "histogram",
            "Time that each start of a run spent in a phase before its programs started.",
            ("phase", "start"),
        ),
        _by_phase,
    ),
    (
        Family(
            "rdzv_gang_start_seconds",
            "histogram",
            "Time from a run's creation, or the end of its programs, to their start.",
            ("start",),
        ),
        _starts,
    ),
    (
        Family("rdzv_join_seconds", "histogram", "Time from the body of a join to its answer."),
        _one(lambda service: service.sequencer.meters.joins),
    ),
    (
        Family("rdzv_report_seconds", "histogram", "Time from the body of a report to its answer."),
        _one(lambda service: service.sequencer.meters.reports),
    ),
    (
        Family(
            "rdzv_watch_seconds",
            "histogram",
            "Time from durable news, or a later watch, to the answer with that news.",
        ),
        _one(lambda service: service.sequencer.meters.news),
    ),
    (
        Family(
            "rdzv_journal_commit_seconds",
            "histogram",
            "Time of a commit of the journal, with its fsync.",
        ),
        _one(lambda service: service.sequencer.meters.commits),
    ),
    (
        Family("rdzv_journal_commit_rows", "histogram", "Events in a commit of the journal."),
        _one(lambda service: service.sequencer.meters.commit_rows),
    ),
    (
        Family(
            "rdzv_loop_lag_seconds",
            "histogram",
            "Delay with which the event loop runs what is due.",
        ),
        _one(lambda service: service.sequencer.meters.lag),
    ),
    (
        Family("rdzv_connections", "gauge", "Open connections, with that of the scrape."),
        _one(lambda service: service.sequencer.options.connections()),
    ),
    (
        Family("rdzv_replicas", "gauge", "Replicas of the registry that are alive."),
        _one(lambda service: 1 + len(service.place.others())),
    ),
    (
        Family(
            "rdzv_replica_silent_seconds",
            "gauge",
            "Time since the shared journal answered this replica.",
        ),
        _one(lambda service: service.place.silent_seconds()),
    ),
    (
        Family(
            "rdzv_commit_wait_seconds",
            "gauge",
            "Time that the oldest commit has waited for the shared journal; 0: none waits.",
        ),
        _one(lambda service: service.place.commits.seconds()),
    ),
    (
        Family(
            "rdzv_relay_bytes",
            "gauge",
            "Memory of remote commands' output on its way between nodes.",
        ),
        _one(_relayed),
    ),
    *(
        (Family(f"rdzv_{name}_total", "counter", about), _counter(name))
        for name, about in COUNTERS.items()
    ),
)

FAMILIES: Final = tuple(family for family, _ in _SERIES)


def metrics_text(service: Service) -> str:
    """All series of a registry, as Prometheus reads them."""
    return "".join(family.text(samples(service)) for family, samples in _SERIES)

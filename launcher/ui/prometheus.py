"""What the launcher's page tells Prometheus of its runs. Pure.

It is made of what the page itself is told. The number of series does not grow with the ranks, but
where somebody asks for that, and only little with what programs make of their metrics' names.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, get_args

from launcher.ui.parts import Sample, Series, series
from launcher.ui.shapes import PhaseName, Slot, State
from rendezvous.prometheus import Family

MOST_SILENT: Final = 10
"""Nodes of a run that have a series for how long they have been silent."""

PHASES: Final = (
    *("gathering", "verifying", "arming", "running", "restarting"),
    *("ok", "failed", "cancelled", "killed", "silent"),
)
"""What the state of a run may be."""
_SLOT_PHASES: Final[tuple[PhaseName, ...]] = get_args(PhaseName)
_WAITS: Final = tuple(phase for phase in _SLOT_PHASES if phase not in ("running", "ended"))
_FORMING: Final = ("gathering", "verifying", "arming")


def _info(state: State) -> Iterator[Sample]:
    head = state["head"]
    yield (head["run"], head["launch_id"], head["scheduler"], head["nodes"], head["host"]), 1


def _phase(state: State) -> Iterator[Sample]:
    head = state["head"]
    yield from (((head["run"], phase), phase == head["state"]) for phase in PHASES)


def _nodes(state: State) -> Iterator[Sample]:
    counted = Counter(slot["state"] for slot in state["slots"])
    yield from (((state["head"]["run"], name), count) for name, count in sorted(counted.items()))


def _seconds(state: State) -> Iterator[Sample]:
    yield (state["head"]["run"],), state["head"]["elapsed"]


def _waits(state: State) -> Iterator[Sample]:
    """Of a run that is over, nothing is waited for."""
    head, longest = state["head"], dict.fromkeys(_WAITS, 0.0)
    for slot in () if head["over"] else state["slots"]:
        for span in slot["spans"]:
            if span["end"] is None and span["phase"] in longest:
                waited = head["elapsed"] - span["start"]
                longest[span["phase"]] = max(longest[span["phase"]], waited)
    yield from (((head["run"], phase), seconds) for phase, seconds in longest.items())


def _start(state: State) -> Iterator[Sample]:
    """The phases that all slots are beyond. Once programs run, slots that they went without do not
    count."""
    slots = state["slots"]
    if state["head"]["state"] not in _FORMING:
        slots = [slot for slot in slots if _is_beyond(slot, "armed") < math.inf]
    began = min((slot["spans"][0]["start"] for slot in slots if slot["spans"]), default=0.0)
    for phase in _WAITS:
        last = max((_is_beyond(slot, phase) for slot in slots), default=math.inf)
        if last < math.inf:
            yield (state["head"]["run"], phase), max(0.0, last - began)


def _is_beyond(slot: Slot, phase: PhaseName) -> float:
    """Since when the slot is beyond this phase, which it may have skipped; infinity: it is not."""
    place = _SLOT_PHASES.index(phase)
    later = (s["start"] for s in slot["spans"] if _SLOT_PHASES.index(s["phase"]) > place)
    return next(later, math.inf)


def _late(state: State) -> Iterator[Sample]:
    silent = [(slot["silent"], slot) for slot in state["slots"] if slot["silent"] is not None]
    silent.sort(key=lambda pair: (-pair[0], pair[1]["slot"]))
    for seconds, slot in silent[:MOST_SILENT]:
        node = "" if slot["node"] is None else str(slot["node"])
        yield (state["head"]["run"], node, str(slot["slot"]), slot["host"]), seconds


def _silence(state: State) -> Iterator[Sample]:
    yield (state["head"]["run"],), state["head"]["silent_seconds"] or 0.0


def _exit(state: State) -> Iterator[Sample]:
    head = state["head"]
    if (result := head["result"]) is not None:
        cause = str(result.get("cause") or result.get("code") or "")
        status = str(result.get("status") or "")
        yield (head["run"], status, cause), int(result.get("exit_code") or 0)


def _restarts(state: State) -> Iterator[Sample]:
    yield (state["head"]["run"],), state["head"]["restarts"]


def _replacements(state: State) -> Iterator[Sample]:
    yield (state["head"]["run"],), state["head"]["replacements"]


_BUILD = Family("rdzv_build_info", "gauge", "The version of rdzv, as a label.", ("version",))
_OF_RUN: Final[tuple[Series, ...]] = (
    (
        Family(
            "rdzv_run_info",
            "gauge",
            "What a run is, as labels.",
            ("run", "launch_id", "scheduler", "nodes", "host"),
        ),
        _info,
    ),
    (
        Family("rdzv_run_phase", "gauge", "1: the run is in this phase; else 0.", ("run", "phase")),
        _phase,
    ),
    (Family("rdzv_nodes", "gauge", "Slots of a run, by their state.", ("run", "state")), _nodes),
    (
        Family(
            "rdzv_run_seconds",
            "gauge",
            "Time from a run's creation to now, or to its end.",
            ("run",),
        ),
        _seconds,
    ),
    (
        Family(
            "rdzv_wait_seconds",
            "gauge",
            "Longest time that a slot has been in a phase in which it still is; 0: no slot is.",
            ("run", "for"),
        ),
        _waits,
    ),
    (
        Family(
            "rdzv_run_start_seconds",
            "gauge",
            "Time from the first submission to the end of a phase for the last slot.",
            ("run", "phase"),
        ),
        _start,
    ),
    (
        Family(
            "rdzv_node_late_seconds",
            "gauge",
            f"Time since a silent node was heard from, for the {MOST_SILENT} longest.",
            ("run", "node", "slot", "host"),
        ),
        _late,
    ),
    (
        Family(
            "rdzv_registry_silent_seconds",
            "gauge",
            "Time since the registry of a run answered; 0: it does.",
            ("run",),
        ),
        _silence,
    ),
    (
        Family(
            "rdzv_exit",
            "gauge",
            "Exit code of a run that has ended, with its first cause.",
            ("run", "status", "cause"),
        ),
        _exit,
    ),
    (
        Family("rdzv_restarts_total", "counter", "Restarts of a run's programs.", ("run",)),
        _restarts,
    ),
    (
        Family(
            "rdzv_replacements_total",
            "counter",
            "Nodes of a run that were lost and replaced.",
            ("run",),
        ),
        _replacements,
    ),
)

FAMILIES: Final = (_BUILD, *(family for family, _ in (*_OF_RUN, *series())))
FAMILIES_BY_RANK: Final = tuple(family for family, _ in series(by_rank=True))


def metrics_text(states: Iterable[State], build: str, *, by_rank: bool = False) -> str:
    """All series of these runs, as Prometheus reads them.

    Args:
        build: The version of rdzv.
        by_rank: Also those of each rank: there may be thousands.
    """
    runs = list(states)
    every = (*_OF_RUN, *series(), *(series(by_rank=True) if by_rank else ()))
    texts = [
        family.text(sample for run in runs for sample in samples(run)) for family, samples in every
    ]
    return "".join([_BUILD.text([((build,), 1)]), *texts])

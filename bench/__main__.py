"""What docs/speed.md prints: `python -m bench [PART...]` (= `make bench`; BENCH=quick: a look)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial

from bench import browser, killed, launches, lost, meeting, mesh, pages
from bench.process import name_mapped_loopback
from bench.rows import Report, Row, Work


def _peer(system: str, nodes: int, rounds: int) -> Iterator[Row]:
    from bench.peers import last_to_all  # it imports torch

    return last_to_all(system, nodes, rounds)


def _start(*, quick: bool) -> Iterator[Work]:
    for nodes in (8,) if quick else (8, 64, 128, 512, 2_048):
        for tls in (False, True):
            yield partial(meeting.start, nodes, 1 if quick else 10, tls=tls)
    for nodes in (8,) if quick else (8, 64, 128, 512):
        yield partial(_peer, "tcpstore", nodes, 1 if quick else 10)
    is_named = name_mapped_loopback()
    if not is_named:
        print("c10d at 8 nodes only: it needs ::ffff:127.0.0.1 in /etc/hosts, or root")
    for nodes in (2,) if quick else (8, 64, 128) if is_named else (8,):
        yield partial(_peer, "c10d", nodes, 1 if quick else 10)


def _registry(*, quick: bool) -> Iterator[Work]:
    for tls in () if quick else (False, True):
        yield partial(meeting.thousands, 10_000, tls=tls)
    yield partial(meeting.idle, 64 if quick else 2_048, [1.0] if quick else [10.0] * 3)


def _verify(*, quick: bool) -> Iterator[Work]:
    for nodes in (4,) if quick else (4, 16, 64, 128):
        yield partial(mesh.verify, nodes, 1 if quick else 5)


def _launch(*, quick: bool) -> Iterator[Work]:
    yield partial(launches.to_the_go, 1 if quick else 10)
    for nodes in (2,) if quick else (2, 4):
        yield partial(launches.beside_torchrun, nodes, 1 if quick else 5)


def _output(*, quick: bool) -> Iterator[Work]:
    yield partial(launches.output, 1 if quick else 2, 50_000 if quick else 500_000)


def _restart(*, quick: bool) -> Iterator[Work]:
    for nodes in (8,) if quick else (64, 512, 2_048):
        for tls in (False, True):
            yield partial(meeting.restart, nodes, 1 if quick else 5, tls=tls)


def _killed(*, quick: bool) -> Iterator[Work]:
    name_mapped_loopback()
    if quick:
        yield partial(killed.in_turn, 1, [killed.RDZV_LAUNCH])
        return
    yield partial(killed.in_turn, 5, [killed.RDZV_LAUNCH, *killed.PEERS])
    yield partial(killed.in_turn, 1, [killed.C10D])  # never comes again, which takes a minute
    yield partial(killed.in_turn, 2, killed.WARM)  # for docs/warm.md


def _lost(*, quick: bool) -> Iterator[Work]:
    yield partial(lost.killed_agent, 1 if quick else 5)
    if not quick:  # the tests of faults show it, with a short fence
        yield partial(lost.silent_host, 3)


def _pages(*, quick: bool) -> Iterator[Work]:
    yield pages.wheel
    if reason := browser.missing():
        print(f"the page is not measured: {reason}")
        return
    seconds = 1.0 if quick else 10.0
    for nodes in (4,) if quick else (4, 64, 1_024):
        yield partial(pages.of_run, nodes, 3 if quick else 20, seconds)
        yield partial(pages.of_registry, nodes, 1 if quick else 3, seconds)
    yield partial(pages.log_line, seconds)


PARTS: dict[str, Callable[..., Iterator[Work]]] = {
    "start": _start,
    "registry": _registry,
    "verify": _verify,
    "launch": _launch,
    "output": _output,
    "restart": _restart,
    "killed": _killed,
    "lost": _lost,
    "pages": _pages,
}


def main(*words: str) -> None:
    """Measure these parts, or all, as much as `BENCH` says; print and write as it goes."""
    mode = os.environ.get("BENCH", "")
    if mode not in ("", "quick"):
        sys.exit(f"BENCH is '{mode}'; 'quick' is known, or nothing for the whole benchmark")
    if unknown := [word for word in words if word not in PARTS]:
        sys.exit(f"no part is called '{unknown[0]}'; there are {', '.join(PARTS)}")
    report = Report(mode)
    for name in words or PARTS:
        for work in PARTS[name](quick=bool(mode)):
            report.measure(work)


if __name__ == "__main__":
    main(*sys.argv[1:])

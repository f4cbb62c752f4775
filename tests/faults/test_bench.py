"""`rdzv bench` over emulated hosts: the node that was made slow is the one that is named."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import Cluster, cluster
from tests.support.netlab import INTERFACE, Host, Lab
from tests.support.record import record

pytestmark = [
    pytest.mark.faults,
    pytest.mark.netns,
    pytest.mark.torch,
    pytest.mark.timeout(180),
]

SICK = 2
OPTIONS = ("--slow-below", "0.4", "--prefix")
SMALL = ("--sizes", "4K,64K")
# Each takes half a second: time to take a processor away before pairs are measured, which is soon
# over.
LARGE = ("--sizes", "4M,8M,12M,16M")
RUNS_SECONDS = 0.005
STOPPED_TIMES = 19


def shape(host: Host, rate: str) -> None:
    """Let a host's interface send no faster than this."""
    bucket = ("tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
    host.run(["tc", "qdisc", "add", "dev", INTERFACE, "root", *bucket])


def measuring(node: int, folder: Path) -> psutil.Process | None:
    """The process that measures on a node, once all of them are about to."""
    log = folder / "h0" / "r" / "logs" / "node-0.log"
    if not log.exists() or "sizes to all-reduce" not in log.read_text():
        return None
    for process in psutil.process_iter(["cmdline"]):
        if "bandwidth.py" not in " ".join(process.info["cmdline"] or []):
            continue
        with suppress(psutil.Error):
            seen = process.environ()
            here = seen.get("RDZV_STATE_DIR") == str(folder / f"h{node}")
            if here and "LOCAL_RANK" in seen:  # not torchrun, which started it
                return process
    return None


@contextmanager
def starved(node: int, folder: Path) -> Iterator[None]:
    """Let the process that measures on a node have little of a processor."""
    over = threading.Event()

    def starve() -> None:
        while (process := measuring(node, folder)) is None and not over.wait(0.1):
            pass
        with suppress(psutil.NoSuchProcess):
            ran = RUNS_SECONDS
            while process is not None and not over.is_set():
                process.suspend()
                over.wait(STOPPED_TIMES * ran)  # on a busy machine it has run for longer than asked
                resumed = time.monotonic()
                process.resume()
                time.sleep(RUNS_SECONDS)
                ran = time.monotonic() - resumed

    thread = threading.Thread(target=starve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def sentence(out: str) -> str:
    """What the report says in the end."""
    return out.strip().splitlines()[-1]


def finish(run: Cluster, saved: Path) -> tuple[int, str, dict[str, object]]:
    """Start the other nodes; exit code, what was printed, and what was saved."""
    run.start_workers()
    outcome = run.finish()
    assert saved.exists(), outcome.err + str(run.told)
    return outcome.code, outcome.err, json.loads(saved.read_text())


@pytest.mark.nightly
def test_the_node_behind_a_slow_link_is_named(tmp_path: Path) -> None:
    saved, drawn = tmp_path / "result.json", tmp_path / "result.svg"
    files = ("--save", str(saved), "--plot", str(drawn))
    with Lab(4) as lab:
        shape(lab.hosts[SICK], "40mbit")
        with cluster(lab, tmp_path, *OPTIONS, *SMALL, *files, verb="bench") as run:
            began = time.monotonic()
            code, out, result = finish(run, saved)
    assert (code, result["slow_nodes"], result["slow_pairs"]) == (1, [SICK], []), out
    assert sentence(out).startswith(f"node {SICK} (h{SICK}) is slow: 0.00"), out
    assert drawn.read_text().startswith("<?xml")
    record("`rdzv bench`: a link shaped to 40 Mb/s", sentence(out), time.monotonic() - began)


@pytest.mark.nightly
def test_the_node_whose_processor_is_taken_away_is_named(tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    options = (*OPTIONS, *LARGE, "--save", str(saved))
    with Lab(3) as lab, cluster(lab, tmp_path, *options, verb="bench") as run:
        began = time.monotonic()
        with starved(SICK, tmp_path):
            code, out, result = finish(run, saved)
    assert (code, result["slow_nodes"], result["slow_pairs"]) == (1, [SICK], []), out
    record(
        "`rdzv bench`: a program that gets 5 % of a processor",
        sentence(out),
        time.monotonic() - began,
    )

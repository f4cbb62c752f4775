"""`rdzv bench` over emulated hosts: the node that was made slow is the one that is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.netlab import INTERFACE, Lab

pytestmark = [
    pytest.mark.faults,
    pytest.mark.netns,
    pytest.mark.nightly,
    pytest.mark.torch,
    pytest.mark.timeout(180),
]

SICK = 2
BUCKET = ("tbf", "rate", "40mbit", "burst", "64kb", "latency", "50ms")


def test_the_node_behind_a_slow_link_is_named(tmp_path: Path) -> None:
    saved, drawn = tmp_path / "result.json", tmp_path / "result.svg"
    options = ("--slow-below", "0.4", "--prefix", "--sizes", "4K,64K")
    files = ("--save", str(saved), "--plot", str(drawn))
    with Lab(4) as lab:
        lab.hosts[SICK].run(["tc", "qdisc", "add", "dev", INTERFACE, "root", *BUCKET])
        with cluster(lab, tmp_path, *options, *files, verb="bench") as run:
            run.start_workers()
            outcome = run.finish()
    assert saved.exists(), outcome.err + str(run.told)
    result = json.loads(saved.read_text())
    assert (outcome.code, result["slow_nodes"], result["slow_pairs"]) == (1, [SICK], [])
    assert outcome.last_line.startswith(f"node {SICK} (h{SICK}) is slow: 0.00")
    assert drawn.read_text().startswith("<?xml")

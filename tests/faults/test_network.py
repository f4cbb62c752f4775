"""A network that loses packets, or that passes them one way only."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.netlab import Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(300)]

COMMAND = ("--framework", "command", "--grace", "2", "--submit-retries", "0")
LEASE = 4


def test_a_run_whose_nodes_lose_a_fifth_of_their_packets_each_way_ends_well(
    tmp_path: Path,
) -> None:
    with Lab(3) as lab:
        for host in lab.hosts[1:]:
            lab.lose(host, 20)
        with cluster(lab, tmp_path, *COMMAND, command=["sleep", "3"]) as run:
            run.start_workers()
            # One that has not heard of the end in time goes on until its orphan time-out.
            outcome = run.finish(240, workers=150)
    assert outcome.code == 0, outcome.err + str(run.told)


@pytest.mark.parametrize(("way", "phase"), [("to", "gathering"), ("from", "running")])
def test_a_node_cut_off_in_one_direction_is_named_within_its_lease(
    way: str, phase: str, tmp_path: Path
) -> None:
    options = (*COMMAND, "--lease", str(LEASE), "--orphan-timeout", "6")
    with Lab(3) as lab, cluster(lab, tmp_path, *options, command=["sleep", "600"]) as run:
        run.start_workers(*((1,) if phase == "gathering" else (1, 2)))
        if phase == "running":
            until((tmp_path / "h1" / "r" / "logs" / "node-1.log").exists)
        else:
            run.launched.wait_for("joined", 2)
        registry, node = lab.hosts[0], lab.hosts[1]
        cut = time.monotonic()
        lab.cut(*((node, registry) if way == "to" else (registry, node)), one_way=True)
        outcome = run.finish()
        seconds = time.monotonic() - cut
    assert outcome.code == 86
    assert ("slot 1 (h1)" if phase == "gathering" else "(h1, slot 1)") in outcome.last_line
    assert "it was silent for" in outcome.last_line
    assert run.workers[1].returncode == 85
    assert seconds < LEASE + 15

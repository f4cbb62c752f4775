"""A network that loses, delays and reorders packets, or that passes them one way only."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from tests.faults.crowd import crowd, read_lines
from tests.support.cluster import cluster
from tests.support.netlab import Lab
from tests.support.record import ROUNDS, record
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(300 + 90 * ROUNDS)]

MEMBERS = 32
COMMAND = ("--framework", "command", "--grace", "2")
LEASE = 4
# Losses in percent each way, delays and their jitter in seconds.
CELLS = itertools.product((0, 10, 20, 30), (0.005, 0.05, 0.2), (0, 0.3, 0.6, 0.9, 1.0))
EACH_PUSH = [(20, 0.05, 0.9)]


@pytest.mark.nightly
def test_32_members_that_lose_a_fifth_of_their_packets_each_way_all_stay_alive(
    tmp_path: Path,
) -> None:
    seconds = 30.0 if ROUNDS == 1 else 60.0 * ROUNDS
    with Lab(5) as lab, crowd(lab, tmp_path) as people:
        for host in lab.hosts[1:]:
            lab.lose(host, 20)
        how = {"nodes": MEMBERS, "lease": 15, "seconds": seconds}
        members = [
            people.start(host, "r", *range(index, MEMBERS, 4), **how)  # type: ignore[arg-type]
            for index, host in enumerate(lab.hosts[1:])
        ]
        watch = people.start(lab.hosts[0], "r", "watch", **how)  # type: ignore[arg-type]
        lines = read_lines([*members, watch], seconds + 120)
    results = {str(line["message"]) for line in lines if line["what"] == "result"}
    assert len(results) == 1
    assert results.pop().startswith(f"all {MEMBERS} nodes ended with exit code 0")
    (silence,) = [line for line in lines if line["what"] == "silence"]
    assert silence["longest"] < 15
    record(
        f"20 % loss each way, {MEMBERS} members for {seconds:.0f} s",
        f"{silence['message']} (longest silence seen by the registry: {silence['longest']} s)",
    )


@pytest.mark.parametrize(
    ("loss", "delay", "share"),
    [pytest.param(*cell, marks=() if cell in EACH_PUSH else pytest.mark.nightly) for cell in CELLS],
)
def test_a_run_ends_well_or_names_the_silent_node_where_packets_are_lost_late_and_out_of_order(
    loss: int, delay: float, share: float, tmp_path: Path
) -> None:
    with Lab(3) as lab:
        lab.delay(lab.hosts[0], delay, delay * share)
        for host in lab.hosts[1:]:
            lab.lose(host, loss)
        started = time.monotonic()
        options = (*COMMAND, "--submit-retries", "0")
        with cluster(lab, tmp_path, *options, command=["sleep", "3"]) as run:
            run.start_workers()
            # One that has not heard of the end in time goes on until its orphan time-out.
            outcome = run.finish(240, workers=150)
        seconds = time.monotonic() - started
    if loss == 0 or (loss <= 20 and delay <= 0.05) or outcome.code == 0:
        assert outcome.code == 0, outcome.err + str(run.told)
        assert "run 'r' ok: all 3 nodes ended with exit code 0" in outcome.last_line
    else:  # a node may be silent for a whole lease; it is never taken for one that is gone
        assert outcome.code == 86
        assert "silent for" in outcome.last_line
    words = f"delay {delay * 1000:.0f} ms -+ {delay * share * 1000:.0f} ms, {loss} % loss each way"
    record(words, outcome, seconds)


@pytest.mark.parametrize(
    ("way", "phase"),
    [
        ("to", "gathering"),
        ("from", "running"),
        pytest.param("from", "gathering", marks=pytest.mark.nightly),
        pytest.param("to", "running", marks=pytest.mark.nightly),
    ],
)
def test_a_node_cut_off_in_one_direction_is_named_within_its_lease(
    way: str, phase: str, tmp_path: Path
) -> None:
    options = (*COMMAND, "--lease", str(LEASE), "--orphan-timeout", "6", "--submit-retries", "0")
    with Lab(3) as lab, cluster(lab, tmp_path, *options, command=["sleep", "600"]) as run:
        run.start_workers(*((1,) if phase == "gathering" else (1, 2)))
        agent = tmp_path / "h1" / "r" / "logs" / "node-1.log"
        if phase == "running":
            until(agent.exists)
        else:
            run.launched.wait_for("joined", 2)
        registry, node = lab.hosts[0], lab.hosts[1]
        cut = time.monotonic()
        lab.cut(*((node, registry) if way == "to" else (registry, node)), one_way=True)
        outcome = run.finish()
        seconds = time.monotonic() - cut
    assert outcome.code == 86
    name = f"slot 1 ({node.name})" if phase == "gathering" else f"({node.name}, slot 1)"
    assert name in outcome.last_line
    assert "it was silent for" in outcome.last_line
    assert run.workers[1].returncode == 85
    assert seconds < LEASE + 15
    record(f"one-way cut {way} the registry while {phase} (lease {LEASE} s)", outcome, seconds)


@pytest.mark.parametrize("way", ["to", "from"])
@pytest.mark.nightly
def test_a_one_way_cut_that_heals_within_the_lease_disturbs_nobody(
    way: str, tmp_path: Path
) -> None:
    command = ["sh", "-c", f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done"]
    with Lab(3) as lab, cluster(lab, tmp_path, *COMMAND, command=command) as run:
        run.start_workers()
        until(lambda: len(list(tmp_path.glob("h*/r/logs/node-*.log"))) == 3)
        registry, node = lab.hosts[0], lab.hosts[1]
        lab.cut(*((node, registry) if way == "to" else (registry, node)), one_way=True)
        time.sleep(8)
        lab.mend(node, registry)
        time.sleep(10)  # the lease of 15 s would be over
        (tmp_path / "end").touch()
        outcome = run.finish()
    assert outcome.code == 0, outcome.err
    assert "was lost" not in outcome.err
    record(f"one-way cut {way} the registry for 8 s (lease 15 s)", outcome)

"""Launches through a batch system that behaves: nothing is lost or left, and it is said why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.path.farm import Farm, network
from tests.support.launching import Launched, processes_with, shell
from tests.support.netlab import Host
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120)]


@pytest.fixture(scope="session")
def farm_network() -> Iterator[Host]:
    """One network for all farms of a test process, which has one farm at a time."""
    with network() as host:
        yield host


@pytest.fixture
def farm(tmp_path: Path, farm_network: Host) -> Iterator[Farm]:
    """A batch system that behaves, with nothing submitted."""
    made = Farm(tmp_path, farm_network)
    yield made
    made.close()


def said(launched: Launched, words: str) -> None:
    """Wait until an event of the run says so."""
    until(lambda: count_said(launched, words) > 0)


def count_said(launched: Launched, words: str) -> int:
    """How many events of the run say so."""
    return sum(words in str(event["reason"]) for event in launched.events())


def kill(launched: Launched) -> None:
    """SIGKILL to the launcher."""
    launched.process.kill()
    launched.process.wait()


# --- how it goes well -----------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_scheduler_starts_all_nodes_but_the_first_and_keeps_their_logs(
    farm: Farm, tmp_path: Path
) -> None:
    gate = f"while [ ! -e {tmp_path}/end ]; do sleep 0.2; done; echo ended"
    script = f"echo $NODE_RANK has $NCCL_NET_X and $UCX_X; {gate}"
    env = {"NCCL_NET_X": "a 'b' c", "UCX_X": "all"}
    with farm.launching("--nnodes", "3", command=shell(script), env=env) as launched:
        launched.wait_for_phase("running")
        follower = farm.start_rdzv("logs", "r", "--node", "2", "--follow")
        assert follower.stdout is not None
        title, *_ = list(iter(follower.stdout.readline, "2 has a 'b' c and all\n"))
        (tmp_path / "end").touch()
        outcome = launched.finish()
        rest, errors = follower.communicate(timeout=30)
    assert outcome.code == 0, outcome.err
    assert outcome.out == "0 has a 'b' c and all\nended\n"
    assert sorted(farm.names()) == ["1-1", "2-1"]
    assert farm.living() == []
    assert re.fullmatch(r"==> rdzv-\w+-[12]-1 \(slot [12], [^,]+, farm \d+\)\n", title)
    assert "ended\n" in rest
    assert (follower.returncode, errors) == (0, "")
    until(lambda: not processes_with(f"{tmp_path}/farm"))


# --- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.faults
def test_a_worker_run_that_is_evicted_before_it_joins_is_submitted_again(farm: Farm) -> None:
    """The scheduler cannot be asked for a while, which disturbs nobody."""
    farm.prologue('[ "$SLOT.$GENERATION" = 1.1 ] && exec sleep 600')
    with farm.launching("--nnodes", "2", command=["true"]) as launched:
        farm.started("1-1")
        farm.has("down")
        said(launched, "slot 1: unknown")
        farm.is_rid_of("down")
        farm.gives_up("1-1")
        farm.kills("1-1")
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert "EVICTED: the node is drained; it is submitted again" in outcome.err
    assert farm.names() == ["1-1", "1-2"]
    assert farm.living() == []


# --- launchers that are killed --------------------------------------------------------------------


@pytest.mark.nightly
def test_what_a_killed_launcher_left_is_ended_by_cancel_as_well(farm: Farm) -> None:
    farm.has("capacity", "0")
    with farm.launching("--nnodes", "2", command=["true"]) as launched:
        said(launched, "slot 1: queued")
        kill(launched)
    cancelled = farm.rdzv("cancel", "r")
    assert cancelled.returncode == 0, cancelled.stderr
    assert cancelled.stdout.splitlines()[0] == "the launcher of run 'r' was killed"
    assert farm.living() == []


@pytest.mark.faults
def test_a_launcher_killed_before_it_hears_the_ids_and_started_again_leaves_nothing(
    farm: Farm,
) -> None:
    end = farm.folder / "end"
    command = shell(f"trap 'exit 0' TERM; while [ ! -e {end} ]; do sleep 0.2; done")
    farm.has("hold-answer")
    with farm.launching("--nnodes", "3", command=command) as first:
        farm.run_of("1-1")
        farm.run_of("2-1")
        kill(first)
    farm.is_rid_of("hold-answer")
    with farm.launching("--nnodes", "3", command=command) as again:
        again.wait_for_phase("running")
        until(lambda: sorted(name.split("-")[0] for name in farm.living()) == ["1", "2"])
        end.touch()
        outcome = again.finish()
    assert outcome.code == 0, outcome.err
    names = [run["name"] for run in farm.runs()]
    assert len(set(names)) == len(names)
    assert farm.living() == []
    until(lambda: not processes_with(str(end)))

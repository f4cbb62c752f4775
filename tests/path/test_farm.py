"""Launches through a batch system that behaves: nothing is lost or left, and it is said why."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.path.farm import Farm
from tests.support.launching import Launched, Outcome, processes_with, shell
from tests.support.nightly import but_at_night
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.timeout(120)]

WAITING = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


def said(launched: Launched, words: str) -> None:
    """Wait until an event of the run says so."""
    until(lambda: any(words in str(event["reason"]) for event in launched.events()))


def status(farm: Farm) -> dict[str, Any]:
    """How the run stands; nothing while nobody knows."""
    shown = farm.rdzv("status", "r", "--json").stdout
    return dict(json.loads(shown)) if shown else {}


def waited_for(farm: Farm) -> str:
    """The sentence of what the run waits for."""
    return str(status(farm).get("reason", ""))


def interrupt(launched: Launched) -> Outcome:
    """Ctrl-C, and what the launcher says to it."""
    launched.signal(signal.SIGINT)
    return launched.finish()


def kill(launched: Launched) -> None:
    """SIGKILL to the launcher."""
    launched.process.kill()
    launched.process.wait()


# --- how it goes well -----------------------------------------------------------------------------


def test_the_scheduler_starts_all_nodes_but_the_first_and_keeps_their_logs(farm: Farm) -> None:
    script = "echo $NODE_RANK has $NCCL_NET_X and $UCX_X"
    env = {"NCCL_NET_X": "a 'b' c", "UCX_X": "all"}
    with farm.launching("--nnodes", "3", command=shell(script), env=env) as launched:
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert outcome.out == "0 has a 'b' c and all\n"
    assert sorted(farm.names()) == ["1-1", "2-1"]
    assert farm.living() == []
    shown = farm.rdzv("logs", "r", "--rank", "2")
    title, *lines = shown.stdout.splitlines()
    assert re.fullmatch(r"==> rdzv-\w+-[12]-1 \(slot [12], [^,]+, farm \d+\)", title)
    assert "2 has a 'b' c and all" in lines


def test_without_a_local_node_the_first_is_submitted_too(farm: Farm) -> None:
    options = ("--nnodes", "2", "--no-local-node")
    with farm.launching(*options, command=shell("echo here is $NODE_RANK")) as launched:
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert outcome.out == ""
    assert sorted(farm.names()) == ["0-1", "1-1"]
    assert "here is 0" in farm.rdzv("logs", "r", "--rank", "0").stdout


def test_logs_are_followed_until_the_run_is_over(farm: Farm, tmp_path: Path) -> None:
    script = f"echo begun; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done; echo ended"
    with farm.launching("--nnodes", "2", command=shell(script)) as launched:
        launched.wait_for_phase("running")
        follower = farm.start_rdzv("logs", "r", "--node", "1", "--follow")
        assert follower.stdout is not None
        first = list(iter(follower.stdout.readline, "begun\n"))
        (tmp_path / "end").touch()
        launched.finish()
        rest, errors = follower.communicate(timeout=30)
    assert re.fullmatch(r"==> rdzv-\w+-1-1 \(slot 1, [^,]+, farm \d+\)\n", first[0])
    assert "ended\n" in rest
    assert (follower.returncode, errors) == (0, "")
    until(lambda: not processes_with(f"{tmp_path}/farm"))


# --- what the scheduler says ----------------------------------------------------------------------


def test_a_quota_is_named_while_it_is_waited_for_and_an_interrupt_ends_everything(
    farm: Farm,
) -> None:
    farm.has("capacity", "1")
    queued = r"waiting for 2 of 4 nodes: slots (1-2|2-3|1, 3) queued( \d+ s)? \(Quota\)"
    with farm.launching("--nnodes", "4", command=shell("true")) as launched:
        launched.wait_for("joined", 2)
        until(lambda: re.fullmatch(queued, waited_for(farm)))
        first, later = (until(lambda: status(farm)) for _ in range(2))
        outcome = interrupt(launched)
    # The join time-out does not run in a queue.
    assert later["elapsed_seconds"] > first["elapsed_seconds"]
    assert later["remaining_seconds"] == first["remaining_seconds"]
    assert outcome.code == 130
    assert len(farm.names()) == 3
    assert farm.living() == []
    assert "may still be there" not in outcome.err


@pytest.mark.nightly
def test_runs_that_stay_in_no_known_state_are_named_at_the_join_timeout(farm: Farm) -> None:
    farm.has("capacity", "1")
    farm.change_profile('queued = ["QUEUED"]', "queued = []")
    with farm.launching("--nnodes", "4", "--join-timeout", "12", command=shell("true")) as launched:
        outcome = launched.finish()
    assert outcome.code == 80
    last = outcome.last_line
    assert "expected 4 nodes and 2 joined within 12 s" in last
    names = re.findall(r"slot (\d) \(worker run rdzv-\w+-\d-1, generation 1\) never reached", last)
    assert len(names) == 2
    assert farm.living() == []


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_worker_run_that_ends_before_it_joins_fails_the_run_at_once_with_its_last_line(
    farm: Farm,
) -> None:
    farm.prologue('[ "$SLOT" = 1 ] && { echo pulling; echo no such image >&2; exit 3; }')
    with farm.launching("--nnodes", "3", "--submit-retries", "0", command=["true"]) as launched:
        outcome = launched.finish()
    assert outcome.code == 83
    words = (
        "slot 1 failed before the go: its worker run ended before it joined: BROKEN: exit code 3"
    )
    assert f"{words}; its last line: 'no such image'" in outcome.last_line
    assert farm.living() == []


def test_a_worker_run_that_is_evicted_before_it_joins_is_submitted_again(farm: Farm) -> None:
    farm.prologue('[ "$SLOT.$GENERATION" = 1.1 ] && exec sleep 600')
    with farm.launching("--nnodes", "2", command=["true"]) as launched:
        farm.gives_up("1-1")
        farm.kills("1-1")
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert "EVICTED: the node is drained; it is submitted again as generation 2" in outcome.err
    assert farm.names() == ["1-1", "1-2"]
    assert farm.living() == []


def test_a_worker_run_that_is_evicted_while_it_trains_ends_the_run_and_is_named(farm: Farm) -> None:
    with farm.launching("--nnodes", "3", command=shell(WAITING)) as launched:
        launched.wait_for_phase("running")
        farm.gives_up("2-1")
        # Its end could be seen by its connections first.
        said(launched, "slot 2, generation 1: failed (EVICTED: the node is drained)")
        farm.kills("2-1")
        outcome = launched.finish()
    assert outcome.code == 86
    assert re.search(r"node [12] \(\w+, slot 2\) was lost: its worker run ended", outcome.last_line)
    assert "the node is drained" in outcome.last_line
    assert farm.living() == []


def test_a_submission_that_is_refused_fails_the_run_at_once_in_the_schedulers_words(
    farm: Farm,
) -> None:
    farm.has("refuses")
    with farm.launching("--nnodes", "2", "--submit-retries", "0", command=["true"]) as launched:
        outcome = launched.finish()
    assert outcome.code == 83
    assert "farm: error: the account 'nobody' may not use this farm" in outcome.last_line
    assert farm.names() == []


@pytest.mark.parametrize("trouble", but_at_night(["lost", "hold-answer"], "hold-answer"))
def test_a_run_whose_id_got_lost_is_found_by_its_name_and_not_made_twice(
    farm: Farm, trouble: str
) -> None:
    farm.has(trouble)
    with farm.launching("--nnodes", "2", command=["true"]) as launched:
        farm.started("1-1")
        launched.wait_for("joined", 2)
        farm.is_rid_of(trouble)
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert farm.names() == ["1-1"]
    assert farm.living() == []


def test_a_scheduler_that_cannot_be_asked_for_a_while_disturbs_nobody(farm: Farm) -> None:
    farm.prologue('until [ -e "$FARM_FOLDER/was-down" ]; do sleep 0.05; done')
    with farm.launching("--nnodes", "2", command=["true"]) as launched:
        farm.started("1-1")
        farm.has("down")
        said(launched, "slot 1, generation 1: unknown")
        farm.is_rid_of("down")
        farm.has("was-down")
        outcome = launched.finish()
    assert outcome.code == 0, outcome.err
    assert farm.names() == ["1-1"]


# --- launchers that are killed --------------------------------------------------------------------


@pytest.mark.nightly
def test_a_launcher_killed_before_it_heard_the_id_finds_the_run_and_submits_what_is_missing(
    farm: Farm,
) -> None:
    farm.has("hold-answer")
    farm.prologue('while [ -e "$FARM_FOLDER/hold-answer" ]; do sleep 0.05; done')
    with farm.launching("--nnodes", "3", command=["true"]) as first:
        farm.run_of("1-1")
        farm.run_of("2-1")
        kill(first)
    farm.is_rid_of("hold-answer")
    with farm.launching("--nnodes", "3", command=["true"]) as second:
        outcome = second.finish()
    assert outcome.code == 0, outcome.err
    assert "resuming launch" in outcome.err
    assert sorted(farm.names()) == ["1-1", "2-1"]
    assert farm.living() == []


@pytest.mark.nightly
def test_a_launch_that_cannot_be_taken_up_is_ended_before_a_new_one_begins(farm: Farm) -> None:
    farm.has("capacity", "0")
    with farm.launching("--nnodes", "2", command=["true"]) as first:
        said(first, "slot 1, generation 1: queued")
        kill(first)
    with farm.launching("--nnodes", "3", command=["true"]) as second:
        until(lambda: len(farm.names()) == 3)
        names = [run["name"] for run in farm.runs()]
        living = farm.living()
        interrupt(second)
    assert len({name.split("-")[1] for name in names}) == 2
    assert sorted(living) == ["1-1", "2-1"]
    assert farm.runs()[0]["state"] == "ENDED"
    assert farm.living() == []


def test_what_a_killed_launcher_left_is_ended_by_cancel_as_well(farm: Farm) -> None:
    farm.has("capacity", "0")
    with farm.launching("--nnodes", "2", command=["true"]) as launched:
        said(launched, "slot 1, generation 1: queued")
        kill(launched)
    cancelled = farm.rdzv("cancel", "r")
    assert cancelled.returncode == 0, cancelled.stderr
    assert cancelled.stdout.splitlines()[0] == "the launcher of run 'r' was killed"
    assert farm.living() == []


def test_two_launches_of_one_run_id_end_only_their_own(farm: Farm, tmp_path: Path) -> None:
    with (
        farm.launching("--nnodes", "2", command=shell(WAITING)) as one,
        farm.launching("--nnodes", "2", command=["true"], state=tmp_path / "other") as two,
    ):
        one.wait_for_phase("running")
        assert two.finish().code == 0
        assert farm.living() == ["1-1"]
        outcome = interrupt(one)
    assert outcome.code == 130
    assert len({run["name"] for run in farm.runs()}) == 2
    assert farm.living() == []

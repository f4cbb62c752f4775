"""Real torchruns whose rendezvous is rdzv: starts, restarts, losses, and what is refused."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.frameworks.environments import ENVIRONMENTS
from tests.support.launching import RDZV, environment
from tests.support.nightly import at_night
from tests.support.waiting import until
from tests.torchrun.torchruns import Job, Torchrun, job, new_token, nothing_is_left

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(150)]

RESTARTS = ("--max-restarts=3",)


def both(made: Job) -> tuple[Torchrun, Torchrun]:
    """Two torchruns, in the order of their ranks, whose workers have started."""
    runs = made.start(), made.start()
    ranks = [int(run.started()["GROUP_RANK"]) for run in runs]
    assert sorted(ranks) == [0, 1]
    return runs if ranks == [0, 1] else (runs[1], runs[0])


def test_two_torchruns_start_on_one_table(tmp_path: Path) -> None:
    with job(tmp_path, flags=("--nproc-per-node=2",)) as made:
        runs = made.start(), made.start()
        assert [run.end() for run in runs] == [0, 0], runs[0].text + runs[1].text
        workers = [worker for run in runs for worker in run.workers()]
        nothing_is_left(made)
    assert sorted(int(worker["RANK"]) for worker in workers) == [0, 1, 2, 3]
    for worker in workers:
        assert (worker["WORLD_SIZE"], worker["NNODES"], worker["RDZV_EPOCH"]) == ("4", "2", "1")
        assert (worker["RDZV_ID"], worker["secrets"]) == ("job", [])
        assert int(worker["RANK"]) == 2 * int(worker["GROUP_RANK"]) + int(worker["LOCAL_RANK"])
    assert len({(worker["MASTER_ADDR"], worker["MASTER_PORT"]) for worker in workers}) == 1
    assert "both nodes ended with exit code 0" in runs[0].text


def test_a_worker_that_fails_starts_all_again_on_the_same_ranks(tmp_path: Path) -> None:
    with job(tmp_path, *["fail", "1", "2", "3"], flags=RESTARTS) as made:
        runs = made.start(), made.start()
        assert [run.end() for run in runs] == [0, 0], runs[0].text + runs[1].text
        nothing_is_left(made)
    for run in runs:
        workers = run.workers()
        assert [worker["RDZV_EPOCH"] for worker in workers] == ["1", "2", "3"]
        assert len({worker["RANK"] for worker in workers}) == 1
        assert "rank 1 ended with exit code 3" in workers[1]["RDZV_LAST_FAILURE"]
    counts = {run.workers()[0]["RANK"]: run.workers()[2] for run in runs}
    # torchrun counts its own: who was told by another one has used none up.
    assert counts["0"]["TORCHELASTIC_RESTART_COUNT"] == "0"
    assert counts["1"]["TORCHELASTIC_RESTART_COUNT"] == "2"


@pytest.mark.nightly
def test_without_a_restart_left_all_end_with_the_cause(tmp_path: Path) -> None:
    with job(tmp_path, *["fail", "1", "1", "3"]) as made:
        runs = made.start(), made.start()
        codes = {run.started()["RANK"]: run.end() for run in runs}
        nothing_is_left(made)
    assert codes == {"0": 3, "1": 1}  # as torchrun exits, and as the run has ended
    for run in runs:
        assert "node 1 " in run.text
        assert "rank 1 ended with exit code 3" in run.text
    [other] = [run for run in runs if run.workers()[0]["RANK"] == "0"]
    assert "Traceback" not in other.text


@pytest.mark.nightly
def test_uneven_restarts_end_the_run_when_the_first_has_none_left(tmp_path: Path) -> None:
    with job(tmp_path, *["fail", "1", "9", "3"]) as made:
        first = made.start("--max-restarts=5", "--rdzv-conf=rank=0,is_host=1")
        second = made.start("--max-restarts=1", "--rdzv-conf=rank=1,is_host=0")
        assert first.end() != 0
        assert second.end() == 1
    assert [worker["RDZV_EPOCH"] for worker in first.workers()] == ["1", "2"]


def test_another_torchrun_takes_the_place_of_one_that_was_killed(tmp_path: Path) -> None:
    """Of the one whose machine has the registry: nobody else ends."""
    with job(tmp_path, "wait", str(tmp_path / "go"), flags=RESTARTS) as made:
        first, second = both(made)
        [worker] = first.workers()
        assert made.host() is not None
        first.process.kill()
        second.says("has not joined yet")
        until(lambda: not psutil.pid_exists(worker["pid"]))
        third = made.start()
        assert third.started()["RANK"] == "0"
        assert second.started(2)["RANK"] == "1"
        made.go.touch()
        assert [second.end(), third.end()] == [0, 0], second.text + third.text
        nothing_is_left(made)


@pytest.mark.nightly
def test_a_torchrun_that_is_told_to_end_leaves(tmp_path: Path) -> None:
    with job(tmp_path, "wait", str(tmp_path / "go"), flags=RESTARTS) as made:
        first, second = both(made)
        second.process.terminate()
        assert second.end() != 0
        first.says("has not joined yet")
        made.start().started()
        made.go.touch()
        assert first.end() == 0, first.text
    assert len(first.workers()) == 2


@pytest.mark.nightly
def test_a_torchrun_too_many_ends_well(tmp_path: Path) -> None:
    with job(tmp_path, "wait", str(tmp_path / "go")) as made:
        first, second = both(made)
        surplus = made.start()
        assert surplus.end() == 0
        assert "all the nodes that it needs" in surplus.text
        assert "Traceback" not in surplus.text
        made.go.touch()
        assert [first.end(), second.end()] == [0, 0]


@pytest.mark.nightly
def test_a_standby_steps_in(tmp_path: Path) -> None:
    flags = (*RESTARTS, "--rdzv-conf=standby=1,last_call_timeout=1")
    with job(tmp_path, "wait", str(tmp_path / "go"), flags=flags) as made:
        first, second = both(made)
        third = made.start()
        third.says("is a standby")
        second.process.kill()
        assert third.started()["RANK"] == "1"
        assert first.started(2)["RANK"] == "0"
        made.go.touch()
        assert [first.end(), third.end()] == [0, 0], first.text + third.text


@pytest.mark.nightly
def test_with_a_range_the_run_starts_after_the_last_call(tmp_path: Path) -> None:
    with job(tmp_path, nodes="1:2", flags=("--rdzv-conf=last_call_timeout=1",)) as made:
        run = made.start()
        assert run.end() == 0, run.text
    assert [worker["WORLD_SIZE"] for worker in run.workers()] == ["1"]


@pytest.mark.nightly
def test_a_stranger_is_kept_out(tmp_path: Path) -> None:
    with job(tmp_path, "wait", str(tmp_path / "go")) as made:
        first, second = both(made)
        new_token(tmp_path / "other")
        stranger = made.start(
            "--rdzv-conf=join_timeout=2,is_host=0", RDZV_TOKEN_FILE=str(tmp_path / "other")
        )
        assert stranger.end() != 0
        assert stranger.workers() == []
        assert "could not join" in stranger.text
        made.go.touch()
        assert [first.end(), second.end()] == [0, 0]


@pytest.mark.parametrize(
    ("flags", "variables", "words"),
    [
        ((), {"RDZV_TOKEN_FILE": ""}, "RDZV_TOKEN_FILE is not set"),
        ((), {"RDZV_LEASE": "soon"}, "RDZV_LEASE"),
        at_night((), {"RDZV_ORPHAN_TIMEOUT": "soon"}, "RDZV_ORPHAN_TIMEOUT"),
        at_night((), {"RDZV_PYTHON": "/usr/bin/python3"}, "rdzv's helper process ended"),
    ],
)
def test_what_cannot_be_is_said_at_once(
    tmp_path: Path, flags: tuple[str, ...], variables: dict[str, str], words: str
) -> None:
    with job(tmp_path, nodes="1") as made:
        run = made.start(*flags, **variables)
        assert run.end() != 0
        assert words in run.text, run.text
        assert run.workers() == []
        nothing_is_left(made)


@pytest.mark.frameworks("torch")
def test_a_torchrun_whose_python_has_no_rdzv_is_given_a_folder(tmp_path: Path) -> None:
    folder = subprocess.run(
        [RDZV, "plugin-path"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with job(tmp_path, nodes="1", PYTHONPATH=f"{folder}:/mine") as made:
        program = str(ENVIRONMENTS["torch"].bin / "torchrun")
        run = made.start(program=program, RDZV_PYTHON=sys.executable)
        assert run.end() == 0, run.text
    [worker] = run.workers()
    assert worker["PYTHONPATH"] == "/mine"


@pytest.mark.nightly  # a fence is as long as torchrun may take to end its workers
def test_a_helper_that_stands_still_is_fenced(tmp_path: Path) -> None:
    """Its node's workers are ended by torchrun's own process before another takes the place."""
    variables = {"RDZV_FENCE_TIMEOUT": "60", "RDZV_ORPHAN_TIMEOUT": "60"}
    with job(tmp_path, "wait", str(tmp_path / "go"), flags=RESTARTS, **variables) as made:
        first, second = both(made)
        helper = second.helper()
        helper.send_signal(signal.SIGSTOP)
        try:
            second.says("its workers are ended")
            [worker] = second.workers()
            until(lambda: not psutil.pid_exists(worker["pid"]))
        finally:
            helper.send_signal(signal.SIGCONT)
        assert first.process.poll() is None


@pytest.mark.nightly
def test_a_torchrun_makes_its_run_at_a_standing_registry(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", "--port", str(port), "--listen", "127.0.0.1"]
    with subprocess.Popen(
        [RDZV, *words, "--registry-address", "127.0.0.1"],
        env=environment(tmp_path / "registry"),
        stderr=subprocess.PIPE,
        text=True,
    ) as serve:
        assert serve.stderr is not None
        said = serve.stderr.readline()
        with job(
            tmp_path,
            nodes="1",
            flags=("--rdzv-endpoint=",),
            RDZV_REGISTRY_FILE=said.rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip(),
            RDZV_TOKEN_FILE="",
        ) as made:
            run = made.start()
            assert run.end() == 0, run.text
            assert made.host() is None
        serve.terminate()
    assert run.workers()[0]["secrets"] == []

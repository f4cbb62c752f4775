"""The whole path across emulated hosts, each with its own address, hostname and /etc/hosts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from rendezvous.talk.join_string import JoinString
from tests.support.cluster import LIMIT_SECONDS, cluster
from tests.support.launching import RDZV, environment
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

PROGRAM = str(Path(__file__).parent.parent / "programs" / "check_all_reduce.py")

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]


def expectations(hosts: Sequence[Host]) -> list[str]:
    """What each node's hostname and alias must resolve to, on every node."""
    words = []
    for rank, host in enumerate(hosts):
        words += ["--expect", f"{host.name}={host.address}"]
        words += ["--expect", f"node-{rank}={host.address}"]
    return words


def original_files(lab: Lab) -> list[bytes]:
    """Every host's /etc/hosts."""
    return [host.hosts_file.read_bytes() for host in lab.hosts]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("hosts_mode", "backend", "count"),
    [
        ("debian", "static", 4),
        pytest.param("selfonly", "c10d", 2, marks=pytest.mark.nightly),
        pytest.param("debian", "c10d", 2, marks=pytest.mark.nightly),
    ],
)
def test_nodes_that_know_at_most_their_own_name_train_together(
    tmp_path: Path, hosts_mode: str, backend: str, count: int
) -> None:
    with Lab(count, hosts_mode=hosts_mode) as lab:  # type: ignore[arg-type]
        before = original_files(lab)
        command = [PROGRAM, *expectations(lab.hosts)]
        options = ("--rdzv-backend", backend, "--nproc-per-node", "2" + ",1" * (count - 1))
        with cluster(lab, tmp_path, *options, command=command) as run:
            run.start_workers()
            outcome = run.finish()
        assert outcome.code == 0, outcome.err + str(run.told)
        results = run.results(outcome)
        world = count + 1
        assert [r["rank"] for r in results] == list(range(world))
        assert {r["sum"] for r in results} == {world * (world + 1) // 2}
        names = {str(r["hostname"]) for r in results}
        assert names == {host.name for host in lab.hosts}
        if backend == "static":
            ranks = [lab.hosts[0].name] * 2 + [host.name for host in lab.hosts[1:]]
            assert [r["hostname"] for r in results] == ranks
            assert {r["master_addr"] for r in results} == {lab.hosts[0].address}
        assert original_files(lab) == before


@pytest.mark.torch
@pytest.mark.parametrize("backend", ["static", pytest.param("c10d", marks=pytest.mark.nightly)])
def test_nodes_with_ipv6_only_train_together(tmp_path: Path, backend: str) -> None:
    with Lab(2, ipv6_only=True) as lab:
        before = original_files(lab)
        command = [PROGRAM, *expectations(lab.hosts)]
        with cluster(lab, tmp_path, "--rdzv-backend", backend, command=command) as run:
            run.start_workers()
            outcome = run.finish()
        assert outcome.code == 0, outcome.err + str(run.told)
        assert [r["sum"] for r in run.results(outcome)] == [3, 3]
        assert original_files(lab) == before


@pytest.mark.torch
def test_equal_containers_with_one_group_token_train_together(tmp_path: Path) -> None:
    token = subprocess.run([RDZV, "token", "new"], capture_output=True, text=True, check=True)
    with Lab(3, hosts_mode="selfonly") as lab:
        started = []
        for rank, host in enumerate(lab.hosts):
            env = environment(
                tmp_path / f"h{rank}",
                RDZV_TOKEN=token.stdout.strip(),
                RDZV_ID="r",
                NUM_NODES="3",
                NODE_RANK=str(rank),
                MASTER_ADDR=lab.hosts[0].address,
            )
            argv = [RDZV, "launch", "--", PROGRAM, *expectations(lab.hosts)]
            started.append(host.start(argv, env=env, stdout=subprocess.PIPE))
        told = [process.communicate(timeout=LIMIT_SECONDS) for process in started]
        assert [process.returncode for process in started] == [0, 0, 0], told
        assert "run 'r' ok" in told[0][0]
        assert all('"sum": 6' in out for out, _ in told)


@pytest.mark.nightly
@pytest.mark.torch
def test_a_script_that_fails_on_one_node_is_named_with_its_rank_and_last_words(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '2':\n"
        "    time.sleep(1)\n"
        "    sys.exit('the loss is not a number')\n"
        "time.sleep(600)\n"
    )
    with Lab(2) as lab:
        options = ("--nproc-per-node", "2,1", "--grace", "3")
        with cluster(lab, tmp_path, *options, command=[str(script)]) as run:
            run.start_workers()
            outcome = run.finish()
        assert outcome.code == 1
        assert f"node 1 ({lab.hosts[1].name}, slot 1) failed: rank 2 ended" in outcome.last_line
        assert "'the loss is not a number'" in outcome.last_line
        assert f"log: {tmp_path / 'h1' / 'r' / 'logs' / 'node-1.log'}" in outcome.last_line
        assert run.workers[1].returncode == 1


@pytest.mark.nightly
def test_a_hosts_file_left_by_a_killed_agent_is_put_back_at_the_next_start(tmp_path: Path) -> None:
    options = ("--framework", "command")
    with Lab(2, hosts_mode="debian") as lab:
        before = original_files(lab)
        with cluster(lab, tmp_path / "a", *options, command=["sleep", "600"]) as run:
            run.start_workers()
            until(lambda: (tmp_path / "a" / "h1" / "r" / "logs" / "node-1.log").exists())
            run.workers[1].kill()
            outcome = run.finish()
        assert outcome.code == 86
        assert "node 1" in outcome.last_line
        assert lab.hosts[1].hosts_file.read_bytes() != before[1]
        with cluster(lab, tmp_path / "b", *options, command=["true"]) as run:
            run.start_workers()
            assert run.finish().code == 0
        assert original_files(lab) == before


@pytest.mark.nightly
def test_a_host_that_goes_silent_is_found_by_its_lease(tmp_path: Path) -> None:
    options = ("--framework", "command", "--lease", "5", "--orphan-timeout", "6")
    with Lab(3) as lab:
        with cluster(lab, tmp_path, *options, command=["sleep", "600"]) as run:
            run.start_workers()
            until(lambda: len(list(run.folder.glob("h*/r/logs/node-*.log"))) == 3)
            started = time.monotonic()
            lab.link_down(lab.hosts[2])
            outcome = run.finish()
        assert outcome.code == 86
        assert f"node 2 ({lab.hosts[2].name}, slot 2) was lost" in outcome.last_line
        assert "it was silent for" in outcome.last_line
        assert time.monotonic() - started < 60
        assert run.workers[2].returncode == 85
        last = run.told[2].splitlines()[-2]
        assert "has not answered for" in last
        assert "(filtered, or the host is down)" in last or "unreachable" in last


def test_a_wrong_token_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    with Lab(2) as lab:
        with cluster(lab, tmp_path, "--framework", "command", command=["true"]) as run:
            text = run.script(1).read_text()
            good = text.split("RDZV_JOIN=")[1].split()[0]
            join = JoinString.parse(good)
            other = JoinString(
                join.place,
                *(join.run, join.launch_id, join.slot, join.generation),
                type(join.token)("join", bytes(32), join.slot, join.generation),
                *(join.row_key, join.probe_key),
            )
            forged = tmp_path / "forged.sh"
            forged.write_text(text.replace(good, other.text()))
            stranger = run.start(1, ["sh", str(forged)])
            err, _ = stranger.communicate(timeout=20)
            run.start_workers()
            outcome = run.finish()
        assert stranger.returncode == 77
        assert "this join token is not one of run 'r', slot 1, generation 1" in err
        assert outcome.code == 0, outcome.err


@pytest.mark.nightly
@pytest.mark.torch
def test_a_registry_killed_while_training_disturbs_nobody(tmp_path: Path) -> None:
    end = tmp_path / "end"
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        f"sys.path.insert(0, {str(Path(PROGRAM).parent)!r})\n"
        "import check_all_reduce, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        f"while not pathlib.Path({str(end)!r}).exists(): time.sleep(0.1)\n"
        "print('SUM', check_all_reduce.checked_sum(), flush=True)\n"
        "dist.destroy_process_group()\n"
    )
    with Lab(2) as lab, cluster(lab, tmp_path, command=[str(script)]) as run:
        run.start_workers()
        until(lambda: len(list(run.folder.glob("h*/r/logs/node-*.log"))) == 2)
        run.registry().kill()
        log = run.state(0) / "r" / "logs" / "registry.log"
        until(lambda: "recovered from the journal" in log.read_text())
        end.touch()
        outcome = run.finish()
    assert outcome.code == 0, outcome.err
    assert outcome.err.count("joined from") == 2
    assert "the registry came back on its journal" in outcome.err
    logs = [log.read_text() for log in run.folder.glob("h*/r/logs/node-*.log")]
    assert [log.count("SUM 3") for log in logs] == [1, 1]


def test_a_node_that_is_missing_or_describes_another_job_is_named(tmp_path: Path) -> None:
    options = ("--framework", "command")
    with Lab(3) as lab:
        short = ("--join-timeout", "12")
        with cluster(lab, tmp_path / "a", *options, *short, command=["true"]) as run:
            run.start_workers(1)
            outcome = run.finish()
        assert outcome.code == 80
        assert "expected 3 nodes and 2 joined within 12 s: slot 2 (worker run" in outcome.last_line
        assert "never reached the registry" in outcome.last_line
        assert run.workers[1].returncode == 80
        with cluster(lab, tmp_path / "b", *options, command=["true"]) as run:
            text = run.script(1).read_text()
            run.script(1).write_text(text.replace("--nnodes 3", "--nnodes 2"))
            run.start_workers(1)
            outcome = run.finish()
        assert outcome.code == 77
        assert "was started with --nnodes 2, and run 'r' has --nnodes 3" in outcome.last_line
        assert "was started with --nnodes 2, and run 'r' has --nnodes 3" in run.told[1]


def test_arguments_survive_the_script_of_a_worker_run(tmp_path: Path) -> None:
    arguments = ["a b", "it's", 'say "hi"', "$HOME `id` \\", "two\nlines", "", "--", "<<NAME>>"]
    folder = tmp_path / "it's a $folder"
    program = (
        "import json, os, pathlib, sys; "
        f"seen = pathlib.Path({str(tmp_path)!r}, os.environ['NODE_RANK']); "
        "seen.write_text(json.dumps(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, *arguments]
    with Lab(2) as lab, cluster(lab, folder, "--framework", "command", command=command) as run:
        run.start_workers()
        outcome = run.finish()
    assert outcome.code == 0, outcome.err
    assert [json.loads((tmp_path / rank).read_text()) for rank in "01"] == [arguments] * 2

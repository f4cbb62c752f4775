"""The whole path across emulated hosts: equal containers of a platform, workers that come by
themselves, and nodes that know no name but their own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import group_token_text
from tests.support import environments as env
from tests.support.cluster import LIMIT_SECONDS, cluster
from tests.support.launching import RDZV, Launched, environment, shell
from tests.support.netlab import Host, HostsMode, Lab
from tests.support.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.timeout(180)]

TELL = shell('echo "TOLD $NODE_RANK $NNODES $MASTER_ADDR $RDZV_ID"')


class Nodes:
    """Equal containers, each with the environment of its platform."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._token = group_token_text(new_secret())  # as `rdzv token new` prints it
        self._folder = folder
        self.lab = lab
        self.started: list[subprocess.Popen[str]] = []

    def start(
        self, host: Host, platform: Mapping[str, str], *options: str, command: Sequence[str] = TELL
    ) -> None:
        """Start the same command as on every other node."""
        own = {k: v for k, v in platform.items() if k not in env.SHELL}
        index = self.lab.hosts.index(host)
        environ = environment(self._folder / f"h{index}", RDZV_TOKEN=self._token, **own)
        argv = [RDZV, "launch", "--framework", "command", *options, "--", *command]
        log = (self._folder / f"h{index}.log").open("w")
        with log:
            self.started.append(host.start(argv, env=environ, stdout=log))

    def said(self, index: int) -> str:
        """What the node on a host has said so far."""
        path = self._folder / f"h{index}.log"
        return path.read_text() if path.exists() else ""

    def launched(self, run: str) -> Launched:
        """Rank 0's launch, to look into its journal."""
        return Launched(self.started[0], self._folder / "h0", run)

    def told(self) -> list[str]:
        """What every node's program was told, once all have ended well."""
        codes = [process.wait(LIMIT_SECONDS) for process in self.started]
        said = [self.said(index) for index in range(len(self.lab.hosts))]
        assert set(codes) == {0}, said
        lines = [line for text in said for line in text.splitlines()]
        return [line.removeprefix("TOLD ") for line in lines if line.startswith("TOLD ")]


@contextmanager
def nodes(lab: Lab, folder: Path) -> Iterator[Nodes]:
    """No container yet; what is started is ended with the lab."""
    with lab:
        yield Nodes(lab, folder)


def pod(index: int, size: int) -> dict[str, str]:
    own = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"train-{index}"}
    return env.INDEXED_JOB | own | {"NUM_NODES": str(size)}


@pytest.mark.faults
def test_the_pods_of_an_indexed_job_wait_for_a_name_and_replace_each_other(tmp_path: Path) -> None:
    domain = "workers.team.svc.cluster.local"
    # The pod of index 1 is evicted, and comes again with another address.
    with nodes(Lab(["train-0", "train-1", "train-2", "train-1"]), tmp_path) as run:
        hosts = run.lab.hosts
        for host in hosts:  # as the kubelet does
            own = f"{host.address}\t{host.name}.{domain}\t{host.name}\n"
            host.hosts_file.write_text(f"127.0.0.1\tlocalhost\n{own}")
        rank_0 = f"{hosts[0].address} train-0.{domain}\n"
        run.start(hosts[0], pod(0, 3))
        run.start(hosts[1], pod(1, 3))
        until(lambda: f"train-0.{domain}: its name cannot be resolved" in run.said(1))
        for host in hosts[1:]:
            with host.hosts_file.open("a") as file:
                file.write(rank_0)
        run.launched("train").wait_for("joined", 2)
        evicted = run.started.pop()
        evicted.kill()
        evicted.wait()
        run.start(hosts[3], pod(1, 3))
        run.launched("train").wait_for("joined", 3)
        run.start(hosts[2], pod(2, 3))
        address = hosts[0].address
        assert sorted(run.told()) == [f"{rank} 3 {address} train" for rank in range(3)]
        joined = [e for e in run.launched("train").events() if e["kind"] == "joined"]
        assert len(joined) == 4


IB9, GPU = ("--interface", "ib9"), ("--nproc-per-node", "gpu")


@pytest.mark.parametrize(
    ("options", "first", "words"),
    [
        pytest.param({1: IB9}, 0, "ib9", id="the other, once rank 0 waits"),
        pytest.param(
            *({0: GPU}, 1, "this node has no GPU"),
            id="rank 0, for which the other waits",
            marks=pytest.mark.nightly,
        ),
    ],
)
@pytest.mark.faults
def test_a_node_that_cannot_take_part_ends_all_at_once_with_its_cause(
    tmp_path: Path, options: dict[int, tuple[str, ...]], first: int, words: str
) -> None:
    with nodes(Lab(2), tmp_path) as run:
        given = {"MASTER_ADDR": run.lab.hosts[0].address, "RDZV_ID": "mine", "NUM_NODES": "2"}
        alone = "cannot join yet" if first else "1 of 2 nodes"
        wanted = "cannot take part" if first in options else alone
        for rank in (first, 1 - first):
            own = given | {"NODE_RANK": str(rank), "CUDA_VISIBLE_DEVICES": ""}
            run.start(run.lab.hosts[rank], own, *options.get(rank, ()))
            until(lambda: wanted in run.said(first))
        began = time.monotonic()
        codes = [process.wait(LIMIT_SECONDS) for process in run.started]
        assert time.monotonic() - began < 25  # the join time-out is 600 s
        said = [run.said(0), run.said(1)]
    assert 0 not in codes
    guilty = min(options)
    for text in said:
        assert words in text
        assert "firewall" not in text
    last = said[0].strip().splitlines()[-1]
    assert f"slot {guilty} (h{guilty}) cannot take part" in last, said


# Workers that come by themselves, on hosts that share nothing but a folder.


COMMAND = ["--framework", "command", "--", *shell('echo "node $NODE_RANK of $(hostname)"')]


@pytest.mark.nightly
@pytest.mark.faults
def test_equal_workers_come_to_rank_0_and_one_too_many_waits_as_a_spare(tmp_path: Path) -> None:
    """They know nothing of their slots: all of them are told the same."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)

    def start(host: Host, *argv: str, **env: str) -> subprocess.Popen[str]:
        own = environment(tmp_path / host.name, **env)
        return host.start([RDZV, *argv, *COMMAND], env=own, stdout=subprocess.PIPE)

    with Lab(4) as lab:
        first, *others = lab.hosts
        workers = [start(host, "worker", RDZV_JOIN_FILE=str(shared)) for host in others]
        external = ("--scheduler", "external", "--set", f"JOIN_FOLDER={shared}")
        launcher = start(first, "launch", "--rdzv-id", "r", "--nnodes", "3", *external)
        said, _ = launcher.communicate(timeout=LIMIT_SECONDS)
        assert launcher.returncode == 0, said
        until(lambda: [worker.poll() for worker in workers].count(None) == 1)
        (spare,) = [worker for worker in workers if worker.poll() is None]
        assert spare.stdout is not None
        spare.stdout.readline()  # it looks for a join string: TERM finds it ready
        spare.terminate()
        told = [worker.communicate(timeout=LIMIT_SECONDS)[0] for worker in workers]
    codes = sorted(worker.returncode for worker in workers)
    assert codes == [0, 0, 128 + signal.SIGTERM], told
    assert sorted(re.findall(r"node (\d+) of ", "".join(told))) == ["1", "2"], told
    assert list(shared.iterdir()) == []


# Hosts with an address, a hostname and an /etc/hosts each, whose nodes train together.


PROGRAM = str(Path(__file__).parent.parent / "programs" / "check_all_reduce.py")


@pytest.mark.nightly  # containers that know each other by the same file: tests/docker
@pytest.mark.frameworks
@pytest.mark.torch
@pytest.mark.parametrize(
    ("hosts_mode", "backend", "count", "ipv6_only"),
    [
        ("debian", "static", 3, False),
        ("none", "static", 2, True),
        ("selfonly", "c10d", 2, False),
    ],
)
def test_nodes_that_know_at_most_their_own_name_train_together(
    tmp_path: Path, hosts_mode: HostsMode, backend: str, count: int, ipv6_only: bool
) -> None:
    with Lab(count, hosts_mode=hosts_mode, ipv6_only=ipv6_only) as lab:
        before = [host.hosts_file.read_bytes() for host in lab.hosts]
        command = [PROGRAM]  # what each node's hostname and alias must resolve to, on every node
        for rank, host in enumerate(lab.hosts):
            for name in (host.name, f"node-{rank}"):
                command += ["--expect", f"{name}={host.address}"]
        options = ("--rdzv-backend", backend, "--nproc-per-node", "2" + ",1" * (count - 1))
        with cluster(lab, tmp_path, *options, command=command) as run:
            run.start_workers()
            outcome = run.finish()
        assert outcome.code == 0, outcome.err + str(run.told)
        printed = [json.loads(line.removeprefix("RESULT ")) for line in run.printed("RESULT ")]
        results = sorted(printed, key=lambda result: int(result["rank"]))
        world = count + 1
        assert [r["rank"] for r in results] == list(range(world))
        assert {r["sum"] for r in results} == {world * (world + 1) // 2}
        names = {str(r["hostname"]) for r in results}
        assert names == {host.name for host in lab.hosts}
        if backend == "static":
            ranks = [lab.hosts[0].name] * 2 + [host.name for host in lab.hosts[1:]]
            assert [r["hostname"] for r in results] == ranks
            assert {r["master_addr"] for r in results} == {lab.hosts[0].address}
        assert [host.hosts_file.read_bytes() for host in lab.hosts] == before

"""Networks with something wrong: a run starts on an address that is proven, or says what is wrong.

Emulated hosts, a real launcher on the first and a real worker on each; `tests.faults.networks`
makes the situations.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.faults import networks
from tests.faults.networks import Situation
from tests.faults.test_clocks import LIBRARIES, wrong_clock
from tests.support.cluster import Cluster, cluster
from tests.support.launching import BIN, Outcome, shell
from tests.support.netlab import Lab
from tests.support.record import record

PROGRAM = str(Path(__file__).parent.parent / "programs" / "check_all_reduce.py")
NO_TORCH = ("--framework", "command", "--submit-retries", "0")
SHOW = shell("echo CHOSEN $MASTER_ADDR $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME $NCCL_SOCKET_FAMILY")
"""A COMMAND that says on each node which address the run stands on."""
_TIME = re.compile(r"rdzv +[0-9.]+ s +")

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]


def chosen(run: Cluster) -> list[tuple[str, ...]]:
    """What each host's program was told: rank 0's address, the interface, the family."""
    found = []
    for host in range(len(run.lab.hosts)):
        logs = (run.state(host) / "r" / "logs").glob("node-*.log")
        lines = [line for log in logs for line in log.read_text().splitlines()]
        found += [tuple(line.split()[1:]) for line in lines if line.startswith("CHOSEN ")]
    return found


def told(interfaces: list[str], master: str = "10.77.0.10", family: str = "AF_INET") -> object:
    """What `chosen` gives when the hosts use these interfaces."""
    return [(master, name, f"={name}", family) for name in interfaces]


def sentence(outcome: Outcome) -> str:
    """The one line that says why the run failed."""
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("rdzv: run 'r' failed")]
    return line


def proving(outcome: Outcome) -> str:
    """What the launcher said of the proof of a run that started; its last line if nothing."""
    words = ("cannot reach", "warning: ", "without slot")
    lines = [_TIME.sub("", line) for line in outcome.err.splitlines()]
    return "; ".join(line for line in lines if any(w in line for w in words)) or outcome.last_line


def end_of(run: Cluster, *last: int) -> tuple[Outcome, float]:
    """Start these workers (or all); the end of the run, and after how many seconds it came."""
    started = time.monotonic()
    run.start_workers(*last)
    outcome = run.finish()
    return outcome, time.monotonic() - started


# The run starts


# Each pair of nodes that is silent costs 8 to 10 s; each push tries one of a kind.
AT_NIGHT = (
    networks.a_subnet_for_each_host,
    networks.closed_by_a_firewall,
    networks.closed_in_one_direction,
    networks.docker0_in_the_way,
    networks.eth0_is_a_black_hole,
    networks.eth0_without_carrier_on_one,
    networks.infiniband_closed_in_one_direction,
    networks.infiniband_is_a_black_hole,
    networks.infiniband_with_one_address_twice,
    networks.jumbo_frames_on_one,
    networks.late_packets,
    networks.names_that_differ,
    networks.only_the_registry_is_open,
    networks.several_in_one_subnet,
    networks.translated,
    networks.two_islands,
)


def each(cases: Sequence[Start] | Sequence[Failure]) -> list[object]:
    """The cases as a test's parameters, named after their situations."""
    return [
        pytest.param(
            case,
            marks=pytest.mark.nightly if case.situation in AT_NIGHT else (),
            id=case.situation.__name__,
        )
        for case in cases
    ]


@dataclass(frozen=True)
class Start:
    """A situation in which a run starts, and on what.

    Attributes:
        interfaces: What each host uses.
        says: Words that the launcher must have said on the way; none, when nothing was wrong.
    """

    fault: str
    situation: Situation
    interfaces: list[str]
    options: tuple[str, ...] = ()
    master: str = "10.77.0.10"
    says: tuple[str, ...] = ()


ETH0 = ["eth0"] * 3
ETH1 = ["eth1"] * 3
IB_FIRST = ("--interface", "ib0", "--interface", "eth0")
SECOND_NETWORK = ("--network", "10.78.0.0/16")
BOTH = ("--interface", "eth1", "--interface", "eth0")

STARTS = [
    Start("docker0 with one address on every host", networks.docker_everywhere, ETH0),
    Start(
        "ib0 cut between two of three nodes",
        networks.infiniband_cut_between_two,
        ETH0,
        IB_FIRST,
        says=("next is eth0",),
    ),
    Start(
        "on ib0 one node takes nothing that one other begins",
        networks.infiniband_closed_in_one_direction,
        ETH0,
        IB_FIRST,
        says=("slot 1 (h1) cannot reach slot 2 (h2)", "next is eth0"),
    ),
    Start(
        "ib0 is an MTU black hole at one node (9000, a switch port has 1500)",
        networks.infiniband_is_a_black_hole,
        ETH0,
        IB_FIRST,
        says=("black hole", "next is eth0"),
    ),
    Start(
        "one node has the second network only",
        networks.eth0_is_missing_on_one,
        ETH1,
        master="10.78.0.10",
        says=("warning: slot 2 (h2) has no address of its own in eth0", "takes eth1"),
    ),
    Start(
        "one node's first interface has no carrier",
        networks.eth0_without_carrier_on_one,
        ETH1,
        master="10.78.0.10",
    ),
    Start(
        "two nodes have the same address on ib0",
        networks.infiniband_with_one_address_twice,
        ETH0,
        IB_FIRST,
    ),
    Start("three interfaces of each host in one subnet", networks.several_in_one_subnet, ETH0),
    Start(
        "each host has another name for the interface, `--network`",
        networks.names_that_differ,
        ["eth1", "ens5", "enp3s0"],
        SECOND_NETWORK,
        "10.78.0.10",
    ),
    Start(
        "each host is in a subnet of its own, `--network`",
        networks.a_subnet_for_each_host,
        ETH1,
        SECOND_NETWORK,
        "10.78.0.10",
    ),
    Start(
        "one node's address on the first network is that of another node's docker0",
        networks.docker0_in_the_way,
        ETH0,
        BOTH,
        says=("slot 0 (h0) cannot reach slot 1 (h1): self", "next is eth0"),
    ),
    Start(
        "a node's connections seem to come from another address (NAT), and it is reachable",
        networks.translated_and_reachable,
        ETH0,
        says=("warning: slot 2 (h2) is seen by the others as 10.77.0.99",),
    ),
    Start(
        "one interface has an MTU of 9000, the network takes 1500",
        networks.jumbo_frames_on_one,
        ETH1,
        ("--interface", "eth1"),
        "10.78.0.10",
        says=("warning: slot 1 (h1) is alone with MTU 9000; the 2 others have 1500",),
    ),
    Start(
        "one node's packets take 0.1 s each way",
        networks.late_packets,
        ETH0,
        says=("warning: slot 2 (h2) answers in 2", "the other nodes in 0."),
    ),
]


@pytest.mark.parametrize("case", each(STARTS))
def test_a_run_starts_on_the_first_network_that_is_proven(tmp_path: Path, case: Start) -> None:
    with Lab(3) as lab:
        case.situation(lab)
        with cluster(lab, tmp_path, *NO_TORCH, *case.options, command=SHOW) as run:
            outcome, seconds = end_of(run)
        record(case.fault, proving(outcome), seconds)
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told(case.interfaces, case.master)
    assert [words for words in case.says if words not in outcome.err] == [], outcome.err


# The run does not start, and says why


@dataclass(frozen=True)
class Failure:
    """A situation in which no run can start, and the words that must be in what is said."""

    fault: str
    situation: Situation
    says: tuple[str, ...]
    options: tuple[str, ...] = ()
    hosts: int = 3
    code: ExitCode = ExitCode.VERIFICATION_FAILED


ONLY_ETH1 = ("--interface", "eth1")

FAILURES = [
    Failure(
        "the network is cut between two of three nodes",
        networks.cut_between_two,
        ("slot 1 (h1)", "slot 2 (h2)"),
    ),
    Failure(
        "a firewall on one node drops what one other begins",
        networks.closed_in_one_direction,
        ("slot 1 (h1)", "slot 2 (h2)", "firewall"),
    ),
    Failure(
        "a firewall on one node drops what others begin",
        networks.closed_by_a_firewall,
        ("slot 2 (h2)", "firewall"),
    ),
    Failure(
        "a firewall on one node rejects what others begin",
        networks.refused_by_a_firewall,
        ("slot 2 (h2)", "refused"),
    ),
    Failure(
        "on every node only the registry's port is open",
        networks.only_the_registry_is_open,
        ("no node reaches any other", "though all reach the registry's port", "firewall"),
    ),
    Failure(
        "MTU black hole at one node: interfaces have 9000, a switch port 1500",
        networks.black_hole,
        ("slot 1 (h1)", "packets of up to 1500 bytes pass", "9000", "eth1 mtu 1500"),
        ONLY_ETH1,
    ),
    Failure(
        "MTU black hole on the only network of one node: 1500, the path takes 1300",
        networks.eth0_is_a_black_hole,
        ("slot 1 (h1)", "packets of up to 1300 bytes pass", "eth0 mtu 1300"),
    ),
    Failure(
        "the cable between two switches is out",
        networks.two_islands,
        ("the nodes are split 2/2: slots 0-1 and slots 2-3 do not reach each other",),
        ONLY_ETH1,
        hosts=4,
    ),
    Failure(
        "something else answers all connections to one node",
        networks.a_proxy_answers,
        ("slot 2 (h2)", "10.77.0.12", "a proxy"),
    ),
    Failure(
        "the same, and there is no other network",
        networks.docker0_in_the_way,
        ("slot 0 (h0)", "slot 1 (h1)", "172.17.0.1 is an address of slot 0 (h0) itself"),
        ONLY_ETH1,
    ),
    Failure(
        "docker0 with one address on every host, `--interface docker0`",
        networks.docker_everywhere,
        ("172.17.0.1", "--interface or --network"),
        ("--interface", "docker0"),
    ),
    Failure(
        "two nodes have the same address",
        networks.one_address_twice,
        ("10.78.0.11", "slot 1 (h1)", "slot 2 (h2)"),
        ONLY_ETH1,
    ),
    Failure(
        "one node has IPv4 only, the others IPv6",
        networks.no_family_in_common,
        ("slot 0 can offer IPv4 addresses only and slots 1-2 IPv6 addresses only",),
        ONLY_ETH1,
    ),
    Failure(
        "one node is behind a NAT, and nothing gets in",
        networks.translated,
        ("slot 2 (h2)", "10.77.0.99", "NAT"),
    ),
    Failure(
        "no node has RDMA, `--require-rdma`",
        networks.data,
        ("slot 0 (h0)", "slot 1 (h1)", "slot 2 (h2)", "RDMA"),
        ("--require-rdma",),
        code=ExitCode.PREFLIGHT_FAILED,
    ),
    Failure(
        "one interface has an MTU of 9000, the network takes 1500, `--strict`",
        networks.jumbo_frames_on_one,
        ("slot 1 (h1) is alone with MTU 9000; the 2 others have 1500 (",),
        (*ONLY_ETH1, "--strict", *(f"--skip=L{number:02}" for number in range(1, 22))),
        code=ExitCode.PREFLIGHT_FAILED,
    ),
]


@pytest.mark.parametrize("case", each(FAILURES))
def test_a_run_that_cannot_start_names_what_is_wrong(tmp_path: Path, case: Failure) -> None:
    with Lab(case.hosts) as lab:
        case.situation(lab)
        with cluster(lab, tmp_path, *NO_TORCH, *case.options, command=SHOW) as run:
            outcome, seconds = end_of(run)
        said = sentence(outcome)
        record(case.fault, said, seconds)
        assert outcome.code == case.code, outcome.err
        assert chosen(run) == []
    assert [words for words in case.says if words not in said] == [], said


# Faults that come between the join and the start


def joined(run: Cluster) -> dict[int, dict[str, object]]:
    """What each slot has joined with so far, by the journal."""
    path = run.launched.folder / "journal.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as journal:
        bodies = [json.loads(body) for (body,) in journal.execute("SELECT body FROM events")]
    joins = [body["request"] for body in bodies if body["kind"] == "joined"]
    return {join["slot"]: join for join in joins}


@contextlib.contextmanager
def two_of_three(lab: Lab, folder: Path, *options: str) -> Iterator[Cluster]:
    """A run whose slots 0 and 1 have joined; slot 2 comes when it is started."""
    with cluster(lab, folder, *NO_TORCH, *options, command=SHOW) as run:
        run.start_workers(1)
        run.launched.wait_for("joined", 2)
        yield run


def test_an_interface_that_disappears_after_the_join_is_gone_without(tmp_path: Path) -> None:
    with Lab(3) as lab:
        networks.infiniband(lab)
        with two_of_three(lab, tmp_path, *IB_FIRST) as run:
            lab.remove_interface(lab.hosts[1], "ib0")
            outcome, seconds = end_of(run, 2)
            record("ib0 disappears after the join", proving(outcome), seconds)
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told(ETH0)
    assert "slot 1 (h1) cannot reach slot 0 (h0): no route, slot 2 (h2): no route" in outcome.err


@pytest.mark.nightly
def test_an_only_interface_that_disappears_after_the_join_is_named(tmp_path: Path) -> None:
    with Lab(3) as lab:
        networks.data(lab)
        with two_of_three(lab, tmp_path, *ONLY_ETH1) as run:
            lab.remove_interface(lab.hosts[1], "eth1")
            outcome, seconds = end_of(run, 2)
        said = sentence(outcome)
        record("the only interface disappears after the join", said, seconds)
    assert outcome.code == ExitCode.VERIFICATION_FAILED
    assert "slot 1 (h1) and the 2 others do not reach each other" in said
    assert "its address 10.78.0.11 (eth1) is gone" in said


def test_an_interface_that_disappears_before_arming_is_named_by_its_node(tmp_path: Path) -> None:
    """Without a proof, that is: with one there is no time to speak of between it and arming."""
    with Lab(3) as lab:
        networks.data(lab)
        with two_of_three(lab, tmp_path, *ONLY_ETH1, "--verify", "off") as run:
            lab.remove_interface(lab.hosts[1], "eth1")
            outcome, seconds = end_of(run, 2)
        said = sentence(outcome)
        record("the same, `--verify off`", said, seconds)
    assert outcome.code == ExitCode.ARMING_FAILED
    assert "node 1 (h1, slot 1) cannot start: its address 10.78.0.11 (eth1) is gone" in said


def test_another_node_that_answers_in_a_nodes_place_is_named(tmp_path: Path) -> None:
    with Lab(3) as lab:
        first, second, third = lab.hosts
        with two_of_three(lab, tmp_path) as run:
            ports = {slot: join["probe_port"] for slot, join in joined(run).items()}
            to = f"{first.address}:{ports[0]}"
            lab.intercept(second, to, ports=str(ports[1]), sender=third)
            outcome, seconds = end_of(run, 2)
        said = sentence(outcome)
        record("another node answers in a node's place", said, seconds)
    assert outcome.code == ExitCode.VERIFICATION_FAILED
    assert "slot 2 (h2) does not reach slot 1 (h1)" in said
    assert "slot 0 answers at 10.77.0.11" in said


def test_an_interface_that_is_asked_for_and_down_is_named_on_its_node(tmp_path: Path) -> None:
    """It never joins: what it has to say, it says itself."""
    with Lab(2) as lab:
        networks.data(lab)
        lab.link_down(lab.hosts[1], "eth1")
        with cluster(lab, tmp_path, *NO_TORCH, *ONLY_ETH1, command=SHOW) as run:
            run.start_workers()
            said, _ = run.workers[1].communicate(timeout=60)
            run.launcher.terminate()
            run.launcher.communicate(timeout=60)
    line = next(line for line in said.splitlines() if "'eth1'" in line)
    record("the interface that is asked for is down on one node", line)
    assert run.workers[1].returncode != 0
    assert "'eth1' names no address that is up and could be offered" in line
    assert "eth1 10.78.0.11/24 (down)" in line


# What is wrong with a node itself, or differs from the others


def python_environment(folder: Path, nccl: str) -> str:
    """A PATH with a program `train` in a Python environment that has torch and this NCCL."""
    packages = folder / "lib/python3.12/site-packages"
    (packages / f"nvidia_nccl_cu12-{nccl}.dist-info").mkdir(parents=True)
    (packages / "torch").mkdir()
    torch = "__version__ = '2.9.0+cu128'\ncuda: str = '12.8'\n"
    (packages / "torch/version.py").write_text(torch)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
    programs = folder / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    (programs / "train").write_text(f"#!{programs}/python3\n")
    (programs / "train").chmod(0o755)
    return f"{programs}:{os.environ['PATH']}"


def test_the_one_node_with_another_nccl_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = python_environment(tmp_path / "odd", "2.19.3")
    monkeypatch.setenv("PATH", python_environment(tmp_path / "good", "2.27.5"))
    with Lab(3) as lab, cluster(lab, tmp_path, *NO_TORCH, command=["train"]) as run:
        run.workers[1] = run.start(1, ["sh", str(run.script(1))], PATH=f"{BIN}:{odd}")
        outcome, seconds = end_of(run, 2)
    said = proving(outcome)
    record("one node without GPUs has another NCCL", said, seconds)
    assert "warning: slot 1 (h1) is alone with NCCL 2.19.3; the 2 others have 2.27.5 (X02)" in said


def test_an_interface_that_gloo_was_told_to_use_and_is_not_there_is_named(tmp_path: Path) -> None:
    with Lab(3) as lab, cluster(lab, tmp_path, *NO_TORCH, command=SHOW) as run:
        run.workers[1] = run.start(1, ["sh", str(run.script(1))], GLOO_SOCKET_IFNAME="ib9")
        outcome, seconds = end_of(run, 2)
    said = sentence(outcome)
    record("GLOO_SOCKET_IFNAME=ib9 on one node without ib9", said, seconds)
    assert outcome.code == ExitCode.PREFLIGHT_FAILED
    assert "slot 1 (h1)" in said
    assert "GLOO_SOCKET_IFNAME" in said
    assert "ib9" in said
    assert chosen(run) == []


def test_an_interface_that_gloo_was_told_to_use_and_is_not_the_tables_is_told(
    tmp_path: Path,
) -> None:
    fails = shell("[ $NODE_RANK = 0 ] || exit 3; exec sleep 30")
    with Lab(3) as lab, cluster(lab, tmp_path, *NO_TORCH, command=fails) as run:
        run.workers[1] = run.start(1, ["sh", str(run.script(1))], GLOO_SOCKET_IFNAME="lo")
        outcome, seconds = end_of(run, 2)
    record("GLOO_SOCKET_IFNAME=lo on one node", proving(outcome), seconds)
    assert outcome.code == 3
    odd = "slot 1 (h1): GLOO_SOCKET_IFNAME lo, expected eth0: "
    assert f"warning: {odd}" in outcome.err
    assert odd in outcome.last_line


@pytest.mark.skipif(
    not LIBRARIES and os.environ.get("RDZV_CI") != "1", reason="needs the package faketime"
)
def test_a_clock_that_is_wrong_is_told_and_stops_nobody(tmp_path: Path) -> None:
    with Lab(3) as lab:
        with cluster(lab, tmp_path, *NO_TORCH, command=SHOW) as run:
            clock = wrong_clock("-60s")
            run.workers[1] = run.start(1, ["sh", str(run.script(1))], **clock)
            run.start_workers(2)
            outcome = run.finish()
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told(ETH0)
    record("one node's clock is a minute late", proving(outcome))
    assert re.search(r"warning: the clock of slot 1 \(h1\) is (59|6[01])\.. s behind", outcome.err)


# Names, families, machines, spares


def test_two_nodes_with_one_hostname_start_and_are_named(tmp_path: Path) -> None:
    with Lab(["h0", "twin", "twin"]) as lab:
        with cluster(lab, tmp_path, *NO_TORCH, command=SHOW) as run:
            run.start_workers()
            outcome = run.finish()
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told(ETH0)
    record("two nodes have one hostname", proving(outcome))
    assert "slot 1 (twin)" in outcome.err
    assert "slot 2 (twin)" in outcome.err


def test_a_hosts_file_that_takes_one_node_for_another_is_named(tmp_path: Path) -> None:
    with Lab(3) as lab:
        lab.hosts[1].hosts_file.write_text(f"127.0.0.1 localhost\n{lab.hosts[0].address} h2\n")
        with cluster(lab, tmp_path, *NO_TORCH, command=SHOW) as run:
            run.start_workers()
            outcome = run.finish()
    record("one node's /etc/hosts leads from h2 to h0", proving(outcome))
    assert outcome.code == 0, outcome.err
    said = "on slot 1 (h1), /etc/hosts leads from h2 to 10.77.0.10, which is slot 0 (h0)"
    assert f"{said}; slot 2 (h2) is 10.77.0.12" in outcome.err


def test_two_agents_on_one_machine_are_told_so(tmp_path: Path) -> None:
    with Lab(3) as lab, cluster(lab, tmp_path, *NO_TORCH, command=SHOW) as run:
        run.start_workers(1)
        run.workers[2] = run.start(1, ["sh", str(run.script(2))])
        outcome = run.finish()
    said = sentence(outcome)
    record("two nodes of the run are on one machine", said)
    assert outcome.code == ExitCode.VERIFICATION_FAILED
    assert "slot 1 (h1) has no address of its own: 10.77.0.11 is also the address of" in said
    assert "two nodes of this run are on one machine" in said


def test_nodes_with_ipv6_only_and_docker0_start_on_ipv6(tmp_path: Path) -> None:
    with Lab(3, ipv6_only=True) as lab:
        networks.docker_everywhere(lab)
        with cluster(lab, tmp_path, *NO_TORCH, command=SHOW) as run:
            run.start_workers()
            outcome = run.finish()
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told(ETH0, "fd77::10", "AF_INET6")
    record("IPv6 only, and docker0 with one IPv4 address on every host", proving(outcome))


def test_a_spare_takes_the_place_of_a_node_that_nobody_reaches(tmp_path: Path) -> None:
    with Lab(4) as lab:
        networks.closed_by_a_firewall(lab)
        options = ("--nnodes", "3", "--spares", "1")
        with cluster(lab, tmp_path, *NO_TORCH, *options, command=SHOW) as run:
            outcome, seconds = end_of(run)
        record("a firewall on one node, `--spares 1`", proving(outcome), seconds)
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told(ETH0)
        assert not list((run.state(2) / "r" / "logs").glob("node-*.log"))
    assert run.workers[2].returncode == 0
    assert "slot 2 (h2) cannot be reached by the 3 others over eth0" in outcome.err
    assert "; it goes without slot 2 (h2); the table is sealed" in outcome.err


@pytest.mark.nightly
@pytest.mark.torch
def test_torchrun_trains_on_the_network_that_is_left(tmp_path: Path) -> None:
    """docker0, a half-cut ib0 and Debian's own name on loopback, all at once."""
    with Lab(3, hosts_mode="debian") as lab:
        networks.docker_everywhere(lab)
        networks.infiniband_cut_between_two(lab)
        with cluster(lab, tmp_path, *IB_FIRST, command=[PROGRAM]) as run:
            outcome, seconds = end_of(run)
        fault = "torchrun: ib0 cut between two nodes, docker0, own names on 127.0.1.1"
        record(fault, outcome, seconds)
        assert outcome.code == 0, outcome.err
        results = run.results(outcome)
    assert [(r["sum"], r["master_addr"]) for r in results] == [(6, "10.77.0.10")] * 3

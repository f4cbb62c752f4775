"""Networks with something wrong: a run starts on an address that is proven, or says what is wrong.

Emulated hosts, a real launcher on the first and a real worker on each; `tests.faults.networks`
makes the situations, one for each kind of answer that a probe or a node gives of a real network.
What is said of each outcome is held in tests/rendezvous.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rendezvous.wire.errors import ExitCode
from tests.faults import networks
from tests.faults.networks import Situation
from tests.support.cluster import Cluster, cluster
from tests.support.launching import Outcome, shell
from tests.support.netlab import Lab

NO_TORCH = ("--framework", "command", "--submit-retries", "0")
SHOW = shell("echo CHOSEN $MASTER_ADDR $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME $NCCL_SOCKET_FAMILY")
"""A COMMAND that says on each node which address the run stands on."""
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(180)]


def chosen(run: Cluster) -> list[str]:
    """What each host's program was told: rank 0's address, the interface, the family."""
    found = []
    for host in range(len(run.lab.hosts)):
        logs = (run.state(host) / "r" / "logs").glob("node-*.log")
        lines = [line for log in logs for line in log.read_text().splitlines()]
        found += [line for line in lines if line.startswith("CHOSEN ")]
    return found


def told(name: str) -> list[str]:
    """What `chosen` gives when three hosts use this interface."""
    master = "10.78.0.10" if name == "eth1" else "10.77.0.10"
    return [f"CHOSEN {master} {name} ={name} AF_INET"] * 3


def sentence(outcome: Outcome) -> str:
    """The one line that says why the run failed."""
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("rdzv: run 'r' failed")]
    return line


def end_of(run: Cluster, *last: int) -> Outcome:
    """Start these workers (or all), and see the run to its end."""
    run.start_workers(*last)
    return run.finish()


IB_FIRST = ("--interface", "ib0", "--interface", "eth0")
ONLY_ETH1 = ("--interface", "eth1")
at_night = pytest.mark.nightly


@pytest.mark.parametrize(
    ("situation", "options", "interface", "says"),
    [
        (networks.docker_everywhere, (), "eth0", ""),
        (networks.infiniband_cut_between_two, IB_FIRST, "eth0", "next is eth0"),
        (networks.eth0_is_missing_on_one, (), "eth1", "slot 2 (h2) has no address of its own"),
        (networks.translated_and_reachable, (), "eth0", "(h2) is seen by the others as 10.77.0.99"),
        pytest.param(
            networks.infiniband_is_a_black_hole, IB_FIRST, "eth0", "black hole", marks=at_night
        ),
    ],
)
def test_a_run_starts_on_the_first_network_that_is_proven(
    tmp_path: Path, situation: Situation, options: tuple[str, ...], interface: str, says: str
) -> None:
    with Lab(3) as lab:
        situation(lab)
        with cluster(lab, tmp_path, *NO_TORCH, *options, command=SHOW) as run:
            outcome = end_of(run)
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told(interface)
    assert says in outcome.err


@pytest.mark.parametrize(
    ("situation", "options", "says"),
    [
        (networks.refused_by_a_firewall, (), ("slot 2 (h2)", "refused")),
        (networks.a_proxy_answers, (), ("slot 2 (h2)", "10.77.0.12", "a proxy")),
        (networks.docker_everywhere, ("--interface", "docker0"), ("172.17.0.1",)),
        (networks.one_address_twice, ONLY_ETH1, ("10.78.0.11", "slot 1 (h1)", "slot 2 (h2)")),
        (networks.no_family_in_common, ONLY_ETH1, ("slot 0 can offer IPv4 addresses only",)),
        pytest.param(networks.only_the_registry_is_open, (), ("firewall",), marks=at_night),
        pytest.param(networks.translated, (), ("10.77.0.99", "NAT"), marks=at_night),
        pytest.param(networks.eth0_is_a_black_hole, (), ("eth0 mtu 1300",), marks=at_night),
    ],
)
def test_a_run_that_cannot_start_names_what_is_wrong(
    tmp_path: Path, situation: Situation, options: tuple[str, ...], says: tuple[str, ...]
) -> None:
    with Lab(3) as lab:
        situation(lab)
        with cluster(lab, tmp_path, *NO_TORCH, *options, command=SHOW) as run:
            outcome = end_of(run)
        assert outcome.code == ExitCode.VERIFICATION_FAILED, outcome.err
        assert chosen(run) == []
    said = sentence(outcome)
    assert [words for words in says if words not in said] == [], said


@pytest.mark.parametrize(
    ("interface", "options", "code", "says"),
    [
        ("ib0", IB_FIRST, 0, "slot 1 (h1) cannot reach slot 0 (h0): no route"),
        # Without a proof: with one there is no time to speak of between it and arming.
        ("eth1", (*ONLY_ETH1, "--verify", "off"), ExitCode.ARMING_FAILED, "10.78.0.11 (eth1) is"),
    ],
)
def test_an_interface_that_disappears_after_the_join(
    tmp_path: Path, interface: str, options: tuple[str, ...], code: int, says: str
) -> None:
    with Lab(3) as lab:
        networks.data(lab, interface)
        with cluster(lab, tmp_path, *NO_TORCH, *options, command=SHOW) as run:
            run.start_workers(1)
            run.launched.wait_for("joined", 2)
            lab.remove_interface(lab.hosts[1], interface)
            outcome = end_of(run, 2)
        assert outcome.code == code, outcome.err
        assert chosen(run) == (told("eth0") if code == 0 else [])
    assert says in outcome.err


def test_a_variable_that_is_not_the_tables_is_told_and_named_where_the_run_fails(
    tmp_path: Path,
) -> None:
    fails = shell("[ $NODE_RANK = 0 ] || exit 3; exec sleep 30")
    with Lab(3) as lab, cluster(lab, tmp_path, *NO_TORCH, command=fails) as run:
        run.workers[1] = run.start(1, ["sh", str(run.script(1))], GLOO_SOCKET_IFNAME="lo")
        outcome = end_of(run, 2)
    assert outcome.code == 3
    odd = "slot 1 (h1): GLOO_SOCKET_IFNAME lo, expected eth0: "
    assert f"warning: {odd}" in outcome.err
    assert odd in outcome.last_line


def wrong_clock(shift: str) -> dict[str, str]:
    """Variables for a process whose dates are shifted (+1d); its monotonic clock is not touched."""
    fake = {"FAKETIME": shift, "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
    return {"LD_PRELOAD": str(LIBRARIES[0]), **fake}


@pytest.mark.skipif(
    not LIBRARIES and os.environ.get("RDZV_CI") != "1", reason="needs the package faketime"
)
def test_a_clock_that_is_wrong_is_told_and_stops_nobody(tmp_path: Path) -> None:
    with Lab(3) as lab:
        with cluster(lab, tmp_path, *NO_TORCH, command=SHOW) as run:
            run.workers[1] = run.start(1, ["sh", str(run.script(1))], **wrong_clock("-60s"))
            run.start_workers(2)
            outcome = run.finish()
        assert outcome.code == 0, outcome.err
        assert chosen(run) == told("eth0")
    assert re.search(r"warning: the clock of slot 1 \(h1\) is (59|6[01])\.. s behind", outcome.err)

"""Firewalls that let certain ports through: what the page on networks asks for is enough.

Emulated hosts behind real rules of nftables, a real launcher on the first, a real worker on each.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.cluster import cluster
from tests.support.launching import shell
from tests.support.netlab import Lab
from tests.support.nightly import at_night

REGISTRY, MASTER = "29600", "29500"
PROGRAM = ("--framework", "command", "--submit-retries", "0")
LISTENS = shell("echo RAN on $NODE_RANK")

pytestmark = [pytest.mark.faults, pytest.mark.netns, pytest.mark.timeout(300)]


def kernels_own(lab: Lab) -> str:
    """The kernel's ephemeral range, as a rule has it."""
    low, high = lab.hosts[0].run(["sysctl", "-n", "net.ipv4.ip_local_port_range"]).stdout.split()
    return f"{low}-{high}"


def narrow(lab: Lab, low: int, high: int) -> None:
    """Give the hosts' kernels other ephemeral ports, as some sites do for their firewall."""
    for host in lab.hosts:
        host.run(["sysctl", "-q", "-w", f"net.ipv4.ip_local_port_range={low} {high}"])


@pytest.mark.parametrize("narrowed", [at_night(False), True])
def test_a_firewall_as_the_page_asks_for_is_enough(tmp_path: Path, narrowed: bool) -> None:
    with Lab(3) as lab:
        if narrowed:
            narrow(lab, 20_480, 20_511)
        for host in lab.hosts:
            lab.open_only(host, REGISTRY, MASTER, kernels_own(lab))
        with cluster(lab, tmp_path, *PROGRAM, command=LISTENS) as run:
            run.start_workers()
            outcome = run.finish()
            assert outcome.code == 0, outcome.err
            assert sorted(run.printed("RAN")) == ["RAN on 0", "RAN on 1", "RAN on 2"]
    # UDP is closed, which a run does without; that it is, is said once.
    assert outcome.err.count("the path MTU could not be measured") == 1


@pytest.mark.nightly
def test_a_site_may_open_other_ports_for_the_checks(tmp_path: Path) -> None:
    with Lab(2) as lab:
        for host in lab.hosts:
            lab.open_only(host, REGISTRY, "41000-41003")
            # A program of the site is on some of them.
            host.start(["python3", "-c", _LISTENER, "41001", "41002", "41003"])
        options = (*PROGRAM, "--probe-ports", "41000-41003")
        with cluster(lab, tmp_path, *options, command=LISTENS) as run:
            run.start_workers()
            outcome = run.finish()
    assert outcome.code == 0, outcome.err


def test_where_the_registrys_port_alone_is_open_the_port_that_was_tried_is_named(
    tmp_path: Path,
) -> None:
    with Lab(2) as lab:
        low, _, high = kernels_own(lab).partition("-")
        for host in lab.hosts:
            lab.open_only(host, REGISTRY)
        with cluster(lab, tmp_path, *PROGRAM, command=LISTENS) as run:
            run.start_workers()
            outcome = run.finish()
    assert outcome.code != 0
    found = re.search(r"no answer at 10\.77\.0\.11:(\d+), 10\.77\.0\.10:(\d+)", outcome.err)
    assert found, outcome.err
    assert found[1] == found[2]
    assert int(low) <= int(found[1]) <= int(high)
    assert "let all TCP ports through between the nodes" in outcome.err


_LISTENER = (
    "import socket, sys, time\n"
    "held = [socket.create_server(('', int(port))) for port in sys.argv[1:]]\n"
    "time.sleep(300)\n"
)

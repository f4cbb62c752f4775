"""The emulated hosts that other tests stand on: what would make those pass that should not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.netlab import Host, Lab

pytestmark = pytest.mark.netns

PORT = "7000"

# Prints what it is sent, and sends it back.
ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind((sys.argv[1], int(sys.argv[2])))
    print("ready", flush=True)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # for all of them at once
    while True:
        text, peer = receiver.recvfrom(100)
        print(text.decode(), flush=True)
        receiver.sendto(text, peer)
"""
# Sends this text so many times, and prints how often it came back.
SEND = """
import select, socket, sys, time
host, port, text, count = sys.argv[1:]
found = 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    for number in range(int(count)):
        sender.sendto(text.encode(), (host, int(port)))
        time.sleep(0.002)
    while found < int(count) and select.select([sender], [], [], 1)[0]:
        found += len(sender.recv(100)) > 0
print(found)
"""
CRASH = """
import os, subprocess
from tests.support.netlab import Lab
lab = Lab(1).__enter__()
process = lab.hosts[0].start(["sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE)
process.stdout.readline()  # until it speaks it may be on its way, in no namespace of the lab
print(lab.hosts[0].namespace, process.pid, flush=True)
os._exit(1)
"""


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def listen(host: Host) -> subprocess.Popen[str]:
    """Echo at the host's address; waits until it listens."""
    process = host.start(python(ECHO, host.address, PORT), stdout=subprocess.PIPE)
    assert read_line(process) == "ready"
    return process


def sent(host: Host, to: Host, count: int = 1) -> int:
    """How many of so many packets came back."""
    return int(host.run(python(SEND, to.address, PORT, f"from {host.name}", str(count))).stdout)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_running(pid: str) -> bool:
    """Tell whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        stat = Path("/proc", pid, "stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("ipv6_only", [False, True])
def test_no_route_leads_out_of_the_lab(ipv6_only: bool) -> None:
    with Lab(1, ipv6_only=ipv6_only) as lab:
        lines = lab.hosts[0].run(["ip", "-4", "route"]).stdout.splitlines()
        assert [line.split()[0] for line in lines] == ([] if ipv6_only else ["10.77.0.0/24"])


def test_a_one_way_cut_stops_the_packets_of_one_direction() -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        at_a, at_b = listen(a), listen(b)
        lab.cut(a, b, one_way=True)
        assert [sent(b, a), sent(a, b), sent(c, b)] == [0, 0, 1]
        assert (read_line(at_a), read_line(at_b)) == ("from b", "from c")


def test_nothing_of_a_lab_is_left_when_it_ends_or_when_the_next_one_starts() -> None:
    with subprocess.Popen(python(CRASH), stdout=subprocess.PIPE, text=True) as crashed:
        assert crashed.stdout is not None
        namespace, pid = crashed.stdout.readline().split()
        os.waitid(os.P_PID, crashed.pid, os.WEXITED | os.WNOWAIT)
        assert is_running(pid)  # nobody removes it yet: a zombie is there all the same
    with Lab(2) as lab:
        assert not any(Path(place, namespace).exists() for place in ("/run/netns", "/etc/netns"))
        assert not is_running(pid)
        # Ignores what can be ignored, and its child is in a session of its own.
        stubborn = ["sh", "-c", "trap '' TERM HUP; setsid sleep 60 & echo $!; wait"]
        process = lab.hosts[0].start(stubborn, stdout=subprocess.PIPE)
        child = read_line(process)
    name = lab.hosts[0].namespace.rpartition("-")[0]
    assert process.returncode == -signal.SIGKILL
    assert not is_running(child)
    assert [*Path("/run/netns").glob(f"{name}*"), *Path("/etc/netns").glob(f"{name}*")] == []

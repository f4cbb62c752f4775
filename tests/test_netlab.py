"""The emulated hosts that other tests stand on: what would make those pass that should not."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.netlab import Host, HostsMode, Lab
from tests.support.notes import notes

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
REPLACE_HOSTS_FILE = """
import os
open("/etc/hosts.new", "w").close()
try:
    os.replace("/etc/hosts.new", "/etc/hosts")
except OSError as error:
    print(error.errno)
os.unlink("/etc/hosts.new")
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


@pytest.mark.parametrize("file", ["hostname", "/etc/machine-id", "/proc/sys/kernel/random/boot_id"])
def test_each_host_is_a_machine_of_its_own(file: str) -> None:
    path = Path("/proc/sys/kernel/hostname" if file == "hostname" else file)
    if not path.exists():
        pytest.skip(f"this machine has no {file}")
    here = path.read_text()
    with Lab(2) as lab:
        read = [host.run(["cat", str(path)]).stdout for host in lab.hosts for _ in range(2)]
        assert read[0] == read[1] != read[2] == read[3]
        assert here not in read
        assert path.read_text() == here


@pytest.mark.parametrize("ipv6_only", [False, True])
def test_no_route_leads_out_of_the_lab(ipv6_only: bool) -> None:
    with Lab(1, ipv6_only=ipv6_only) as lab:
        lines = lab.hosts[0].run(["ip", "-4", "route"]).stdout.splitlines()
        assert [line.split()[0] for line in lines] == ([] if ipv6_only else ["10.77.0.0/24"])


@pytest.mark.parametrize(
    ("hosts_mode", "more"),
    [
        ("good", "10.77.0.10 h0\n10.77.0.11 h1\n"),
        ("debian", "127.0.1.1 h0\n"),
        ("selfonly", "10.77.0.10 h0\n"),
        ("none", ""),
    ],
)
def test_names_are_known_as_the_hosts_mode_says(hosts_mode: HostsMode, more: str) -> None:
    with Lab(2, hosts_mode=hosts_mode) as lab:
        text = lab.hosts[0].run(["cat", "/etc/hosts"]).stdout
    assert text.startswith("127.0.0.1 localhost\n::1 localhost")
    assert text.partition("loopback\n")[2] == more


def test_a_host_writes_its_own_hosts_file_in_place_and_not_the_machines() -> None:
    before = Path("/etc/hosts").read_bytes()
    with Lab(1) as lab:
        host = lab.hosts[0]
        host.run(["sh", "-c", "echo '10.9.9.9 added' >>/etc/hosts"])
        assert host.hosts_file.read_text().endswith("\n10.9.9.9 added\n")
        assert host.run(["getent", "hosts", "added"]).stdout.split() == ["10.9.9.9", "added"]
        assert host.run(python(REPLACE_HOSTS_FILE)).stdout == f"{errno.EBUSY}\n"
    assert Path("/etc/hosts").read_bytes() == before


def test_pid_signal_exit_code_and_output_are_the_commands_own() -> None:
    with Lab(1) as lab:
        host = lab.hosts[0]
        process = host.start(["sh", "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE)
        assert read_line(process) == str(process.pid)
        process.terminate()
        assert process.wait(timeout=10) == -signal.SIGTERM
        with pytest.raises(subprocess.CalledProcessError) as failed:
            host.run(["sh", "-c", "echo said; echo complained >&2; exit 7"])
    assert failed.value.returncode == 7
    assert notes(failed.value) == ["on h0, output:\nsaid\n\nerrors:\ncomplained\n"]


def test_a_one_way_cut_stops_the_packets_of_one_direction() -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        at_a, at_b = listen(a), listen(b)
        lab.cut(a, b, one_way=True)
        assert [sent(b, a), sent(a, b), sent(c, b)] == [0, 0, 1]
        assert (read_line(at_a), read_line(at_b)) == ("from b", "from c")


@pytest.mark.faults
@pytest.mark.parametrize(("percent", "least", "most"), [(0, 300, 300), (20, 140, 250), (100, 0, 0)])
def test_a_host_loses_so_many_of_its_packets_each_way(
    percent: float, least: int, most: int
) -> None:
    with Lab(["a", "b"]) as lab:
        a, b = lab.hosts
        listen(b)
        assert sent(a, b) == 1  # each knows where the other is
        lab.lose(b, percent)
        assert least <= sent(a, b, 300) <= most


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

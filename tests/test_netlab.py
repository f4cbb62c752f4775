"""The emulated hosts that other tests stand on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.netlab import Host, HostsMode, Lab, Nameserver

pytestmark = pytest.mark.netns

PORT = "7000"

SERVE = """
import socket, sys
host, port = sys.argv[1:]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
with socket.create_server((host, int(port)), family=family) as server:
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(socket.gethostname().encode())
"""
DIAL = """
import socket, sys
host, port = sys.argv[1:]
try:
    with socket.create_connection((host, int(port)), timeout=1) as connection:
        print(connection.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""
RECEIVE = """
import socket, sys
host, port = sys.argv[1:]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind((host, int(port)))
    print("ready", flush=True)
    while True:
        print(receiver.recv(100).decode(), flush=True)
"""
SEND = """
import socket, sys
host, port, text = sys.argv[1:]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.sendto(text.encode(), (host, int(port)))
"""
ECHO = """
import socket, sys
host, port = sys.argv[1:]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind((host, int(port)))
    print("ready", flush=True)
    while True:
        receiver.sendto(*receiver.recvfrom(100))
"""
PING = """
import select, socket, sys, time
host, port, count = sys.argv[1:]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for number in range(int(count)):
        sender.sendto(str(number).encode(), (host, int(port)))
        time.sleep(0.002)
        while select.select([sender], [], [], 0)[0]:
            print(sender.recv(100).decode())
    while select.select([sender], [], [], 1)[0]:
        print(sender.recv(100).decode())
"""
RESOLVE = """
import socket, sys
try:
    print(*sorted({found[4][0] for found in socket.getaddrinfo(sys.argv[1], None)}))
except socket.gaierror:
    print("unknown")
"""
RESOLVE_TIMED = f"""
import time
start = time.monotonic()
{RESOLVE}
print(time.monotonic() - start >= 1)
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
from tests.netlab import Lab
lab = Lab(1).__enter__()
process = lab.hosts[0].start(["sleep", "60"], stdout=subprocess.DEVNULL)
print(lab.hosts[0].namespace, process.pid, flush=True)
os._exit(1)
"""


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def listen(host: Host, program: str) -> subprocess.Popen[str]:
    """Start a program on the host's address and wait until it listens."""
    process = host.start(python(program, host.address, PORT), stdout=subprocess.PIPE)
    assert read_line(process) == "ready"
    return process


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def dial(caller: Host, to: Host) -> str:
    """Connect; give what the other side calls itself, or the kind of the failure."""
    return caller.run(python(DIAL, to.address, PORT)).stdout.strip()


def send(sender: Host, to: Host, text: str) -> None:
    sender.run(python(SEND, to.address, PORT, text))


def ping(sender: Host, to: Host, count: int) -> list[int]:
    """Send numbered packets; the numbers in the order in which they came back."""
    shown = sender.run(python(PING, to.address, PORT, str(count))).stdout
    return [int(number) for number in shown.split()]


def resolve(host: Host, name: str) -> str:
    return host.run(python(RESOLVE, name)).stdout.strip()


def is_running(pid: str) -> bool:
    """Tell whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        stat = Path("/proc", pid, "stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def traces(lab: Lab) -> list[Path]:
    """Give what the machine still has of a lab."""
    name = lab.hosts[0].namespace.rpartition("-")[0]
    return [*Path("/run/netns").glob(f"{name}*"), *Path("/etc/netns").glob(f"{name}*")]


@pytest.mark.parametrize("ipv6_only", [False, True])
def test_hosts_reach_each_other_by_address(ipv6_only: bool) -> None:
    with Lab(["a", "b"], ipv6_only=ipv6_only) as lab:
        a, b = lab.hosts
        listen(a, SERVE)
        listen(b, SERVE)
        assert (dial(a, b), dial(b, a)) == ("b", "a")


def test_ipv6_only_hosts_have_no_ipv4_address_outside_loopback() -> None:
    with Lab(1, ipv6_only=True) as lab:
        shown = lab.hosts[0].run(["ip", "-4", "-brief", "address"]).stdout
        assert shown.split() == ["lo", "UNKNOWN", "127.0.0.1/8"]


def test_no_route_leads_out_of_the_lab() -> None:
    with Lab(1) as lab:
        destinations = [
            line.split()[0] for line in lab.hosts[0].run(["ip", "route"]).stdout.splitlines()
        ]
        assert destinations == ["10.77.0.0/24"]


def test_each_host_has_its_own_hostname() -> None:
    before = os.uname().nodename
    with Lab(["left", "right"]) as lab:
        shown = [host.run(["cat", "/proc/sys/kernel/hostname"]).stdout for host in lab.hosts]
        assert shown == ["left\n", "right\n"]
        assert os.uname().nodename == before


@pytest.mark.parametrize(
    ("hosts_mode", "own", "other"),
    [
        ("good", "10.77.0.10", "10.77.0.11"),
        ("debian", "127.0.1.1", "unknown"),
        ("selfonly", "10.77.0.10", "unknown"),
        ("none", "unknown", "unknown"),
    ],
)
def test_names_resolve_as_the_hosts_mode_says(hosts_mode: HostsMode, own: str, other: str) -> None:
    with Lab(2, hosts_mode=hosts_mode) as lab:
        found = [resolve(lab.hosts[0], name) for name in ("localhost", "h0", "h1")]
        assert found == ["127.0.0.1 ::1", own, other]


@pytest.mark.parametrize(("nameserver", "waits"), [("none", False), ("silent", True)])
def test_only_a_silent_name_server_keeps_look_ups_waiting(
    nameserver: Nameserver, waits: bool
) -> None:
    with Lab(1, nameserver=nameserver) as lab:
        patience = {"RES_OPTIONS": "timeout:1 attempts:1"}
        shown = lab.hosts[0].run(python(RESOLVE_TIMED, "stranger"), env=patience).stdout
        assert shown.split() == ["unknown", str(waits)]


def test_a_host_writes_its_own_hosts_file_and_not_the_machines() -> None:
    before = Path("/etc/hosts").read_bytes()
    with Lab(1) as lab:
        host = lab.hosts[0]
        host.run(["sh", "-c", "echo '10.9.9.9 added' >>/etc/hosts"])
        assert host.hosts_file.read_text().endswith("\n10.9.9.9 added\n")
        assert resolve(host, "added") == "10.9.9.9"
    assert Path("/etc/hosts").read_bytes() == before


def test_the_hosts_file_cannot_be_replaced_by_a_rename() -> None:
    with Lab(1) as lab:
        shown = lab.hosts[0].run(python(REPLACE_HOSTS_FILE)).stdout
        assert shown == f"{errno.EBUSY}\n"


def test_pid_signal_and_exit_code_are_the_commands_own() -> None:
    with Lab(1) as lab:
        host = lab.hosts[0]
        process = host.start(["sh", "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE)
        assert read_line(process) == str(process.pid)
        process.terminate()
        assert process.wait(timeout=10) == -signal.SIGTERM
        assert host.run(["sh", "-c", "exit 7"], check=False).returncode == 7


def test_a_failed_run_shows_the_output() -> None:
    with Lab(1) as lab, pytest.raises(subprocess.CalledProcessError) as failed:
        lab.hosts[0].run(["sh", "-c", "echo said; echo complained >&2; exit 1"])
    assert failed.value.__notes__ == ["on h0, output:\nsaid\n\nerrors:\ncomplained\n"]


def test_a_one_way_cut_stops_the_packets_of_one_direction() -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        at_a, at_b = listen(a, RECEIVE), listen(b, RECEIVE)
        lab.cut(a, b, one_way=True)
        send(b, a, "from b")
        send(a, b, "from a")
        send(c, b, "from c")
        assert (read_line(at_a), read_line(at_b)) == ("from b", "from c")


def test_a_cut_lets_dials_time_out_between_these_two_hosts_alone() -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        listen(a, SERVE)
        listen(b, SERVE)
        lab.cut(a, b)
        assert (dial(a, b), dial(b, a)) == ("TimeoutError", "TimeoutError")
        assert (dial(c, a), dial(c, b)) == ("a", "b")


def test_what_was_cut_passes_again_once_it_is_mended() -> None:
    with Lab(["a", "b"]) as lab:
        a, b = lab.hosts
        listen(a, SERVE)
        lab.cut(a, b, one_way=True)
        assert dial(b, a) == "TimeoutError"
        lab.mend(b, a)
        assert dial(b, a) == "a"


@pytest.mark.faults
@pytest.mark.parametrize(("percent", "least", "most"), [(0, 300, 300), (20, 140, 250), (100, 0, 0)])
def test_a_host_loses_so_many_of_its_packets_each_way(
    percent: float, least: int, most: int
) -> None:
    with Lab(["a", "b"]) as lab:
        a, b = lab.hosts
        listen(b, ECHO)
        assert ping(a, b, 1) == [0]  # each knows now where the other is
        lab.lose(b, percent)
        assert least <= len(ping(a, b, 300)) <= most
        lab.lose(b, 0)
        assert len(ping(a, b, 300)) == 300


@pytest.mark.faults
def test_packets_that_are_delayed_by_different_times_overtake_each_other() -> None:
    with Lab(["a", "b"]) as lab:
        a, b = lab.hosts
        listen(b, ECHO)
        lab.delay(b, 0.05, 0.04)
        numbers = ping(a, b, 300)
        assert sorted(numbers) == list(range(300))
        assert numbers != sorted(numbers)


def test_a_link_that_is_down_loses_its_carrier_and_answers_nobody() -> None:
    with Lab(["a", "b"]) as lab:
        a, b = lab.hosts
        listen(a, SERVE)
        lab.link_down(a)
        assert dial(b, a) == "TimeoutError"
        assert a.run(["cat", "/sys/class/net/eth0/operstate"]).stdout == "down\n"


def test_labs_side_by_side_do_not_meet() -> None:
    with Lab(["left-0", "left-1"]) as left, Lab(["right-0", "right-1"]) as right:
        listen(left.hosts[0], SERVE)
        assert dial(left.hosts[1], left.hosts[0]) == "left-0"
        assert dial(right.hosts[1], right.hosts[0]) == "ConnectionRefusedError"


def test_nothing_of_a_lab_is_left_when_it_ends() -> None:
    with Lab(2) as lab:
        # Ignores what can be ignored, and its child is in a session of its own.
        stubborn = ["sh", "-c", "trap '' TERM HUP; setsid sleep 60 & echo $!; wait"]
        process = lab.hosts[0].start(stubborn, stdout=subprocess.PIPE)
        child = read_line(process)
        assert len(traces(lab)) == 5
    assert process.returncode == -signal.SIGKILL
    assert not is_running(child)
    assert traces(lab) == []


def test_what_a_crashed_lab_left_is_removed_when_the_next_one_starts() -> None:
    crashed = subprocess.run(python(CRASH), stdout=subprocess.PIPE, text=True, timeout=30)
    namespace, pid = crashed.stdout.split()
    assert is_running(pid)
    with Lab(1):
        left = [Path("/run/netns", namespace), Path("/etc/netns", namespace)]
        assert [path.exists() for path in left] == [False, False]
        assert not is_running(pid)

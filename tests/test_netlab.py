"""The emulated hosts that other tests stand on."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.netlab import Host, HostsMode, Lab, Nameserver
from tests.support.notes import notes

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
        connection.settimeout(20)  # the kernel answers at once, the program when it has its turn
        print(connection.recv(100).decode())
except OSError as error:
    print(type(error).__name__)
"""
NAME_THE_CALLER = """
import socket, sys
host, port = sys.argv[1:]
with socket.create_server((host, int(port))) as server:
    print("ready", flush=True)
    while True:
        connection, (caller, _) = server.accept()
        with connection:
            connection.sendall(caller.encode())
"""
REPEAT = """
import socket, sys, threading
def repeat(connection):
    while data := connection.recv(65536):
        connection.sendall(data)
host, port = sys.argv[1:]
with socket.create_server((host, int(port))) as server:
    print("ready", flush=True)
    while True:
        threading.Thread(target=repeat, args=server.accept()[:1], daemon=True).start()
"""
SEND_SIZES = """
import socket, sys
host, port, *sizes = sys.argv[1:]
for size in map(int, sizes):
    with socket.create_connection((host, int(port)), timeout=4) as connection:
        connection.sendall(bytes(size))
        try:
            while size > 0:
                size -= len(connection.recv(65536))
            print("repeated")
        except TimeoutError:
            print("lost")
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
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # for all of them at once
    while True:
        receiver.sendto(*receiver.recvfrom(100))
"""
PING = """
import select, socket, sys, time
host, port, count = sys.argv[1:]
left = int(count)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    for number in range(int(count)):
        sender.sendto(str(number).encode(), (host, int(port)))
        time.sleep(0.002)
        while select.select([sender], [], [], 0)[0]:
            print(sender.recv(100).decode())
            left -= 1
    while left and select.select([sender], [], [], 4)[0]:
        print(sender.recv(100).decode())
        left -= 1
"""
RESOLVE = """
import socket, sys
try:
    print(*sorted({found[4][0] for found in socket.getaddrinfo(sys.argv[1], None)}))
except socket.gaierror:
    print("unknown")
"""
RESOLVE_TIMED = f"""
import socket, time
start = time.monotonic()
{RESOLVE}
print(time.monotonic() - start >= 4)
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
process = lab.hosts[0].start(["sleep", "60"], stdout=subprocess.DEVNULL)
print(lab.hosts[0].namespace, process.pid, flush=True)
os._exit(1)
"""


def python(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


def listen(host: Host, program: str, address: str = "") -> subprocess.Popen[str]:
    """Start a program on the host's address, or another of its, and wait until it listens."""
    argv = python(program, address or host.address, PORT)
    process = host.start(argv, stdout=subprocess.PIPE)
    assert read_line(process) == "ready"
    return process


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def dial(caller: Host, to: Host, interface: str = "eth0") -> str:
    """Connect; give what the other side calls itself, or the kind of the failure."""
    return caller.run(python(DIAL, to.addresses[interface], PORT)).stdout.strip()


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


@pytest.mark.parametrize("file", ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"])
def test_each_host_is_a_machine_of_its_own(file: str) -> None:
    if not Path(file).exists():
        pytest.skip(f"this machine has no {file}")
    here = Path(file).read_text()
    with Lab(2) as lab:
        read = [host.run(["cat", file]).stdout for host in lab.hosts for _ in range(2)]
        assert read[:2] != read[2:]
        assert read[0] == read[1] != here
        assert read[2] == read[3] != here
        assert Path(file).read_text() == here


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
        patience = {"RES_OPTIONS": "timeout:4 attempts:1"}
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
    assert notes(failed.value) == ["on h0, output:\nsaid\n\nerrors:\ncomplained\n"]


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


def test_a_host_has_as_many_interfaces_as_it_is_given() -> None:
    with Lab(["a", "b"]) as lab:
        a, b = lab.hosts
        for number, host in enumerate(lab.hosts):
            lab.add_interface(host, "ib0", f"10.78.0.{number}/24", switch="ib", mtu=2044)
        lab.add_interface(a, "eth1", "10.77.0.110/24")
        assert a.addresses == {"eth0": a.address, "ib0": "10.78.0.0", "eth1": "10.77.0.110"}
        assert a.run(["cat", "/sys/class/net/ib0/mtu"]).stdout == "2044\n"
        listen(b, SERVE, "0.0.0.0")
        listen(a, SERVE, "10.77.0.110")
        assert (dial(a, b), dial(a, b, "ib0"), dial(b, a, "eth1")) == ("b", "b", "a")


def test_a_cut_or_a_link_that_is_down_leaves_other_interfaces_alone() -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        for number, host in enumerate(lab.hosts):
            lab.add_interface(host, "ib0", f"10.78.0.{number + 1}/24", switch="ib")
            listen(host, SERVE, "0.0.0.0")
        lab.cut(a, b, interface="ib0")
        assert (dial(a, b, "ib0"), dial(a, c, "ib0"), dial(a, b)) == ("TimeoutError", "c", "b")
        lab.mend(a, b, interface="ib0")
        lab.link_down(c, "ib0")
        assert (dial(a, b, "ib0"), dial(a, c)) == ("b", "c")
        lab.remove_interface(b, "ib0")
        assert (b.addresses, dial(a, b)) == ({"eth0": b.address}, "b")


def test_through_docker0_a_host_reaches_only_itself() -> None:
    with Lab(["a", "b"]) as lab:
        for host in lab.hosts:
            lab.add_docker0(host)
            listen(host, SERVE, "0.0.0.0")
        a = lab.hosts[0]
        assert a.run(python(DIAL, "172.17.0.1", PORT)).stdout == "a\n"
        assert a.run(["cat", "/sys/class/net/docker0/carrier"]).stdout == "1\n"


@pytest.mark.faults
@pytest.mark.parametrize("victim", [0, 1])
def test_in_a_black_hole_small_messages_pass_and_large_ones_vanish(victim: int) -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        for number, host in enumerate(lab.hosts):
            lab.add_interface(host, "eth1", f"10.78.0.{number + 1}/24", switch="data", mtu=9000)
        listen(b, REPEAT, "0.0.0.0")
        sizes = [b.addresses["eth1"], PORT, "1000", "8000"]
        assert a.run(python(SEND_SIZES, *sizes)).stdout.split() == ["repeated"] * 2
        lab.black_hole(lab.hosts[victim], 1500, "eth1")
        assert a.run(python(SEND_SIZES, *sizes)).stdout.split() == ["repeated", "lost"]
        sizes[0] = b.address
        assert c.run(python(SEND_SIZES, *sizes)).stdout.split() == ["repeated"] * 2


@pytest.mark.faults
@pytest.mark.parametrize(
    ("reject", "failure"), [(False, "TimeoutError"), (True, "ConnectionRefusedError")]
)
def test_a_firewall_stops_what_the_others_begin_and_nothing_else(
    reject: bool, failure: str
) -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        for host in lab.hosts:
            listen(host, SERVE)
        lab.firewall(a, sender=b, reject=reject)
        assert (dial(b, a), dial(a, b), dial(c, a)) == (failure, "b", "a")
        listen(c, ECHO)
        assert ping(a, c, 1) == [0]
        lab.firewall(c, allow=[int(PORT)])
        assert (dial(a, c), ping(b, c, 1)) == ("c", [])


@pytest.mark.faults
def test_what_is_intercepted_another_program_answers() -> None:
    with Lab(["a", "b", "c"]) as lab:
        a, b, c = lab.hosts
        for host in lab.hosts:
            listen(host, SERVE)
        lab.intercept(a, f"{b.address}:{PORT}", ports=PORT, sender=c)
        assert (dial(c, a), dial(b, a), dial(c, b)) == ("b", "a", "b")


@pytest.mark.faults
@pytest.mark.parametrize(("reachable", "answer"), [(True, "a"), (False, "TimeoutError")])
def test_a_host_behind_a_translation_is_seen_at_an_address_that_it_does_not_have(
    reachable: bool, answer: str
) -> None:
    with Lab(["a", "b"]) as lab:
        a, b = lab.hosts
        lab.nat(a, "10.77.0.99", reachable=reachable)
        listen(a, SERVE)
        listen(b, NAME_THE_CALLER)
        assert (dial(a, b), dial(b, a)) == ("10.77.0.99", answer)


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
        assert len(traces(lab)) == 6
    assert process.returncode == -signal.SIGKILL
    assert not is_running(child)
    assert traces(lab) == []


def test_what_a_crashed_lab_left_is_removed_when_the_next_one_starts() -> None:
    with subprocess.Popen(python(CRASH), stdout=subprocess.PIPE, text=True) as crashed:
        assert crashed.stdout is not None
        namespace, pid = crashed.stdout.readline().split()
        os.waitid(os.P_PID, crashed.pid, os.WEXITED | os.WNOWAIT)
        assert is_running(pid)  # nobody removes it yet: a zombie is there all the same
    with Lab(1):
        left = [Path("/run/netns", namespace), Path("/etc/netns", namespace)]
        assert [path.exists() for path in left] == [False, False]
        assert not is_running(pid)

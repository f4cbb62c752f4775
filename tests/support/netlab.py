"""Emulated hosts for tests: network namespaces on a bridge, each with its own hostname and names.

A host has its own interfaces (`lo`, `eth0`, and those added), hostname, machine id, boot id,
/etc/hosts and /etc/resolv.conf. Files, /tmp, /dev/shm and process ids are shared with this machine.
Needs root, iproute2, unshare and mount, and nft for faults by rules.

`ip netns exec` bind-mounts a host's /etc/hosts, as container engines do: it can be written in
place, and replacing it by a rename fails with EBUSY.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, TypeAlias

from tests.support.notes import add_note

HostsMode: TypeAlias = Literal["good", "debian", "selfonly", "none"]

INTERFACE = "eth0"
_PREFIX = "rdzvlab"
_NETNS_ETC = Path("/etc/netns")
_NETNS_RUN = Path("/run/netns")
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LOCALHOST = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
_FIRST_HOST = 10
_MOST_HOSTS = 200
_NOBODYS_MAC = "02:00:00:00:00:00"
_END_SECONDS = 10.0
_counter = itertools.count()


@dataclass(frozen=True)
class Host:
    """One emulated host of a `Lab`."""

    name: str
    address: str
    namespace: str
    addresses: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    _started: list[subprocess.Popen[str]] = field(default_factory=list, repr=False, compare=False)

    @property
    def hosts_file(self) -> Path:
        """What this host sees as /etc/hosts; written in place, running programs see it at once."""
        return _NETNS_ETC / self.namespace / "hosts"

    def command(self, argv: Sequence[str]) -> list[str]:
        """Give the command line that runs `argv` on this host.

        Every link of the chain only execs: pid, signals and exit code are those of `argv`.
        """
        enter = ["ip", "netns", "exec", self.namespace, "unshare", "--uts"]
        become = f'hostname "$0" && mount --bind "$1" {_BOOT_ID} && shift && exec "$@"'
        return [*enter, "sh", "-c", become, self.name, str(self._boot_id), *argv]

    @property
    def _boot_id(self) -> Path:
        # Not among the host's own files: `ip netns exec` takes each of those for one of /etc.
        bridge, _, number = self.namespace.rpartition("-")
        return _NETNS_ETC / f"{bridge}-boot" / number

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run `argv` to its end and return what it printed."""
        done = subprocess.run(
            self.command(argv),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check:
            _raise_if_failed(done, f"on {self.name}")
        return done

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[str] | None = None,
    ) -> subprocess.Popen[str]:
        """Start `argv` and return it running; the lab kills what is left of it at its end."""
        process = subprocess.Popen(
            self.command(argv),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def pids(self) -> list[int]:
        """What runs on this host."""
        return _processes(self.namespace)


class Lab:
    """A context manager that makes emulated hosts on a network of their own, and removes them.

    Nothing leads out of the network, and nothing of it shows in the namespace of the machine, so
    labs can run side by side with equal names and addresses. What a crashed test left behind is
    removed when the next lab starts. `hosts_mode` says which names /etc/hosts knows beside
    localhost: all hosts ("good"); the host's own, as 127.0.1.1 ("debian"); the host's own, at its
    address ("selfonly"); or "none".
    """

    def __init__(
        self, hosts: int | list[str], *, ipv6_only: bool = False, hosts_mode: HostsMode = "none"
    ) -> None:
        names = [f"h{index}" for index in range(hosts)] if isinstance(hosts, int) else hosts
        if len(names) > _MOST_HOSTS:
            raise ValueError(f"a lab has at most {_MOST_HOSTS} hosts, not {len(names)}")
        self._network = "fd77::" if ipv6_only else "10.77.0."
        self._prefix_length = 64 if ipv6_only else 24
        self._hosts_mode = hosts_mode
        # The pid in the name tells a later lab whether this one still has an owner.
        self._bridge = f"{_PREFIX}-{os.getpid()}-{next(_counter)}"
        self._losses: dict[int, float] = {}
        self._switches: set[str] = set()
        self._ports: dict[tuple[str, str], str] = {}
        self._numbers = itertools.count()
        self._rules: dict[str, dict[str, list[str]]] = {}
        self.hosts = [
            Host(name, f"{self._network}{_FIRST_HOST + index}", f"{self._bridge}-h{index}")
            for index, name in enumerate(names)
        ]

    def __enter__(self) -> Lab:
        _remove_leftovers()
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def add_interface(
        self, host: Host, interface: str, cidr: str, *, switch: str = "br0", mtu: int = 1500
    ) -> None:
        """Give a host one more interface, on the switch of eth0 (br0) or on one of its own."""
        if switch not in self._switches:
            self._add_switch(switch)
        port = f"port{next(self._numbers)}"
        self._ports[host.namespace, interface] = port
        peer = ("peer", "name", port, "netns", self._bridge)
        _ip("link", "add", interface, "netns", host.namespace, "type", "veth", *peer)
        _ip("-n", self._bridge, "link", "set", port, "master", switch, "mtu", str(mtu), "up")
        # Without "nodad" an IPv6 address cannot be bound for the first one or two seconds.
        inside = ("-n", host.namespace)
        _ip(*inside, "address", "add", cidr, "dev", interface, "nodad")
        _ip(*inside, "link", "set", interface, "mtu", str(mtu), "up")
        host.addresses[interface] = cidr.partition("/")[0]

    def add_docker0(self, host: Host) -> None:
        """Give a host what a container engine makes there: a bridge, and a container on it."""
        inside = ("-n", host.namespace)
        _ip(*inside, "link", "add", "docker0", "type", "bridge")
        _ip(*inside, "link", "add", "veth0c", "type", "veth", "peer", "name", "inside")
        _ip(*inside, "link", "set", "veth0c", "master", "docker0", "up")
        _ip(*inside, "link", "set", "inside", "up")
        _ip(*inside, "address", "add", "172.17.0.1/16", "dev", "docker0")
        _ip(*inside, "link", "set", "docker0", "up")

    def remove_interface(self, host: Host, interface: str) -> None:
        """Take an interface out of a host that runs."""
        _ip("-n", host.namespace, "link", "delete", interface)
        del host.addresses[interface]

    def cut(
        self, sender: Host, receiver: Host, *, one_way: bool = False, interface: str = INTERFACE
    ) -> None:
        """Let packets between two hosts vanish in silence, or (`one_way`) the sender's."""
        _swallow(sender, receiver.addresses[interface], interface)
        if not one_way:
            _swallow(receiver, sender.addresses[interface], interface)

    def lose(self, host: Host, percent: float) -> None:
        """Lose so many of a host's packets at random, each way; 0 to lose none, 100 for silence.

        With less than 100 percent the network still finds hosts (ARP) without loss.
        """
        self._losses[self.hosts.index(host)] = percent
        rules = [
            f'{way} "port{index}" {_lost(percent)} drop\n'
            for index, percent in self._losses.items()
            for way in ("iifname", "oifname")
            if percent
        ]
        chain = f"type filter hook forward priority 0\n{''.join(rules)}"
        _nft(self._bridge, "bridge", f"chain forward {{\n{chain}}}\n")

    def link_down(self, host: Host) -> None:
        """Take a host's eth0 down: it sees the carrier go, the others only silence."""
        _ip("-n", host.namespace, "link", "set", INTERFACE, "down")

    def black_hole(self, host: Host, mtu: int, interface: str = INTERFACE) -> None:
        """Let packets to and from a host that are larger than `mtu` vanish, and nobody is told.

        The port of its switch takes no larger ones, as happens when jumbo frames were not switched
        on everywhere.
        """
        port = self._ports[host.namespace, interface]
        _ip("-n", self._bridge, "link", "set", port, "mtu", str(mtu))
        for other in self.hosts:
            if interface in other.addresses:
                # Large segments would pass whole where no wire of real length splits them.
                one = ("link", "set", interface, "gso_max_segs", "1")
                _ip("-n", other.namespace, *one)

    def firewall(
        self,
        host: Host,
        *,
        sender: Host | None = None,
        interface: str = INTERFACE,
        reject: bool = False,
    ) -> None:
        """Stop what others begin with a host: connections and datagrams; answers to it do pass."""
        whom = f"{self._family} saddr {sender.addresses[interface]} " if sender else ""
        stops = f'iifname "{interface}" {whom}ct state new'
        rules = [f"{stops} meta l4proto tcp reject with tcp reset"] if reject else []
        self.add_rules(host, "filter hook input priority 0", [*rules, f"{stops} drop"])

    def open_only(self, host: Host, *ports: str) -> None:
        """Let others begin TCP connections to these ports of a host (`1024-2047`), and no more."""
        opened = f'iifname "{INTERFACE}" tcp dport {{ {", ".join(ports)} }} accept'
        self.add_rules(host, "filter hook input priority 0", [opened])
        self.firewall(host)

    def intercept(self, host: Host, to: str) -> None:
        """Let another host's address and port get all TCP connections that are meant for a host.

        It happens on the host, before its own programs see them.
        """
        taken = f'iifname "{INTERFACE}" tcp dport 1-65535 dnat {self._family} to {to}'
        host.run(["sysctl", "-q", "-w", "net.ipv4.ip_forward=1"])
        self.add_rules(host, "nat hook prerouting priority -100", [taken])
        self.add_rules(host, "nat hook postrouting priority 100", ["ct status dnat masquerade"])

    def nat(self, host: Host, address: str) -> None:
        """Let a host's connections seem to come from an address that none of its interfaces has."""
        at = host.run(["cat", f"/sys/class/net/{INTERFACE}/address"]).stdout.strip()
        for other in self.hosts:
            found = ("neighbour", "replace", address, "lladdr", at, "dev", INTERFACE)
            _ip("-n", other.namespace, *found, "nud", "permanent")
        source = f'oifname "{INTERFACE}" snat {self._family} to {address}'
        self.add_rules(host, "nat hook postrouting priority 100", [source])

    @property
    def _family(self) -> str:
        return "ip6" if ":" in self._network else "ip"

    def add_rules(self, host: Host, hook: str, rules: list[str]) -> None:
        """Add rules of nftables to a chain of a host, which is made on this hook."""
        chains = self._rules.setdefault(host.namespace, {})
        chains.setdefault(hook, []).extend(rules)
        text = "".join(
            f"chain chain{number} {{\ntype {hook}\n" + "".join(f"{one}\n" for one in ones) + "}\n"
            for number, (hook, ones) in enumerate(chains.items())
        )
        _nft(host.namespace, "inet", text)

    def _build(self) -> None:
        # A bridge in the machine's own namespace would pass through the filters that a container
        # engine sets there; in a namespace of its own nobody meddles.
        _ip("netns", "add", self._bridge)
        for host in self.hosts:
            self._write_files(host)
            _ip("netns", "add", host.namespace)
            _ip("-n", host.namespace, "link", "set", "lo", "up")
            self.add_interface(host, INTERFACE, f"{host.address}/{self._prefix_length}")

    def _add_switch(self, name: str) -> None:
        # Nobody asks for multicast groups here, and neighbour discovery must reach everyone.
        _ip("-n", self._bridge, "link", "add", name, "type", "bridge", "mcast_snooping", "0")
        _ip("-n", self._bridge, "link", "set", name, "up")
        self._switches.add(name)

    def _write_files(self, host: Host) -> None:
        folder = host.hosts_file.parent
        folder.mkdir(parents=True)
        host.hosts_file.write_text(_LOCALHOST + self._known_names(host))
        (folder / "resolv.conf").write_text("")
        own = {"hostname": host.name, "machine-id": uuid.uuid4().hex}
        for name, text in own.items():
            if Path("/etc", name).exists():  # a bind mount needs something to cover
                (folder / name).write_text(f"{text}\n")
        host._boot_id.parent.mkdir(exist_ok=True)
        host._boot_id.write_text(f"{uuid.uuid4()}\n")

    def _known_names(self, host: Host) -> str:
        match self._hosts_mode:
            case "good":
                return "".join(f"{other.address} {other.name}\n" for other in self.hosts)
            case "debian":
                return f"127.0.1.1 {host.name}\n"
            case "selfonly":
                return f"{host.address} {host.name}\n"
            case "none":
                return ""

    def _remove(self) -> None:
        for host in self.hosts:
            for process in host._started:
                with process:  # closes its pipes and waits for it
                    process.kill()
        with ExitStack() as removals:  # one that fails does not keep the others from happening
            hosts = (host.namespace for host in self.hosts)
            for namespace in [self._bridge, f"{self._bridge}-boot", *hosts]:
                removals.callback(_remove_namespace, namespace)


def _ip(*argv: str) -> None:
    done = subprocess.run(["ip", *argv], capture_output=True, text=True, check=False)
    _raise_if_failed(done, "in the lab")


def _nft(namespace: str, family: str, chains: str) -> None:
    """Set the one table of a namespace, in place of what it was, in one step."""
    table = f"table {family} lab"
    text = f"{table}\ndelete {table}\n{table} {{\n{chains}}}\n"
    argv = ["ip", "netns", "exec", namespace, "nft", "--file", "-"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    _raise_if_failed(done, "in the lab")


def _lost(percent: float) -> str:
    """The condition of a rule that so many packets meet."""
    if percent >= 100:
        return ""
    return f"meta protocol {{ ip, ip6 }} numgen random mod 10000 < {round(percent * 100)}"


def _raise_if_failed(done: subprocess.CompletedProcess[str], where: str) -> None:
    try:
        done.check_returncode()
    except subprocess.CalledProcessError as error:
        add_note(error, f"{where}, output:\n{done.stdout}\nerrors:\n{done.stderr}")
        raise


def _swallow(host: Host, address: str, interface: str) -> None:
    # Frames to a hardware address that nobody has are lost like those behind a broken switch. A
    # blackhole route would instead fail the sender's own calls at once.
    neighbour = (address, "lladdr", _NOBODYS_MAC, "dev", interface, "nud", "permanent")
    _ip("-n", host.namespace, "neighbour", "replace", *neighbour)


def _remove_leftovers() -> None:
    if not _NETNS_RUN.is_dir():
        return
    known = [*_NETNS_RUN.iterdir(), *(_NETNS_ETC.iterdir() if _NETNS_ETC.is_dir() else ())]
    for namespace in {path.name for path in known if path.name.startswith(f"{_PREFIX}-")}:
        owner = namespace.split("-")[1]
        if not Path("/proc", owner).exists():
            _remove_namespace(namespace)


def _remove_namespace(namespace: str) -> None:
    """End what runs in a namespace, delete it and its files; another lab may do so as well."""
    _end_processes(namespace)
    if (_NETNS_RUN / namespace).exists():
        deleted = subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)
        if (_NETNS_RUN / namespace).exists():
            deleted.check_returncode()
    shutil.rmtree(_NETNS_ETC / namespace, ignore_errors=True)


def _end_processes(namespace: str) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while pids := _processes(namespace):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} in {namespace} outlive SIGKILL")
        time.sleep(0.01)


def _processes(namespace: str) -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]

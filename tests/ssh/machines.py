"""Emulated hosts with a real sshd on each, and a user on the first who may log in everywhere."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from tests.support.launching import RDZV, Launched, environment
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

SSHD = "/usr/sbin/sshd"
RUN = "r"
LIMIT_SECONDS = 100.0


class Machines:
    """Hosts h0, h1, ... whose names all of them know; h0 is the one where the user sits.

    Each host has a home folder of its own; all else of the file system is shared.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.hosts = lab.hosts
        self.state = folder / "state"
        self.config = folder / "ssh_config"
        self.known_hosts = folder / "known_hosts"
        self._folder = folder
        _make_key(folder / "user_key")
        for host in self.hosts:
            self.home(host).mkdir()
            _make_key(self._host_key(host))
            key = self._host_key(host).with_suffix(".pub").read_text()
            with self.known_hosts.open("a") as file:
                file.write(f"{host.name} {key}")
        self.config.write_text(
            f"IdentityFile {folder / 'user_key'}\nIdentitiesOnly yes\n"
            f"UserKnownHostsFile {self.known_hosts}\nGlobalKnownHostsFile /dev/null\n"
        )

    def home(self, host: Host) -> Path:
        """Where whoever logs in on the host has HOME."""
        return self._folder / f"home-{host.name}"

    def _host_key(self, host: Host) -> Path:
        return self._folder / f"key-{host.name}"

    def serve(self) -> None:
        """Start sshd on all hosts, and wait until it listens."""
        logs = [self._start_server(host) for host in self.hosts]
        for log in logs:
            until(partial(_listens, log))

    def _start_server(self, host: Host) -> Path:
        config, log = (self._folder / f"sshd-{host.name}{suffix}" for suffix in (".conf", ".log"))
        config.write_text(
            f"HostKey {self._host_key(host)}\n"
            f"AuthorizedKeysFile {self._folder}/user_key.pub\n"
            f"SetEnv HOME={self.home(host)} PATH={environment(self.state)['PATH']}\n"
            "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            "KbdInteractiveAuthentication no\nPidFile none\nMaxStartups 100\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with log.open("w") as file:
            argv = [SSHD, "-D", "-e", "-f", str(config)]
            host.start(argv, stdout=file)
        return log

    # --- launching ----------------------------------------------------------------------------

    def rdzv(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Call `rdzv` on h0 to its end."""
        return self.hosts[0].run([RDZV, *argv], env=environment(self.state), check=False)

    @property
    def ssh(self) -> list[str]:
        """What tells ssh where the user's keys are."""
        return ["--set", f"SSH_OPTIONS=-F {self.config}"]

    def launch(self, *options: str, command: Sequence[str]) -> Launched:
        """Launch on all hosts, from h0; programs come as they are and are no torchrun's."""
        names = ",".join(host.name for host in self.hosts)
        words = ["--rdzv-id", RUN, "--hostlist", names, *self.ssh, "--framework", "command"]
        process = self.hosts[0].start(
            [RDZV, "launch", *words, *options, "--", *command],
            env=environment(self.state),
            stdout=subprocess.PIPE,
        )
        return Launched(process, self.state, RUN)

    # --- looking ------------------------------------------------------------------------------

    def files(self, host: Host) -> list[str]:
        """What lies in a host's home folder."""
        home = self.home(host)
        return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())

    def worker_log(self, host: Host) -> str:
        """What the worker run on a host has said so far."""
        paths = list(self.home(host).glob(".local/state/rdzv/ssh/*.log"))
        return paths[0].read_text() if paths else ""

    def programs(self, host: Host) -> list[str]:
        """The names of what runs on a host beside sshd and what it serves connections with."""
        listed = subprocess.run(
            ["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=True
        )
        found = []
        for pid in listed.stdout.split():
            try:
                process = psutil.Process(int(pid))
                name, status = process.name(), process.status()
            except psutil.NoSuchProcess:
                continue
            if name != "sshd" and status != psutil.STATUS_ZOMBIE:
                found.append(name)
        return found

    def wait_until_idle(self) -> None:
        """Until nothing runs on any host; fails with what does."""
        left: list[str] = []

        def idle() -> bool:
            left[:] = [f"{p} on {host.name}" for host in self.hosts for p in self.programs(host)]
            return not left

        try:
            until(idle, LIMIT_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"still there: {left}") from error


def _listens(log: Path) -> bool:
    return "Server listening" in log.read_text()


@contextmanager
def served_machines(count: int, folder: Path) -> Iterator[Machines]:
    """So many hosts, with sshd on each."""
    with Lab(count, hosts_mode="good") as lab:
        made = Machines(lab, folder)
        made.serve()
        yield made


def _make_key(path: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)


@contextmanager
def command_lines() -> Iterator[set[bytes]]:
    """Every command line that any process has, of this machine and so of all its hosts."""
    seen: set[bytes] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for pid in os.listdir("/proc"):
                if pid.isdigit():
                    seen.add(_command_line(pid))

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield seen
    finally:
        over.set()
        watch.join()


def _command_line(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return b""

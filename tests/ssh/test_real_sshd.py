"""Emulated hosts with a real sshd on each, and a user on the first who may log in everywhere."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.support.canaries import Canaries, add_run, loose
from tests.support.launching import RDZV, Launched, environment
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

SSHD = "/usr/sbin/sshd"
RUN = "r"
LIMIT_SECONDS = 100.0

pytestmark = [
    pytest.mark.netns,
    pytest.mark.schedulers("ssh", "ssh-keygen", SSHD),
    pytest.mark.timeout(180),
]


class Machines:
    """Hosts h0, h1, ... whose names all of them know; h0 is the one where the user sits.

    Each host has a home folder of its own; all else of the file system is shared.

    Args:
        shells: The user's login shell, by the name of a host.
        limits: MaxStartups of sshd, likewise.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        *,
        shells: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
    ) -> None:
        self.lab = lab
        self._shells, self._limits = shells or {}, limits or {}
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
            "KbdInteractiveAuthentication no\nPidFile none\n"
            f"MaxStartups {self._limits.get(host.name, '100')}\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with log.open("w") as file:
            argv = [*self._with_shell(host), SSHD, "-D", "-e", "-f", str(config)]
            host.start(argv, stdout=file)
        return log

    def _with_shell(self, host: Host) -> list[str]:
        """What lets a command see another login shell of the user."""
        if host.name not in self._shells:
            return []
        passwd = self._folder / f"passwd-{host.name}"
        text = Path("/etc/passwd").read_text()
        passwd.write_text(re.sub(r"(?m)^(root:.*:).*", rf"\1{self._shells[host.name]}", text))
        return ["sh", "-c", f'mount --bind {passwd} /etc/passwd && exec "$@"', "sh"]

    def launch(self, *options: str, command: Sequence[str]) -> Launched:
        """Launch on all hosts, from h0; programs come as they are and are no torchrun's."""
        names = ",".join(host.name for host in self.hosts)
        words = ["--rdzv-id", RUN, "--hostlist", names, "--set", f"SSH_OPTIONS=-F {self.config}"]
        process = self.hosts[0].start(
            [RDZV, "launch", *words, "--framework", "command", *options, "--", *command],
            env=environment(self.state),
            stdout=subprocess.PIPE,
        )
        return Launched(process, self.state, RUN)

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
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(pid))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.name())
        return [name for name in found if name != "sshd"]

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
def served_machines(
    count: int,
    folder: Path,
    *,
    shells: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
) -> Iterator[Machines]:
    """So many hosts, with sshd on each."""
    with Lab(count, hosts_mode="good") as lab:
        made = Machines(lab, folder, shells=shells, limits=limits)
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
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.add(path.read_bytes())

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield seen
    finally:
        over.set()
        watch.join()


# ---- runs ---------------------------------------------------------------------------------------


JOIN = re.compile(rb"rdzv1-[\w-]{40}")


def gated(folder: Path) -> list[str]:
    """A program that says where it runs, and ends when the file `end` is there."""
    script = (
        f'echo "rank $NODE_RANK on $(hostname)"; until [ -e {folder}/end ]; do sleep 0.1; done; '
        'echo "rank $NODE_RANK ends"'
    )
    return ["sh", "-c", script]


def wait_for_programs(made: Machines) -> None:
    """Until the gated program runs on every host."""
    for host in made.hosts[1:]:
        until(partial(_runs_on, made, host), LIMIT_SECONDS)


def _runs_on(made: Machines, host: Host) -> bool:
    return f"on {host.name}" in made.worker_log(host)


def test_four_hosts_form_run_and_are_left_as_they_were(tmp_path: Path) -> None:
    with served_machines(4, tmp_path) as made, command_lines() as lines:
        launched = made.launch(command=gated(tmp_path))
        wait_for_programs(made)
        loose_files = [loose(made.home(host)) for host in made.hosts]
        canaries = Canaries()
        secret = bytes.fromhex((launched.folder / "secret").read_text())
        record = json.loads((launched.folder / "launch.json").read_text())
        add_run(canaries, secret, RUN, record["launch_id"], 4)
        in_files = [canaries.find_in_files(made.home(host)) for host in made.hosts]
        (tmp_path / "end").touch()
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
        logs = [made.worker_log(host) for host in made.hosts[1:]]
        files = [made.files(host) for host in made.hosts]
    assert outcome.code == 0, outcome.out
    assert "rank 0 on h0" in outcome.out
    for rank, log in enumerate(logs, 1):
        assert f"rank {rank} on h{rank}\n" in log
        assert log.endswith("\nrdzv: worker run ended with exit code 0\n")
    name = f"rdzv-{record['launch_id']}"
    assert files == [
        [],
        *(
            [
                f".local/state/rdzv/{RUN}/logs/node-{rank}.log",
                f".local/state/rdzv/{RUN}/logs/node-{rank}.log.index",
                f".local/state/rdzv/{RUN}/logs/node-{rank}/hostfile",
                f".local/state/rdzv/{RUN}/logs/node-{rank}/hostfile.mpich",
                f".local/state/rdzv/{RUN}/logs/node-{rank}/table.json",
                f".local/state/rdzv/ssh/{name}-{rank}-1.log",
            ]
            for rank in (1, 2, 3)
        ),
    ]
    assert loose_files == [[]] * 4
    assert in_files == [{}] * 4
    every_line = b"\n".join(lines)
    assert b"rdzv: worker run ended" in every_line  # it has seen what runs on the hosts
    assert canaries.find(every_line) == set()
    assert not JOIN.search(every_line)


def test_a_host_whose_key_is_unknown_is_refused(tmp_path: Path) -> None:
    with served_machines(3, tmp_path) as made:
        known = made.known_hosts.read_text().splitlines(keepends=True)
        made.known_hosts.write_text("".join(line for line in known if line[:3] != "h2 "))
        launched = made.launch("--submit-retries", "0", command=["sleep", "600"])
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
    assert outcome.code == 83, outcome.out
    said = "\n".join(outcome.out.strip().splitlines()[-2:])
    assert "'ssh' ended with exit code 255: Host key verification failed." in said
    assert "the key of h2 is not known here, or has changed" in said
    assert not re.search(r"^h2\b", made.known_hosts.read_text(), re.M)


def test_start_up_files_that_print_and_shells_that_are_not_posix(tmp_path: Path) -> None:
    """h1 greets without a line end; the user's shell on h2 is fish, on h3 it exits at once."""
    shells = {"h2": "/usr/bin/fish"} if Path("/usr/bin/fish").exists() else {}
    with served_machines(4, tmp_path, shells=shells) as made:
        (made.home(made.hosts[1]) / ".bashrc").write_text("printf 'Welcome to h1'\n")
        (made.home(made.hosts[3]) / ".bashrc").write_text("exit 0\n")
        launched = made.launch("--submit-retries", "0", command=["sleep", "600"])
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
        begun = [len(list(made.home(host).glob(".local/state/rdzv/ssh/*"))) for host in made.hosts]
    assert outcome.code == 83, outcome.out
    last = outcome.out.strip().splitlines()[-1]
    assert "'ssh' ended with 0, but gave no id of a worker run; it printed nothing; h3 did" in last
    assert "a start-up file of the shell there" in last
    assert "\"ssh h3 'echo ok'\" must print a line" in last
    assert begun == [0, 1, 1, 0]
    assert "could not be submitted" not in outcome.out


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_bastion_that_drops_connections_is_told_once(tmp_path: Path) -> None:
    """12 nodes behind a jump host, whose sshd takes two logins at a time."""
    with served_machines(14, tmp_path, limits={"h13": "2:100:2"}) as made:
        (tmp_path / "jump").write_text(made.config.read_text())
        gate, made.hosts = made.hosts[-1], made.hosts[:-1]
        jump = f"ProxyCommand ssh -F {tmp_path}/jump -W %h:%p {gate.name}\n"
        made.config.write_text(made.config.read_text() + jump)
        outcome = made.launch(command=["sleep", "10"]).finish(LIMIT_SECONDS)
        dropped = (tmp_path / f"sshd-{gate.name}.log").read_text()
        made.hosts.append(gate)
        made.wait_until_idle()
    assert outcome.code == 0, outcome.out
    assert "MaxStartups" in dropped
    assert outcome.out.count("from now on fewer connections are opened at a time") == 1
    assert outcome.out.count("could not be submitted yet") == 1


def test_a_launch_that_is_interrupted_ends_programs_that_do_not_listen(tmp_path: Path) -> None:
    stubborn = ["sh", "-c", 'trap "" TERM; echo "on $(hostname)"; while :; do sleep 0.1; done']
    with served_machines(3, tmp_path) as made:
        launched = made.launch("--grace", "1", command=stubborn)
        wait_for_programs(made)
        launched.signal(signal.SIGTERM)
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
    assert outcome.code == 128 + signal.SIGTERM, outcome.out


def test_followed_logs_leave_nothing_on_the_hosts_when_nobody_reads_on(tmp_path: Path) -> None:
    with served_machines(2, tmp_path) as made:
        launched = made.launch(command=gated(tmp_path))
        wait_for_programs(made)
        reader = made.hosts[0].start(
            # What a suite in the background of a shell starts is deaf to SIGINT like itself.
            ["env", "--default-signal=INT", RDZV, "logs", RUN, "--node", "1", "--follow"],
            env=environment(made.state),
            stdout=subprocess.PIPE,
        )
        assert reader.stdout is not None
        seen = iter(reader.stdout)
        assert any("rank 1 on h1" in line for line in seen)
        until(lambda: "tail" in made.programs(made.hosts[1]))
        reader.send_signal(signal.SIGINT)
        reader.communicate(timeout=LIMIT_SECONDS)
        until(lambda: "tail" not in made.programs(made.hosts[1]))
        (tmp_path / "end").touch()
        outcome = launched.finish(LIMIT_SECONDS)
        made.wait_until_idle()
    assert outcome.code == 0, outcome.out

"""Whole runs, after which no secret of theirs stands anywhere but where it belongs.

Everything that a run writes, prints and shows is searched for everything that it must keep to
itself: output, logs at DEBUG, the journal, previews, refusals of the registry, tracebacks, state
folders, and the arguments and environments of every process while it runs.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import JoinString, RegistryString, parse_group_token
from tests.support.canaries import Canaries, add_registry, add_run, command_of, forms, loose
from tests.support.launching import RDZV, environment
from tests.support.netlab import Lab
from tests.support.waiting import until
from worker.offer.ports import find_free

LIMIT_SECONDS = 100.0
DEBUG = {"RDZV_LOG_LEVEL": "debug", "RDZV_RECORD": "1"}

HOLDERS = {"secret", "registry.json", "key.pem", "credential"}
"""Files of a state folder that hold secrets, beside the scripts of worker runs."""

# Prints what it can see, as a curious program would, and waits to be let go.
PROGRAM = """
import os, pathlib, subprocess, sys, time
print(os.environ, sys.argv)
for pid in [os.getpid(), os.getppid()]:
    for name in ("cmdline", "environ"):
        print(pathlib.Path(f"/proc/{pid}/{name}").read_bytes())
print([(fd, os.readlink(f"/proc/self/fd/{fd}")) for fd in range(3, 64)
       if os.path.exists(f"/proc/self/fd/{fd}")])
print(subprocess.run(["env"], capture_output=True).stdout, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
if os.environ["NODE_RANK"] == "1":
    raise SystemExit("it failed")
time.sleep(60)
"""


@dataclass
class Scene:
    """The folder of a test, in which everything that its processes write comes to lie."""

    folder: Path
    canaries: Canaries = field(default_factory=Canaries)
    outputs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "tmp").mkdir()
        (self.folder / "program.py").write_text(PROGRAM)

    @property
    def go(self) -> Path:
        """Its coming lets the program of node 1 fail."""
        return self.folder / "go"

    def command(self, interpreter: Sequence[str] = (sys.executable,)) -> list[str]:
        """The program, as COMMAND."""
        return [*interpreter, str(self.folder / "program.py"), str(self.go)]

    def state(self, name: str) -> Path:
        """The folder of all runs of a host."""
        return self.folder / name

    def env(self, name: str, **more: str) -> dict[str, str]:
        """The environment on a host; everything temporary is kept, too."""
        return environment(self.state(name), TMPDIR=str(self.folder / "tmp"), **DEBUG, **more)

    def add_launch(self, state: Path, slots: int, run: str = "r") -> None:
        """Learn the secrets of a launch from its state folder."""
        path = state / run / "launch.json"
        until(lambda: path.exists() and (state / run / "secret").exists())
        record = json.loads(path.read_text())
        secret = bytes.fromhex((state / run / "secret").read_text())
        add_run(self.canaries, secret, run, record["launch_id"], slots)

    def look_at_processes(self, pids: Iterable[int]) -> None:
        """No process shows a secret, and no program has a file of rdzv open."""
        everyone = {pid for root in pids for pid in (root, *descendants(root))}
        assert self.canaries.find_in_processes(everyone) == {}
        opened = [name for pid in programs(pids) for name in open_files(pid)]
        ours = ("memfd:rdzv", "secret", "registry.json", "journal")
        assert [name for name in opened if any(word in name for word in ours)] == []

    def check(self) -> None:
        """No secret is in what was said, and in no file but its holders, which are private."""
        said = {name: self.canaries.find(text.encode()) for name, text in self.outputs.items()}
        assert {name: names for name, names in said.items() if names} == {}
        found = self.canaries.find_in_files(self.folder)
        strangers = {path: names for path, names in found.items() if not is_holder(path)}
        assert strangers == {}
        left = [path.name for path in (self.folder / "tmp").iterdir()]
        assert [name for name in left if not name.startswith("torchelastic_")] == []
        for state in self.folder.glob("h*"):
            assert loose(state) == []
        assert found, "the secrets are in the files that are there for them, and were found there"


def is_holder(path: str) -> bool:
    """Whether a file is there to hold secrets."""
    name = path.rpartition("/")[2]
    return name in HOLDERS or "/submissions/slot-" in path


def descendants(pid: int) -> list[int]:
    """Everything below a process."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def programs(pids: Iterable[int]) -> list[int]:
    """The training program's processes among the descendants."""
    below = [pid for root in pids for pid in descendants(root)]
    return [pid for pid in below if "program.py" in command_of(pid) and not is_ours(pid)]


def is_ours(pid: int) -> bool:
    """Whether it is a process of rdzv itself, which was given the COMMAND as arguments."""
    return "rdzv_command" in command_of(pid) or "keeper.py" in command_of(pid)


def open_files(pid: int) -> list[str]:
    """What the process has open beside its standard streams; while it goes on, so may they."""
    found = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                found += [os.readlink(f"/proc/{pid}/fd/{fd}")] if int(fd) > 2 else []
    return found


# The scanner itself


@pytest.mark.parametrize("number", range(8))
def test_the_scanner_finds_a_secret_in_each_of_its_coats(number: int) -> None:
    secret = new_secret()
    canaries = Canaries()
    canaries.add("it", secret)
    coat = list(forms(secret))[number]
    assert canaries.find(b"x" + coat + b"y") == {"it"}
    assert canaries.find(b"x" + coat[: len(coat) // 2 + 8] + b"y") == {"it"}, "the first half"
    other = list(forms(new_secret()))[number]
    assert canaries.find(b"x" + other + b"y") == set()


@pytest.mark.parametrize("before", range(4))
def test_the_scanner_finds_a_secret_inside_of_longer_base64(before: int) -> None:
    secret = new_secret()
    canaries = Canaries()
    canaries.add("it", secret)
    whole = b"z" * before + secret + b"more"
    assert canaries.find(base64.b64encode(whole)) == {"it"}
    assert canaries.find(base64.urlsafe_b64encode(whole)) == {"it"}


def test_the_scanner_finds_a_planted_leak_of_each_kind(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    secret = new_secret()
    scene.canaries.add("it", secret)
    word = secret.hex()
    path = tmp_path / "h0" / "r" / "logs" / "a.log"
    path.parent.mkdir(parents=True)
    path.write_text(f"joined with {word}\n")
    assert scene.canaries.find_in_files(tmp_path) == {"h0/r/logs/a.log": {"it"}}
    assert "h0/r/logs/a.log" not in HOLDERS
    assert "logs/a.log 644" in loose(tmp_path / "h0" / "r")
    for argv, env in ((["sleep", "60"], {"LEAK": word}), (["sh", "-c", f"sleep 60 # {word}"], {})):
        with subprocess.Popen(argv, env={**os.environ, **env}) as process:
            until(lambda: "sleep" in command_of(process.pid))
            with pytest.raises(AssertionError, match=f"{process.pid} "):
                scene.look_at_processes([os.getpid()])
            process.kill()
    with pytest.raises(AssertionError):
        scene.check()


# A run on hosts of its own, started by hand


class Hosts:
    """The hosts of a lab, with what runs on them."""

    def __init__(self, scene: Scene, lab: Lab) -> None:
        self.scene = scene
        self.lab = lab
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, host: int, argv: Sequence[str], **env: str) -> None:
        """Start a command; what it says is kept under this name."""
        self.running[name] = self.lab.hosts[host].start(
            argv, env=self.scene.env(f"h{host}", **env), stdout=subprocess.PIPE
        )

    def finish(self, name: str) -> int:
        """Wait for it."""
        process = self.running.pop(name)
        self.scene.outputs[name], _ = process.communicate(timeout=LIMIT_SECONDS)
        return process.returncode

    def run(self, name: str, host: int, argv: Sequence[str], code: int = 0, **env: str) -> str:
        """Run a command to its end."""
        self.start(name, host, argv, **env)
        assert self.finish(name) == code, self.scene.outputs[name]
        return self.scene.outputs[name]

    def pids(self) -> list[int]:
        """Of all that runs."""
        return [process.pid for process in self.running.values()]


@pytest.mark.netns
@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_run_by_hand_leaks_nothing(tmp_path: Path) -> None:
    """Nor what is refused, nor the traceback of a fault."""
    scene = Scene(tmp_path)
    (tmp_path / "program.py").chmod(0o700)
    script, state = scene.folder / "other.sh", scene.state("h0")
    with Lab(2, hosts_mode="debian") as lab:
        hosts = Hosts(scene, lab)
        words = ("--rdzv-id", "r", "--scheduler", "manual", "--nnodes", "2", "--grace", "2")
        command = [RDZV, "launch", *words, "--framework", "command"]
        hosts.run("dry run", 0, [*command, "--dry-run", "--", *scene.command(())])
        assert "RDZV_JOIN-hidden" in scene.outputs["dry run"]
        hosts.start("launch", 0, [*command, "--", *scene.command(())])
        scene.add_launch(state, 2)
        submission = state / "r" / "submissions" / "slot-1.sh"
        until(submission.exists)
        text = submission.read_text()
        word = text.split("RDZV_JOIN=")[1].split()[0]
        scene.canaries.add_text("join string", word)
        join = JoinString.parse(word)
        forged = replace(join, token=replace(join.token, secret=new_secret()), row_key=new_secret())

        def start_changed(name: str, old: str, new: str, code: int) -> None:
            """Slot 1's script with something else in it, to its end."""
            assert old in text
            script.write_text(text.replace(old, new))
            hosts.run(name, 1, ["sh", str(script)], code)
            script.unlink()

        start_changed("stranger", word, forged.text(), 77)
        start_changed("cut", word, word[:-7], 2)
        for line in ("status r", "status r --json", f"replay {state}/r/journal.sqlite"):
            hosts.run(line, 0, [RDZV, *line.split()])
        start_changed("fault", "exec ", "ulimit -n 13; exec ", 70)
        assert hosts.finish("launch") == 70, scene.outputs["launch"]
    assert "Traceback" in scene.outputs["fault"]
    scene.check()


@pytest.mark.netns
@pytest.mark.faults
@pytest.mark.timeout(120)
def test_a_symmetric_start_leaks_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    token = subprocess.run([RDZV, "token", "new"], capture_output=True, text=True, check=True)
    text = token.stdout.strip()
    secret = parse_group_token(text)
    scene.canaries.add("group secret", secret)
    scene.canaries.add_text("group token", text)
    command = [RDZV, "launch", "--framework", "command", "--grace", "2", "--"]
    command += scene.command()
    with Lab(2, hosts_mode="selfonly") as lab:
        hosts = Hosts(scene, lab)
        env = {
            "RDZV_ID": "r",
            "RDZV_TOKEN": text,
            "NUM_NODES": "2",
            "MASTER_ADDR": lab.hosts[0].address,
        }
        hosts.run("cut", 1, command, 2, NODE_RANK="1", **(env | {"RDZV_TOKEN": text[:-3]}))
        dry = [*command[:2], "--dry-run", *command[2:]]
        hosts.run("dry run", 0, dry, 0, NODE_RANK="0", **env)
        hosts.start("node 0", 0, command, NODE_RANK="0", **env)
        scene.add_launch(scene.state("h0"), 2)
        hosts.start("node 1", 1, command, NODE_RANK="1", **env)
        until(lambda: len(programs(hosts.pids())) >= 2, 60)
        scene.look_at_processes(hosts.pids())
        scene.go.touch()
        assert hosts.finish("node 0") == 1, scene.outputs["node 0"]
        assert hosts.finish("node 1") == 1, scene.outputs["node 1"]
    assert "checksum does not fit" in scene.outputs["cut"]
    scene.check()


# On this machine, with a standing registry


@pytest.mark.real_time
@pytest.mark.timeout(300)
def test_a_standing_registry_and_its_launches_leak_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    # Each process of the tests has ports of its own, which no connection gets by chance.
    port = str(find_free(20_000 + os.getpid() % 1_000 * 10))
    serve = [RDZV, "serve", "--port", port, "--listen", "127.0.0.1"]
    options = ("--rdzv-id", "r", "--nnodes", "2", "--grace", "2", "--framework", "command")
    log = (tmp_path / "serve.log").open("w")
    with log, subprocess.Popen(serve, env=scene.env("h9"), stderr=log, umask=0) as registry:
        credential = until(lambda: next(iter((tmp_path / "h9").rglob("credential")), None))
        text = until(credential.read_text).strip()
        scene.canaries.add_text("registry string", text)
        standing = bytes.fromhex((credential.parent / "secret").read_text())
        add_registry(scene.canaries, standing)
        scene.canaries.add("operator", RegistryString.parse(text).credential.secret)
        command = [RDZV, "launch", *options, "--", *scene.command()]
        env = scene.env("h0", RDZV_REGISTRY=text)
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        with subprocess.Popen(
            command, env=env, stdout=pipe, stderr=both, text=True, umask=0
        ) as launch:
            scene.add_launch(scene.state("h0"), 2)
            until(lambda: len(programs([launch.pid])) >= 2)
            scene.look_at_processes([launch.pid, registry.pid])
            for words in (("status", "r"), ("cancel", "r", "--reason", "enough")):
                done = subprocess.run(
                    [RDZV, *words], env=scene.env("h0"), capture_output=True, text=True, check=True
                )
                scene.outputs[words[0]] = done.stdout + done.stderr
            scene.outputs["launch"], _ = launch.communicate(timeout=LIMIT_SECONDS)
            registry.send_signal(signal.SIGTERM)
    assert launch.returncode == 84, scene.outputs["launch"]
    scene.check()

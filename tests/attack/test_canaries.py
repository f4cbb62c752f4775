"""Whole runs, after which no secret of theirs stands anywhere but where it belongs.

Everything that a run writes, prints and shows is searched for everything that it must keep to
itself: output, logs at DEBUG, the journal, previews, refusals of the registry, tracebacks, state
folders, and the arguments and environments of every process while it runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import JoinString, RegistryString, parse_group_token
from tests.support.canaries import Canaries, add_registry, add_run, command_of, loose
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
    """The folder of a test, in which everything that its processes write or say comes to lie."""

    folder: Path
    canaries: Canaries = field(default_factory=Canaries)
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    lab: Lab | None = None
    """The hosts on which commands run; else they run on this machine."""

    @property
    def go(self) -> Path:
        """Its coming lets the program of node 1 fail."""
        return self.folder / "go"

    def command(self, interpreter: Sequence[str] = (sys.executable,)) -> list[str]:
        """The program, as COMMAND."""
        return [*interpreter, str(self.folder / "program.py"), str(self.go)]

    def state(self, host: int) -> Path:
        """The folder of all runs of a host."""
        return self.folder / f"h{host}"

    def start(self, name: str, host: int, argv: Sequence[str], **env: str) -> None:
        """Start a command; what it says is kept under this name."""
        tmp = {"TMPDIR": str(self.folder / "tmp")}  # what is temporary is kept, too
        given = environment(self.state(host), **DEBUG, **tmp, **env)
        with (self.folder / f"{name}.out").open("w") as out:
            if self.lab is not None:
                process = self.lab.hosts[host].start(argv, env=given, stdout=out)
            else:
                process = subprocess.Popen(
                    argv, env=given, stdout=out, stderr=subprocess.STDOUT, umask=0, text=True
                )
        self.running[name] = process

    def finish(self, name: str) -> int:
        """Wait for it."""
        return self.running.pop(name).wait(LIMIT_SECONDS)

    def run(self, name: str, host: int, argv: Sequence[str], code: int = 0, **env: str) -> None:
        """Run a command to its end."""
        self.start(name, host, argv, **env)
        assert self.finish(name) == code, self.said(name)

    def said(self, name: str) -> str:
        """What a command has said."""
        return (self.folder / f"{name}.out").read_text()

    def pids(self) -> list[int]:
        """Of all that runs."""
        return [process.pid for process in self.running.values()]

    def add_launch(self) -> None:
        """Learn the secrets of the launch of two nodes from its state folder on host 0."""
        state = self.state(0) / "r"
        until(lambda: (state / "launch.json").exists() and (state / "secret").exists())
        record = json.loads((state / "launch.json").read_text())
        secret = bytes.fromhex((state / "secret").read_text())
        add_run(self.canaries, secret, "r", record["launch_id"], 2)

    def look_at_processes(self, pids: Iterable[int]) -> None:
        """No process shows a secret, and no program has a file of rdzv open."""
        everyone = {pid for root in pids for pid in (root, *descendants(root))}
        assert self.canaries.find_in_processes(everyone) == {}
        opened = [name for pid in programs(pids) for name in open_files(pid)]
        ours = ("memfd:rdzv", "secret", "registry.json", "journal")
        assert [name for name in opened if any(word in name for word in ours)] == []

    def check(self) -> None:
        """No secret was said, or is in a file but its holders, which are private."""
        found = self.canaries.find_in_files(self.folder)
        strangers = {path: names for path, names in found.items() if not is_holder(path)}
        assert strangers == {}
        left = [path.name for path in (self.folder / "tmp").iterdir()]
        assert [name for name in left if not name.startswith("torchelastic_")] == []
        for state in self.folder.glob("h?"):
            assert loose(state) == []
        assert found, "the secrets are in the files that are there for them, and were found there"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """One in which nothing has happened."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "program.py").write_text(PROGRAM)
    made = Scene(tmp_path)
    yield made
    for process in made.running.values():
        process.kill()
        process.wait()


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


def test_the_scanner_finds_a_planted_leak_of_each_kind(scene: Scene) -> None:
    secret, tmp_path = new_secret(), scene.folder
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


# Whole runs: by hand and symmetric on hosts of their own, and with a standing registry


@pytest.mark.netns
@pytest.mark.faults
@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_a_run_by_hand_leaks_nothing(scene: Scene) -> None:
    """Nor what is refused, nor what a limit of the machine ends."""
    program = scene.folder / "program.py"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}")  # it runs: the fault alone ends the run
    program.chmod(0o700)
    script, state = scene.folder / "other.sh", scene.state(0) / "r"
    words = ("--rdzv-id", "r", "--scheduler", "manual", "--nnodes", "2", "--grace", "2")
    command = [RDZV, "launch", *words, "--framework", "command"]
    with Lab(2, hosts_mode="debian") as scene.lab:
        scene.run("dry run", 0, [*command, "--dry-run=full", "--", *scene.command(())])
        assert "RDZV_JOIN-hidden" in scene.said("dry run")
        scene.start("launch", 0, [*command, "--", *scene.command(())])
        scene.add_launch()
        until((submission := state / "submissions" / "slot-1.sh").exists)
        text = submission.read_text()
        word = text.split("RDZV_JOIN=")[1].split()[0]
        scene.canaries.add_text("join string", word)
        join = JoinString.parse(word)
        forged = replace(join, token=replace(join.token, secret=new_secret()), row_key=new_secret())

        def start_changed(name: str, old: str, new: str, code: int) -> None:
            """Slot 1's script with something else in it, to its end."""
            assert old in text
            script.write_text(text.replace(old, new))
            scene.run(name, 1, ["sh", str(script)], code)
            script.unlink()

        start_changed("stranger", word, forged.text(), 77)
        start_changed("cut", word, word[:-7], 64)
        for line in ("status r", "status r --json", f"replay {state}/journal.sqlite"):
            scene.run(line.partition("/")[0], 0, [RDZV, *line.split()])
        start_changed("fault", "exec ", "ulimit -n 15; exec ", 82)
        assert scene.finish("launch") == 82, scene.said("launch")
    assert "no more files can be opened" in scene.said("fault")
    scene.check()


@pytest.mark.netns
@pytest.mark.faults
@pytest.mark.timeout(120)
@pytest.mark.nightly
def test_a_symmetric_start_leaks_nothing(scene: Scene) -> None:
    token = subprocess.run([RDZV, "token", "new"], capture_output=True, text=True, check=True)
    text = token.stdout.strip()
    scene.canaries.add("group secret", parse_group_token(text))
    scene.canaries.add_text("group token", text)
    command = [RDZV, "launch", "--framework", "command", "--grace", "2"]
    program = ["--", *scene.command()]
    with Lab(2, hosts_mode="selfonly") as scene.lab:
        env = {"RDZV_ID": "r", "NUM_NODES": "2", "MASTER_ADDR": scene.lab.hosts[0].address}
        nodes = [env | {"RDZV_TOKEN": text, "NODE_RANK": str(rank)} for rank in (0, 1)]
        scene.run("cut", 1, [*command, *program], 64, **nodes[1] | {"RDZV_TOKEN": text[:-3]})
        scene.run("dry run", 0, [*command, "--dry-run=full", *program], 0, **nodes[0])
        scene.start("node 0", 0, [*command, *program], **nodes[0])
        scene.add_launch()
        scene.start("node 1", 1, [*command, *program], **nodes[1])
        until(lambda: len(programs(scene.pids())) >= 2, 60)
        scene.look_at_processes(scene.pids())
        scene.go.touch()
        for name in ("node 0", "node 1"):
            assert scene.finish(name) == 1, scene.said(name)
    assert "checksum does not match" in scene.said("cut")
    scene.check()


@pytest.mark.real_time
@pytest.mark.timeout(300)
def test_a_standing_registry_and_its_launches_leak_nothing(scene: Scene) -> None:
    # Each process of the tests has ports of its own, which no connection gets by chance.
    port = str(find_free(20_000 + os.getpid() % 1_000 * 10))
    scene.start("serve", 9, [RDZV, "serve", "--port", port, "--listen", "127.0.0.1"])
    credential = until(lambda: next(iter(scene.state(9).rglob("credential")), None))
    text = until(credential.read_text).strip()
    scene.canaries.add_text("registry string", text)
    add_registry(scene.canaries, bytes.fromhex((credential.parent / "secret").read_text()))
    scene.canaries.add("operator", RegistryString.parse(text).credential.secret)
    options = ("--rdzv-id", "r", "--nnodes", "2", "--grace", "2", "--framework", "command")
    command = [RDZV, "launch", *options, "--", *scene.command()]
    scene.start("launch", 0, command, RDZV_REGISTRY=text)
    scene.add_launch()
    until(lambda: len(programs(scene.pids())) >= 2)
    scene.look_at_processes(scene.pids())
    for line in ("status r", "cancel r --reason enough"):
        scene.run(line, 0, [RDZV, *line.split()])
    assert scene.finish("launch") == 84, scene.said("launch")
    scene.running["serve"].terminate()
    scene.finish("serve")
    scene.check()

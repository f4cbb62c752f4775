"""Programs that fail and start again, over and over: nothing of it is left, and nothing grows."""

from __future__ import annotations

import itertools
import os
import random
import re
import signal
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from launcher.state.state_dir import StateDir
from tests.support.cluster import Cluster
from tests.support.launching import RDZV, Outcome, environment, lives, processes_with
from tests.support.netlab import Lab
from tests.support.waiting import until

# What each node runs: a parent as torchrun is one, and a worker that does what its pipe tells it.
# No process is started while it waits, so that many of them leave the machine to the agents.
PROGRAM = """
folder=$1 rank=$NODE_RANK
test $rank != 0 || echo $RDZV_EPOCH > $folder/step
while :; do
  read -r what code words < $folder/pipe-$rank
  case $what in
    exit) echo "$words"; exit $code;;
    deaf) trap '' TERM
      setsid sh -c "trap '' TERM; : > $folder/deaf-$rank; while :; do sleep 1; done" $folder &;;
  esac
done &
echo $RDZV_EPOCH $$ $! > $folder/up-$rank
wait $!
exit $?
"""
KINDS = ("exit", "worker", "parent", "deaf", "two", "again", "exit", "worker", "parent")
RARE = ("registry", "exit")
"""What each round has beside those, in turn: a registry that ends 5 times in 30 s ends its run."""
WORDS = ("CUDA out of memory", "Killed", "the loss is not a number", "RuntimeError: NCCL error")
GRACE = 1
WARM, LATE = (60, 75), 10
"""The epochs in which the memory is as large as it gets, as each node has failed in most ways and
imported what it needs for that, and each of the rare kinds has happened twice; and how many at the
end are compared."""

pytestmark = [pytest.mark.faults, pytest.mark.netns]


class Written(Cluster):
    """A cluster that writes what it says into files: a pipe that nobody reads would fill up."""

    def start(self, host: int, argv: list[str], **env: str) -> subprocess.Popen[str]:
        """See the base class."""
        env = environment(self.state(host), TMPDIR=str(self.folder / "t"), **env)
        with self._said(host).open("a") as said:
            return self.lab.hosts[host].start(argv, env=env, stdout=said)

    def _said(self, host: int) -> Path:
        return self.folder / f"said-{host}"

    def finish(self, seconds: float = 60.0, workers: float = 40.0) -> Outcome:
        """See the base class."""
        code = self.launcher.wait(seconds)
        self.told = {}
        for host, worker in self.workers.items():
            worker.wait(workers)
            self.told[host] = self._said(host).read_text()
        return Outcome(code, "", self._said(0).read_text())


@dataclass(frozen=True)
class Use:
    """What a process of rdzv's has taken. Its `pss` is less while other runs share its libraries:
    that is shown, and `uss`, what it shares with nobody, is judged."""

    rss: int
    pss: int
    uss: int
    files: int
    threads: int


@dataclass
class Crowd:
    """A run whose programs are hurt, one epoch after the other."""

    run: Cluster
    folder: Path
    chance: random.Random
    epoch: int = 0
    counted: int = 0
    up: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of each rank, the processes of its program: parent and worker."""
    uses: dict[str, list[Use]] = field(default_factory=dict)

    @property
    def ranks(self) -> range:
        """Of all nodes."""
        return range(len(self.run.lab.hosts))

    def wait_for_all(self) -> None:
        """Until all programs of the next epoch run, and none of those before."""
        former = self.up

        def look() -> bool:
            self.tend()
            if (code := self.run.launcher.poll()) is not None:
                raise AssertionError(f"it ended with {code}: {self.run.finish().err}")
            said = [self._said(rank) for rank in self.ranks]
            if any(len(words) != 3 or words[0] <= self.epoch for words in said):
                return False
            [self.epoch] = {words[0] for words in said}
            self.up = {rank: (words[1], words[2]) for rank, words in enumerate(said)}
            return True

        until(look, 60)
        assert not [pid for pids in former.values() for pid in pids if lives(pid)]

    def tend(self) -> None:
        """What whoever starts the worker runs does meanwhile."""

    def settle(self) -> None:
        """Wait, in the last epoch, until nothing is on its way."""

    def _said(self, rank: int) -> list[int]:
        path = self.folder / f"up-{rank}"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def tell(self, rank: int, line: str) -> None:
        """Have the worker of a node do something, once it listens."""

        def write() -> bool:
            try:
                pipe = os.open(self.folder / f"pipe-{rank}", os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # nobody has opened it to read
                return False
            with open(pipe, "w") as file:
                file.write(f"{line}\n")
            return True

        until(write)

    def fail(self, rank: int) -> None:
        """The program of a node ends with some code and words."""
        code = self.chance.choice([1, 3, 77, 134, 139])
        self.tell(rank, f"exit {code} {self.chance.choice(WORDS)} {self.chance.random()}")

    def hurt(self, kind: str) -> None:
        """Do one thing after which all programs are started again."""
        one, other = self.chance.sample(self.ranks, 2)
        self.counted += kind != "again"
        match kind:
            case "worker" | "parent":
                os.kill(self.up[one][kind == "worker"], signal.SIGKILL)
            case "deaf":
                self.tell(other, "deaf")
                until((self.folder / f"deaf-{other}").exists)
                (self.folder / f"deaf-{other}").unlink()
                self.fail(one)
            case "two":
                self.fail(one)
                self.fail(other)
            case "again":
                argv = [RDZV, "restart", "r"]
                self.run.lab.hosts[0].run(argv, env=environment(self.run.state(0)))
            case "registry":  # before the failure, or while it is dealt with
                before = self.chance.random() < 0.5
                registry = self.run.registry()
                if before:
                    registry.kill()
                self.fail(one)
                if not before:
                    registry.kill()
            case _:
                self.fail(one)

    def look(self) -> None:
        """Keep what the processes of rdzv's take now."""
        for name, process in self.processes():
            with process.oneshot():
                memory = process.memory_full_info()
                use = Use(
                    memory.rss, memory.pss, memory.uss, process.num_fds(), process.num_threads()
                )
            self.uses.setdefault(name, []).append(use)

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """The launcher, the registry and the agents."""
        yield "launcher", psutil.Process(self.run.launcher.pid)
        yield "registry", self.run.registry()
        for rank, (pid, _) in self.up.items():
            yield f"agent {rank}", psutil.Process(pid).parents()[1]  # above its keeper


def plan(
    epochs: int,
    chance: random.Random,
    usual: Sequence[str] = KINDS,
    rare: Sequence[str] = RARE,
) -> list[str]:
    """What happens in each epoch."""
    kinds: list[str] = []
    for one in itertools.cycle(rare):
        kinds += chance.sample((*usual, one), len(usual) + 1)
        if len(kinds) >= epochs:
            break
    return kinds[:epochs]


def ports(run: Cluster) -> list[str]:
    """What listens on the hosts."""
    hosts = run.lab.hosts
    return [line for host in hosts for line in host.run(["ss", "-Hltn"]).stdout.splitlines()]


DOCUMENTED = re.compile(
    r"lock|secret|key\.pem|certificate\.(der|pem)|journal\.sqlite|submissions/slot-\d\.sh"
    r"|(launch|machines|registry|report|result|status|table)\.json|run\.toml|worker-runs\.jsonl"
    r"|logs/(agent-\d|registry|node-\d(\.e\d+)?)\.log(\.index)?"
    r"|logs/node-\d/(hostfile|hostfile\.mpich|table\.json)|last-words/epoch-\d+/node-\d\.txt"
)


def left_behind(run: Cluster) -> list[str]:
    """Files of the run that docs/state.md does not name."""
    folders = [run.state(rank) / "r" for rank in range(len(run.lab.hosts))]
    found = [path.relative_to(one) for one in folders for path in one.rglob("*") if path.is_file()]
    return [str(path) for path in found if not DOCUMENTED.fullmatch(str(path))]


def grown(uses: list[Use]) -> dict[str, tuple[float, float]]:
    """What is larger by over 5 % and by more than 2 than it was after the first epochs.

    One file or thread more or less is of the moment; a leak has one more with each epoch.
    """
    found = {}
    for name in ("rss", "uss", "files", "threads"):
        values = [getattr(use, name) for use in uses]
        warm, late = (statistics.median(part) for part in (values[slice(*WARM)], values[-LATE:]))
        if late > max(1.05 * warm, warm + 2):
            found[name] = (warm, late)
    return found


def used(run: Cluster) -> int:
    """How many restarts the run counts."""
    result = StateDir(run.state(0), "r").result()
    assert result is not None
    numbers = (re.match(r"restart (\d+) of", epoch.then) for epoch in result.epochs)
    return max(int(number[1]) for number in numbers if number)


def made_ready(folder: Path, nodes: int) -> list[str]:
    """COMMAND of a crowd in this folder."""
    (folder / "t").mkdir()
    (folder / "program").write_text(PROGRAM)
    for rank in range(nodes):
        os.mkfifo(folder / f"pipe-{rank}")
    return ["sh", str(folder / "program"), str(folder)]


def hurt_all_along(crowd: Crowd, kinds: Sequence[str]) -> Outcome:
    """One fault in each epoch, until the programs of the last one end well."""
    for kind in kinds:
        crowd.wait_for_all()
        crowd.look()
        crowd.hurt(kind)
    crowd.wait_for_all()
    crowd.settle()
    named = ["rdzv" in host.hosts_file.read_text() for host in crowd.run.lab.hosts]
    assert sum(named) >= len(crowd.ranks)  # a standby may know no names yet
    for rank in crowd.ranks:
        crowd.tell(rank, "exit 0")
    return crowd.run.finish()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_nothing_is_left_of_many_epochs(tmp_path: Path) -> None:
    nodes, epochs = 6, 200
    options = ["--framework", "command", "--max-restarts", "1000", "--grace", str(GRACE)]
    options += ["--hosts", "require", "--progress-file", str(tmp_path / "step")]
    command = made_ready(tmp_path, nodes)
    with Lab(nodes) as lab:
        before = [host.hosts_file.read_bytes() for host in lab.hosts]
        run = Written(lab, tmp_path, *options, command=command)
        run.start_workers()
        crowd = Crowd(run, tmp_path, random.Random(17))
        outcome = hurt_all_along(crowd, plan(epochs, crowd.chance))
        until(lambda: not [pid for host in lab.hosts for pid in host.pids()])
        assert ports(run) == []
        assert [host.hosts_file.read_bytes() for host in lab.hosts] == before
    assert (outcome.code, used(run)) == (0, crowd.counted), outcome.err
    assert [worker.returncode for worker in run.workers.values()] == [0] * (nodes - 1)
    assert StateDir(run.state(0), "r").ledger.left() == []
    assert (processes_with(str(tmp_path)), left_behind(run)) == ([], [])
    assert [*(tmp_path / "t").iterdir()] == []
    for name, uses in crowd.uses.items():
        print(name, *uses[:: len(uses) // 10], sep="\n  ")
    assert {n: g for n, uses in crowd.uses.items() if (g := grown(uses))} == {}

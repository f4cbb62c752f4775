"""Nodes that are lost over and over: nothing of them is left, and nothing grows.

As in test_many_epochs.py; beside what fails there, agents are killed and hosts fall silent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from launcher.state.state_dir import StateDir
from tests.faults.test_many_epochs import (
    GRACE,
    LATE,
    WARM,
    Crowd,
    Written,
    grown,
    hurt_all_along,
    left_behind,
    made_ready,
    plan,
    ports,
    used,
)
from tests.support.launching import RDZV, environment, processes_with
from tests.support.netlab import Host, Lab
from tests.support.waiting import until

KINDS = ("exit", "worker", "deaf", "again", "agent", "agent", "both", "two agents", "agent")
RARE = ("silent", "registry", "registry and agent")
LEASE, FENCE = 5, 8
EPOCHS = 120

pytestmark = [pytest.mark.faults, pytest.mark.netns]


@dataclass
class Losing(Crowd):
    """A crowd with a standby, which loses nodes as well; slot 0 is the launcher's own."""

    losses: int = 0
    generations: dict[int, int] = field(default_factory=dict)
    silent: Host | None = None

    @property
    def ranks(self) -> range:
        """Of all nodes but the standby."""
        return range(len(self.run.lab.hosts) - 1)

    def hurt(self, kind: str) -> None:
        """See the base class."""
        if kind not in ("agent", "both", "two agents", "silent", "registry and agent"):
            super().hurt(kind)
            return
        if kind in ("both", "two agents"):
            self.settle()
        one, other = self.chance.sample(self.ranks[1:], 2)
        victims = [self.agent(one)]
        match kind:
            case "both":  # no standby is left
                victims += self.standbys()
                assert len(victims) == 2
            case "two agents":  # for one of which a standby is there
                victims.append(self.agent(other))
            case "silent":
                host = next(h for h in self.run.lab.hosts if victims[0].pid in h.pids())
                self.run.lab.lose(host, 100)
                self.silent, victims = host, []
            case "registry and agent":
                victims.append(self.run.registry())
        self.losses += 1 + (kind == "two agents")
        self.chance.shuffle(victims)
        for victim in victims:
            victim.kill()

    def processes(self) -> Iterator[tuple[str, psutil.Process]]:
        """See the base class; a rank has one agent after the other."""
        for name, process in super().processes():
            is_other = name.startswith("agent ") and name != "agent 0"
            yield (f"{name}, pid {process.pid}" if is_other else name), process

    def agent(self, rank: int) -> psutil.Process:
        """The agent of a rank: above the keeper of its program."""
        return psutil.Process(self.up[rank][0]).parents()[1]

    def standbys(self) -> list[psutil.Process]:
        """The agents that have no number."""
        busy = {self.agent(rank).pid for rank in self.ranks}
        shells = [one for one in self.run.workers.values() if one.poll() is None]
        own = [psutil.Process(one.pid) for one in shells]
        agents = [one for shell in own for one in (shell, *shell.children(recursive=True))]
        return [one for one in agents if "worker" in one.cmdline() and one.pid not in busy]

    def wait_for_all(self) -> None:
        """See the base class; only then a host that fell silent comes back."""
        super().wait_for_all()
        if self.silent is not None:
            self.run.lab.lose(self.silent, 0)
            self.silent = None

    def tend(self) -> None:
        """Start what was submitted again, each where its slot's former worker run has ended."""
        for slot, worker in self.run.workers.items():
            newer = self.generations.get(slot, 1) + 1
            script = self.run.state(0) / "r" / "submissions" / f"slot-{slot}.sh"
            there = script.exists() and f"-{slot}-{newer} " in script.read_text()
            if there and worker.poll() is not None:
                self.generations[slot] = newer
                self.run.workers[slot] = self.run.start(slot, ["sh", str(script)])

    def settle(self) -> None:
        """Until the standby is there."""

        def look() -> bool:
            self.tend()
            argv = [RDZV, "status", "r", "--json"]
            said = self.run.lab.hosts[0].run(argv, env=environment(self.run.state(0))).stdout
            states = [slot["node_state"] for slot in json.loads(said)["slots"]]
            return "standby" in states

        until(look, 60)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_nothing_is_left_of_many_losses(tmp_path: Path) -> None:
    nodes = 6
    chance = random.Random(21)
    options = ["--framework", "command", "--max-restarts", "1000", "--grace", str(GRACE)]
    options += ["--hosts", "require", "--progress-file", str(tmp_path / "step")]
    options += ["--nnodes", str(nodes), "--standby", "1", "--on-node-loss", "replace"]
    options += ["--max-replacements", "1000", "--lease", str(LEASE), "--fence-timeout", str(FENCE)]
    command = made_ready(tmp_path, nodes)
    with Lab(nodes + 1) as lab:
        before = [host.hosts_file.read_bytes() for host in lab.hosts]
        run = Written(lab, tmp_path, *options, command=command)
        run.start_workers()
        crowd = Losing(run, tmp_path, chance)
        outcome = hurt_all_along(crowd, plan(EPOCHS, chance, KINDS, RARE))
        until(lambda: not [pid for host in lab.hosts for pid in host.pids()])
        assert ports(run) == []
        assert [host.hosts_file.read_bytes() for host in lab.hosts] == before
    result = StateDir(run.state(0), "r").result()
    assert result is not None
    assert outcome.code == 0, outcome.err
    assert (used(run), result.replacements) == (crowd.counted, crowd.losses)
    assert [worker.returncode for worker in run.workers.values()] == [0] * nodes
    assert StateDir(run.state(0), "r").ledger.left() == []
    assert (processes_with(str(tmp_path)), left_behind(run)) == ([], [])
    assert [*(tmp_path / "t").iterdir()] == []
    for name, uses in crowd.uses.items():
        print(name, len(uses), *uses[:: len(uses) // 10 or 1], sep="\n  ")
    long = {name: uses for name, uses in crowd.uses.items() if len(uses) > WARM[1] + LATE}
    assert {"launcher", "registry", "agent 0"} <= long.keys()
    assert {name: g for name, uses in long.items() if (g := grown(uses))} == {}

"""The launch that ships, in a simulated process and outer world, with real files of its state."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.plan.plan import Plan, WorkerRun
from launcher.prepare.environment import Child, LaunchEnvironment, Socket
from launcher.run.command import launch
from launcher.schedulers.contract import Scheduler, SchedulerContext
from launcher.settings import LaunchSettings
from launcher.show.board import Board
from launcher.state.ledger import Ledger, LedgerEntry
from launcher.state.state_dir import StateDir
from launcher.symmetric.start import symmetric_join
from rendezvous.channel import Published
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    RegistryString,
    group_token_text,
    parse_group_token,
)
from rendezvous.wire.errors import ExitCode, RdzvError, UsageError
from rendezvous.wire.run import EventLine, NodeState, Phase, Result, RunSpec, RunStatus
from tests.simulation.agent_promises import ORPHAN_SECONDS
from tests.simulation.agents import GRACE_SECONDS
from tests.simulation.network import ADDRESSES, BESIDE, PORT, place_of
from tests.simulation.registry import OPERATOR, Identity
from tests.simulation.schedule import Launch
from tests.simulation.scheduler import SimulatedChildren
from tests.support.virtual_time import Machine

if TYPE_CHECKING:
    from tests.simulation.world import World

_VERIFY_SECONDS = 12.0
_FORMER, _OTHER = "manual", "slurm"
"""The schedulers of a launch, and of another one that is launched after it."""
_THERE = (NodeState.JOINED, NodeState.VERIFIED, NodeState.ARMED, NodeState.RUNNING)


class Broken(Exception):
    """What nobody expected of a part."""


def _of_losses(launch: Launch) -> dict[str, object]:
    """What a person gives with `--on-node-loss`."""
    return {
        "on_node_loss": launch.on_node_loss,
        "standby": launch.standby,
        "max_replacements": launch.max_replacements,
        "fence_timeout": launch.fence,
    }


def group_token(index: int) -> str:
    return group_token_text(hashlib.sha256(b"group %d" % index).digest())


def join_by_token(launch: Launch, index: int, slot: int) -> JoinString:
    token = group_token(index)
    settings = LaunchSettings(rdzv_id=launch.run, node_rank=slot, master_addr=ADDRESSES[0])
    join = symmetric_join(settings, token)
    place = replace(place_of(launch.addresses), proof=Identity.of(parse_group_token(token)).proof)
    return replace(join, place=place)


class Launcher:
    """One launcher process; another one with its state directory may come after it."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.index, self.launch = index, world.schedule.launches[index]
        number = len(world.launchers)
        self.machine = Machine(world.loop, f"launcher#{number} of {self.launch.run}")
        self.path = world.network.path(index, BESIDE if self.launch.owns_registry else -1)
        self.door = world.network.door(self.path)
        self.draw = random.Random(f"{world.schedule.seed} launcher {number}")
        self.children = SimulatedChildren(world, index)
        self.board = SimulatedBoard(self)
        self.folder: Folder | None = None
        self.said: list[str] = []
        self.events: list[int] = []
        self.told: Result | None = None
        self.told_at: float | None = None
        self.first_signal = 0
        self.signalled_at: float | None = None
        self.hurried_at: float | None = None
        self.was_paused = self.was_broken = False
        is_first = not any(other.index == index for other in world.launchers)
        self.again = "" if is_first else self.launch.again
        self.ended = False
        self.all_cleared: bool | None = None
        self.began_at = world.loop.time()
        self.ended_at: float | None = None
        self.launch_id = ""
        self.known_before = world.history.runs.get(self.launch.run)
        self.phase_before = self.known_before.phase if self.known_before else None
        self.seen: RunStatus | None = None
        self.ran_at: float | None = None
        self.shown_at: float | None = None
        self.first_version: int | None = None
        self.wanted_at: dict[tuple[int, int], float] = {}
        self.fenced_at: dict[tuple[int, int], float] = {}
        self.registry_starts: list[float] = []
        self.exit_code: int | None = None
        self.outcome: Result | str = ""

    def begin(self) -> None:
        self.machine.run(self._live())

    async def _live(self) -> None:
        registry = None if self.launch.owns_registry else self._standing()
        outside = SimulatedEnvironment(self)
        environ = {"PATH": "/usr/bin", "HOME": "/root"}
        token = group_token(self.index) if self.launch.symmetric else None
        settings, command = self._settings(), self.launch.command
        command += ["--more"] * (self.again == "options")
        try:
            self.exit_code = await launch(
                settings, command, environ, group_token=token, registry=registry, world=outside
            )
            found = self.folder.result() if self.folder is not None else None
            self.outcome = found or "no_result"
        except RdzvError as exc:
            self.outcome, self.exit_code = exc.code, int(exc.exit_code)
        except Broken:
            self.outcome, self.exit_code = "broken", int(ExitCode.INTERNAL)
        self.world.history.judge(launcher=self)
        self._end()

    def _settings(self) -> LaunchSettings:
        launch = self.launch
        settings = LaunchSettings(
            rdzv_id=launch.run,
            nnodes=f"{launch.least}:{launch.nodes}",
            framework=launch.framework,
            scheduler=_FORMER if self.again not in ("scheduler", "gone") else _OTHER,
            local_node=launch.here,
            hosts="off",
            state_dir=self.world.folder / str(self.index),
            spares=launch.spares,
            verify="on" if launch.verify else "off",
            submit_retries=launch.retries,
            lease=launch.lease,
            join_timeout=launch.join_timeout,
            last_call=3.0,
            arm_timeout=_VERIFY_SECONDS,
            orphan_timeout=ORPHAN_SECONDS,
            grace=GRACE_SECONDS,
            master_port=launch.port,
            node_rank=0 if launch.symmetric else None,
            nproc_per_node=str(max(1, launch.ranks_each)),
            allow_exec=launch.talks,
            ends_with="node0" if launch.heads else "all",
        )
        if launch.outlives_nodes:
            settings = settings.model_copy(update=_of_losses(launch))
        if self.again == "port":
            settings = settings.model_copy(update={"port": PORT + 10})
        if self.again == "size":
            settings = settings.model_copy(update={"allow_exec": True})
        # A person may not ask for so little: here nobody needs 20 s for a round of probes.
        return settings.model_copy(update={"verify_timeout": _VERIFY_SECONDS})

    def _standing(self) -> str:
        return RegistryString(place_of(self.launch.addresses), OPERATOR).text()

    def note_status(self, status: RunStatus) -> None:
        self.seen, now = status, self.world.loop.time()
        self.shown_at = now if self.shown_at is None else self.shown_at
        self.first_version = self.first_version or status.version
        if status.phase is Phase.RUNNING and self.ran_at is None:
            self.ran_at = now
        for slot in status.slots:
            self.wanted_at.setdefault((slot.slot, slot.wanted_generation), now)
            if slot.fenced:
                self.fenced_at.setdefault((slot.slot, slot.wanted_generation), now)

    def sees_node_of(self, run: WorkerRun) -> bool:
        """Whether the node of this worker run is there, as far as it knows, and is to stay."""
        if self.seen is None or self.told_at is not None or self.signalled_at is not None:
            return False
        slot = self.seen.slots[run.slot]
        newest = slot.generation == slot.wanted_generation == run.generation
        return newest and slot.node_state in _THERE

    # --- what happens to it -------------------------------------------------------------------

    def tell_to_end(self, number: int) -> None:
        if self.ended or not self.machine.alive:
            return
        now = self.world.loop.time()
        if not self.machine.signal(number):
            self.die()
        elif self.signalled_at is None:
            self.first_signal, self.signalled_at = number, now
        elif self.hurried_at is None:
            self.hurried_at = now

    def die(self) -> None:
        if not self.ended:
            self._end()

    def _end(self) -> None:
        """The kernel closes what the process has left open, and tells its children."""
        self.ended, self.ended_at = True, self.world.loop.time()
        self.machine.kill()
        self.door.process_ended()
        if self.folder is not None:
            self.folder.release()
        self.children.parent_died()
        self.world.registries.parent_died(self)


class SimulatedBoard:
    """Where the person sees it: see `launcher.show.board.Board`."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def status(self, status: RunStatus) -> None:
        launcher = self._launcher
        launcher.world.may_break(launcher.index, "board")
        launcher.note_status(status)
        launcher.world.history.judge(status=status)
        launcher.world.history.judge(launcher=launcher, status=status)
        if status.result is not None and launcher.told is None:
            launcher.told, launcher.told_at = status.result, launcher.world.loop.time()
            launcher.world.history.facts[status.launch_id].told.append(status.result)

    def event(self, line: EventLine, *, said: bool = False) -> None:
        self._launcher.events.append(line.number)

    def say(self, text: str) -> None:
        self._launcher.said.append(text)

    def close(self) -> None:
        """See the protocol."""


class Folder(StateDir):
    """A state directory, on a disk that may be full."""

    def __init__(self, root: Path, launcher: Launcher) -> None:
        super().__init__(root, launcher.launch.run)
        self._launcher = launcher
        self._world = launcher.world

    @property
    def ledger(self) -> Ledger:
        return FullLedger(self.path / "worker-runs.jsonl", self._is_full)

    def _is_full(self) -> bool:
        return self._world.loop.time() < self._world.folder_full_until

    def write(self, name: str, data: bytes) -> Path:
        if name == "result.json":
            self._world.may_break(self._launcher.index, "result")
        if self._is_full():
            raise UsageError(f"{self.path / name} cannot be written: the disk is full")
        path = super().write(name, data)
        if name == "launch.json":
            record = self.record()
            assert record is not None
            self._launcher.launch_id = record.launch_id
        return path


class FullLedger(Ledger):
    """A ledger, on a disk that may be full."""

    def __init__(self, path: Path, is_full: Callable[[], bool]) -> None:
        super().__init__(path)
        self._is_full = is_full

    def _write(self, entry: LedgerEntry, line: str) -> None:
        if self._is_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super()._write(entry, line)


class _Client(RegistryClient):
    """The real client, of a person who has asked for restarts."""

    max_restarts = 0
    launcher: Launcher

    async def topic(self, topic: Published, run: str, **query: int) -> Any:
        self.launcher.world.may_break(self.launcher.index, "keeper")
        return await super().topic(topic, run, **query)

    async def create(self, run: str, spec: RunSpec) -> RunStatus:
        limits = spec.limits.model_copy(update={"max_restarts": self.max_restarts})
        return await super().create(run, spec.model_copy(update={"limits": limits}))


class SimulatedEnvironment(LaunchEnvironment):
    """The outer world of one launcher."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._world = launcher.world

    def jitter(self) -> float:
        return self._launcher.draw.random()

    def launch_id(self) -> str:
        return self._world.new_launch(self._launcher.index)

    def secret(self) -> bytes:
        return hashlib.sha256(b"secret %d" % len(self._world.history.facts)).digest()

    def hostname(self) -> str:
        more = ".other" if self._launcher.again == "host" else ""
        return f"launcher{self._launcher.index}{more}"

    def addresses(self) -> list[str]:
        return list(ADDRESSES[: self._launcher.launch.addresses])

    def state(self, root: Path, run: str) -> StateDir:
        self._launcher.folder = Folder(root, self._launcher)
        return self._launcher.folder

    def scheduler(self, starter: str, context: SchedulerContext) -> Scheduler:
        if starter == "local":
            return self._launcher.children
        if self._launcher.again == "gone" and starter == _FORMER:
            raise UsageError(f"there is no scheduler {starter} any more")
        return self._world.schedulers[self._launcher.index]

    def fork(self, word: str, count: int) -> None:
        """A simulated process imports nothing."""

    def dismiss(self) -> None:
        """None was forked."""

    def missing(self, plan: Plan, environ: Mapping[str, str]) -> str:
        return ""

    def echo(self, words: str) -> None:
        self._launcher.said.append(words)

    def board(self, nodes: int, logs: Path, *, json_events: bool, verbose: bool) -> Board:
        return self._launcher.board

    def client(
        self, place: RegistryPlace, credential: Credential, request_seconds: float
    ) -> RegistryClient:
        launcher = self._launcher
        client = self._world.client(
            place, launcher.path, launcher.door, credential, request_seconds, kind=_Client
        )
        assert isinstance(client, _Client)
        client.max_restarts, client.launcher = launcher.launch.max_restarts, launcher
        return client

    # --- a registry of its own ----------------------------------------------------------------

    def listen(self, port: int, *, address: str, exact: bool) -> Socket:
        return self._world.registries.listen(self._launcher, port, exact=exact)

    def configure(self, state: StateDir, secret: bytes, *, tls: bool) -> RegistryPlace:
        return RegistryPlace((), 0, "certificate", Identity.of(secret).proof)

    async def start_registry(self, state: StateDir, sock: Socket) -> Child:
        self._world.may_break(self._launcher.index, "registry")
        if self._launcher.launch.registry_takes:
            await asyncio.sleep(self._launcher.launch.registry_takes)
        self._launcher.registry_starts.append(self._world.loop.time())
        return self._world.registries.start_child(self._launcher, state)

    def registry_words(self, state: StateDir) -> str:
        return "it was killed"

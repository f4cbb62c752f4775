"""The outer world of an agent, as a real one finds it. A test, or the simulator, gives it another.

Nothing in `worker.agent` touches the machine, the network, a file or a process but through this.
The clock is the event loop's.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rendezvous.background import in_background
from rendezvous.feature import Feature, declared
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.http_network import HttpNetwork
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.evidence import Fact
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import PairProbe, ProbePlan
from rendezvous.wire.world import RankWorld
from worker.agent.early import EarlyTorchrun
from worker.agent.warm import WarmStart
from worker.contracts.framework import Need
from worker.evidence.look import Asked, Counters, folders_of, look_after, look_before
from worker.hosts.file import HostsBlock, known_names, restore_stale
from worker.hosts.resolver import Resolver
from worker.machine.interfaces import device_names, why_unusable
from worker.machine.limits import why_too_few
from worker.machine.notice_file import notice_in
from worker.machine.user_python import UserPython, look_user_python
from worker.nccl.conf import read_conf
from worker.nccl.env import Given
from worker.nccl.log import NcclLog
from worker.nccl.verdict import NetworkVerdict
from worker.offer.join_request import look_ahead, make_offer
from worker.offer.ports import find_free, is_free
from worker.preflight.needs import missing_of, read_config
from worker.probe.listener import ProbeListener
from worker.probe.mesh import probe_peers
from worker.probe.packets import Identity
from worker.program.ending import Ending
from worker.program.family import Family
from worker.program.fold import Fold
from worker.program.informing import Told, inform
from worker.program.local_socket import LocalSocket, Take
from worker.program.output import Output, OutputSink, make_private, write_whole
from worker.program.own_folder import remove_left
from worker.program.process import Program, parent_lives
from worker.program.progress_file import read_progress
from worker.program.rank_streams import RankStreams
from worker.program.rank_words import RankWords
from worker.program.terminal import size_of
from worker.rsh.shims import place_shims


def dial(place: RegistryPlace, credential: Credential | str | None) -> RegistryClient:
    """The way to a registry; httpx was imported while this node had no join string yet."""
    return RegistryClient(place, credential, network=HttpNetwork())


class RunningProgram(Protocol):
    """What an agent needs of `worker.program.process.Program`."""

    changed: Callable[[], None]
    main_pid: int | None

    @property
    def family(self) -> Family:
        """Its children."""

    @property
    def main_ended(self) -> tuple[int, float] | None:
        """The exit code of its main process, and when it ended."""

    def signal(self, number: int) -> None:
        """Pass a signal on to its main process."""

    async def wait(self) -> Ending:
        """Wait until nothing of it is left."""

    async def stop(self, *, ends_itself: bool = False) -> Ending:
        """TERM, grace, KILL; without TERM where it is ending its processes already."""

    def kill_now(self) -> None:
        """End it at once."""

    def may_run(self, until: float) -> None:
        """Until then, unless that is said again."""


class EarlyProgram(Protocol):
    """What an agent needs of `worker.agent.early.EarlyTorchrun`, and of a `WarmStart`."""

    async def begin(self) -> None:
        """Begin it, where that can be."""

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        output: Output,
        ranks: RankStreams | None = None,
        until: float | None = None,
    ) -> RunningProgram | None:
        """Make a program of it, if it fits."""

    async def end(self) -> None:
        """End it, if it has not become a program."""


class HostsFile(Protocol):
    """What an agent needs of `worker.hosts.file.HostsBlock`."""

    def install(
        self,
        table: EndpointTable,
        own_slot: int,
        resolved: Mapping[str, AbstractSet[str]] = ...,
    ) -> str | None:
        """Write the table's names."""

    def remove(self) -> None:
        """Take them away."""


class Listener(Protocol):
    """What an agent needs of `worker.probe.listener.ProbeListener`."""

    port: int

    def close(self) -> None:
        """Answer no longer."""


class AgentSocket(Protocol):
    """What an agent needs of `worker.program.local_socket.LocalSocket`."""

    path: str

    def add(self, name: str, take: Take) -> None:
        """Take in requests of this name as well."""

    async def open(self, environ: Mapping[str, str]) -> str:
        """Listen; returns the path."""

    async def hear_out(self, seconds: float) -> None:
        """Take in what has been said."""

    async def close(self) -> None:
        """Answer nobody any more."""


class NetworkLog(Protocol):
    """What an agent needs of `worker.nccl.log.NcclLog`."""

    def verdicts(self) -> AsyncIterator[NetworkVerdict]:
        """What is to be said of the network, as long as it is asked."""

    def trouble(self) -> str:
        """What stands between the program and its network."""


class Sink(Output, Protocol):
    """What an agent needs of `worker.program.output.OutputSink`."""

    @property
    def tail(self) -> list[str]:
        """The last lines of the program."""

    @property
    def words(self) -> RankWords:
        """What each of its ranks has said last."""

    @property
    def printed(self) -> int:
        """Bytes that its ranks have written."""

    def fold_launcher(self, fold: Fold) -> None:
        """Show of what the launcher itself prints only what that does."""

    def stop(self) -> None:
        """Mark it as stopped from now on."""

    def close(self) -> None:
        """Nothing more comes."""


def _importing(folder: str, count: int) -> bool | None:
    from worker.look.asking import importing  # once a program runs

    return importing(Path(folder), range(count))


def _read_worlds(folder: str, first_rank: int, count: int) -> tuple[RankWorld, ...]:
    from worker.look.worlds import read_worlds  # once a program runs

    return read_worlds(Path(folder or os.devnull), first_rank, count)


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts into a folder, for its owner alone; each is there whole or not at all.

    Raises:
        OSError: The folder cannot be made, or not be written.
    """
    make_private(folder)
    for name, text in files.items():
        write_whole(folder / name, folder / f".{name}.new", text)


def remove_file(file: Path) -> None:
    """Take away what an epoch before has left, if it is there. Raises OSError."""
    file.unlink(missing_ok=True)


@dataclass(frozen=True)
class AgentEnvironment:
    """Everything of the outer world that one agent uses.

    Attributes:
        environ: The user's environment, as the program is to see it.
        hosts_file: Where names are written.
        hosts_seconds: How long a node that ends waits until they are taken away.
        in_thread: Calls something in a thread that nobody has to wait for.

    The others are what their defaults are.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    hosts_file: Path = Path("/etc/hosts")
    hosts_seconds: float = 10.0
    in_thread: Callable[..., Awaitable[Any]] = in_background
    parent_lives: Callable[[int], bool] = parent_lives
    features: Callable[[], tuple[Feature, ...]] = declared
    # --- the registry and the peers
    dial: Callable[[RegistryPlace, Credential | str | None], RegistryClient] = dial
    listen: Callable[..., Listener] = ProbeListener
    probe: Callable[[Identity, ProbePlan, Iterable[int]], Awaitable[list[PairProbe]]] = probe_peers
    resolver: Callable[[], Resolver] = Resolver
    # --- this machine
    look_ahead: Callable[..., None] = look_ahead
    make_offer: Callable[..., JoinRequest] = make_offer
    why_unusable: Callable[[str, str], str] = why_unusable
    why_too_few: Callable[[int], str] = why_too_few
    is_free: Callable[[int], bool] = is_free
    find_free: Callable[[int], int | None] = find_free
    missing_of: Callable[[Sequence[Need], Mapping[str, str]], str] = missing_of
    read_conf: Callable[[Mapping[str, str]], Mapping[str, Given]] = read_conf
    look_python: Callable[[str, Mapping[str, str]], UserPython] = look_user_python
    read_config: Callable[[str, Sequence[str], Mapping[str, str]], str] = read_config
    # --- files
    hosts_block: Callable[[Path, str], HostsFile] = HostsBlock
    restore_stale: Callable[[Path], Collection[str]] = restore_stale
    known_names: Callable[[Path, str], Mapping[str, AbstractSet[str]]] = known_names
    write_files: Callable[[Path, Mapping[str, str]], None] = write_files
    place_shims: Callable[[Iterable[Path], str, Mapping[str, str]], Path] = place_shims
    device_names: Callable[[], tuple[list[str], list[str]]] = device_names
    remove_file: Callable[[Path], None] = remove_file
    make_private: Callable[[Path], None] = make_private
    remove_left: Callable[[list[str]], None] = remove_left
    read_progress: Callable[[Path], int | None] = read_progress
    notice_in: Callable[..., Awaitable[float]] = notice_in
    # --- the program
    inform: Callable[[int, Told], Told] = inform
    folders: Callable[[Mapping[str, str]], tuple[str, ...]] = folders_of
    look_before: Callable[[int | None], Counters] = look_before
    look_after: Callable[[Counters, Asked], list[Fact]] = look_after
    importing: Callable[[str, int], bool | None] = _importing
    worlds: Callable[[str, int, int], tuple[RankWorld, ...]] = _read_worlds
    local_socket: Callable[..., AgentSocket] = LocalSocket
    nccl_log: Callable[..., NetworkLog] = NcclLog
    sink: Callable[..., Sink] = OutputSink
    terminal: Callable[..., os.terminal_size | None] = size_of
    rank_streams: Callable[[Path, int], RankStreams | None] = RankStreams
    early: Callable[..., EarlyProgram] = EarlyTorchrun
    warm: Callable[..., WarmStart] = WarmStart
    start: Callable[..., Awaitable[RunningProgram]] = Program.start

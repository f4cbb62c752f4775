"""The outer world of one agent, door by door, and what may be wrong behind each.

A door gives what a machine gives, is late, or raises what the real one raises, and writes down what
really happened. What has cost a node its part is `troubled`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rendezvous.feature import Feature, Lazy, declared
from rendezvous.wire.errors import AddressError, ArmingFailed, RunError, UsageError
from rendezvous.wire.table import EndpointTable
from tests.simulation.schedule import BREAKING, HANGING, Fault, names
from tests.simulation.talking import Serve, ask_nodes
from tests.support.virtual_time import forever
from worker.agent import AgentEnvironment
from worker.agent.inputs import Armed
from worker.contracts.files import NOTICE
from worker.evidence.look import Counters
from worker.hosts.resolver import NO_SUCH_NAME, Resolver
from worker.machine.notice_file import LOOK_SECONDS
from worker.nccl.verdict import NetworkVerdict
from worker.program.local_socket import Take
from worker.program.rank_words import RankWords

if TYPE_CHECKING:
    from tests.simulation.agents import Process

_PROBE_PORT = 7_000
_THREAD_SECONDS = 0.001
_SPEAK_SECONDS = 0.4
_GONE_WITHOUT = names("""
restore_stale, remove, nccl_log, verdicts, trouble, publish, relay_take, hear_out,
close_socket, close_client
""")
"""What may break, and costs a node nothing."""
_COST_WHEN_LATE = {"make_offer", "arm"}
_PRESET = {"MASTER_ADDR": "10.250.0.1", "MASTER_PORT": "1234", "NODE_RANK": "7"}
"""What a platform, or a template, may have set as a guess."""


@dataclass(frozen=True)
class _Loaded(Lazy):
    """A part that is there already."""

    part: Any

    def load(self) -> Any:
        return self.part


class Unforeseen(Exception):
    """A fault that no code of rdzv expects: one of its own, or of what it stands on."""


class Doors:
    """All that one agent sees of its machine."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def environment(self, **others: Any) -> AgentEnvironment:
        """What the agent gets; `others` are what its process itself does."""
        process = self.process
        preset = _PRESET if self.marked("preset variables") else {}
        return AgentEnvironment(
            environ={"PATH": "/usr/bin", "HOME": "/root", **preset},
            in_thread=self._in_thread,
            parent_lives=lambda _: not process.parent_is_gone,
            listen=self._listen,
            resolver=partial(Resolver, self._look_up, in_thread=self._in_thread),
            look_ahead=self._look_ahead,
            why_unusable=self._why_unusable,
            why_too_few=lambda processes: "",
            is_free=self._is_free,
            find_free=self._find_free,
            missing_of=self._missing_of,
            read_conf=lambda _: self._opens("read_conf", {}),
            hosts_block=lambda *_: _HostsFile(self),
            restore_stale=self._restore_stale,
            known_names=self._known_names,
            write_files=self._write_files,
            place_shims=self._place_shims,
            notice_in=self._notice_in,
            make_private=self._make_private,
            local_socket=lambda *, take, serve: _Socket(self, dict(take), serve["exec"]),
            nccl_log=lambda *_, **__: self._opens("nccl_log", _NcclLog(self)),
            sink=self._sink,
            rank_streams=lambda *_: None,
            folders=lambda _: (),
            look_before=lambda _: Counters(),
            look_after=lambda *_: [],
            worlds=lambda *_: (),
            features=self._features,
            early=lambda *_: _Early(),
            **others,
        )

    # --- what is wrong ------------------------------------------------------------------------

    def marked(self, what: str) -> Fault | None:
        return self.process.world.marked(what, self.process)

    def _costs(self, what: str) -> Fault | None:
        """What is wrong here and costs this node its part, if anything is."""
        fault = self.marked(what)
        self.process.troubled |= fault is not None
        return fault

    def _is_unready(self, what: str) -> bool:
        """Whether this node cannot start a program, for what is wrong here."""
        if self._costs(what) is None:
            return False
        self.process.unready = what
        return True

    def breaks(self, door: str) -> bool:
        fault = self.marked("breaks")
        return fault is not None and BREAKING[fault.count - 1] == door

    def may_break(self, door: str) -> None:
        """Raise what nobody expects, if this door is the one that breaks."""
        if not self.breaks(door):
            return
        if door not in _GONE_WITHOUT:
            self.process.note_unfit(door)
        if door in ("start", "sink"):
            self.process.note_no_start()
        raise Unforeseen(door)

    def _opens(self, door: str, found: Any) -> Any:
        """What is behind this door, unless it breaks."""
        self.may_break(door)
        return found

    def check_start(self) -> None:
        self.may_break("start")
        fault = self.marked("start refused")
        if fault is not None:
            self.process.note_unfit("start")
            self.process.note_no_start()
            raise (RunError if fault.count > 1 else UsageError)("it cannot be started")

    def _hang(self, name: str) -> Fault | None:
        """Whether what is called in a thread comes back late, or never."""
        fault = self.marked("hangs")
        if fault is None or HANGING[fault.count - 1] != name:
            return None
        self.process.troubled |= name in _COST_WHEN_LATE
        self.process.was_slow |= name in ("arm", "remove")
        return fault

    def _features(self) -> tuple[Feature, ...]:
        """Those that ship, with their parts on nodes; what is read of a machine, and of its ranks,
        is made up."""
        found = {feature.name: feature for feature in declared()}
        if "machines" in found:
            run = partial(import_module("features.machines.node").run, make=lambda *_: self)
            found["machines"] = replace(found["machines"], node=_Loaded("", run))
        if "hang" in found:
            node = import_module("features.hang.node")
            reads = node.Reads(look=self._seen, sample=lambda _: ([], []))
            run = partial(node.run, reads=reads)
            found["hang"] = replace(found["hang"], node=_Loaded("", run))
        return tuple(found.values())

    def _seen(self, _: object) -> Any:
        rank = import_module("features.hang.wire").RankLook(rank=0)
        return import_module("features.hang.ranks.fitting").Seen([rank], [], 0)

    def read(self) -> Any:
        """The state of this machine."""
        make = import_module("features.machines.wire").MachineSample
        return make(load=1.5, memory_used=1 << 30, memory_total=4 << 30)

    async def _in_thread(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        name = getattr(work, "__name__", "").lstrip("_")
        world, process = self.process.world, self.process
        seconds = world.arming_seconds(process) if name == "arm" else _THREAD_SECONDS
        hang = self._hang(name)

        async def go() -> Any:
            if hang is not None:
                await (asyncio.sleep(hang.seconds) if hang.seconds else forever())
            await asyncio.sleep(seconds)
            answer = work(*args, **options)
            if isinstance(answer, Armed):
                process.note_armed(args[0].table)
            return answer

        thread = asyncio.ensure_future(go())
        thread.add_done_callback(_look_at)
        return await asyncio.shield(thread)

    # --- this machine -------------------------------------------------------------------------

    def _listen(self, *_: Any, **__: Any) -> _Listener:
        self.may_break("listen")
        launch = self.process.launch
        proven = launch.verify and launch.slots > 1  # the run wants all addresses proven
        if (self._costs if proven else self.marked)("no listener") is not None:
            raise OSError(24, "Too many open files")
        return _Listener()

    def _look_ahead(self, *_: Any) -> None:
        self.may_break("look_ahead")
        fault = self.marked("refuses")
        if fault is not None:
            raise (RunError if fault.count > 1 else ArmingFailed)("there is no GPU")

    def check_offer(self) -> None:
        self.may_break("make_offer")
        fault = self.marked("no offer")
        if fault is not None:
            self.process.note_unfit("make_offer")
            raise (AddressError if fault.count > 1 else UsageError)("no address is left")

    def _look_up(self, name: str) -> AbstractSet[str]:
        elsewhere = self.marked("names elsewhere") is not None and name != NO_SUCH_NAME
        return frozenset({"10.66.6.6"}) if elsewhere else frozenset()

    def _why_unusable(self, address: str, interface: str) -> str:
        return f"{interface} has lost {address}" if self._is_unready("address lost") else ""

    def _is_free(self, port: int) -> bool:
        fault = self.marked("port taken")
        return fault is None or self.process.facts.ports_taken >= fault.count

    def _find_free(self, port: int) -> int | None:
        fault = self.marked("port taken")
        return port + 2 if fault is None or fault.seconds else None

    def _missing_of(self, *_: Any) -> str:
        return "there is no torchrun on the PATH" if self._is_unready("program missing") else ""

    # --- files --------------------------------------------------------------------------------

    def _sink(self, file: Path | None = None, **_: Any) -> _Sink:
        sink: _Sink = self._opens("sink", _Sink(RankWords(asyncio.get_running_loop().time)))
        if self.process.launch.talks and file is not None:
            printing = self.process.world.talk.print_lines(self.process, file)
            sink.printing = asyncio.ensure_future(printing)
        return sink

    def _restore_stale(self, _: Path) -> Collection[str]:
        self.may_break("restore_stale")
        fault = self.marked("stale names")
        if fault is not None and fault.count > 1:
            raise ArmingFailed("another process holds its lock")
        return ["a-former-run"] if fault is not None else []

    def _known_names(self, *_: Any) -> Mapping[str, AbstractSet[str]]:
        self.may_break("known_names")
        return {}

    async def _notice_in(self, *_: Any) -> float:
        while (fault := self.marked("notice")) is None:
            await asyncio.sleep(LOOK_SECONDS)
        self.process.going.near = (self.process.world.loop.time(), fault.seconds)
        return fault.seconds

    def _write_files(self, _: Path, files: Mapping[str, str]) -> None:
        needed = self.process.launch.led  # by its remote commands
        if (self._costs if needed else self.marked)("no hostfile") is not None:
            raise OSError(28, "No space left on device")
        if NOTICE in files:
            self.process.going.show(self.process, json.loads(files[NOTICE])["seconds"])

    def _place_shims(self, folders: Iterable[Path], *_: Any) -> Path:
        if self._is_unready("no shims"):
            raise OSError(30, "Read-only file system")
        return next(iter(folders))

    def _make_private(self, _: Path) -> None:
        if self.marked("no log folder"):
            raise OSError(13, "Permission denied")


def _look_at(thread: asyncio.Future[Any]) -> None:
    if not thread.cancelled():
        thread.exception()


class _Listener:
    """Answers the peers' probes: whether it is reached the world knows."""

    port = _PROBE_PORT

    def close(self) -> None:
        """Answer no longer."""


@dataclass
class _HostsFile:
    """A hosts file that may not be written."""

    doors: Doors

    def install(
        self,
        table: EndpointTable,
        own_slot: int,
        resolved: Mapping[str, AbstractSet[str]] | None = None,
    ) -> str | None:
        self.doors.may_break("install")
        process, is_refused = self.doors.process, self.doors.marked("hosts refused") is not None
        if not (is_refused and process.needs_hosts):  # else it goes on by address
            process.armed_for[table.digest()] = table.epoch
        if is_refused:
            raise ArmingFailed("it is read-only")
        process.armed = table
        return None

    def remove(self) -> None:
        process = self.doors.process
        process.keeps_names = True
        self.doors.may_break("remove")
        if self.doors.marked("names kept") is not None:
            raise ArmingFailed("it is read-only by now")
        process.keeps_names, process.armed = False, None


@dataclass
class _Socket:
    """A socket at which a process of the program may say how it gets on."""

    doors: Doors
    takes: dict[str, Take]
    serve: Serve
    path: str = ""
    tasks: list[asyncio.Future[None]] = field(default_factory=list)

    def add(self, name: str, take: Take) -> None:
        self.takes[name] = take

    async def open(self, environ: Mapping[str, str]) -> str:
        process = self.doors.process
        if self.doors.marked("no socket") is not None:
            process.troubled |= process.launch.led  # its remote commands need one
            raise OSError(28, "No space left on device")
        self.path = "/simulated/agent"
        talks = process.launch.talks
        if talks or self.doors.marked("metrics") or self.doors.breaks("publish"):
            self.tasks.append(asyncio.ensure_future(self._speak()))
        if talks:
            self.tasks.append(asyncio.ensure_future(ask_nodes(process, self.serve)))
        return self.path

    async def _speak(self) -> None:
        process, step = self.doors.process, 0
        while True:
            await asyncio.sleep(_SPEAK_SECONDS)
            if process.started_at is not None and process.program_code is None:
                step += 1
                if "metrics" in self.takes:
                    said = {"rank": 0, "step": step, "values": {"loss": 1.0 / step}}
                    self.takes["metrics"](said)

    async def hear_out(self, seconds: float) -> None:
        self.doors.may_break("hear_out")

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.doors.may_break("close_socket")


@dataclass
class _NcclLog:
    """What NCCL says of its network."""

    doors: Doors

    async def verdicts(self) -> AsyncIterator[NetworkVerdict]:
        await asyncio.sleep(1.5)
        self.doors.may_break("verdicts")
        fault = self.doors.marked("falls back")
        if fault is None:
            yield NetworkVerdict("as_expected", "ok", "NCCL uses InfiniBand (mlx5_0)")
        elif fault.count > 1:
            yield NetworkVerdict("fallback", "warn", "NCCL uses sockets")
        else:
            yield NetworkVerdict("fallback", "fail", "NCCL uses sockets, and RDMA is required")
        await forever()

    def trouble(self) -> str:
        self.doors.may_break("trouble")
        return "a port is down"


class _Early:
    """Nothing is begun before the go: what these machines start is no torchrun."""

    async def begin(self) -> None:
        """Nothing."""

    async def start(self, *_: Any, **__: Any) -> None:
        """It is started at the go."""

    async def end(self) -> None:
        """There is nothing to end."""


@dataclass
class _Sink:
    """A program's output."""

    words: RankWords
    tail: list[str] = field(default_factory=lambda: ["step 1", "Traceback: boom"])
    printed: int = 0
    printing: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        """What its node sends, where the run fails."""
        for rank in (None, 0):
            self.words.take(rank, b"step 1\nTraceback: boom\n")

    def write(self, stream: Any, data: bytes, rank: int | None = None) -> None:
        """Take it."""

    def idle(self) -> None:
        """Nothing more for now."""

    def fold_launcher(self, fold: Any) -> None:
        """All of it is shown to nobody."""

    def stop(self) -> None:
        """Nothing of it is folded."""

    def close(self) -> None:
        """Nothing more."""
        if self.printing is not None:
            self.printing.cancel()

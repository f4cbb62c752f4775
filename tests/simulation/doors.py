"""The outer world of one agent, door by door, and what may be wrong behind each.

Nothing here decides for an agent: a door gives what a machine gives, is late, or raises what the
real one raises, and writes down what really happened. What has cost a node its part is `troubled`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rendezvous.wire.errors import AddressError, ArmingFailed, RunError, UsageError
from rendezvous.wire.table import EndpointTable
from tests.simulation.schedule import BREAKING, HANGING, Fault
from tests.support.virtual_time import forever
from worker.agent import AgentEnvironment
from worker.agent.inputs import Armed
from worker.agent.recorded import CODEC
from worker.hosts.resolver import NO_SUCH_NAME, Resolver
from worker.nccl.verdict import NetworkVerdict

if TYPE_CHECKING:
    from tests.simulation.agents import Process

_PROBE_PORT = 7_000
_THREAD_SECONDS = 0.001
_SPEAK_SECONDS = 0.4
_GONE_WITHOUT = {"restore_stale", "remove", "nccl_log", "verdicts", "trouble", "send_metrics"} | {
    "relay_take",
    "hear_out",
    "close_socket",
    "close_client",
}
"""What may break, and costs a node nothing."""
_COST_WHEN_LATE = {"make_offer", "arm"}
_PRESET = {"MASTER_ADDR": "10.250.0.1", "MASTER_PORT": "1234", "NODE_RANK": "7"}
"""What a platform, or a template, may have set as a guess."""


class Unforeseen(Exception):
    """A fault that no code of rdzv expects: one of its own, or of what it stands on."""


class Doors:
    """All that one agent sees of its machine.

    Args:
        process: Whose.
    """

    def __init__(self, process: Process) -> None:
        self._process = process

    def environment(self, **others: Any) -> AgentEnvironment:
        """What the agent gets; `others` are what its process itself does."""
        preset = _PRESET if self._marked("preset variables") else {}
        return AgentEnvironment(
            environ={"PATH": "/usr/bin", "HOME": "/root", **preset},
            in_thread=self._in_thread,
            parent_lives=lambda _: not self._process.parent_is_gone,
            listen=self._listen,
            resolver=partial(Resolver, self._look_up, in_thread=self._in_thread),
            look_ahead=self._look_ahead,
            why_unusable=self._why_unusable,
            is_free=self._is_free,
            find_free=self._find_free,
            missing_of=self._missing_of,
            read_conf=self._read_conf,
            hosts_block=lambda *_: _HostsFile(self._process, self),
            restore_stale=self._restore_stale,
            known_names=self._known_names,
            write_files=self._write_files,
            write_shims=self._write_shims,
            make_private=self._make_private,
            local_socket=partial(_Socket, self._process, self),
            nccl_log=self._nccl_log,
            sink=self._sink,
            recorder=lambda _: self._process.world.recorder(CODEC, self._process.machine.name),
            **others,
        )

    # --- what is wrong ------------------------------------------------------------------------

    def _marked(self, what: str) -> Fault | None:
        return self._process.world.marked(what, self._process)

    def _costs(self, what: str) -> Fault | None:
        """What is wrong here and costs this node its part, if anything is."""
        fault = self._marked(what)
        self._process.troubled |= fault is not None
        return fault

    def _is_unready(self, what: str) -> bool:
        """Whether this node cannot start a program, for what is wrong here."""
        if self._costs(what) is None:
            return False
        self._process.unready = what
        return True

    def may_break(self, door: str) -> None:
        """Raise what nobody expects, if this door is the one that breaks."""
        fault = self._marked("breaks")
        if fault is None or BREAKING[fault.count - 1] != door:
            return
        if door not in _GONE_WITHOUT:
            self._process.note_unfit(door)
        if door in ("start", "sink"):
            self._process.note_no_start()
        raise Unforeseen(door)

    def check_start(self) -> None:
        self.may_break("start")
        fault = self._marked("start refused")
        if fault is not None:
            self._process.note_unfit("start")
            self._process.note_no_start()
            raise (RunError if fault.count > 1 else UsageError)("it cannot be started")

    def _hang(self, name: str) -> Fault | None:
        """Whether what is called in a thread comes back late, or never."""
        fault = self._marked("hangs")
        if fault is None or HANGING[fault.count - 1] != name:
            return None
        self._process.troubled |= name in _COST_WHEN_LATE
        self._process.was_slow |= name in ("arm", "remove")
        return fault

    async def _in_thread(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        name = getattr(work, "__name__", "").lstrip("_")
        is_arming = name == "arm"
        seconds = (
            self._process.world.arming_seconds(self._process) if is_arming else _THREAD_SECONDS
        )
        hang = self._hang(name)

        async def go() -> Any:
            if hang is not None:
                await (asyncio.sleep(hang.seconds) if hang.seconds else forever())
            await asyncio.sleep(seconds)
            answer = work(*args, **options)
            if isinstance(answer, Armed):
                self._process.note_armed(args[0].table)
            return answer

        thread = asyncio.ensure_future(go())
        thread.add_done_callback(_look_at)
        return await asyncio.shield(thread)

    # --- this machine -------------------------------------------------------------------------

    def _listen(self, *_: Any, **__: Any) -> _Listener:
        self.may_break("listen")
        if self._process.launch.verify and self._process.launch.slots > 1:
            fault = self._costs("no listener")  # the run wants all addresses proven
        else:
            fault = self._marked("no listener")
        if fault is not None:
            raise OSError(24, "Too many open files")
        return _Listener()

    def _look_ahead(self, *_: Any) -> None:
        self.may_break("look_ahead")
        fault = self._marked("refuses")
        if fault is not None:
            raise (RunError if fault.count > 1 else ArmingFailed)("there is no GPU")

    def check_offer(self) -> None:
        self.may_break("make_offer")
        fault = self._marked("no offer")
        if fault is not None:
            self._process.note_unfit("make_offer")
            raise (AddressError if fault.count > 1 else UsageError)("no address is left")

    def _look_up(self, name: str) -> AbstractSet[str]:
        elsewhere = self._marked("names elsewhere") is not None and name != NO_SUCH_NAME
        return frozenset({"10.66.6.6"}) if elsewhere else frozenset()

    def _why_unusable(self, address: str, interface: str) -> str:
        return f"{interface} has lost {address}" if self._is_unready("address lost") else ""

    def _is_free(self, port: int) -> bool:
        fault = self._marked("port taken")
        return fault is None or self._process.facts.ports_taken >= fault.count

    def _find_free(self, port: int) -> int | None:
        fault = self._marked("port taken")
        return port + 2 if fault is None or fault.seconds else None

    def _missing_of(self, *_: Any) -> str:
        return "there is no torchrun on the PATH" if self._is_unready("program missing") else ""

    def _read_conf(self, _: Mapping[str, str]) -> Mapping[str, Any]:
        self.may_break("read_conf")
        return {}

    # --- files --------------------------------------------------------------------------------

    def _restore_stale(self, _: Path) -> Collection[str]:
        self.may_break("restore_stale")
        fault = self._marked("stale names")
        if fault is not None and fault.count > 1:
            raise ArmingFailed("another process holds its lock")
        return ["a-former-run"] if fault is not None else []

    def _known_names(self, *_: Any) -> Mapping[str, AbstractSet[str]]:
        self.may_break("known_names")
        return {}

    def _write_files(self, *_: Any) -> None:
        if self._process.launch.led:
            fault = self._costs("no hostfile")  # its remote commands need one
        else:
            fault = self._marked("no hostfile")
        if fault is not None:
            raise OSError(28, "No space left on device")

    def _write_shims(self, *_: Any) -> None:
        if self._is_unready("no shims"):
            raise OSError(30, "Read-only file system")

    def _make_private(self, _: Path) -> None:
        if self._marked("no log folder"):
            raise OSError(13, "Permission denied")

    # --- the program --------------------------------------------------------------------------

    def _nccl_log(self, *_: Any, **__: Any) -> _NcclLog:
        self.may_break("nccl_log")
        return _NcclLog(self._process, self)

    def _sink(self, *_: Any, **__: Any) -> _Sink:
        self.may_break("sink")
        return _Sink()


def _look_at(thread: asyncio.Future[Any]) -> None:
    if not thread.cancelled():
        thread.exception()


class _Listener:
    """Answers the peers' probes: whether it is reached the world knows."""

    port = _PROBE_PORT

    def close(self) -> None:
        """Answer no longer."""


class _HostsFile:
    """A hosts file that may not be written."""

    def __init__(self, process: Process, doors: Doors) -> None:
        self._process = process
        self._doors = doors

    def install(
        self,
        table: EndpointTable,
        own_slot: int,
        resolved: Mapping[str, AbstractSet[str]] | None = None,
    ) -> str | None:
        self._doors.may_break("install")
        is_refused = self._process.world.marked("hosts refused", self._process) is not None
        if not (is_refused and self._process.needs_hosts):  # else it goes on by address
            self._process.armed_for[table.digest()] = table.epoch
        if is_refused:
            raise ArmingFailed("it is read-only")
        self._process.armed = table
        return None

    def remove(self) -> None:
        fault = self._process.world.marked("names kept", self._process)
        self._process.keeps_names = True
        self._doors.may_break("remove")
        if fault is not None:
            raise ArmingFailed("it is read-only by now")
        self._process.keeps_names = False
        self._process.armed = None


class _Socket:
    """A socket at which a process of the program may say how it gets on."""

    def __init__(
        self,
        process: Process,
        doors: Doors,
        *,
        take: Mapping[str, Callable[[Mapping[str, object]], str]],
        serve: Mapping[str, Any],
    ) -> None:
        self.path = ""
        self._process = process
        self._doors = doors
        self._take = take["metrics"]
        self._speaking: asyncio.Task[None] | None = None

    async def open(self, environ: Mapping[str, str]) -> str:
        world, process = self._process.world, self._process
        if world.marked("no socket", process) is not None:
            process.troubled |= process.launch.led  # its remote commands need one
            raise OSError(28, "No space left on device")
        self.path = "/simulated/agent"
        breaks = world.marked("breaks", process)
        if world.marked("metrics", process) or (
            breaks is not None and BREAKING[breaks.count - 1] == "send_metrics"
        ):
            self._speaking = asyncio.ensure_future(self._speak())
        return self.path

    async def _speak(self) -> None:
        step = 0
        while True:
            await asyncio.sleep(_SPEAK_SECONDS)
            if self._process.started_at is not None and self._process.program_code is None:
                step += 1
                self._take({"rank": 0, "step": step, "values": {"loss": 1.0 / step}})

    async def hear_out(self, seconds: float) -> None:
        self._doors.may_break("hear_out")

    async def close(self) -> None:
        if self._speaking is not None:
            self._speaking.cancel()
        self._doors.may_break("close_socket")


class _NcclLog:
    """What NCCL says of its network."""

    def __init__(self, process: Process, doors: Doors) -> None:
        self._process = process
        self._doors = doors

    async def verdicts(self) -> AsyncIterator[NetworkVerdict]:
        await asyncio.sleep(1.5)
        self._doors.may_break("verdicts")
        fault = self._process.world.marked("falls back", self._process)
        if fault is None:
            yield NetworkVerdict("as_expected", "ok", "NCCL uses InfiniBand (mlx5_0)")
        elif fault.count > 1:
            yield NetworkVerdict("fallback", "warn", "NCCL uses sockets")
        else:
            yield NetworkVerdict("fallback", "fail", "NCCL uses sockets, and RDMA is required")
        await forever()

    def trouble(self) -> str:
        self._doors.may_break("trouble")
        return "a port is down"


class _Sink:
    """A program's output."""

    def __init__(self) -> None:
        self.tail = ["step 1", "Traceback: boom"]

    def write(self, stream: Any, data: bytes) -> None:
        """Take it."""

    def idle(self) -> None:
        """Nothing more for now."""

    def close(self) -> None:
        """Nothing more."""

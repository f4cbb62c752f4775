"""What a torchrun's helper hears, says and does, in order, is as in `courses.txt`.

No two numbers are the same one, and what happens happens twice. A line with a star is what
torchrun says. Who changes one writes the file anew (`make reference`).
"""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.settings import LaunchSettings
from launcher.torchrun import host_process, hosting, link, program
from launcher.torchrun.asked import host_settings, node_settings, read_asked
from launcher.torchrun.hosting import Hosting, Order
from launcher.torchrun.link import Torchrun
from launcher.torchrun.program import TorchrunProgram
from launcher.torchrun.words import Next
from rendezvous.feature import declared
from rendezvous.wire.errors import RdzvError, Unavailable
from tests.support.courses import lines_in, one_line, text_of, values_of
from tests.support.virtual_time import run_virtually
from tests.torchrun.test_asked import TOKEN, begin
from worker.contracts.plugin import NODES_VARIABLE
from worker.program.family import Child, Family, Ranks
from worker.program.process_table import Process
from worker.settings import WorkerSettings

KNOWN = Path(__file__).with_name("courses.txt")
PID = 4_711
FORMER = {"HOME": "/root", "OLD": "x", "MASTER_ADDR": "10.0.0.7"}
FAILURE = {"rank": 6, "local_rank": 1, "pid": 733, "code": 137}


class Course:
    """A helper of which all that it does is told, on a clock that jumps.

    Attributes:
        lives: The processes that there are, by pid; torchrun is one of them.
        children: Those that torchrun has started.
        restarts: What a restart comes to that is asked for.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.patch = patch
        self.lives = {PID: Process(PID, 1, PID, "S", 90, 0)}
        self.children: list[Child] = []
        self.restarts: list[RdzvError | None] = []
        self.reader = asyncio.StreamReader()
        self.torchrun = Torchrun(cast(Any, None))
        self.torchrun.at_end = lambda: self.tell("torchrun is at its end")
        course = self

        class Watch:
            def __init__(self, own: Ranks | None, changed: Callable[[], None]) -> None:
                self.last: Family | None = None
                assert own is None

            def open(self, pid: int) -> None:
                course.tell(f"watch the children of {pid}")

            def close(self) -> None:
                course.tell("watch no more")
                self.last = self.last or self.family

            @property
            def family(self) -> Family:
                return self.last or Family(None, tuple(course.children))

        async def open_connection(*, sock: Any) -> Any:
            return self.reader, self

        patch.setattr(link, "asyncio", _with(asyncio, open_connection=open_connection))
        patch.setattr(link, "read_process", self.lives.get)
        patch.setattr(program, "ChildWatch", Watch)
        table = SimpleNamespace(
            KILL_SECONDS=10.0,
            Process=Process,
            read_process=self.lives.get,
            descendants=lambda pid: [one for one in self.lives.values() if one.parent == pid],
            kill=self._kill,
        )
        patch.setattr(program, "process_table", table)

    def tell(self, words: str) -> None:
        """Something is done."""
        self.lines.append(f"{asyncio.get_running_loop().time():.2f} {words}")

    def _kill(self, everyone: list[Process]) -> None:
        self.tell(f"kill {sorted(one.pid for one in everyone)}")
        for one in everyone:
            if one.status == 0:  # another one hangs in the kernel
                self.lives.pop(one.pid, None)

    # --- torchrun's end -----------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """The helper says something."""
        self.tell(f"says {data.decode().strip()}")

    async def drain(self) -> None:
        """What it said is sent."""
        self.tell("sent")

    def close(self) -> None:
        """It says no more."""
        self.tell("closed")

    async def says(self, kind: str, **words: Any) -> None:
        """Torchrun says something, and it is heard."""
        self.lines.append(f"* {kind} {words}")
        self.reader.feed_data(json.dumps({"kind": kind, **words}).encode() + b"\n")
        await asyncio.sleep(0.25)
        now = self.torchrun
        known = {"waits": now.waits and now.waits.processes, "ended": now.has_ended}
        known |= {"done": now.has_done, "given up": now.given_up.is_set()}
        self.tell(one_line({name: value for name, value in known.items() if value}))

    async def asks(self, processes: int, **words: Any) -> None:
        """It waits for a table."""
        await self.says("next", processes=processes, role="default", **words)

    async def open(self) -> None:
        """Its first line is heard."""
        self.reader.feed_data(begin("n7:29711", pid=PID).model_dump_json().encode() + b"\n")
        assert await self.torchrun.open()

    async def _restart(self) -> None:
        self.tell("ask for a restart")
        await asyncio.sleep(0.5)
        if error := self.restarts.pop(0):
            raise error

    def starts(self, number: int, grace: float) -> TorchrunProgram:
        """Its workers are started on a table."""
        env = {
            "HOME": "/root",
            "MASTER_ADDR": f"10.0.0.{number}",
            "MASTER_PORT": f"2950{number}",
            "NODE_RANK": str(number + 1),
            "WORLD": str(number),
            NODES_VARIABLE: json.dumps([[2, 4, "default"], [1, number, "reader"]]),
        }
        how: dict[str, Any] = {"grace_seconds": grace, "restart": self._restart}
        return TorchrunProgram.begin(self.torchrun, env, FORMER, until=77.5 + number, **how)

    def child(self, pid: int, *, parent: int = PID, stuck: bool = False, **more: Any) -> None:
        """A worker, or what one has started."""
        self.lives[pid] = Process(pid, parent, pid, "D" if stuck else "S", pid, int(stuck))
        if parent == PID:
            self.children.append(Child(pid, float(pid), 1.0, **more))

    def differs(self, what: str, given: Any, found: Any) -> None:
        """An option a line that is not as it was given, but for those of features."""
        options = [one.options.load() for one in declared() if one.options is not None]
        of_features = {name for one in options for name in one.model_fields}
        for name in sorted(type(given).model_fields.keys() - of_features):
            if getattr(given, name) != (value := getattr(found, name)):
                self.lines.append(f"{what} {name} {value!r}")

    def over(self, ending: Any) -> None:
        """How a program ended."""
        values = values_of(ending) | {"ended_at": round(ending.ended_at, 2)}
        self.tell(f"over {one_line({k: v for k, v in values.items() if v})}")


def _with(module: Any, **changed: Any) -> Any:
    known = {name: getattr(module, name) for name in dir(module) if not name.startswith("__")}
    return SimpleNamespace(**(known | changed))


Drive = Callable[[Course], Coroutine[Any, Any, None]]


async def it_starts_on_three_tables(course: Course) -> None:
    """Its workers fail, are told to end, and end well; a child of before is none of them."""
    await course.open()
    course.child(701)
    course.restarts = [None]
    await course.asks(4)
    first = course.starts(1, 9.0)
    course.child(733, ranks=Ranks(6, 1))
    course.child(734)
    await course.asks(4, failure=FAILURE)
    await asyncio.sleep(1)
    course.over(await first.stop())
    second = course.starts(2, 7.0)
    first.may_run(81.0)
    stopping = asyncio.create_task(second.stop())
    await asyncio.sleep(1)
    await course.asks(5)
    course.over(await stopping)
    third = course.starts(3, 5.0)
    third.signal(2)
    course.tell(f"{third.main_pid} {third.main_ended} {len(third.family.children)}")
    await course.says("ended")
    course.over(await third.wait())
    await course.says("leaves")
    course.reader.feed_eof()
    await asyncio.sleep(1)
    await course.torchrun.close()


async def it_hangs_and_is_killed(course: Course) -> None:
    """Of its workers one does not die at once; then it is gone, and starts nothing any more."""
    await course.open()
    course.child(701)
    await course.asks(3)
    hung = course.starts(4, 6.0)
    course.child(741)
    course.child(742, stuck=True)
    course.child(743, ended_at=3.0, exit_code=9, ranks=Ranks(2, 0))
    course.child(744, parent=741)
    stopping = asyncio.create_task(hung.stop())
    await asyncio.sleep(16.5)
    course.lives.pop(742)
    course.over(await stopping)
    course.over(await hung.stop())
    course.children.clear()
    await course.asks(3)
    gone = course.starts(5, 6.0)
    course.child(751)
    course.lives.pop(PID)
    course.over(await gone.wait())
    hung.kill_now()
    gone.kill_now()
    try:
        course.starts(6, 1.0)
    except RdzvError as exc:
        course.tell(f"! {exc.message}")
    await course.torchrun.close()


async def it_gives_up_where_no_restart_is_left(course: Course) -> None:
    """The restart that it wants is refused; afterwards it fails twice, once of a known worker."""
    await course.open()
    course.restarts = [Unavailable("a node has left"), None]
    await course.asks(2)
    course.over(await _asked_in_vain(course, course.starts(7, 4.0)))
    course.torchrun.tell("go")
    await course.asks(2)
    last = course.starts(8, 4.0)
    await course.says("failed", failure=FAILURE | {"code": 3, "pid": 735})
    course.over(await last.wait())
    await course.says("failed")
    course.reader.feed_data(b"\xff\n")
    await asyncio.sleep(1)
    await course.torchrun.close()


async def its_end_of_the_socket_breaks(course: Course) -> None:
    """As a process that is killed leaves it, before it has been given a table."""
    await course.open()
    await course.asks(9)
    course.reader.set_exception(ConnectionResetError(104, "reset by peer"))
    await asyncio.sleep(1)
    course.tell(f"{course.torchrun.has_ended}")
    await course.torchrun.close()


async def _asked_in_vain(course: Course, of: TorchrunProgram) -> Any:
    await course.asks(2, failure=FAILURE)
    return await of.wait()


class Popen:
    """The registry's process, which ends as it is told."""

    def __init__(self, course: HostCourse, words: list[str], **how: Any) -> None:
        self.returncode: int | None = None
        self._course, self._code = course, course.codes.pop(0)
        secrets = [name for name in how["env"] if name in ("RDZV_TOKEN", "RDZV_UI_KEY")]
        course.tell(f"start {words[-1]} {secrets} {how['start_new_session']}")
        how["stdout"].write(b"first\nrdzv: no room\n      make some\n")
        assert (how["stderr"], how["stdin"]) == (how["stdout"], -1)
        if self._code == "cannot":
            raise OSError(11, "no more processes")
        self.stdin = self
        self._polls = 0

    def __enter__(self) -> Popen:
        return self

    def __exit__(self, *_: object) -> None:
        self._course.tell("its standard input is closed")

    def write(self, data: bytes) -> None:
        order = Order.model_validate_json(data)
        self._course.tell(
            f"tell it of {order.begin.run} at {order.begin.endpoint}, {order.token[:9]}"
        )
        if self._code == "deaf":
            raise BrokenPipeError

    def poll(self) -> int | None:
        self._polls += 1
        if isinstance(self._code, int) and self._polls > 3:
            self.returncode = self._code
        return self.returncode


class HostCourse(Course):
    """What is done for a registry on this machine.

    Attributes:
        codes: How its processes end: with a code, never, or before they begin.
        answers: Whether somebody listens.
        here: Whether the endpoint is on this machine.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__(patch)
        self.codes: list[Any] = []
        self.answers = self.here = False
        known = {"Popen": lambda words, **how: Popen(self, words, **how)}
        patch.setattr(hosting, "subprocess", _with(subprocess, **known))
        patch.setattr(hosting, "is_here", self._is_here)
        patch.setattr(hosting, "own_addresses", lambda: ["10.0.7.4", "10.0.7.5"])
        patch.setenv("RDZV_TOKEN", "canary")
        patch.setattr(hosting.logger, "info", lambda *words: self.tell(f"log {words[-1]}"))

        async def open_connection(host: str, port: int) -> Any:
            self.tell(f"dial {host}:{port}")
            if not self.answers:
                raise ConnectionRefusedError
            return None, self

        async def to_thread(work: Callable[..., Any], *args: Any) -> Any:
            return work(*args)

        changed = {"open_connection": open_connection, "to_thread": to_thread}
        patch.setattr(hosting, "asyncio", _with(asyncio, **changed))

    def _is_here(self, host: str) -> bool:
        self.tell(f"is {host} here?")
        return self.here

    def hosting(self, endpoint: str, conf: dict[str, str] | None = None, **more: Any) -> Hosting:
        """Of a torchrun with these flags."""
        said = begin(endpoint, conf, **more)
        return Hosting(read_asked(said), said, TOKEN)

    async def goes(self, of: Hosting, seconds: float) -> None:
        """For so long."""
        going = asyncio.create_task(of.go())
        await asyncio.wait({going}, timeout=seconds)
        if not going.done():
            self.tell("let go")
            going.cancel()
        for found in await asyncio.gather(going, return_exceptions=True):
            self.tell(f"{type(found).__name__} {getattr(found, 'message', '')}")


async def a_registry_is_started_again_and_again(course: Course) -> None:
    """By who has the endpoint, once another one of the machine has not done so."""
    host = cast(HostCourse, course)
    host.here, host.codes = True, [1, 1, "serves"]
    of = host.hosting("n7:29711")
    await host.goes(of, 6.0)
    for left in (False, True):
        asked = iter([False, left, True])

        async def everyone_left(asked: Any = asked) -> bool:
            host.tell("has everyone left?")
            return bool(next(asked))

        await of.close(everyone_left)

    async def never() -> bool:
        return False

    await of.close(never)
    host.tell("waited")
    host.codes = [64]
    await host.goes(host.hosting("localhost:29712"), 6.0)
    host.codes = ["deaf", "cannot"]
    for _ in range(2):
        await host.goes(host.hosting("127.0.0.1:29713", {"is_host": "1"}), 0.5)
    host.codes = [1] * 90
    await host.goes(host.hosting("n7:29714"), 60.0)


async def who_has_no_registry_starts_none(course: Course) -> None:
    """Another machine's, one that is there already, or one that is said to be elsewhere."""
    host = cast(HostCourse, course)
    await host.goes(host.hosting("n7:29711"), 3.0)
    await host.goes(host.hosting("localhost:29712", {"is_host": "0"}), 3.0)
    host.here = host.answers = True
    await host.goes(host.hosting("n7:29713"), 0.5)


async def its_flags_are_options_of_a_node_and_of_a_host(course: Course) -> None:
    """What differs from what a person has set with variables, or is not set at all."""
    conf = {"join_timeout": "77", "last_call_timeout": "13", "standby": "2", "rank": "3"}
    for said in (
        begin("n7:29711", conf | {"is_host": "yes"}, nodes=(3, 5)),
        begin("0.0.0.0", nodes=(1, 1)),
        begin("localhost:29713", {"join_timeout": "70"}, nodes=(1, 4)),
    ):
        asked = read_asked(said)
        course.tell(one_line(values_of(asked)))
        node = Next(kind="next", processes=6, role="reader")
        for grace in (9.0, 59.0):
            own = WorkerSettings(grace=grace, join_timeout=500.0, hosts="require")
            course.differs("node", own, node_settings(asked, node, own))
            of_all = LaunchSettings(
                grace=grace,
                join_timeout=500.0,
                scheduler="slurm",
                spares=1,
                set=["A=1"],
                max_restarts=4,
                hostlist=["h1"],
                ui=True,
            )
            course.differs("host", of_all, host_settings(asked, of_all))


async def a_host_is_a_launch_without_a_node(course: Course) -> None:
    """It is told on its standard input, and ends with its launch."""
    course.patch.setenv("RDZV_JOIN_TIMEOUT", "88")
    order = Order(begin=begin("n7:29711", nodes=(3, 5)), token=TOKEN)
    there = SimpleNamespace(buffer=io.BytesIO(order.model_dump_json().encode()))
    course.patch.setattr(host_process, "sys", SimpleNamespace(stdin=there))
    course.patch.setattr(host_process, "hide_memory", lambda: course.tell("hide memory"))
    course.patch.setattr(host_process, "log_to_stderr", lambda at: course.tell(f"log {at}"))
    unblocked = _with(signal, pthread_sigmask=lambda *how: course.tell(f"{how}"))
    course.patch.setattr(host_process, "signal", unblocked)

    def launch(settings: LaunchSettings, command: Any, environ: Any, **how: Any) -> None:
        course.tell(f"launch {settings.rdzv_id} {command} {how['group_token'] == TOKEN}")
        course.differs("host", LaunchSettings(), settings)
        assert set(how) == {"group_token", "world"}

    def host(work: None, group: Any, join_timeout: float) -> None:
        course.tell(f"host {group.keys.run} at {group.place.port}, {join_timeout:g} s")

    course.patch.setattr(host_process, "launch", launch)
    course.patch.setattr(host_process, "_host", host)
    course.patch.setattr(host_process, "exit_with", lambda work: course.tell("exit with that"))
    with pytest.raises(SystemExit):
        host_process.main()


COURSES: tuple[tuple[type[Course], Drive], ...] = (
    (Course, its_flags_are_options_of_a_node_and_of_a_host),
    (Course, a_host_is_a_launch_without_a_node),
    (Course, it_starts_on_three_tables),
    (Course, it_hangs_and_is_killed),
    (Course, it_gives_up_where_no_restart_is_left),
    (Course, its_end_of_the_socket_breaks),
    (HostCourse, a_registry_is_started_again_and_again),
    (HostCourse, who_has_no_registry_starts_none),
)


def driven(make: type[Course], drive: Drive) -> Course:
    """It at its end."""
    made: list[Course] = []

    async def work() -> None:
        with pytest.MonkeyPatch.context() as patch:
            made.append(make(patch))
            await drive(made[0])
            await asyncio.sleep(0.01)
            made[0].tell(f"{len(asyncio.all_tasks()) - 1} tasks are left")

    run_virtually(work())
    return made[0]


@pytest.mark.parametrize(("make", "drive"), COURSES, ids=lambda one: one.__name__)
def test_course(make: type[Course], drive: Drive) -> None:
    assert driven(make, drive).lines == lines_in(KNOWN, drive.__name__)


if __name__ == "__main__":  # make reference
    told = {
        drive.__name__: lambda make=make, drive=drive: driven(make, drive)
        for make, drive in COURSES
    }
    sys.exit(KNOWN.write_text(text_of(cast(Any, told))) == 0)

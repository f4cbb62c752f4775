"""What the page of a run costs, and how soon it shows what, in a real Chromium."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

import launcher
from bench.browser import chromium
from bench.crowd import MOST_TELLERS
from bench.meeting import Meeting, Registry, meeting
from bench.process import forked, heard
from bench.rows import Row, row
from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import RunKeys
from tests.support.launching import RDZV, environment, launching
from tests.support.waiting import until

_RATE = 20.0
"""Changes of the run in a second."""
_VIEWERS = 20
_LINES_A_SECOND = 10.0
_LIMIT_SECONDS = 60.0
_LINK = re.compile(rb"http://\S+/#t=\S+(?=\s)")
_PRINTS = """
import sys, time
while True:
    print("mark", int(1e6 * time.monotonic()), flush=True)
    time.sleep(1 / float(sys.argv[1]))
"""


class Ui:
    """A `rdzv ui` at the end of a terminal, where Enter gives another link."""

    def __init__(self, process: psutil.Popen, terminal: int) -> None:
        self._process = process
        self._terminal = terminal
        self._said = b""
        self._links = 0

    def link(self) -> str:
        """A link that was not used yet."""
        if self._links:
            os.write(self._terminal, b"\n")
        self._links += 1
        deadline = time.monotonic() + _LIMIT_SECONDS
        while len(found := _LINK.findall(self._said)) < self._links:
            assert time.monotonic() < deadline, self._said.decode()
            with contextlib.suppress(OSError):  # nobody has the other end any more
                self._said += os.read(self._terminal, 65_536)
        return str(found[self._links - 1].decode())

    def _processes(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """CPU time of its processes, by the clock of each, see `clock_getcpuclockid(3)`: /proc
        has it in steps of 10 ms, which are a tenth of what they use in 10 s."""
        clocks = [~one.pid << 3 | 2 for one in self._processes()]
        return sum(map(time.clock_gettime, clocks))  # noqa: TID251 (no wall clock)

    def pss_mb(self) -> float:
        """What they hold now; what they share counts once."""
        return sum(one.memory_full_info().pss for one in self._processes()) / 1e6


@contextlib.contextmanager
def ui_of(root: Path, run: str) -> Iterator[Ui]:
    """The page of a run; ended afterwards."""
    ours, its = os.openpty()
    process = psutil.Popen(
        [RDZV, "ui", run],
        stdin=its,
        stdout=its,
        stderr=subprocess.STDOUT,
        env=environment(root),
        start_new_session=True,
    )
    os.close(its)
    try:
        yield Ui(process, ours)
    finally:
        process.terminate()
        process.wait(_LIMIT_SECONDS)
        os.close(ours)


@contextlib.contextmanager
def _folder_of(registry: Registry, keys: RunKeys, nodes: int) -> Iterator[Path]:
    """The folder of all runs, in which this one has a launcher that lives: this process."""
    with tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder:
        state = StateDir(Path(folder), keys.run)
        state.acquire()
        state.secret(lambda: keys.secret)
        record = LaunchRecord(
            run=keys.run,
            launch_id=keys.launch_id,
            scheduler="local",
            place=registry.place.to_json(),
            host="localhost",
            nodes=str(nodes),
            options={"command": ["python", "train.py"]},
            pid=os.getpid(),
        )
        state.write_record(record)
        yield Path(folder)
        state.release()


def _view(control: Connection) -> None:
    """Open one session, and so many streams of it, which end where too much is new."""
    order = json.loads(control.recv_bytes())
    link = urlsplit(order["link"])
    with httpx.Client(base_url=f"{link.scheme}://{link.netloc}/ui-api", timeout=60.0) as client:
        ticket = link.fragment.removeprefix("t=")
        session = client.post("/session", json={"ticket": ticket}).json()["session"]
        client.headers["x-rdzv-session"] = session
        head = f"Host: {link.netloc}\r\nx-rdzv-session: {session}\r\nConnection: close\r\n\r\n"

        def stream() -> socket.socket:
            after = client.get(f"/runs/{order['run']}/state").json()["n"]
            found = socket.create_connection((link.hostname, link.port))
            path = f"/ui-api/runs/{order['run']}/stream?after={after}"
            found.sendall(f"GET {path} HTTP/1.1\r\n{head}".encode())
            assert found.recv(65_536).startswith(b"HTTP/1.1 200")
            return found

        streams = [stream() for _ in range(order["viewers"])]
        control.send_bytes(b"{}")
        with contextlib.suppress(httpx.TransportError, OSError):  # the page ends before them
            while True:
                for one in select.select(streams, [], [])[0]:
                    if not one.recv(65_536):
                        streams[streams.index(one)] = stream()


class Viewers:
    """Nobody, until asked."""

    def __init__(self, control: Connection) -> None:
        self._control = control

    def watch(self, link: str, run: str, count: int) -> None:
        """Read the stream of the page so many times from now on."""
        order = {"link": link, "run": run, "viewers": count}
        self._control.send_bytes(json.dumps(order).encode())
        heard(self._control, _LIMIT_SECONDS)


@contextlib.contextmanager
def viewers() -> Iterator[Viewers]:
    """A process that can view a page; ended afterwards."""
    with forked(_view, [()]) as controls:
        yield Viewers(controls[0])


def of_run(nodes: int, loads: int, seconds: float) -> Iterator[Row]:
    """All that a browser sees of a run of emulated nodes, before a real registry.

    Args:
        nodes: Of the run.
        loads: Of the page, each in a tab of its own.
        seconds: For which changes come, each time.
    """
    rows = min(nodes, MOST_TELLERS)
    with meeting(nodes, tls=True, processes=1) as met:
        met.open()
        with ExitStack() as stack, met.running() as keys:
            root = stack.enter_context(_folder_of(met.registry, keys, nodes))
            others = stack.enter_context(viewers())
            ui = stack.enter_context(ui_of(root, keys.run))
            browser = stack.enter_context(chromium())
            times = []
            for _ in range(loads + 1):
                with browser.shows(ui.link(), rows) as shown:
                    times.append(shown.ready_ms())
            times.sort()
            yield row("page, ready", nodes, times[:-1])  # less the first, which starts the browser
            p95 = times[:-1][max(0, round(0.95 * loads) - 1)]
            yield row("page, ready, p95", nodes, [p95])
            with browser.shows(ui.link(), rows) as shown:
                shown.ready_ms()
                shown.open("events")
                told = met.tell(_RATE, seconds)
                shown.wait_for_mark(told[-1][0])
                seen = shown.marks()
                late = [1_000 * max(0.0, seen[mark] - answered) for mark, _, answered in told]
            yield row("page, event", nodes, late, note="since the registry's answer")
            with browser.shows(ui.link(), rows) as shown:
                shown.ready_ms()
                one = _percent(met, seconds, ui.cpu_seconds)
                others.watch(ui.link(), keys.run, _VIEWERS - 1)
                many = _percent(met, seconds, ui.cpu_seconds)
                memory, heap = ui.pss_mb(), shown.heap_bytes() / 1e6
            yield row("page, CPU, 1 viewer", nodes, [one], "% core")
            yield row(f"page, CPU, {_VIEWERS} viewers", nodes, [many], "% core")
            yield row("page, memory", nodes, [memory], "MB", f"PSS, {_VIEWERS} viewers")
            yield row("page, its script", nodes, [heap], "MB")
            stack.close()


def _percent(met: Meeting, seconds: float, cpu_seconds: Callable[[], float]) -> float:
    """Of a core that something uses while the nodes tell how they are."""
    before, began = cpu_seconds(), time.monotonic()
    met.tell(_RATE, seconds)
    return 100 * (cpu_seconds() - before) / (time.monotonic() - began)


def of_registry(nodes: int, pairs: int, seconds: float) -> Iterator[Row]:
    """What a page that somebody looks at adds to its registry's CPU time: with, without, again."""
    added = []
    with meeting(nodes, tls=True, processes=1) as met:
        met.open()
        with ExitStack() as stack, met.running() as keys:
            root = stack.enter_context(_folder_of(met.registry, keys, nodes))
            for _ in range(pairs):
                without = _percent(met, seconds, met.registry.cpu_seconds)
                with ui_of(root, keys.run) as ui, viewers() as others:
                    others.watch(ui.link(), keys.run, 1)
                    time.sleep(0.5)
                    added.append(_percent(met, seconds, met.registry.cpu_seconds) - without)
            stack.close()
    note = "each pair: " + ", ".join(f"{one:+.1f}" for one in added)
    yield Row(
        "page, CPU of registry", nodes, statistics.median(added), max(added), "% core", pairs, note
    )


def log_line(seconds: float) -> Iterator[Row]:
    """A real launch of 2 nodes here: from a rank's print until its line is on the screen."""
    options = ("--framework", "command", "--nnodes", "2")
    program = [sys.executable, "-I", "-S", "-c", _PRINTS, str(_LINES_A_SECOND)]
    with tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder, ExitStack() as stack:
        root = Path(folder)
        stack.enter_context(launching(root, *options, command=program))
        logs = StateDir(root, "r").logs
        until(lambda: any(path.stat().st_size for path in logs.rglob("*") if path.is_file()))
        ui = stack.enter_context(ui_of(root, "r"))
        browser = stack.enter_context(chromium())
        with browser.shows(ui.link(), 2) as shown:
            shown.ready_ms()
            shown.open("logs", rank=0)
            time.sleep(1.0)
            began = time.monotonic()
            time.sleep(seconds + 1.0)
            seen = {mark / 1e6: at for mark, at in shown.marks().items()}
        late = [1_000 * (at - mark) for mark, at in seen.items() if began <= mark < began + seconds]
    assert len(late) > _LINES_A_SECOND * seconds / 2, f"{len(late)} lines were shown"
    yield row("page, line of a rank", 2, late, note="from print to screen, in a real launch")


def wheel() -> Iterator[Row]:
    """What the page adds to the wheel, which is packed in the same way."""
    folder = Path(launcher.__file__).parent / "ui"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                archive.write(path, str(path.relative_to(folder)))
    yield row("page, part of the wheel", 0, [len(packed.getvalue()) / 1e6], "MB")

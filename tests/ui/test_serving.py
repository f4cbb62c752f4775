"""How the process of the page begins, serves and ends; nothing is served here."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.ui import process
from launcher.ui.app import HEADERS
from launcher.ui.ground import Ground
from launcher.ui.process import UiSettings
from rendezvous.wire.errors import RdzvError, UsageError
from tests.support.virtual_time import run_virtually

Done = list[Any]


@pytest.fixture
def done() -> Done:
    """What is done, in its order."""
    return []


def noted(done: Done, name: str, result: Any = None) -> Callable[..., Any]:
    def note(*args: Any) -> Any:
        done.append((name, *args))
        return result

    return note


# ---- it begins ----------------------------------------------------------------------------------


def test_the_next_free_port_is_taken_unless_one_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process.listen(UiSettings(port=port)) as found:
            assert port < found.getsockname()[1] <= port + 50
            assert found.family == socket.AF_INET
        why = f"the page cannot be served on port {port} of 127.0.0.1: Address already in use"
        with pytest.raises(UsageError, match=why):
            process.listen(UiSettings(port=port, exact=True))
    with pytest.raises(UsageError, match=r"of 192.0.2.1: Cannot assign requested"):
        process.listen(UiSettings(listen="192.0.2.1", port=0))
    with process.listen(UiSettings(listen="::1", port=0)) as found:
        assert found.getsockname()[0] == "::1"


@pytest.mark.parametrize("busy", [50, 51])
def test_ports_are_passed_over_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, busy: int) -> None:
    tried: list[Any] = []

    def listen(place: Any, **how: Any) -> Any:
        tried.append((place, how))
        if len(tried) <= busy:
            raise OSError(98, "in use")
        return "a socket"

    monkeypatch.setattr(socket, "create_server", listen)
    settings = UiSettings(port=7_000)
    if busy == 50:
        found: Any = process.listen(settings)
        assert found == "a socket"
    else:
        with pytest.raises(UsageError, match="port 7050 of"):
            process.listen(settings)
    how = {"family": socket.AF_INET, "backlog": 128}
    assert tried == [(("127.0.0.1", port), how) for port in range(7_000, 7_051)]


@pytest.mark.parametrize("parent", [None, 4711])
@pytest.mark.parametrize("interrupted", [False, True])
def test_the_page_of_a_launch_ends_with_it_and_any_other_knows_its_run(
    monkeypatch: pytest.MonkeyPatch, done: Done, parent: int | None, *, interrupted: bool
) -> None:
    def run(work: Any) -> None:
        work.close()
        done.append("runs")
        if interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(process, "die_with_parent", noted(done, "dies with"))
    monkeypatch.setattr(os, "nice", noted(done, "nice"))
    monkeypatch.setattr(process, "listen", noted(done, "listens", "socket"))
    monkeypatch.setattr(process, "_check_known", noted(done, "knows"))
    monkeypatch.setattr("launcher.ui.process.uvloop.run", run)
    here, settings = Ground(Path("/s"), object()), UiSettings(run="r", parent=parent)  # type: ignore
    assert process.serve(here, settings, "k", print) == (130 if interrupted else 0)
    of_a_launch = [("dies with", signal.SIGUSR1, 4711), ("nice", 5), ("listens", settings)]
    alone = [("listens", settings), ("knows", here, "r")]
    assert done == [*(alone if parent is None else of_a_launch), "runs"]


# ---- it serves ----------------------------------------------------------------------------------


class Viewed:
    """All runs; and the pieces that the page is put together from."""

    def __init__(self, done: Done, monkeypatch: pytest.MonkeyPatch, *, is_tty: bool) -> None:
        self.done, self.readers = done, dict[int, Any]()
        self.ends = asyncio.Event()
        settings = {
            "Runs": lambda *args: self,
            "Sessions": lambda token, key: SimpleNamespace(ticket=self._ticket),
            "load": lambda: "page",
            "metrics_key": lambda root: f"key of {root}",
            "Served": self._served,
            "make_app": lambda served, hosts: ("app", *hosts),
            "GuardedServer": self._server,
            "sys": SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: is_tty, fileno=lambda: 7)),
        }
        for name, value in settings.items():
            monkeypatch.setattr(process, name, value)
        self._tickets = 0

    def _ticket(self, now: float) -> str:
        self._tickets += 1
        return f"{self._tickets}"

    def _served(self, *args: Any) -> Any:
        self.done.append(args)
        return SimpleNamespace(closing="closing")

    def _server(self, app: Any, rules: Any, *, closing: str, headers: Any) -> Any:
        assert (closing, headers) == ("closing", HEADERS)
        self.done.append(app)

        async def serve(*, sockets: list[Any]) -> None:
            self.done.append("serves")
            await self.ends.wait()

        return SimpleNamespace(serve=serve)

    def viewed(self, run: str) -> None:
        self.done.append(f"views {run}")
        raise OSError

    async def say_farewell(self) -> None:
        self.done.append("farewell")


@pytest.mark.parametrize(("run", "is_tty"), [("r", True), (None, False)])
async def test_who_started_it_is_given_a_link_another_on_enter_and_a_farewell_ends_it(
    monkeypatch: pytest.MonkeyPatch, done: Done, run: str | None, *, is_tty: bool
) -> None:
    runs = Viewed(done, monkeypatch, is_tty=is_tty)
    said: list[str] = []
    handlers: dict[int, Any] = {}
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "add_reader", lambda fd, call: runs.readers.update({fd: call}))
    monkeypatch.setattr(loop, "remove_reader", lambda fd: runs.readers.pop(fd))
    monkeypatch.setattr(loop, "add_signal_handler", lambda n, call: handlers.update({n: call}))
    monkeypatch.setattr(os, "kill", lambda pid, n: done.append(("kill", pid == os.getpid(), n)))
    followed: list[str] = []

    async def follow() -> None:
        followed.append("begun")
        try:
            await asyncio.sleep(99.0)
        finally:
            followed.append("over")

    elsewhere = None if run is None else SimpleNamespace(follow=follow)
    here: Any = Ground(Path("/s"), object(), elsewhere)  # type: ignore[arg-type]
    sock: Any = SimpleNamespace(getsockname=lambda: ("::1", 7_123))
    settings = UiSettings(run=run, listen="::1", hosts=["a", "b"], actions=True)
    serving = asyncio.create_task(process._serve(here, settings, "key", said.append, sock))
    for _ in range(3):
        await asyncio.sleep(0)
    served = done.pop(0)
    assert (served[0], *served[2:]) == (runs, "page", "key of /s", run, True)
    assert done == [("app", "a", "b"), *[f"views {run}"] * (run is not None), "serves"]
    links = ["http://[::1]:7123/#t=1"]
    assert said[:1] == links
    assert (len(said), list(runs.readers), list(handlers)) == (
        *((2, [7]) if is_tty else (1, [])),
        [signal.SIGUSR1],
    )
    if is_tty:
        assert "press Enter for another one" in said[1]
        pieces = [b"\n", b""]
        monkeypatch.setattr(os, "read", lambda fd, most: pieces.pop(0))
        runs.readers[7]()
        assert said[2:] == ["http://[::1]:7123/#t=2"]
        runs.readers[7]()
        assert (len(said), runs.readers) == (3, {})
    done.clear()
    handlers[signal.SIGUSR1]()
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["farewell", ("kill", True, signal.SIGTERM)]
    assert followed == ([] if run is None else ["begun"])
    runs.ends.set()
    await serving
    await asyncio.sleep(0)
    assert followed == ([] if run is None else ["begun", "over"])


def test_a_farewell_that_nobody_takes_ends_the_page_all_the_same(
    monkeypatch: pytest.MonkeyPatch, done: Done
) -> None:
    async def never() -> None:
        await asyncio.sleep(99.0)

    monkeypatch.setattr(os, "kill", lambda pid, n: done.append(n))

    async def work() -> None:
        runs: Any = SimpleNamespace(say_farewell=never)
        await process._say_farewell(runs)
        assert (done, asyncio.get_running_loop().time()) == ([signal.SIGTERM], 2.0)

    run_virtually(work())


# ---- it is saved --------------------------------------------------------------------------------


def test_a_saved_page_is_private_also_where_there_was_a_file_and_its_runs_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: Done
) -> None:
    async def close() -> None:
        done.append("closed")

    async def saved_of(viewed: str) -> str:
        if viewed == "bad":
            raise RdzvError("no")
        return viewed

    runs = SimpleNamespace(viewed=lambda run: run, close=close)
    monkeypatch.setattr(process, "Runs", lambda root, clerk: runs)
    monkeypatch.setattr(process, "saved_of", saved_of)
    monkeypatch.setattr(process, "saved_page", lambda saved: f"page of {saved}".encode())
    monkeypatch.setattr(process, "_check_known", noted(done, "knows"))
    here: Any = Ground(tmp_path, object())  # type: ignore[arg-type]
    file = tmp_path / "a.html"
    file.write_text("a longer text than it will be")
    file.chmod(0o644)
    process.save(here, "r", file)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("page of r", 0o600)
    with pytest.raises(RdzvError, match=r"^no$"):
        process.save(here, "bad", file)
    assert done == [("knows", here, "r"), "closed", ("knows", here, "bad"), "closed"]
    with pytest.raises(RdzvError, match=f"{tmp_path} cannot be written: Is a directory"):
        process.save(here, "r", tmp_path)


def test_a_run_that_nobody_launched_here_is_refused_unless_it_is_elsewhere(tmp_path: Path) -> None:
    here: Any = Ground(tmp_path, object())  # type: ignore[arg-type]
    with pytest.raises(RdzvError, match="no run 'r' was launched here"):
        process._check_known(here, "r")
    process._check_known(here, None)
    there: Any = Ground(tmp_path, object(), object())  # type: ignore[arg-type]
    process._check_known(there, "r")

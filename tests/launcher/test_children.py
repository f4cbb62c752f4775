"""The shells around a launch's children: how each is started, told to end, and not waited for."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.cli import streams
from launcher.prepare.environment import LaunchEnvironment, _RegistryProcess, registry_log
from launcher.run import group_refusal, page_child
from launcher.run import serve as serve_module
from launcher.run.group_refusal import Refuser
from launcher.run.page_child import page_beside
from launcher.run.serve import serve
from launcher.settings import LaunchSettings, ServeSettings
from launcher.state.port_holder import CREDENTIAL
from launcher.state.state_dir import StateDir
from launcher.symmetric.claim import Value
from rendezvous.talk.credentials import RunKeys, new_secret, registry_credential
from rendezvous.talk.join_string import RegistryString, group_token_text
from rendezvous.wire.errors import UsageError
from tests.support.virtual_time import run_virtually


class Process:
    """One that ends so long after a signal of a kind; never without it.

    Attributes:
        told: The signals that it was sent, and when.
    """

    pid = 4711

    def __init__(self, ends: dict[int, float], *, gone: bool = False, output: bytes = b"") -> None:
        self.told: list[tuple[int, float]] = []
        self.returncode: int | None = None
        self._ends, self._gone, self._over = ends, gone, asyncio.Event()
        self.stdout = self._lines(output)

    async def _lines(self, output: bytes) -> Any:
        for line in output.splitlines(keepends=True):
            yield line
        await self._over.wait()

    def send_signal(self, number: int) -> None:
        self.told.append((number, asyncio.get_running_loop().time()))
        if self._gone:
            self._end()
            raise ProcessLookupError
        if number in self._ends:
            asyncio.get_running_loop().call_later(self._ends[number], self._end)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = 0
        self._over.set()

    async def wait(self) -> int:
        await self._over.wait()
        return 0


QUICK: dict[int, float] = {signal.SIGTERM: 1.0, signal.SIGUSR1: 1.0}
SLOW: dict[int, float] = {signal.SIGKILL: 0.5}


@pytest.mark.parametrize(
    ("ends", "gone", "told", "at"),
    [
        (QUICK, False, [(signal.SIGTERM, 0.0)], 1.0),
        (SLOW, False, [(signal.SIGTERM, 0.0), (signal.SIGKILL, 5.0)], 5.5),
        ({}, True, [(signal.SIGTERM, 0.0)], 0.0),
    ],
)
def test_a_registry_is_told_to_end_and_killed_where_it_does_not(
    ends: dict[int, float], told: list[tuple[int, float]], at: float, *, gone: bool
) -> None:
    async def work() -> None:
        process = Process(ends, gone=gone)
        child = _RegistryProcess(cast(Any, process))
        await child.end(5.0)
        assert (process.told, asyncio.get_running_loop().time()) == (told, at)
        assert await child.wait() == 0
        await child.end(5.0)  # it has ended
        assert process.told == told

    run_virtually(work())


def test_a_registry_without_a_log_or_a_folder_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, said = StateDir(tmp_path, "r"), list[str]()
    world = LaunchEnvironment()
    monkeypatch.setattr(world, "echo", said.append)
    state.acquire()
    assert "was removed while it ran" in world.registry_words(state)
    state.write("registry.json", b"{}")
    assert world.registry_words(state) == "none"
    with world._opened(registry_log(state)) as log:
        log.write(b"first\nno room\n")
    assert world.registry_words(state) == "no room"
    assert registry_log(state).stat().st_mode & 0o777 == 0o600
    assert said == []
    with world._opened(tmp_path / "r" / "lock" / "registry.log") as log:
        assert log.name == os.devnull
    assert said[0].startswith("rdzv: the registry has no log: ")
    state.release()


def test_a_registry_is_started_on_its_socket_and_says_what_it_says_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, world, started = StateDir(tmp_path, "r"), LaunchEnvironment(), list[Any]()
    process = Process(QUICK)

    class Processes:
        async def start(self, words: list[str], environ: Any, **how: Any) -> Process:
            assert environ is os.environ
            started.append((words[-6:], how["pass_fds"]))
            for stream in ("stdout", "stderr"):
                os.write(how[stream], f"{stream}\n".encode())
            assert set(how) == {"pass_fds", "stdout", "stderr"}
            return process

    async def work() -> None:
        for _ in range(2):
            child = await world.start_registry(state, sock)
        await child.end(5.0)

    monkeypatch.setattr(world, "_processes", Processes())
    state.acquire()
    with socket.socket() as sock:
        run_virtually(work())
        fd, config = sock.fileno(), str(state.path / "registry.json")
    words = ["_registry", config, "--fd", str(fd), "--parent", str(os.getpid())]
    assert started == [(words, [fd])] * 2
    assert process.told == [(signal.SIGTERM, 0.0)]
    assert registry_log(state).read_text() == "stdout\nstderr\n" * 2
    state.release()


# --- the page ---


def page(
    monkeypatch: pytest.MonkeyPatch, process: Process | OSError, *, tty: bool = False, **ui: Any
) -> tuple[list[tuple[tuple[str, ...], dict[str, Any]]], list[str]]:
    """What is started beside a launch of 10 seconds, and what the person is told."""
    started: list[tuple[tuple[str, ...], dict[str, Any]]] = []
    said: list[str] = []

    async def start(*words: str, **how: Any) -> Process:
        started.append((words, how))
        if isinstance(process, OSError):
            raise process
        return process

    async def work() -> None:
        settings = LaunchSettings(**({"ui": True} | ui))
        async with page_beside(settings, StateDir(Path("/runs"), "r"), said.append):
            await asyncio.sleep(10.0)
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == 1

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    terminal = SimpleNamespace(isatty=lambda: tty)
    monkeypatch.setattr(page_child, "sys", SimpleNamespace(stderr=terminal))
    run_virtually(work())
    return started, said


def test_the_page_beside_a_launch_has_its_options_and_none_of_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RDZV_TOKEN", "canary")
    monkeypatch.setenv("RDZV_UI_KEY", "its own")
    process = Process(QUICK, output=b"http://127.0.0.1:29611/#t=secret\n")
    ui: dict[str, Any] = {"ui_listen": "10.0.0.4", "ui_port": 29_611, "ui_host": ["a", "b"]}
    ((words, how),), said = page(
        monkeypatch, process, **ui, ui_actions=True, ui_behind_ingress=True
    )
    line = " ".join(words)
    assert f"ui r --state-dir /runs --parent {os.getpid()} --ui-listen 10.0.0.4 " in line
    assert line.endswith("--ui-port 29611 --ui-host a --ui-host b --ui-actions --ui-behind-ingress")
    assert ("RDZV_TOKEN" in how["env"], how["env"]["RDZV_UI_KEY"]) == (False, "its own")
    assert (how["pass_fds"], how["start_new_session"]) == ((), True)
    assert process.told == [(signal.SIGUSR1, 10.0)]
    assert "secret" not in said[0]  # whoever reads a log may not see the run
    assert said[0].startswith("rdzv: the page is at http://127.0.0.1:29611/: open it")


def test_a_terminal_is_shown_the_link_and_the_usual_page_has_few_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(SLOW, output=b"http://127.0.0.1:29610/#t=x\n")
    ((words, _),), said = page(monkeypatch, process, tty=True)
    link = "http://127.0.0.1:29610/#t=x"
    more = "(opens once; 'rdzv ui r' prints another link)"
    assert said == [f"rdzv: see the run at {link} {more}"]
    assert "--ui-port" not in words
    assert "--ui-actions" not in words
    assert process.told == [(signal.SIGUSR1, 10.0), (signal.SIGKILL, 13.0)]


def test_a_page_that_has_ended_or_cannot_start_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert page(monkeypatch, Process({}, gone=True))[1] == []
    _, said = page(monkeypatch, OSError(11, "no more processes"))
    assert said == ["rdzv: the page could not be started: no more processes"]
    assert page(monkeypatch, Process({}), ui=False) == ([], [])


# --- standard streams ---


class Broken(io.StringIO):
    """A stream that cannot be written any more."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    flush = cast(Any, lambda self: self.write(""))


def test_a_stream_that_cannot_be_written_leads_to_nowhere_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led: list[int] = []
    told: list[str] = []
    monkeypatch.setattr(streams, "_lead_to_null", led.append)
    monkeypatch.setattr(streams, "_tell", told.append)
    shown, errors = io.StringIO(), Broken()
    there = SimpleNamespace(stdout=shown, stderr=errors)
    monkeypatch.setattr(streams, "sys", there)
    streams.endure_closed_streams()
    out, err = there.stdout, there.stderr
    assert (out.write("fine"), shown.getvalue(), out.isatty()) == (4, "fine", False)
    out.flush()
    assert (err.write("lost"), led, told) == (4, [2], [])
    err.flush()
    assert led == [2, 2]
    there.stdout, there.stderr = Broken(), None
    streams.endure_closed_streams()
    there.stdout.write("lost")
    assert led == [2, 2, 1]
    (words,) = told
    assert words == "standard output cannot be written: No space left on device; the run continues"
    there.stderr.write("into nowhere")
    there.stderr.close()
    there.stdout = Broken()
    streams.name_standard_output()
    for call in (lambda: there.stdout.write("x"), there.stdout.flush):
        with pytest.raises(OSError, match="No space") as caught:
            call()
        assert caught.value.filename == "standard output"
    assert led == [2, 2, 1, 1, 1]
    there.stdout = None
    streams.name_standard_output()
    assert there.stdout is None


def test_what_leads_to_nowhere_takes_all_and_why_is_told_on_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fd = os.open(tmp_path / "full", os.O_WRONLY | os.O_CREAT)
    streams._lead_to_null(fd)
    os.write(fd, b"lost")
    os.close(fd)
    assert (tmp_path / "full").read_bytes() == b""
    streams._tell("the run continues")
    assert capfd.readouterr() == ("", "rdzv: the run continues\n")


# --- a standing registry ---


def served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **options: Any
) -> tuple[dict[str, Any], RegistryString, list[str]]:
    """The configuration, the credential and the command of `rdzv serve`."""
    became: list[list[str]] = []
    socket = SimpleNamespace(fileno=lambda: 33)
    listened: list[Any] = []

    def listen(port: int, **how: Any) -> Any:
        listened.append((port, how))
        return socket

    monkeypatch.setattr(serve_module, "listen", listen)
    monkeypatch.setattr(serve_module, "own_addresses", lambda: ["10.0.0.4", "fd00::4"])
    monkeypatch.setattr("os.execv", lambda path, words: became.append([path, *words]))
    inherited: list[tuple[int, bool]] = []
    monkeypatch.setattr("os.set_inheritable", lambda fd, on: inherited.append((fd, on)))
    masked: list[Any] = []
    monkeypatch.setattr(signal, "pthread_sigmask", lambda how, which: masked.append((how, which)))
    monkeypatch.setattr(StateDir, "keep_lock_over_exec", lambda self: inherited.append((0, True)))
    settings = ServeSettings(state_dir=tmp_path, **options)
    serve(settings, {}, None)
    (path,) = tmp_path.glob(f"*/{CREDENTIAL}")
    assert listened == [(settings.port, {"address": settings.listen, "exact": True})]
    assert inherited == [(0, True), (33, True)]
    assert masked == [(signal.SIG_BLOCK, [signal.SIGINT])]
    config = json.loads((path.parent / "registry.json").read_text())
    (command,) = became
    assert command[0] == command[1]
    assert command[-2:] == ["--fd", "33"]
    assert path.stat().st_mode & 0o777 == 0o600
    return config, RegistryString.parse(path.read_text()), command


def test_a_standing_registry_is_told_how_to_serve_and_its_operator_where_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, shown, _ = served(
        monkeypatch, tmp_path / "a", port=29_700, allow_host=["n7"], max_runs=9
    )
    assert shown.place.addresses == ("10.0.0.4", "fd00::4")
    assert (shown.place.port, shown.place.trust, shown.place.replicas) == (
        29_700,
        "certificate",
        False,
    )
    assert (config["hosts"], config["max_runs"], config["trust_close"]) == (["n7"], 9, True)
    assert config["announcement"].startswith(
        "rdzv: registry on port 29700 of 10.0.0.4, fd00::4 (TLS);"
    )
    assert config["admin_sha256"] == shown.credential.sha256()
    assert registry_credential(shown.credential.secret) is not None
    config, shown, _ = served(monkeypatch, tmp_path / "b", listen="127.0.0.1")
    assert (shown.place.addresses, shown.place.trust) == (("127.0.0.1",), "plain")
    assert "(TLS)" not in config["announcement"]
    assert capsys.readouterr().err == ""
    config, shown, _ = served(
        monkeypatch, tmp_path / "c", behind_ingress=True, registry_address=["reg.example.org"]
    )
    assert shown.place.addresses == ("reg.example.org",)
    assert (config["trust_close"], shown.place.trust) == (False, "plain")
    assert "every machine on the path to this port can read" in capsys.readouterr().err
    served(monkeypatch, tmp_path / "d", behind_ingress=True, listen="127.0.0.1")
    assert capsys.readouterr().err == ""


# --- node 0 refuses ---


def test_node_0_is_the_registry_of_a_run_that_has_ended_until_all_have_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret, done = new_secret(), list[Any]()

    class World:
        def listen(self, port: int, *, address: str, exact: bool) -> Any:
            done.append(("listen", port, address, exact))
            return SimpleNamespace(close=lambda: done.append("close"))

        def configure(self, state: StateDir, own: bytes, *, tls: bool) -> None:
            assert state.is_held()
            done.append(("configure", own == secret, tls))

        async def start_registry(self, state: StateDir, sock: Any) -> Any:
            async def end(*, kill_after: float) -> None:
                assert state.is_held()
                done.append(("end", kill_after))

            done.append("start")
            return SimpleNamespace(end=end)

    async def end_for(node: Refuser, keys: RunKeys, port: int, error: UsageError) -> None:
        done.append((node.slot, keys.run, keys.secret == secret, port, error.message))
        raise TimeoutError

    async def refuse(client: Any, join: Any, error: Any, *, seconds: float, of_slot: bool) -> None:
        done.append((join.slot, join.place.addresses, join.place.port, seconds, of_slot))

    monkeypatch.setattr(group_refusal, "LaunchEnvironment", World)
    monkeypatch.setattr(group_refusal, "_end_for", end_for)
    monkeypatch.setattr(group_refusal, "refuse", refuse)
    said: list[str] = []

    def tell(number: str, *, has_slot: bool = True, address: str = "127.0.0.1") -> None:
        given = {
            "node_rank": Value(number, "NODE_RANK"),
            "nnodes": Value("3", "NUM_NODES"),
            "rdzv_id": Value("r", "RDZV_ID"),
            "master_addr": Value(address, "MASTER_ADDR"),
        }
        words = "no such option." if has_slot else "{number} is no node, and {size}"
        group_refusal.tell_group(
            UsageError(words),
            {},
            given,
            group_token_text(secret),
            port=29_400,
            extra=1,
            has_slot=has_slot,
            say=said.append,
        )

    tell("0")
    assert done == [
        ("listen", 29_400, "", True),
        ("configure", True, True),
        "start",
        "close",
        (0, "r", True, 29_400, "no such option."),
        ("end", 1.0),
    ]
    assert said == ["no such option (reporting it to the other nodes, for at most 20 s)"]
    done.clear()
    tell("2", address="10.9.9.9")
    assert done == [(2, ("10.9.9.9",), 29_400, 30.0, True)]
    done.clear()
    tell("0", has_slot=False)  # the registry that knows no slot of its number is another node's
    assert done == [(0, ("127.0.0.1",), 29_400, 10.0, False)]
    assert "NODE_RANK 0 is no node, and NUM_NODES is 3" in said[-1]

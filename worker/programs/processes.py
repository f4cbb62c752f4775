"""Starts the processes of one node, each with its rank, and ends them all when one fails.

    python -I -S processes.py --rank R --processes M --world W --node K --grace SECONDS
        [--set NAME=VALUE]... [--store HOST:PORT [--serve]] -- PROGRAM [ARGUMENT ...]

Each process is given RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK and GROUP_RANK, and
what `--set` says; MASTER_ADDR and MASTER_PORT are there already. In the arguments and in the VALUEs
`$LOCAL_RANK` and `${LOCAL_RANK}` (RANK ..., MASTER_PORT) stand for the process's own.

Output is passed on as it is, in whole lines; a process for which the agent has streams of its own
(see `worker.look.site`) writes to these instead. When a process fails, the others are ended
(SIGTERM, the grace, SIGKILL), and the exit code is that of the first one that failed (128 + n for a
signal). A SIGTERM to this program is not passed on: its keeper sends it to everything below it.

`--store` waits for a key-value store before any process starts, and `--serve` is it: what Horovod's
processes meet at, HTTP with PUT, GET and DELETE of /SCOPE/KEY.

It is run by its path in a bare interpreter, so it imports nothing but the standard library and the
hook, which says the same of itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

if not __package__:  # run by its path
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))

from worker.look.site.sitecustomize import FOLDER_VARIABLE, open_own, read_streams

NOT_FOUND, NOT_STARTED = 127, 126
FILLED = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""What is filled into arguments and values."""

_PLACE = re.compile(r"\$(?:\{([A-Z_]+)\}|([A-Z_]+))")
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_CHUNK = 65_536
_LONGEST_LINE = 1 << 20
_IDLE_SECONDS = 0.2
_DRAIN_SECONDS = 1.0
_SEEN_SECONDS = 0.2
_STORE_SECONDS = 120.0
_STORE_PAUSE_SECONDS = 0.1
_MOST_BYTES, _MOST_KEYS = 1 << 20, 1 << 16


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with `$NAME` and `${NAME}` of the `FILLED` in place; anything else stays."""

    def value(place: re.Match[str]) -> str:
        name = place[1] or place[2]
        return values.get(name, place[0]) if name in FILLED else place[0]

    return _PLACE.sub(value, text)


def environment_of(options: argparse.Namespace, local_rank: int) -> dict[str, str]:
    """The environment of one process."""
    own = {
        "RANK": str(options.rank + local_rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(options.world),
        "LOCAL_WORLD_SIZE": str(options.processes),
        "NODE_RANK": str(options.node),
        "GROUP_RANK": str(options.node),
    }
    env = {**os.environ, **own}
    for setting in options.set:
        name, _, text = setting.partition("=")
        env[name] = filled(text, env)
    return env


# --- output -----------------------------------------------------------------------------------


class Output:
    """One of our own streams, into which several processes write: whole lines, one at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._unfinished: object = None

    def write(self, source: object, data: bytes) -> None:
        """Write what a source said; an unfinished line of another one is ended before."""
        if self._unfinished not in (None, source):
            data = b"\n" + data
        self._unfinished = None if data.endswith((b"\n", b"\r")) else source
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:  # nobody reads any more: the processes go on
            pass


class Pipe:
    """What one process writes into one stream."""

    def __init__(self, fd: int, output: Output) -> None:
        self.fd = fd
        self._output = output
        self._rest = b""
        self._at = 0.0

    def take(self) -> bool:
        """Read on; False at the end."""
        data = os.read(self.fd, _CHUNK)
        self._at = time.monotonic()
        lines = self._rest + data
        cut = max(lines.rfind(b"\n"), lines.rfind(b"\r")) + 1
        if not data or len(lines) - cut > _LONGEST_LINE:
            cut = len(lines)
        self._rest = lines[cut:]
        if cut:
            self._output.write(self, lines[:cut])
        if not data:
            os.close(self.fd)
        return bool(data)

    def let_go(self) -> None:
        """Pass an unfinished line on that has been waiting: a question, a bar of progress."""
        if self._rest and time.monotonic() > self._at + _IDLE_SECONDS:
            self._output.write(self, self._rest)
            self._rest = b""

    @property
    def is_waiting(self) -> bool:
        """Whether a line is unfinished."""
        return bool(self._rest)


# --- the processes ----------------------------------------------------------------------------


class Child(Protocol):
    """A process that this one has started, as `subprocess.Popen` is one."""

    @property
    def pid(self) -> int:
        """Its number."""

    def wait(self) -> int:
        """Wait for its end, so that no zombie is left."""


class Processes:
    """The processes of this node, from their start to their end.

    Args:
        options: Of these `rank`, `processes` and `grace`; what starts a process has more.

    Attributes:
        seen_seconds: How long the agent has to see which process has failed first.
    """

    seen_seconds = _SEEN_SECONDS

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._running: dict[int, Child] = {}
        self._pipes: dict[int, Pipe] = {}
        self._code = 0
        self._zombies: list[Child] = []
        self._kill_at: float | None = None
        self._ending = False
        self._failed = False
        self._poll = select.poll()
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._outputs = Output(1), Output(2)
        self._look = _look(os.environ.get(FOLDER_VARIABLE, ""))

    def run(self) -> int:
        """Start all, see them through; returns the exit code."""
        signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, lambda number, frame: self._on_stop_signal(number))
        for number in _PASSED_ON:
            signal.signal(number, lambda number, frame: self._signal(number))
        self._poll.register(self._wake[0], select.POLLIN)
        for local_rank in range(self._options.processes):
            if self._code:
                break
            self._start(local_rank)
        if not self._code:
            self._all_started()
        while self._running:
            self._step()
        deadline = time.monotonic() + _DRAIN_SECONDS  # a grandchild may hold a pipe
        while self._pipes and time.monotonic() < deadline:
            self._step()
        if self._failed:
            time.sleep(self.seen_seconds)
        for process in self._zombies:
            process.wait()
        return self._code

    def _start(self, local_rank: int) -> None:
        env = environment_of(self._options, local_rank)
        own = [open_own(*self._look, str(local_rank), fd) for fd in (1, 2)] if self._look else []
        try:
            process = subprocess.Popen(
                [filled(word, env) for word in self._options.command],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=_or_pipe(own[:1]),
                stderr=_or_pipe(own[1:]),
                bufsize=0,
            )
        except OSError as error:
            self._fail(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED)
            _say(f"{self._options.command[0]!r} cannot be started: {error.strerror}")
            return
        finally:
            for fd in own:
                if fd >= 0:
                    os.close(fd)
        self._running[local_rank] = process
        for stream, output in zip((process.stdout, process.stderr), self._outputs, strict=True):
            if stream is None:
                continue
            pipe = Pipe(os.dup(stream.fileno()), output)
            stream.close()
            self._pipes[pipe.fd] = pipe
            self._poll.register(pipe.fd, select.POLLIN)

    def _has_failed(self) -> bool:
        """Return whether one has failed, and that was not taken in yet."""
        return any(_exit_code(process.pid) for process in self._running.values())

    def _all_started(self) -> None:
        """Do what follows the last start, before any of them is seen through."""

    def _step(self) -> None:
        """Wait for something to happen, and take it in."""
        waiting = any(pipe.is_waiting for pipe in self._pipes.values())
        limits = [_IDLE_SECONDS] if waiting else []
        if self._kill_at is not None:
            limits.append(max(0.0, self._kill_at - time.monotonic()))
        if not self._running:
            limits.append(_DRAIN_SECONDS)
        for fd, _ in self._poll.poll(min(limits) * 1000 if limits else None):
            if fd == self._wake[0]:
                os.read(fd, 4096)
            elif not self._pipes[fd].take():
                self._poll.unregister(fd)
                del self._pipes[fd]
        for pipe in self._pipes.values():
            pipe.let_go()
        for local_rank, process in list(self._running.items()):
            if (code := _exit_code(process.pid)) is not None:
                del self._running[local_rank]
                self._ended(local_rank, process, code)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL)

    def _ended(self, local_rank: int, process: Child, code: int) -> None:
        self._zombies.append(process)  # not waited for yet: they tell the agent how each has ended
        if code == 0 or self._code:
            return
        told = self._ending
        self._fail(code if code > 0 else 128 - code)
        if not told:
            self._failed = True
            words = f"exit code {code}" if code > 0 else f"signal {-code}"
            others = "; ending the others of this node" if self._running else ""
            rank = self._options.rank + local_rank
            _say(f"process {rank} (local rank {local_rank}) failed first, with {words}{others}")

    def _fail(self, code: int) -> None:
        """Remember the first cause, and end what runs."""
        self._code = code
        if not self._ending:
            self._set_limit()
            self._signal(signal.SIGTERM)

    def _on_stop_signal(self, number: int) -> None:
        """The keeper tells the processes as well."""
        self._set_limit()

    def _set_limit(self) -> None:
        """From now on the processes have the grace to end."""
        if not self._ending:
            self._ending = True
            self._kill_at = time.monotonic() + self._options.grace

    def _signal(self, number: int) -> None:
        """Signal all that run, but not by `Popen.send_signal`: that reaps who has just ended."""
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _look(folder: str) -> tuple[str, list[str]] | None:
    """The folder with streams for each process, and which pipes they stand for; None: no such."""
    try:
        return (folder, read_streams(folder)[0]) if folder else None
    except (OSError, ValueError):  # what runs here is not what the agent has started
        return None


def _or_pipe(own: Sequence[int]) -> int:
    return next((fd for fd in own if fd >= 0), subprocess.PIPE)


def _exit_code(pid: int) -> int | None:
    """How a process ended, negative: by that signal; it stays a zombie. None while it runs."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def _say(words: str) -> None:
    sys.stderr.write(f"rdzv: {words}\n")
    sys.stderr.flush()


# --- the store --------------------------------------------------------------------------------


def serve_store(port: int) -> None:
    """Serve a key-value store at a port, in a thread, as long as this process lives."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    values: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 600

        def do_PUT(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if not 0 <= size <= _MOST_BYTES or len(values) >= _MOST_KEYS:
                self.close_connection = True
                self._answer(413)
                return
            values[self.path] = self.rfile.read(size)
            self._answer(200)

        def do_GET(self) -> None:
            found = values.get(self.path)
            self._answer(404 if found is None else 200, found or b"")

        def do_DELETE(self) -> None:
            for path in [path for path in values if path.startswith(self.path)]:
                values.pop(path, None)
            self._answer(200)

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    server = ThreadingHTTPServer(("", port), Handler, bind_and_activate=False)
    server.socket.close()  # of IPv4 alone
    server.socket = socket.create_server(
        ("", port), family=family, backlog=1024, dualstack_ipv6=dual
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()


def await_store(host: str, port: int, seconds: float = _STORE_SECONDS) -> bool:
    """Wait until somebody listens there: Horovod's processes give up after a second and a half."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, port), timeout=5).close()
        except OSError:
            time.sleep(_STORE_PAUSE_SECONDS)
        else:
            return True
    return False


# --- the command ------------------------------------------------------------------------------


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="processes.py", allow_abbrev=False)
    for name in ("rank", "processes", "world", "node"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--grace", type=float, required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--store")
    parser.add_argument("--serve", action="store_true")
    end = list(words).index("--")
    options = parser.parse_args(words[:end])
    options.command = list(words[end + 1 :])
    return options


def main(words: Sequence[str]) -> int:
    """Start the processes; returns the exit code."""
    options = _parse(words)
    if options.store:
        host, _, port = options.store.rpartition(":")
        if options.serve:
            serve_store(int(port))
        elif not await_store(host.strip("[]"), int(port)):
            _say(f"no store answers at {options.store}: node 0 has not started it")
            return 1
    return Processes(options).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

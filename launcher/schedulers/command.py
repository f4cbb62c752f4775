"""Running a scheduler's command: no shell, a process group of its own, a time limit, its words.

A command's output is what a person reads in an error and what an id is read from, so it comes
without colours and control characters. What is given on standard input may be a secret: it lies in
an anonymous file, and is neither logged nor part of any error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from launcher.schedulers.contract import NothingSubmitted
from rendezvous.compat import timeout
from rendezvous.frozen import frozen
from rendezvous.secret_variables import anonymous_file
from rendezvous.talk.join_string import without_secrets
from rendezvous.tasks import cancel_all, wait_for
from rendezvous.wire.errors import SchedulerError

_KILL_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_DRAIN_SECONDS = 1.0
_MOST_BYTES = 1 << 20
_MOST_WORDS = 400
_CHUNK = 1 << 16
# Colours and cursor movements, titles and links, and what else begins with an escape.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]"
)
_LINE_ENDS = re.compile(r"\r+\n?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(data: bytes | bytearray) -> str:
    """The text of a command's output: no colours or control characters, no secret of ours."""
    text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
    return without_secrets(_CONTROLS.sub("", _LINE_ENDS.sub("\n", text)))


class CommandMissing(NothingSubmitted):
    """There is no such program here: nothing was done."""


@frozen
class Said:
    """What a command has said, and how it ended.

    Attributes:
        code: Its exit code; -n for signal n; None when it was ended at its time limit.
        out: Its standard output, cleaned; the last megabyte.
        err: Its standard error, likewise.
        begun: It has come as far as to do what it was asked for; a profile's `begins` tells.
    """

    code: int | None
    out: str
    err: str
    begun: bool = True

    @property
    def everything(self) -> str:
        """Both outputs, standard error last."""
        return f"{self.out}\n{self.err}".strip()

    @property
    def account(self) -> str:
        """Both outputs, and in the last lines how far it came and how it ended."""
        code = "no exit code" if self.code is None else f"exit code {self.code}"
        return "\n".join([self.everything, *([] if self.begun else ["not begun"]), code])

    def last_lines(self) -> str:
        """The last line of each output that has one, with its name."""
        named = (("output", self.out), ("error", self.err))
        lines = [(name, text.strip().splitlines()[-1]) for name, text in named if text.strip()]
        said = [f"on standard {name}: {line[-_MOST_WORDS:]!r}" for name, line in lines]
        return f"its last line {' and '.join(said)}" if said else "it printed nothing"

    def words(self) -> str:
        """Its last words, on one line: of standard error, or of standard output."""
        text = self.err.strip() or self.out.strip()
        line = " ".join(text.split())
        return line if len(line) <= _MOST_WORDS else "…" + line[-_MOST_WORDS:]

    def ending(self) -> str:
        """How it ended, with its last words: what stands in an error behind the command's name."""
        if self.code is None:
            how = "did not answer in time"
        elif self.code < 0:
            how = f"was ended by signal {-self.code}"
        else:
            how = f"ended with exit code {self.code}"
        words = self.words()
        return f"{how}: {words}" if words else f"{how} and printed nothing"


class CommandRunner:
    """Runs a scheduler's commands.

    Args:
        environ: Their whole environment; its PATH is where they are looked for.
        cwd: Their working directory; this process's own when not given.
    """

    def __init__(self, environ: Mapping[str, str], *, cwd: Path | None = None) -> None:
        self._environ = dict(environ)
        self._cwd = cwd

    def missing(self, program: str) -> bool:
        """Whether there is no such program to be called."""
        return shutil.which(program, path=self._environ.get("PATH", os.defpath)) is None

    async def run(
        self, argv: Sequence[str], *, timeout_seconds: float, stdin: str | None = None
    ) -> Said:
        """Run a command to its end, or to its time limit: then TERM, and KILL.

        Raises:
            CommandMissing: There is no such program.
            SchedulerError: It cannot be started.
        """
        async with _Pipe() as out, _Pipe() as err:
            process = await self._start(argv, stdin, out.writer, err.writer)
            readers = [asyncio.create_task(pipe.read_tail()) for pipe in (out, err)]
            code: int | None = None
            try:
                async with timeout(timeout_seconds):
                    code = await process.wait()
            except TimeoutError:
                pass
            finally:
                await _end(process)
                # What it has left running in the background may hold its output open.
                await asyncio.wait(readers, timeout=_DRAIN_SECONDS)
                await cancel_all(readers)
            return Said(code, clean(out.tail), clean(err.tail))

    async def lines(self, argv: Sequence[str]) -> AsyncGenerator[str, None]:
        """The lines that a command prints on both outputs, as they come; closing it ends it.

        Raises:
            SchedulerError: It cannot be started, or failed; with its own words.
        """
        last = ""
        async with _Pipe() as pipe:
            process = await self._start(argv, None, pipe.writer, pipe.writer)
            try:
                async for data in pipe.lines():
                    yield (last := clean(data))
                code = await process.wait()
            finally:
                await _end(process)
        if code != 0:
            raise SchedulerError(f"'{argv[0]}' {Said(code, last, '').ending()}")

    async def _start(
        self, argv: Sequence[str], stdin: str | None, out: int, err: int
    ) -> asyncio.subprocess.Process:
        if self.missing(argv[0]):
            path = self._environ.get("PATH", os.defpath)
            raise CommandMissing(
                f"the command '{argv[0]}' is not on this machine",
                hint=f"install it, or put it on the launcher's PATH ({path})",
            )
        with _input(stdin) as source:
            try:
                return await asyncio.create_subprocess_exec(
                    *argv,
                    env=self._environ,
                    cwd=self._cwd,
                    stdin=source,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,  # a terminal's Ctrl-C is the launcher's to judge
                )
            except (OSError, ValueError) as exc:  # ValueError: a NUL in a word
                why = exc.strerror if isinstance(exc, OSError) else exc
                raise SchedulerError(f"'{argv[0]}' cannot be started: {why}") from exc


async def _end(process: asyncio.subprocess.Process) -> None:
    """End what still runs: TERM to all that it started, and KILL to what stays."""
    if process.returncode is not None:
        return
    if _signal_group(process.pid, signal.SIGTERM):
        with contextlib.suppress(TimeoutError):
            async with timeout(_KILL_SECONDS):
                await process.wait()
                # A child may not listen, or not yet; nobody tells when it ends.
                while _signal_group(process.pid, 0):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_SECONDS)
                return
        _signal_group(process.pid, signal.SIGKILL)
    await wait_for(process, _KILL_SECONDS)


def _signal_group(leader: int, number: int) -> bool:
    """Signal all that a command has started; whether there was anything to be signalled."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def _input(text: str | None) -> Iterator[int]:
    """Standard input: a file without a name, so that nobody has to wait until it is read."""
    if text is None:
        yield asyncio.subprocess.DEVNULL
        return
    with anonymous_file("rdzv_stdin", text.encode()) as file:
        yield file.fileno()


class _Pipe:
    """A pipe that a command writes into; what is kept of it is its end.

    Not asyncio's own: with those, some versions of Python wait for the pipe instead of the process.
    """

    def __init__(self) -> None:
        self._read_fd, self.writer = os.pipe2(os.O_CLOEXEC)
        self.tail = bytearray()
        """What came last."""
        self._stream = asyncio.StreamReader(limit=_MOST_BYTES)
        self._transport: asyncio.ReadTransport | None = None

    async def __aenter__(self) -> _Pipe:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._stream), os.fdopen(self._read_fd, "rb", 0)
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._close_writer()
        if self._transport is not None:
            self._transport.close()

    def _close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    async def read_tail(self) -> None:
        """Read to the end, and keep the last megabyte."""
        self._close_writer()
        while data := await self._stream.read(_CHUNK):
            self.tail += data
            del self.tail[:-_MOST_BYTES]

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines, without their ends; a line beyond all measure comes in pieces."""
        self._close_writer()
        while True:
            try:
                line = await self._stream.readuntil()
            except asyncio.IncompleteReadError as exc:
                line = exc.partial
            except asyncio.LimitOverrunError:
                line = await self._stream.read(_CHUNK)
            if not line:
                return
            yield line.removesuffix(b"\n")

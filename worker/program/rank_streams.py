"""A stream of its own for each rank's stdout and stderr, and for its launcher's errors: FIFOs that
the hook moves them to. What comes out of them is put together in whole lines.

What the hook looks for in the folder, and when it leaves a rank alone: `worker.look.site`. A rank
that torchrun starts again opens its FIFO again, so the agent keeps an end to write itself, and sees
no end before the program is over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from worker.look.site.sitecustomize import LAUNCHER as LAUNCHER_NAME
from worker.look.site.sitecustomize import RANK_VARIABLES, STREAMS_FILE, identity
from worker.program.output import IDLE_SECONDS, LAUNCHER, STREAMS, Output, Pump, Source, Stream

MOST_RANKS = 64
"""The others have the program's common pipes: each rank costs four open files."""
_LONGEST_LINE = 65_536
_NOBODY = -1


class RankStreams:
    """The FIFOs of one program; its ends to read are the caller's once it has taken them.

    Args:
        folder: Is made, for its owner alone. Raises OSError.
        ranks: How many local ranks there may be.
    """

    def __init__(self, folder: Path, ranks: int) -> None:
        self.count = min(ranks, MOST_RANKS)
        self._folder = folder
        self._readers: dict[int, Source] = {}
        self._writers: list[int] = []
        folder.mkdir(mode=0o700)
        try:
            for stream in STREAMS:
                for rank in range(self.count):
                    self._open(Source(stream, rank), rank)
            self._open(Source("stderr", LAUNCHER), LAUNCHER_NAME)
        except OSError:
            self.close()
            raise

    def _open(self, source: Source, name: object) -> None:
        path = self._folder / f"{name}.{source.stream}"
        os.mkfifo(path, 0o600)
        flags = os.O_NONBLOCK | os.O_CLOEXEC
        self._readers[os.open(path, os.O_RDONLY | flags)] = source
        self._writers.append(os.open(path, os.O_WRONLY | flags))

    def announce(self, pipes: Mapping[int, Stream], environ: Mapping[str, str]) -> None:
        """Let ranks use them, before the program runs; they do without where this cannot be.

        Args:
            pipes: The program's own, stdout first.
            environ: What it is started with. What numbers a rank there is of another launcher,
                such as the srun that has started this agent: all processes would inherit it.
        """
        names = [name for name in RANK_VARIABLES if name not in environ]
        text = f"{' '.join(map(identity, pipes))}\n{' '.join(names)}\n"
        with contextlib.suppress(OSError):
            (self._folder / STREAMS_FILE).write_text(text, encoding="ascii")

    def take_readers(self) -> dict[int, Source]:
        """The ends to read, without blocking; the caller closes them."""
        taken, self._readers = self._readers, {}
        return taken

    def release(self) -> None:
        """The program is over: what nobody else holds ends when it has been read."""
        while self._writers:
            os.close(self._writers.pop())

    def close(self) -> None:
        """Nobody can use them any more."""
        self.release()
        for fd in self.take_readers():
            os.close(fd)
        shutil.rmtree(self._folder, ignore_errors=True)


class RankLines:
    """An output of several ranks, in front of one that takes what comes as it comes: what one has
    written is never cut into a line of another.

    A line is passed on when it is whole, or unfinished after `IDLE_SECONDS`; if another rank goes
    on then, a line feed ends it. A progress bar is passed on at once, as it stands, and another
    rank's overwrites it, as on a terminal.

    Args:
        output: Where all of it goes.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._held: dict[tuple[Stream, int | None], tuple[float, bytes]] = {}
        self._midline: dict[Stream, int | None] = {}

    def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
        """See the protocol."""
        now = time.monotonic()
        since, before = self._held.pop((stream, rank), (now, b""))
        data = before + data
        cut = data.rfind(b"\n") + 1
        goes_on = self._midline.get(stream, _NOBODY) == rank
        if goes_on or data.find(b"\r", cut) >= 0 or len(data) - cut > _LONGEST_LINE:
            cut = len(data)
        if cut:
            self._pass_on(stream, data[:cut], rank)
        if cut < len(data):
            self._held[stream, rank] = (now if cut else since, data[cut:])
        if self._held:
            self._let_go(now - IDLE_SECONDS)

    def idle(self) -> None:
        """See the protocol."""
        self._let_go(time.monotonic())
        self._output.idle()

    def _let_go(self, until: float) -> None:
        """Pass on what has been waiting since then."""
        for (stream, rank), (since, data) in [*self._held.items()]:
            if since <= until:
                del self._held[stream, rank]
                self._pass_on(stream, data, rank)

    def _pass_on(self, stream: Stream, data: bytes, rank: int | None) -> None:
        unfinished = self._midline.pop(stream, _NOBODY)
        if unfinished not in (_NOBODY, rank) and not data.startswith(b"\r"):
            self._output.write(stream, b"\n", unfinished)
        if not data.endswith(b"\n"):
            self._midline[stream] = rank
        self._output.write(stream, data, rank)


def begin_reading(streams: Mapping[int, Stream], output: Output, ranks: RankStreams | None) -> Pump:
    """Read all that a program writes; of what comes at once, its launcher's error comes last."""
    pipes = {fd: Source(stream) for fd, stream in streams.items()}
    if ranks is None:
        return Pump(pipes, output)
    found = [*ranks.take_readers().items(), *pipes.items()]
    pipes = dict(sorted(found, key=lambda each: _place(each[1])))
    return Pump(pipes, RankLines(output) if ranks.count > 1 else output, ranks.release)


def _place(source: Source) -> tuple[int, bool]:
    return STREAMS.index(source.stream), source.rank == LAUNCHER

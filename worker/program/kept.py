"""A keeper, as the agent holds it: started with a program below it, ended where nobody wants it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from rendezvous.compat import timeout
from rendezvous.wire.errors import RdzvError, RunError, UsageError
from worker.program import keeper
from worker.program.output import STREAMS, Stream
from worker.program.rank_streams import RankStreams

logger = logging.getLogger(__name__)

_UNUSED_SECONDS = 2.0
keepers: set[int] = set()
"""The pids of those that live: each ends what is below it, and nobody else does."""


class KeeperProcess(Protocol):
    """A child of this process, as `asyncio.subprocess.Process` is one."""

    pid: int

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it lives, negative: by that signal."""

    @property
    def stdin(self) -> asyncio.StreamWriter | None:
        """What its program reads, where it was given a pipe."""

    async def wait(self) -> int:
        """Wait for its end."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def send_signal(self, number: int, /) -> None:
        """Send it a signal."""


class Kept(NamedTuple):
    """A program below a keeper: the keeper, its lifeline, and what is to be read."""

    process: KeeperProcess
    lifeline: socket.socket
    streams: dict[int, Stream]


async def start_keeper(
    argv: Sequence[str],
    env: Mapping[str, str],
    grace_seconds: float,
    *,
    stdin: int = asyncio.subprocess.DEVNULL,
    ranks: RankStreams | None = None,
    until: float | None = None,
) -> Kept:
    """Start a program below a keeper. Raises UsageError and RunError, as `Program.start`."""
    ours, theirs = socket.socketpair()
    with contextlib.ExitStack() as undo, theirs:
        undo.callback(ours.close)
        if until is not None:
            ours.send(keeper.fence(until))
        pipes = [os.pipe(), os.pipe()]
        for reader, _ in pipes:
            undo.callback(os.close, reader)
        streams = dict(zip((reader for reader, _ in pipes), STREAMS, strict=True))
        if ranks is not None:
            ranks.announce(streams, env)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-X", "utf8", Path(keeper.__file__).resolve()),
                *(str(theirs.fileno()), str(grace_seconds), "--", *argv),
                env=env,
                stdin=stdin,
                stdout=pipes[0][1],
                stderr=pipes[1][1],
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # a terminal's Ctrl-C is the agent's to pass on
            )
        except (OSError, ValueError) as error:
            raise _cannot_start(argv[0], error) from error
        finally:
            for _, writer in pipes:
                os.close(writer)
        undo.pop_all()
    keepers.add(process.pid)
    return Kept(process, ours, streams)


async def end_kept(kept: Kept) -> None:
    """End at once what was started below a keeper and never became a `Program`."""
    with contextlib.suppress(OSError):
        kept.lifeline.send(b"K")
    try:
        async with timeout(_UNUSED_SECONDS):
            await kept.process.wait()
    except TimeoutError:  # stuck in a file server, perhaps: its keeper sees to it
        logger.debug("%d does not end yet", kept.process.pid)
    finally:
        keepers.discard(kept.process.pid)
        kept.lifeline.close()
        for fd in kept.streams:
            os.close(fd)


def has_ended(kept: Kept) -> bool:
    """Whether what was started below a keeper lives no longer."""
    with contextlib.suppress(BlockingIOError):
        said = kept.lifeline.recv(256, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        if not said or b"ended" in said:
            return True
    return kept.process.returncode is not None


def _cannot_start(program: str, error: OSError | ValueError) -> RdzvError:
    if isinstance(error, ValueError):
        return UsageError(f"{program!r} cannot be started: {error}")
    hint = ""
    if error.errno == errno.E2BIG:
        hint = "Its arguments and environment are too long for this machine; put some into a file."
    return RunError(f"{program!r} cannot be started: {error.strerror}", hint=hint)

"""The registry of a torchrun's run, where its endpoint is on this machine: started, kept until this
node has met it, and left to itself then."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from typing import IO

from pydantic import BaseModel

from launcher.prepare.registry_process import own_addresses
from launcher.torchrun.asked import NEAR, Asked
from launcher.torchrun.head import head_words
from launcher.torchrun.words import Begin
from rendezvous.compat import timeout
from rendezvous.door import own_command
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import ExitCode, UsageError
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import printable
from worker.machine.interfaces import look

logger = logging.getLogger("worker.torchrun")

_LOOK_SECONDS = 0.2
_DIAL_SECONDS = 1.0
_TOLD_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
_PATIENCE_SECONDS = 20.0
_MOST_WORDS = 600


class Order(BaseModel):
    """What the host's process reads from its standard input."""

    begin: Begin
    token: str


def is_here(host: str) -> bool:
    """Whether a name or an address is this machine's; a name is looked up."""
    if host == socket.gethostname():
        return True
    own = {cidr.split("/")[0] for one in look().interfaces for cidr in one.addresses}
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    addresses = [str(place[0]).partition("%")[0] for *_, place in found]
    # Debian gives a machine's own name 127.0.1.1, which no interface lists.
    return any(address in own or is_loopback(address) for address in addresses)


class Hosting:
    """What this node does for the registry.

    Args:
        asked: Of the torchrun.
        begin: The same, as it was said.
        token: The group token.
    """

    def __init__(self, asked: Asked, begin: Begin, token: str | None) -> None:
        self._asked = asked
        self._order = Order(begin=begin, token=token or "")
        self._host: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    async def go(self) -> None:
        """Have a registry here for as long as this goes on. Raises UsageError: none can be."""
        asked = self._asked
        hosts = asked.is_host
        if hosts is None:
            here = asked.loopback or await asyncio.to_thread(is_here, asked.host)
            hosts = bool(asked.host) and here
        if not (hosts and asked.host and self._order.token):
            return
        if words := head_words(asked, await asyncio.to_thread(own_addresses)):
            logger.info("%s", words)
        try:
            await self._keep()
        finally:
            if self._said is not None:
                self._said.close()

    async def _keep(self) -> None:
        until = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while True:
            answers = await self._answers()
            if not answers and self._host is not None and self._host.returncode:
                # Then another torchrun of this machine has just started it: it does not listen yet.
                is_elsewhere = self._host.returncode == ExitCode.FAILED
                if not is_elsewhere or asyncio.get_running_loop().time() >= until:
                    words = self._words()
                    raise UsageError(f"the registry of this run cannot be started here: {words}")
                await asyncio.sleep(_AGAIN_SECONDS)
                answers = await self._answers()
            if not answers:
                self._start()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _answers(self) -> bool:
        """Whether somebody listens, or is about to; who it is, the client finds out."""
        if self._host is not None and self._host.poll() is None:
            return True
        host = NEAR[0] if self._asked.loopback else self._asked.host
        try:
            async with timeout(_DIAL_SECONDS):
                _, writer = await asyncio.open_connection(host, self._asked.port)
        except OSError:  # the time-out is one
            return False
        writer.close()
        return True

    def _start(self) -> None:
        """Start it. Raises UsageError."""
        if self._said is not None:
            self._said.close()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (the process has it)
        try:
            self._host = subprocess.Popen(
                own_command("_torchrun_host"),
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._said,
                env={k: v for k, v in os.environ.items() if k not in SECRET_VARIABLES},
                start_new_session=True,  # it outlives this torchrun
            )
        except OSError as exc:
            raise UsageError(f"the registry's process cannot be started: {exc.strerror}") from exc
        assert self._host.stdin is not None
        with contextlib.suppress(OSError), self._host.stdin as told:
            told.write(self._order.model_dump_json().encode())

    def _words(self) -> str:
        """What it has said last."""
        assert self._said is not None
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()[-2:]
        return printable(" ".join(line.strip() for line in lines), _MOST_WORDS)

    async def close(self, everyone_left: Callable[[], Awaitable[bool]]) -> None:
        """Wait a moment until the others know how the run has ended: where this machine is a
        container, its registry ends with torchrun."""
        until = asyncio.get_running_loop().time() + _TOLD_SECONDS
        while self._host is not None and self._host.poll() is None:
            if asyncio.get_running_loop().time() > until or await everyone_left():
                return
            await asyncio.sleep(_LOOK_SECONDS)

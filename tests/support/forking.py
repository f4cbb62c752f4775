"""A zygote without an agent: what is forked from it, and the same started by Python."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from worker.contracts.framework import PROGRAMS
from worker.programs.warm.rank import ROOM, ROOM_VARIABLE

PROGRAM = f"{PROGRAMS}/warm/zygote.py"
READY_SECONDS = 90.0
END_SECONDS = 60.0
GRACE_SECONDS = 5.0
LIKE_TORCHRUNS = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "WORLD_SIZE": "1",
    "TORCHELASTIC_RUN_ID": "r",
}
OF_THE_NODE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "NNODES": "1", "NODE_RANK": "0"}


@dataclass(frozen=True)
class Outcome:
    """How a process has ended, and what it has printed."""

    code: int
    out: str
    err: str


class Zygote:
    """One that has imported torch, in this environment."""

    def __init__(
        self, words: Sequence[str], environ: Mapping[str, str], folder: Path, modules: str = ""
    ) -> None:
        self.environ = {**environ}
        self.folder = folder
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.settimeout(READY_SECONDS)
        self.process = subprocess.Popen(
            [sys.executable, "-u", PROGRAM, modules, *words],
            env={**environ, ROOM_VARIABLE: ROOM},
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
        )
        theirs.close()
        self.said: dict[str, Any] = json.loads(self._link.recv(65_536))

    def close(self) -> None:
        self._link.close()
        self.process.wait(READY_SECONDS)

    def fork(
        self,
        words: Sequence[str],
        ranks: Sequence[Mapping[str, str]] = (LIKE_TORCHRUNS,),
    ) -> Outcome:
        """Fork a process for each of the ranks; how their starter ends."""
        (lifeline, its_lifeline), (orders, its_orders) = socket.socketpair(), socket.socketpair()
        pipes = [os.pipe(), os.pipe()]
        theirs = [its_lifeline.fileno(), its_orders.fileno(), *(writer for _, writer in pipes)]
        asked = json.dumps({"grace": GRACE_SECONDS, "port": 0}).encode()
        socket.send_fds(self._link, [asked], theirs)
        for one in (its_lifeline, its_orders):
            one.close()
        for _, writer in pipes:
            os.close(writer)
        assert json.loads(self._link.recv(65_536))["keeper"] > 0
        orders.settimeout(END_SECONDS)
        assert json.loads(orders.recv(4096)) == {"armed": True}
        order = {
            "words": list(words),
            "set": OF_THE_NODE,
            "unset": [],
            "ranks": list(ranks),
        }
        orders.sendall(json.dumps(order).encode())
        orders.close()
        out, err = (_Reading(reader) for reader, _ in pipes)
        said = _Reading(lifeline.detach()).text()
        code = next(int(line[6:]) for line in said.splitlines() if line.startswith("ended "))
        return Outcome(code, out.text(), err.text())

    def cold(self, words: Sequence[str], **changed: str) -> Outcome:
        """The same, started by Python as torchrun starts it."""
        with open(os.devnull, "r+b") as empty:
            done = subprocess.run(
                # torchrun handles these, whether or not it was told to ignore them.
                ["env", "--default-signal=HUP,QUIT", sys.executable, "-u", *words],
                env={**self.environ, **OF_THE_NODE, **LIKE_TORCHRUNS, **changed},
                stdin=empty,
                capture_output=True,
                text=True,
                cwd=self.folder,
                timeout=END_SECONDS,
                start_new_session=True,
                check=False,
            )
        code = done.returncode
        return Outcome(code if code >= 0 else 128 - code, done.stdout, done.stderr)


class _Reading(Thread):
    """Reads an open file to its end."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True)
        self._fd, self._read = fd, b""
        self.start()

    def run(self) -> None:
        while piece := os.read(self._fd, 65_536):
            self._read += piece

    def text(self) -> str:
        self.join(END_SECONDS)
        assert not self.is_alive()
        os.close(self._fd)
        return self._read.decode(errors="replace")

"""Asks the threads of ranks, all at once; who does not answer costs no more than the limit."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from worker.look.answer import Answer, answer_in
from worker.look.answering import MOST_PATH

MOST_BYTES = 4 << 20
STATUS_SECONDS = 0.2
"""So long a `status` is waited for: who holds the GIL is silent for longer."""
_CHUNK = 1 << 18
_NOT_THERE = (errno.ENOENT, errno.ECONNREFUSED)


class Asked(NamedTuple):
    """What ranks have answered, by local rank.

    Attributes:
        answers: None where it was nothing that can be read.
        silent: Those that are there and did not answer, as while one holds the GIL.
        without: Those that have no thread which could.
    """

    answers: dict[int, Answer | None]
    silent: set[int]
    without: set[int]


def ask(folder: Path, ranks: Iterable[int], request: bytes, seconds: float) -> Asked:
    """Ask ranks.

    Args:
        folder: Where their sockets are.
        ranks: The local ranks.
        request: `status` or `entries`.
        seconds: The limit.
    """
    deadline = time.monotonic() + seconds
    clients: dict[int, socket.socket] = {}
    silent, without = set[int](), set[int]()
    try:
        for rank in ranks:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            error = _send(client, folder / f"{rank}.socket", request)
            if error:
                client.close()
                (without if error in _NOT_THERE else silent).add(rank)
            else:
                clients[rank] = client
        heard = _read(clients, deadline)
    finally:
        for client in clients.values():
            client.close()
    silent |= clients.keys() - heard.keys()
    return Asked({rank: answer_in(data) for rank, data in heard.items()}, silent, without)


def importing(folder: Path, ranks: Iterable[int]) -> bool | None:
    """Whether a rank is importing torch; None where none has begun to.

    Args:
        folder: What RDZV_LOOK_FOLDER names for these ranks.
        ranks: The local ranks.
    """
    asked = ask(folder, ranks, b"status", STATUS_SECONDS)
    stages = {answer.stage for answer in asked.answers.values() if answer is not None}
    if asked.silent or "importing" in stages:  # who loads a library may not answer
        return True
    return False if stages and not asked.without else None


def _send(client: socket.socket, path: Path, request: bytes) -> int:
    """Begin with one rank; returns what kept it, or 0."""
    client.setblocking(False)
    text, folder = str(path), -1
    try:
        if len(os.fsencode(text)) > MOST_PATH:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            text = f"/proc/self/fd/{folder}/{path.name}"
        client.connect(text)
        client.send(request + b"\n")
    except OSError as exc:
        return exc.errno or errno.EIO
    finally:
        if folder >= 0:
            os.close(folder)
    return 0


def _read(clients: dict[int, socket.socket], deadline: float) -> dict[int, bytes]:
    """What those say that come to an end before the deadline."""
    parts = {rank: bytearray() for rank in clients}
    heard: dict[int, bytes] = {}
    with selectors.DefaultSelector() as selector:
        for rank, client in clients.items():
            selector.register(client, selectors.EVENT_READ, rank)
        while len(heard) < len(clients) and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                rank = key.data
                try:
                    data = clients[rank].recv(_CHUNK)
                except BlockingIOError:
                    continue
                except OSError:  # it has ended
                    data = b""
                parts[rank] += data
                if not data or len(parts[rank]) > MOST_BYTES:
                    selector.unregister(key.fileobj)
                    heard[rank] = bytes(parts[rank])
    return heard

"""The processes that nodes live in: forked from the benchmark, each at the end of a pipe."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Any


@contextlib.contextmanager
def forked(
    work: Callable[..., None], each: Iterable[tuple[Any, ...]]
) -> Iterator[list[Connection]]:
    """Our ends of the pipes to a process for each of these arguments; its end is its first one.

    Afterwards they are killed: what they still hold are connections.
    """
    context = multiprocessing.get_context("fork")
    controls: list[Connection] = []
    processes: list[ForkProcess] = []
    try:
        for arguments in each:
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, *arguments), daemon=True)
            process.start()
            processes.append(process)
            theirs.close()
            controls.append(ours)
        yield controls
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def heard(control: Connection, seconds: float) -> bytes:
    """What a process says next; raises TimeoutError."""
    if not control.poll(seconds):
        raise TimeoutError(f"a process of nodes said nothing for {seconds:g} s")
    return control.recv_bytes()

"""Processes that nodes live in, forked from the benchmark; and a crowd, driven with JSON."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from bench.crowd import Crowd
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace

_LIMIT_SECONDS = 180.0
_HOSTS = Path("/etc/hosts")
_LINE = "::ffff:127.0.0.1 localhost\n"
_CLONE_NEWNS = 0x0002_0000


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


def _serve(control: Connection, place: RegistryPlace, slots: range) -> None:
    """Do what the driver asks for, one thing after the other, and keep watching in between."""
    crowd = Crowd(place, slots)
    crowd.watch_file(control.fileno())
    while True:
        if crowd.turn(1.0, control.fileno()):
            order = json.loads(control.recv_bytes())
            control.send_bytes(json.dumps(_obey(crowd, order)).encode())


def _obey(crowd: Crowd, order: dict[str, Any]) -> dict[str, Any]:
    progress = crowd.progress
    everyone = len(crowd.nodes)
    began = time.monotonic()
    match order["do"]:
        case "open":
            crowd.open()
        case "prepare":
            secret = bytes.fromhex(order["secret"])
            crowd.prepare(RunKeys(secret, order["run"], order["launch_id"]))
        case "gather":
            early = [slot for slot in crowd.nodes if slot != order["last"]]
            crowd.arrive(early)
            crowd.pump(lambda: len(progress.parked) == len(early))
        case "meet":
            if order["connect"]:
                crowd.open(join=True)
            else:
                crowd.arrive(slot for slot in order["slots"] if slot in crowd.nodes)
            crowd.pump(lambda: progress.running == everyone)
            return {"from": began, "table": progress.table_at, "go": progress.running_at}
        case "second":
            crowd.ends_at_once = order["at_once"]
            crowd.close_second()
        case "restart":
            if mine := order["slot"] in crowd.nodes:
                crowd.fail(order["slot"])
            crowd.pump(lambda: progress.running == everyone * order["goes"])
            return {"go": progress.running_at, **({"from": began} if mine else {})}
        case "tell":
            return {"told": crowd.tell(order["first"], order["count"], order["pause"])}
        case "leave":
            crowd.pump(lambda: progress.left == everyone)
    return {}


class Crowds:
    """All simulated nodes of one registry, spread over processes."""

    def __init__(self, controls: Sequence[Connection]) -> None:
        self._controls = controls

    def order(self, do: str, **more: Any) -> list[dict[str, Any]]:
        """Have every process do something; returns what each of them says."""
        data = json.dumps({"do": do, **more}).encode()
        for control in self._controls:
            control.send_bytes(data)
        return [json.loads(heard(control, _LIMIT_SECONDS)) for control in self._controls]


@contextlib.contextmanager
def crowds(place: RegistryPlace, nodes: int, processes: int) -> Iterator[Crowds]:
    """Processes with `nodes` simulated nodes between them; ended afterwards."""
    parts = [nodes * number // processes for number in range(processes + 1)]
    with forked(_serve, [(place, range(*part)) for part in itertools.pairwise(parts)]) as controls:
        yield Crowds(controls)


def name_mapped_loopback() -> bool:
    """Let the mapped form of 127.0.0.1 be found in /etc/hosts; whether it is.

    torch asks for the name of each address that it dials, as `::ffff:127.0.0.1`. Where no name
    server answers, that costs c10d seconds at each node, and 128 nodes never meet. rdzv writes such
    lines for its nodes; the peers shall have them too. Needs root: a mount namespace of its own.
    """
    text = _HOSTS.read_text()
    if _LINE.split()[0] in text.split():
        return True
    if os.geteuid() != 0 or ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        return False
    with tempfile.NamedTemporaryFile("w", suffix="-hosts") as file:
        file.write(f"{text.rstrip()}\n{_LINE}")
        file.flush()
        for command in (["--make-rprivate", "/"], ["--bind", file.name, str(_HOSTS)]):
            if subprocess.run(["mount", *command], check=False).returncode != 0:
                return False
    return True

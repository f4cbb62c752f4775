"""A crowd in a process of its own, driven over a pipe with JSON."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from bench.children import forked, heard
from bench.crowd import Crowd
from bench.look_answer import answer_of
from bench.registry import raise_file_limit
from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import RegistryPlace

_LIMIT_SECONDS = 180.0


def _serve(control: Connection, place: RegistryPlace, slots: range) -> None:
    """Do what the driver asks for, one thing after the other, and keep watching in between."""
    raise_file_limit()
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
            table, go = progress.table_at, progress.running_at
            times = {"told": progress.told_at, "table": table, "go": go}
            return {"from": began, **times} if mine else times
        case "looks":
            written = {slot: answer_of(slot, order["nodes"]) for slot in crowd.nodes}
            crowd.look_answer = written.__getitem__
        case "machines":
            crowd.tell_machines(order["body"].encode())
        case "credentials":
            return {str(slot): node.credential for slot, node in crowd.nodes.items()}
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

"""A handler of torchrun's in this process, and the other end of its socket."""

from __future__ import annotations

import importlib
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ENDED = SimpleNamespace(pid=0, wait=lambda: 7)
_API = "torch.distributed.elastic.rendezvous.api"
_OURS = ("torchrun", "torchrun_agent")


class Helper:
    """The other end of a handler's socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lines = link.makefile("rb")

    def hear(self) -> dict[str, Any]:
        """What the handler says next."""
        return dict(json.loads(self._lines.readline()))

    def say(self, kind: str, **words: Any) -> None:
        """Say something to it."""
        self.send(json.dumps({"kind": kind, **words}).encode() + b"\n")

    def send(self, piece: bytes) -> None:
        """Send this, wherever a line ends."""
        self._link.sendall(piece)

    def go(self, **changes: Any) -> None:
        """A table of one node."""
        words: dict[str, Any] = {"node": 0, "address": "127.0.0.1", "port": free_port()}
        words |= {"nodes": [[2, "default"]], "variables": {}, "removed": []}
        self.say("go", **(words | changes))

    def end(self) -> None:
        """It is gone."""
        self._lines.close()
        self._link.close()


Made = tuple[Any, Helper]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listens:
        return int(listens.getsockname()[1])


def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Made]]:
    """Makes handlers, with helpers that say what the test wants, for as long as the test runs."""
    api = importlib.import_module(_API)
    torchrun = importlib.import_module("rdzv.torchrun")
    made: list[Helper] = []

    def start(theirs: socket.socket) -> Any:
        made.append(Helper(theirs.dup()))
        return ENDED

    monkeypatch.setattr(torchrun, "_start_helper", start)

    def make(**conf: Any) -> Made:
        params = api.RendezvousParameters("rdzv", "n0:1", "job", 1, 2, **({"nproc": 2} | conf))
        handler: Any = torchrun.handler()(params)
        return handler, made[-1]

    yield make
    for helper in made:
        helper.end()


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as exc:  # noqa: BLE001 (the test looks at it)
            found.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def ended(thread: threading.Thread) -> None:
    thread.join(10)
    assert not thread.is_alive()


def started(make: Callable[..., Made], **go: Any) -> tuple[Any, Helper, Any]:
    """A handler on its first table, and what `next_rendezvous` gave."""
    handler, helper = make()
    helper.hear()
    thread, found = in_thread(handler.next_rendezvous)
    helper.hear()
    helper.go(**go)
    ended(thread)
    return handler, helper, found[0]


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.01)


# --- as much of torch as a handler needs


class _Store:
    """The base of all stores."""


class TCPStore:
    """One that listens for as long as it is there.

    Attributes:
        made: Of each one what it was made with, and where it listens.
    """

    made: list[tuple[Any, ...]] = []  # noqa: RUF012

    def __init__(self, *place: Any, master_listen_fd: int, wait_for_workers: bool) -> None:
        self._listens = socket.socket(fileno=master_listen_fd)
        where = self._listens.family, *self._listens.getsockname()[:2]
        type(self).made.append((*place, wait_for_workers, where))

    def __del__(self) -> None:
        self._listens.close()


def _error(name: str, base: type[Exception] = Exception) -> type[Exception]:
    return type(name, (base,), {})


def _parameters(*place: Any, **config: Any) -> Any:
    names = ("backend", "endpoint", "run_id", "min_nodes", "max_nodes")
    return SimpleNamespace(**dict(zip(names, place, strict=True)), config=config)


def _info(store: Any, rank: int, world_size: int, place: Any) -> Any:
    return SimpleNamespace(
        store=store, rank=rank, world_size=world_size, bootstrap_store_info=place
    )


def _place(address: str, port: int) -> Any:
    return SimpleNamespace(master_addr=address, master_port=port)


def without_torch() -> Iterator[None]:
    """For as long as this goes on, torch is that."""
    error = _error("RendezvousError")
    names: dict[str, dict[str, Any]] = {
        "torch": {},
        "torch.distributed": {
            "DistStoreError": _error("DistStoreError"),
            "Store": _Store,
            "TCPStore": TCPStore,
        },
        "torch.distributed.elastic": {},
        "torch.distributed.elastic.rendezvous": {},
        _API: {
            "RendezvousError": error,
            "RendezvousClosedError": _error("RendezvousClosedError", error),
            "RendezvousConnectionError": _error("RendezvousConnectionError", error),
            "RendezvousGracefulExitError": _error("RendezvousGracefulExitError", error),
            "RendezvousHandler": object,
            "RendezvousInfo": _info,
            "RendezvousParameters": _parameters,
            "RendezvousStoreInfo": _place,
        },
    }
    import rdzv

    with pytest.MonkeyPatch.context() as patch:
        for name, parts in names.items():
            module = ModuleType(name)
            vars(module).update(parts)
            patch.setitem(sys.modules, name, module)
        for name in _OURS:
            patch.delitem(sys.modules, f"rdzv.{name}", raising=False)
        for name in _OURS:
            importlib.import_module(f"rdzv.{name}")
        yield
    for name in _OURS:  # those were made of it
        sys.modules.pop(f"rdzv.{name}", None)
        vars(rdzv).pop(name, None)

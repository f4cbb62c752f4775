"""The registry under measurement: the very process that a launcher starts, on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from features.hang import LOOKS
from features.hang.wire import RunLook
from launcher.prepare.registry_process import listen, server_command, write_config
from launcher.state.state_dir import StateDir
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import RunKeys, registry_credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.questions import answers, ask_nodes
from rendezvous.talk.retry import until_answered
from rendezvous.wire.run import EventLine, RunSpec, RunStatus

_LIMIT_SECONDS = 60.0
T = TypeVar("T")


@dataclass(frozen=True)
class Registry:
    """A registry process, its place, and the secret of its operator."""

    process: psutil.Process
    place: RegistryPlace
    secret: bytes

    def keys(self, run: str, launch_id: str) -> RunKeys:
        """All that the launcher of a run derives from its secret."""
        return RunKeys(self.secret, run, launch_id)

    def create(self, keys: RunKeys, nodes: int, *, verify: bool = False, **more: Any) -> None:
        """Make a run that seals its table as soon as all nodes are in."""
        slots = range(nodes + more.get("standby", 0))
        spec = RunSpec(
            launch_id=keys.launch_id,
            min_nodes=nodes,
            max_nodes=nodes,
            managed=False,
            verify=verify,
            token_sha256=[keys.join_token(slot, 1).sha256() for slot in slots],
            read_sha256=keys.read.sha256(),
            admin_sha256=keys.admin.sha256(),
            **more,
        )
        self._call(lambda client: client.create(keys.run, spec))

    def cancel(self, keys: RunKeys) -> None:
        """End a run."""
        self._call(lambda client: client.cancel(keys.run, "measured"))

    def wait_for(self, keys: RunKeys, reached: Callable[[RunStatus], bool]) -> None:
        """Until the run's status is so; comes back a millisecond or two after it."""

        async def waiting(client: RegistryClient) -> None:
            status = await client.status(keys.run)
            while not reached(status):
                status = await client.status(keys.run, after=status.version, wait=20.0)

        self._call(waiting)

    def events(self, keys: RunKeys) -> list[EventLine]:
        """What has happened to a finished run that everybody has left."""

        async def reading(client: RegistryClient) -> list[EventLine]:
            return [line async for line in client.events(keys.run)]

        return self._call(reading)

    def look(self, keys: RunKeys) -> RunLook:
        """What a look finds, once all nodes have answered."""

        async def looking(client: RegistryClient) -> RunLook:
            client.credential = keys.look.text()
            number = (await ask_nodes(client, LOOKS, keys.run)).number
            seen: RunLook = await answers(client, LOOKS, keys.run, number, 20.0)
            assert seen.over
            assert all(node.report is not None for node in seen.nodes)
            return seen

        return self._call(looking)

    def wait_until_it_serves(self) -> None:
        """Connections wait in the socket's queue until it does."""
        self._call(lambda client: client.connect())

    def _call(self, call: Callable[[RegistryClient], Coroutine[Any, Any, T]]) -> T:
        async def calling() -> T:
            operator = registry_credential(self.secret)
            async with RegistryClient(
                self.place, operator, request_seconds=_LIMIT_SECONDS
            ) as client:
                return await until_answered(lambda: call(client), seconds=_LIMIT_SECONDS)

        return asyncio.run(calling())

    def cpu_seconds(self) -> float:
        """CPU time that the process has used."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def rss_bytes(self) -> int:
        """Memory that the process holds now."""
        return int(self.process.memory_info().rss)


def raise_file_limit() -> None:
    """Each node's connection is an open file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.contextmanager
def serving(
    *, tls: bool, journal: str, module: Sequence[str] = (), dsn: str = ""
) -> Iterator[Registry]:
    """A registry that serves; ended afterwards.

    Args:
        tls: With the launch's own certificate, as beyond loopback.
        journal: `sqlite`, as every launch has it, `memory`, or `postgres`, as a replica has it.
        module: Runs in place of our own command: a profiler around the registry.
        dsn: Where PostgreSQL is.
    """
    with tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder:
        state = StateDir(Path(folder), "bench")
        state.acquire()
        secret = state.secret()
        place = write_config(state, secret, tls=tls)
        with listen(29_700, address="127.0.0.1", exact=False) as sock:
            if journal != "sqlite":
                config = json.loads((state.path / "registry.json").read_text())
                config |= {"journal": None}
                if dsn:
                    config |= {
                        "shared_journal": dsn,
                        "address": f"127.0.0.1:{sock.getsockname()[1]}",
                    }
                state.write_json("registry.json", config)
            command = server_command(state, sock.fileno())
            if module:
                own = command[command.index("_registry") + 1 :]
                command = [sys.executable, "-m", *module, *own]
            with (state.path / "registry.log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    pass_fds=[sock.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            try:
                port = sock.getsockname()[1]
                place = replace(place, addresses=("127.0.0.1",), port=port)
                started = Registry(psutil.Process(process.pid), place, secret)
                started.wait_until_it_serves()
                yield started
            finally:
                process.terminate()
                process.wait(_LIMIT_SECONDS)
        state.release()

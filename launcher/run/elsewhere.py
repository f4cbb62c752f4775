"""A run that was launched on another machine: kept up to date in a folder of this one while it is
looked at, so that it is read as if it had been launched here.

The folder has what its registry tells: the record, the nodes and their ranks, and what features
keep of it. It has no secret, and goes with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from launcher.port import LauncherPort, run_features
from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import StateDir
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import RegistryPlace, ViewString
from rendezvous.wire.errors import RdzvError, UsageError
from rendezvous.wire.run import Phase, RunStatus

_LOOK_SECONDS = 2.0
_WAIT_SECONDS = 2.0
"""While the programs run a status is waited for: how they end is told for a moment only, as the
registry of a launch ends with it."""
_PAUSE_A_SLOT = 0.0005
_GONE_SECONDS = 3.0
"""A registry that has told the end of its run and does not answer for so long has ended, too."""


def place_at(there: RegistryPlace, url: str) -> RegistryPlace:
    """Address at which a registry is reached from here; it proves itself as it does there.

    Raises UsageError for what is not the URL of one.
    """
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("", "http", "https") or parts.path not in ("", "/"):
        raise UsageError(
            f"--url is {url!r}, which is not an address of a registry",
            hint="give a host and a port, such as https://localhost:29600",
        )
    return RegistryPlace((host,), port or there.port, there.trust, there.proof)


class Elsewhere:
    """The folder of one run that was launched elsewhere.

    Args:
        root: Where its folder is made.
        view: What lets us see it.
        place: Where its registry is reached from here.
    """

    def __init__(self, root: Path, view: ViewString, place: RegistryPlace) -> None:
        self._view = view
        self._place = place
        self.state = StateDir(root, view.run)
        self.state.acquire()  # as its launcher would: the run goes on
        self.state.write_record(
            LaunchRecord(
                run=view.run,
                launch_id=view.launch_id,
                scheduler="",
                place=place.to_json(),
                owns_registry=False,
            )
        )

    async def follow(self, *, stays: bool = False) -> None:
        """Keep the folder up to date until the run has ended, and its registry too.

        Args:
            stays: The registry does not end with the run: the last node's end counts.
        """
        run, clock = self._view.run, asyncio.get_running_loop().time
        last: RunStatus | None = None
        answered_at = clock()
        async with (
            RegistryClient(self._place, self._view.read) as client,
            self._parts(client, stays=stays) as port,
        ):
            while True:
                runs = last is not None and last.phase is Phase.RUNNING
                after, wait = (last.version, _WAIT_SECONDS) if last and runs else (-1, 0.0)
                pause = _LOOK_SECONDS
                with contextlib.suppress(RdzvError):
                    last = await client.status(run, after=after, wait=wait)
                    answered_at = clock()
                    self.state.write("status.json", last.model_dump_json().encode())
                    port.wake()
                    if last.phase is Phase.RUNNING:
                        pause = _PAUSE_A_SLOT * len(last.slots)
                silent = clock() - answered_at
                if last is None or last.phase is not Phase.FINISHED:
                    pass
                elif silent > _GONE_SECONDS or (stays and last.everyone_left):
                    break
                await asyncio.sleep(pause)
        if last.result is not None:
            self.state.write_result(last.result)
        self.state.release()

    @contextlib.asynccontextmanager
    async def _parts(self, client: RegistryClient, *, stays: bool) -> AsyncIterator[LauncherPort]:
        """Run their parts meanwhile; they do nothing last where the registry may have ended."""
        port = LauncherPort(client, self.state, lambda _: None)
        running = asyncio.create_task(run_features(port))
        try:
            yield port
            if stays:
                port.part()
                await asyncio.wait({running}, timeout=5.0)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

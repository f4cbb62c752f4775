"""Where runs are: what a registry asks that may be one of several, and one that is alone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from rendezvous.registry.commits import Commits
from rendezvous.talk.credentials import Credential


class Place(Protocol):
    """Knows which runs are here, and where the others are: see `rendezvous.registry.replica`.

    Attributes:
        commits: Those that wait for a journal that is shared.
    """

    commits: Commits

    async def serve(self) -> None:
        """Keep to the others, until cancelled."""

    async def find(self, run: str, shown: Credential | None, unreached: str = "") -> None:
        """Return once the run is here, or is nobody's for all that this credential may know.

        Args:
            run: Its name.
            shown: The credential of whoever asks.
            unreached: Where it was sent to before, and could not connect, as `host:port`.

        Raises Moved where another replica has it, and Unavailable where nobody has it just now.
        """

    def making(self, run: str) -> AbstractAsyncContextManager[None]:
        """Have the name, so that a run may be made of it here, and let go of it if none is.

        Raises Moved where a run of that name is at another replica, or this one is ending, and
        Unavailable where nobody has it just now.
        """

    async def drain(self) -> None:
        """Take no run any more, and give away those that are here: this registry will end."""

    def check_ready(self) -> None:
        """Whether the journal answers, and acknowledges commits; raises Unavailable."""

    def others(self) -> list[str]:
        """Where the other replicas are that are alive, as `host:port`."""

    def silent_seconds(self) -> float:
        """Since a journal that is shared has answered."""


class Alone:
    """A registry that is the only one: every run is here."""

    def __init__(self) -> None:
        self.commits = Commits(time.monotonic)

    async def serve(self) -> None:
        """See the protocol."""

    async def find(self, run: str, shown: Credential | None, unreached: str = "") -> None:
        """See the protocol."""

    @contextlib.asynccontextmanager
    async def making(self, run: str) -> AsyncIterator[None]:
        """See the protocol."""
        yield

    async def drain(self) -> None:
        """See the protocol."""

    def check_ready(self) -> None:
        """See the protocol."""

    def others(self) -> list[str]:
        """See the protocol."""
        return []

    def silent_seconds(self) -> float:
        """See the protocol."""
        return 0.0

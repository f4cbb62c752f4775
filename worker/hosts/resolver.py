"""Where the nodes' hostnames lead on this node already: its resolver is asked during the start.

A name that a service of the cluster has (`kubernetes`, `vault`) must not be written over. What the
resolver has not said by the time it is needed counts as unknown; nobody waits for a silent one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from rendezvous.background import in_background
from rendezvous.tasks import cancel_all, now
from rendezvous.wire.hostnames import is_valid_label

NO_SUCH_NAME = "rdzv-no-such-name"
"""Asked for first: the answer shows that names are answered, and where a wildcard leads."""

_MOST_OF_ALL = 1_024
"""Names that all nodes together ask for: 1,000 nodes must not flood their name server."""
_WAIT_SECONDS = 1.0

Addresses: TypeAlias = AbstractSet[str]


def names_to_ask(hostnames: Iterable[str]) -> list[str]:
    """Which of all nodes' hostnames a node looks up, in lower case.

    Those without a digit come first: machines are numbered, services are named.
    """
    names = sorted({name.lower() for name in hostnames if is_valid_label(name)})
    names.sort(key=lambda name: any(letter.isdigit() for letter in name))
    return names[: max(1, _MOST_OF_ALL // max(1, len(names)))]


def addresses_of(name: str) -> Addresses:
    """The addresses that this machine's resolver gives a name; can take its whole time-out."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(str(entry[4][0]).partition("%")[0] for entry in found)


class Resolver:
    """What this machine's resolver says of hostnames; each is asked for once.

    Args:
        look_up: Gives the addresses of a name.
        in_thread: Calls it in a thread that nobody has to wait for.
    """

    def __init__(
        self,
        look_up: Callable[[str], Addresses] = addresses_of,
        in_thread: Callable[..., Awaitable[Addresses]] = in_background,
    ) -> None:
        self._look_up = look_up
        self._in_thread = in_thread
        self._nowhere: asyncio.Future[Addresses] | None = None
        self._asked: dict[str, asyncio.Future[Addresses]] = {}
        self._deadline = 0.0

    def begin(self) -> None:
        """See whether the resolver answers at all, long before the first name is needed."""
        self._nowhere = self._task(NO_SUCH_NAME)

    def ask(self, hostnames: Iterable[str]) -> None:
        """Begin to look names up; nothing is asked of a resolver that has not answered yet."""
        if self._nowhere is None or not self._nowhere.done():
            return
        new = [name for name in names_to_ask(hostnames) if name not in self._asked]
        if new:
            self._asked |= {name: self._task(name) for name in new}
            self._deadline = now() + _WAIT_SECONDS

    async def known(self, hostnames: Iterable[str]) -> Mapping[str, Addresses]:
        """Where hostnames lead, by name in lower case, as far as that is known.

        Waits for a resolver that answers until a second after the last names were asked for.
        """
        self.ask(hostnames)
        if self._nowhere is None or not self._asked:
            return {}
        left = max(0.0, self._deadline - now())
        await asyncio.wait(self._asked.values(), timeout=left)
        nowhere = self._nowhere.result()
        return {
            name: task.result() - nowhere
            for name, task in self._asked.items()
            if task.done() and not task.cancelled()  # by `close`: who waits here goes on
        }

    async def close(self) -> None:
        """Forget what has not been answered."""
        tasks = (self._nowhere, *self._asked.values())
        await cancel_all(task for task in tasks if task is not None)

    def _task(self, name: str) -> asyncio.Future[Addresses]:
        return asyncio.ensure_future(self._in_thread(self._look_up, name))

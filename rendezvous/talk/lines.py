"""The lines of one client to its registry: which one is used, and when all addresses are dialled
again."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rendezvous.background import in_background
from rendezvous.talk.dialling import dial, dials_again
from rendezvous.talk.failures import NetworkFailure, words_of
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.talk.network import Line, Network
from rendezvous.wire.errors import Unavailable

TURN_SECONDS = 5.0
"""How long a replica is asked while none can serve."""


class Lines:
    """One line is used, the former ones are closed when nobody waits on them any more.

    Args:
        place: Where the registry is and how it proves itself.
        seconds: Time-out of each step of dialling.
        network: The real one where it is None; httpx is imported when it is dialled.
    """

    def __init__(self, place: RegistryPlace, seconds: float, network: Network | None) -> None:
        self.place = place
        self.base = ""
        """Base URL of the one that is used."""
        self.used: Line | None = None
        self.dial_again = False
        """The next request dials all addresses."""
        self.late: list[str] = []
        """Addresses on which an answer was late; the newest comes last."""
        self.network = network
        self._seconds = seconds
        self._former: dict[Line, str] = {}
        """Lines that were used, and their addresses."""
        self._waits: Counter[Line] = Counter()
        """How many requests wait on each line."""
        self._dialling = asyncio.Lock()
        self._address = ""
        self._kept_at = 0.0

    async def dial(self) -> None:
        """Dial all addresses; one that has proven itself is used from then on.

        Raises Unavailable, with what happened at each address, where none has.
        """
        await self._dial(self.place, self.late)

    async def _dial(self, place: RegistryPlace, late: Sequence[str]) -> None:
        if self.network is None:
            self.network = await in_background(_real_network)
        await dial(self.network, place, self._keep, late=late, seconds=self._seconds)

    async def move_to(self, address: str) -> Line:
        """Use a line to this address, which proves itself as those of the place do.

        Raises Unavailable where nobody has; the next request dials all addresses, this one late.
        """
        async with self._dialling:
            if self.used is None or self.dial_again or self._address != address:
                try:
                    await self._dial(replace(self.place, addresses=(address,)), ())
                except Unavailable:
                    self._leave(address)
                    raise
        assert self.used is not None
        return self.used

    def stay(self, line: Line) -> Line:
        """Nobody could be reached where the client was sent: ask again who has sent it there, or,
        where that line was closed meanwhile, who has answered another request since."""
        if self.used is not None and line not in self._former:
            line = self.used
        self.dial_again &= line is not self.used
        return line

    def _keep(self, address: str, line: Line) -> None:
        """Use this line from now on.

        The former one is closed once a request has been answered on the new one, and nobody waits
        on it: to the registry a node whose last connection is closed is gone.
        """
        if self.used is not None:
            self._former[self.used] = self._address
        self._address, self.used, self.dial_again = address, line, False
        self._kept_at = asyncio.get_running_loop().time()
        self.base = line.base

    async def ready(self) -> Line:
        """The one to use; raises Unavailable as `dial` does."""
        async with self._dialling:
            if self.used is None or self.dial_again:
                await self.dial()
        assert self.used is not None
        return self.used

    async def close(self) -> None:
        """Close all connections."""
        lines, self._former, self.used = [*self._former, self.used], {}, None
        for line in filter(None, lines):
            await line.aclose()

    async def answered(self, line: Line, sent_to: str = "") -> None:
        """An answer has come on this line: if that was late, it is a good one all the same.

        Where it sends the client to the address `sent_to`, those to there are not closed yet: to
        dial it again may take longer than a node may be without a connection to its run's owner.
        """
        if line in self._former and self.used is not None and self._choices == 1:
            self._former[self.used] = self._former.pop(line)
            self.used = line
        if line is self.used:
            former = self._former.items()
            unused = [one for one, at in former if not self._waits[one] and at != sent_to]
            for one in unused:
                del self._former[one], self._waits[one]
            for one in unused:
                await one.aclose()

    @contextlib.contextmanager
    def waiting(self, line: Line) -> Iterator[None]:
        """Keep the line; and what its network's failure means for this call, and the next."""
        self._waits[line] += 1
        try:
            yield
        except NetworkFailure as exc:
            self.dial_again |= dials_again(exc, self._choices)
            raise Unavailable(f"{line.base}: {words_of(exc)}") from exc
        finally:
            self._waits[line] -= 1

    def try_elsewhere(self) -> None:
        """Large messages may vanish on this way, or answers go to another machine that has this
        node's address there, or something between has forgotten all connections of this host: an
        idle one is then as dead as that on which the answer is late."""
        if self._choices > 1:
            self._leave(self._address)
        elif self.used is not None and not self.dial_again:
            self._keep(self._address, self.used.anew())

    def is_elsewhere(self, base: str) -> bool:
        """Whether the line in use goes to another replica than this, which has just served the run;
        then all addresses are dialled again."""
        if not self.place.replicas or self.base in ("", base):
            return False
        if not self.dial_again:
            self._leave(self._address)
        return True

    def served(self) -> None:
        """A replica serves: no other one has to come first any more."""
        if self.place.replicas:
            self.late = []

    def not_served(self, line: Line) -> None:
        """The registry has answered on this line that it cannot serve now; another replica may.

        Once all have said so, each is asked for a while before the next: what is away is behind all
        of them, and thousands of nodes must not open connections as often as they ask.
        """
        if not self.place.replicas or self._choices == 1 or line is not self.used:
            return
        untried = {*self.place.addresses} - {*self.late, self._address}
        if untried or asyncio.get_running_loop().time() - self._kept_at >= TURN_SECONDS:
            self._leave(self._address)

    @property
    def _choices(self) -> int:
        """How many addresses there are to dial, with the one that the client was sent to."""
        is_other = bool(self._address) and self._address not in self.place.addresses
        return len(self.place.addresses) + is_other

    def _leave(self, address: str) -> None:
        """Dial all addresses again, this one late."""
        self.late = [*(one for one in self.late if one != address), address]
        self.dial_again = True


def _real_network() -> Network:
    """httpx: a launcher imports it beside the start of its registry and its nodes."""
    from rendezvous.talk.http_network import HttpNetwork

    return HttpNetwork()

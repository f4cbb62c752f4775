"""Who may be told where a run is that another replica has: those whom its owner would let in.

To a stranger such a run is as one that does not exist, here as there. What opens a run stands in
its journal: its credentials' hashes, the launches that had its name, and the tokens of its slots.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from pydantic_core import from_json, to_json

from rendezvous.registry.access import Maker, is_of_launch
from rendezvous.registry.journal import Record
from rendezvous.registry.tenants import Tenants
from rendezvous.talk.credentials import Credential, node_credential
from rendezvous.wire.types import Wire

_AGAIN_SECONDS = 1.0
_MOST_DOORS = 1_000
_KINDS = (b'"kind":"created"', b'"kind":"slot"')


class TokenNews(Wire):
    """The launcher's news of a worker run, as far as those of every version are read."""

    generation: int
    token_sha256: str | None = None


class Opening(Wire):
    """An event that changes what opens a run. Its fields are the same in every version of the
    journal, so that replicas of any two send nodes to each other."""

    spec: Maker | None = None
    slot: int = 0
    news: TokenNews | None = None


@dataclass(slots=True)
class Door:
    """What opens one run.

    Attributes:
        spec: Of its newest launch; None: there is none.
        launches: The ids of all launches that have had the name: nodes of a former one are told how
            that has ended.
        tokens: By slot and generation the SHA-256 of the join token.
        read_at: When the journal was read, in seconds.
    """

    read_at: float
    spec: Maker | None = None
    launches: list[str] = field(default_factory=list)
    tokens: dict[tuple[int, int], str] = field(default_factory=dict)

    def take(self, event: Opening) -> None:
        """This has happened to the run."""
        if event.spec is not None:
            self.spec = event.spec
            self.launches.append(event.spec.launch_id)
            found = enumerate(event.spec.token_sha256)
            self.tokens = {(slot, 1): token for slot, token in found}
        elif event.news is not None and event.news.token_sha256:
            self.tokens[event.slot, event.news.generation] = event.news.token_sha256

    def opens(self, key: bytes, run: str, shown: Credential) -> bool:
        """Whether this credential has to do with the run."""
        spec = self.spec
        if spec is None:
            return False
        if shown.kind == "join":
            return shown.matches(self.tokens.get((shown.slot, shown.number), ""))
        if shown.kind != "node":
            return is_of_launch(spec, run, shown)
        of = shown.slot, shown.number
        known = (node_credential(key, run, launch, *of).secret for launch in self.launches)
        return any(hmac.compare_digest(secret, shown.secret) for secret in known)


def opening_of(body: bytes) -> Opening:
    """The event of a record, which was all of it before decisions were kept; raises ValueError."""
    record = from_json(body.partition(b"\n")[0])
    return Opening.model_validate_json(to_json(record.get("event", record)))


class Doors:
    """The doors of other replicas' runs, as far as somebody has knocked.

    Args:
        key: The registry's, from which node credentials are derived.
        admin_sha256: SHA-256 of the operator's credential.
        read: The journal's; raises Unavailable.
        clock: Monotonic seconds.
        sleep: Waits for so many.
    """

    def __init__(
        self,
        key: bytes,
        admin_sha256: str,
        read: Callable[[str], Awaitable[list[Record]]],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._key = key
        self._admin_sha256 = admin_sha256
        self._read = read
        self._clock = clock
        self._sleep = sleep
        self._doors: dict[str, Door] = {}
        self.tenants: Tenants | None = None
        """Those of the registry, which its replica sets."""

    def is_foreign(self, run: str, shown: Credential | None) -> bool:
        """Whether this is a tenant's credential, and not of the one in whose name space the run is.

        For this nobody has to look: a run that is there and one that is not take the same way.
        """
        if shown is None or shown.kind != "tenant":
            return False
        return self.tenants is None or not self.tenants.opens(shown, run)

    async def opens(self, run: str, shown: Credential) -> bool:
        """Whether this credential has to do with the run. Raises Unavailable.

        What is not known yet may have been made meanwhile: it is looked up again, each run's not
        more often than once a second, however many strangers there are.
        """
        if shown.kind == "registry":
            return shown.matches(self._admin_sha256)
        if shown.kind == "tenant":
            return not self.is_foreign(run, shown)
        asked_at, own = self._clock(), False
        while True:
            door = self._doors.get(run)
            if door is not None and door.opens(self._key, run, shown):
                return True
            if door is not None and (own or door.read_at > asked_at):
                return False
            if door is not None and (wait := door.read_at + _AGAIN_SECONDS - self._clock()) > 0:
                await self._sleep(wait)
                if self._doors.get(run) is not door:
                    continue
            await self._look(run)
            own = True

    async def _look(self, run: str) -> None:
        door = Door(self._clock())
        for record in await self._read(run):
            if any(kind in record.body for kind in _KINDS):
                door.take(opening_of(record.body))
        self._doors.pop(run, None)
        self._doors[run] = door
        if len(self._doors) > _MOST_DOORS:
            del self._doors[next(iter(self._doors))]

"""The tenants of a registry, as it knows them: who they are, what they use, what they may.

They are kept in the journal. A registry that is alone reads them at its start; one of several reads
them again with the beat that shows that they have changed. While the journal is away the last known
ones count.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from rendezvous.registry.journal import Journal
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.quotas import Window, refuse_over, total
from rendezvous.talk.credentials import Credential
from rendezvous.wire.errors import BadRequest, NotFound, Unauthorized
from rendezvous.wire.tenant import Tenant, TenantList, TenantRequest, TenantStatus, Usage


class Tenants:
    """Those of one registry.

    Args:
        journal: Keeps them.
        runs: Those that are here.
        clock: Monotonic seconds.
    """

    def __init__(
        self, journal: Journal, runs: Mapping[str, LiveRun], clock: Callable[[], float]
    ) -> None:
        self._journal = journal
        self._runs = runs
        self._clock = clock
        self._by_name: dict[str, Tenant] = {}
        self._by_sha256: dict[str, Tenant] = {}
        self._by_prefix: list[tuple[str, Tenant]] = []
        self._made: defaultdict[str, Window] = defaultdict(Window)
        self._elsewhere: list[Mapping[str, Usage]] = []
        self._changed: int | None = None

    # --- who they are -------------------------------------------------------------------------

    async def read(self) -> None:
        """Know what the journal has; raises UsageError or Unavailable."""
        found = await self._journal.tenants()
        self._by_name = {one.name: one for one in sorted(found, key=lambda one: one.name)}
        self._by_sha256 = {one.sha256: one for one in found}
        self._by_prefix = sorted((one.prefix, one) for one in found)
        for name in self._made.keys() - self._by_name.keys():
            del self._made[name]

    async def follow(self, changed: int, elsewhere: Iterable[Mapping[str, Usage]]) -> None:
        """What a beat has shown: how often they were changed, and what they use at other replicas.

        Raises as `read`.
        """
        self._elsewhere = list(elsewhere)
        if changed != self._changed:
            await self.read()
            self._changed = changed

    def find(self, shown: Credential) -> Tenant | None:
        """The tenant whose credential this is."""
        # How long the look-up takes says nothing of a secret: it is by the hash of what was shown.
        found = self._by_sha256.get(shown.sha256()) if shown.kind == "tenant" else None
        return found if found is not None and shown.matches(found.sha256) else None

    def opens(self, shown: Credential, run: str) -> bool:
        """Whether this is the credential of the tenant whose name space the run ID is in."""
        return (found := self.find(shown)) is not None and found.owns(run)

    def of(self, run: str) -> Tenant | None:
        """In whose name space a run ID is: no prefix begins with another, so it is the last one
        that is not behind it."""
        at = bisect.bisect_right(self._by_prefix, run, key=lambda one: one[0])
        found = self._by_prefix[at - 1][1] if at else None
        return found if found is not None and found.owns(run) else None

    # --- what they use ------------------------------------------------------------------------

    def usage(self) -> dict[str, Usage]:
        """What is used here, of each tenant that uses anything."""
        runs, nodes = defaultdict[str, int](int), defaultdict[str, int](int)
        for name, live in self._runs.items():
            if not live.has_ended and (tenant := self.of(name)) is not None:
                runs[tenant.name] += 1
                nodes[tenant.name] += live.run.spec.slots
        now = self._clock()
        busy = {*runs, *(name for name, made in self._made.items() if made.count(now))}
        return {
            name: Usage(
                runs=runs[name],
                nodes=nodes[name],
                creates=self._made[name].count(now),
                frees_seconds=self._made[name].frees_seconds(now),
            )
            for name in sorted(busy)
        }

    def _used(self, name: str, here: Mapping[str, Usage]) -> Usage:
        """By one of them, at all replicas; of the others as of their last beats."""
        return total(one[name] for one in (here, *self._elsewhere) if name in one)

    def admit(self, tenant: Tenant, nodes: int) -> None:
        """Count a run of so many nodes that this tenant makes here.

        Raises TooManyRuns, TooManyRequests, or Unauthorized where it was revoked meanwhile.
        """
        known = self._by_sha256.get(tenant.sha256)
        if known is None:
            raise Unauthorized("this is not the credential of a tenant of this registry")
        refuse_over(known, self._used(known.name, self.usage()), nodes)
        self._made[known.name].add(self._clock())

    # --- what the operator asks ---------------------------------------------------------------

    async def put(self, name: str, asked: TenantRequest) -> TenantStatus:
        """Add a tenant, or change its limits or its credential.

        Raises TenantClash, BadRequest for a new one without a credential, and as a journal does.
        """
        await self.read()
        known = self._by_name.get(name)
        sha256 = asked.sha256 or (known.sha256 if known is not None else None)
        if sha256 is None:
            raise BadRequest(f"tenant '{name}' is new: it needs the SHA-256 of its credential")
        made = Tenant(name=name, prefix=asked.prefix, sha256=sha256, limits=asked.limits)
        await self._journal.put_tenant(made)
        await self.read()
        return self._status(made, self.usage())

    async def remove(self, name: str) -> TenantStatus:
        """Know it no longer; its runs go on. Raises NotFound, and as a journal does."""
        await self.read()
        was = {one.name: one for one in self.statuses().tenants}.get(name)
        if was is None or not await self._journal.remove_tenant(name):
            raise NotFound(
                f"there is no tenant '{name}' here", hint="'rdzv tenant list' shows all of them"
            )
        await self.read()
        return was

    def statuses(self) -> TenantList:
        """All of them, by name, with what they use."""
        here = self.usage()
        return TenantList(tenants=[self._status(one, here) for one in self._by_name.values()])

    def _status(self, one: Tenant, here: Mapping[str, Usage]) -> TenantStatus:
        usage = self._used(one.name, here)
        return TenantStatus(name=one.name, prefix=one.prefix, limits=one.limits, usage=usage)

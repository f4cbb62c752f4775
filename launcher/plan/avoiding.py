"""On which host a worker run is to start, and on which it is not. Pure.

A node that takes another one's place avoids the hosts where its slot's worker runs have failed:
where hosts were named, it starts on the next free one; else its scheduler is told which ones to
leave alone (`<<AVOID>>`), as far as it says where its worker runs are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from launcher.plan.plan import ANYWHERE, Plan, Where
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError


@frozen
class Places:
    """The hosts of a launch.

    Attributes:
        hosts: The machine of each slot, where machines were named and start what is theirs.
        more: Further ones.
        avoid: Those of `--avoid`.
        avoids: The scheduler, or the spec, has a place for the hosts to avoid.
        tells: The scheduler may say where a worker run is.
    """

    hosts: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    avoids: bool = False
    tells: bool = True

    @staticmethod
    def of(plan: Plan) -> Places:
        """Return the hosts of a plan."""
        site = plan.site
        hosts, more = (site.hosts, site.more_hosts) if site.takes_host else ((), ())
        return Places(hosts, more, tuple(plan.settings.avoid), site.avoids, site.tells_host)

    def where(
        self, failed: Sequence[str], taken: Collection[str], elsewhere: Sequence[str]
    ) -> Where:
        """Choose where the next worker run of a slot starts.

        Args:
            failed: Where those before it have failed, the newest last.
            taken: The hosts that other slots have.
            elsewhere: Where worker runs of any slot have failed, the newest last.
        """
        if not failed:
            return ANYWHERE
        if not self.hosts:
            return Where(avoid=(*self.avoid, *failed)) if self.avoids else ANYWHERE
        free = [host for host in (*self.hosts, *self.more) if host not in taken]
        bad = {host: number for number, host in enumerate(elsewhere)}
        return Where(min(free, key=lambda host: bad.get(host, -1), default=failed[-1]))


NO_PLACES = Places()


def avoid_notes(plan: Plan, *, symmetric: bool) -> list[str]:
    """Refuse `--avoid` where nothing heeds it, with UsageError; one that came with the environment
    or a file of options is for all launches of a person, and is told in a sentence."""
    site, settings = plan.site, plan.settings
    is_heeded = (site.avoids or (site.hosts and site.takes_host)) and not symmetric
    if not settings.avoid or is_heeded:
        return []
    source = settings.source("avoid")
    if symmetric:
        words, hint = "the nodes are there already", "remove it"
    else:
        words = f"{site.spec.source} has no <<AVOID>> to pass them on"
        hint = "'rdzv docs clusters' names the schedulers that can; or put <<AVOID>> into a spec"
    if source == "--avoid":
        raise UsageError(f"--avoid {','.join(settings.avoid)} has no effect: {words}", hint=hint)
    return [f"{source} has no effect: {words}"]

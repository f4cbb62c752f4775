"""What tenants may use, and which of them may be next to each other: arithmetic alone. Pure.

Times are monotonic seconds of one replica. Each replica counts the runs that it has and those that
it has made; the sum over all of them is what a tenant uses.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Iterable

from pydantic import TypeAdapter, ValidationError

from rendezvous.wire.errors import TenantClash, TooManyRequests, TooManyRuns
from rendezvous.wire.tenant import Tenant, Usage

MINUTE = 60.0
_USAGES: TypeAdapter[dict[str, Usage]] = TypeAdapter(dict[str, Usage])


class Window:
    """When runs were made in the last minute. It slides, and is exact, so that the windows of
    several replicas may be added: token buckets would fill up at each of them."""

    def __init__(self) -> None:
        self._at: deque[float] = deque()

    def add(self, now: float) -> None:
        """One was made."""
        self._at.append(now)

    def count(self, now: float) -> int:
        """How many count now."""
        while self._at and self._at[0] <= now - MINUTE:
            self._at.popleft()
        return len(self._at)

    def frees_seconds(self, now: float) -> float:
        """Until the first of those that count does not any more; 0.0 where there is none."""
        return self._at[0] + MINUTE - now if self.count(now) else 0.0


def total(usages: Iterable[Usage]) -> Usage:
    """What is used at several replicas."""
    some = list(usages)
    frees = [one.frees_seconds for one in some if one.creates]
    return Usage(
        runs=sum(one.runs for one in some),
        nodes=sum(one.nodes for one in some),
        creates=sum(one.creates for one in some),
        frees_seconds=min(frees, default=0.0),
    )


def refuse_over(tenant: Tenant, used: Usage, nodes: int) -> None:
    """Whether a tenant that uses so much may make a run of so many nodes.

    Raises TooManyRuns, or TooManyRequests where it has only to wait a moment.
    """
    limits, name = tenant.limits, tenant.name
    if limits.max_runs is not None and used.runs >= limits.max_runs:
        raise TooManyRuns(
            f"tenant '{name}' has {_runs(used.runs)} in progress, and its limit is "
            f"{limits.max_runs}",
            hint=_hint("--max-runs"),
        )
    if limits.max_nodes is not None and used.nodes + nodes > limits.max_nodes:
        raise TooManyRuns(
            f"this run needs {nodes} nodes, spares included; tenant '{name}' has {used.nodes} in "
            f"its runs in progress, and its limit is {limits.max_nodes}",
            hint=_hint("--max-nodes", f" with a limit of at least {nodes}")
            if nodes > limits.max_nodes
            else _hint("--max-nodes"),
        )
    if limits.creates_per_minute is not None and used.creates >= limits.creates_per_minute:
        raise TooManyRequests(
            f"tenant '{name}' has made {_runs(used.creates)} in the last minute, and its limit is "
            f"{limits.creates_per_minute}",
            hint=f"wait {max(1.0, used.frees_seconds):.0f} s",
        )


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def _hint(option: str, alone: str = "") -> str:
    ask = f"ask the registry's operator for more ('rdzv tenant add' with {option})"
    return f"{ask}{alone}" if alone else f"wait until one of its runs ends, or {ask}"


def refuse_clash(known: Iterable[Tenant], new: Tenant) -> None:
    """Whether this tenant can be added or changed beside those; raises TenantClash."""
    for one in known:
        if one.name == new.name:
            if one.prefix != new.prefix:
                raise TenantClash(
                    f"tenant '{one.name}' has the prefix '{one.prefix}', which cannot be changed",
                    hint="revoke it and add it again, or add another tenant",
                )
        elif one.owns(new.prefix) or new.owns(one.prefix):
            raise TenantClash(
                f"the prefix '{new.prefix}' overlaps '{one.prefix}', which is that of tenant "
                f"'{one.name}': a run could belong to both",
                hint="choose a prefix that does not begin with the other, nor the other with it",
            )
        elif hmac.compare_digest(one.sha256, new.sha256):
            raise TenantClash(f"tenant '{one.name}' has the same credential")


def usages_text(usages: dict[str, Usage]) -> str:
    """As a journal keeps it, by tenant."""
    return _USAGES.dump_json(usages).decode()


def read_usages(text: str) -> dict[str, Usage]:
    """The inverse of `usages_text`; nothing where another version has written what this one cannot
    read."""
    try:
        return _USAGES.validate_json(text)
    except ValidationError:
        return {}

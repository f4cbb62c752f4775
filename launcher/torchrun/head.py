"""Which machine has the registry of a torchrun's run, for those who gave its endpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from launcher.symmetric.claim import Claim
from launcher.torchrun.asked import Asked
from rendezvous.talk.join_string import with_port
from rendezvous.wire.errors import UsageError
from rendezvous.wire.types import is_loopback, parse_address


def refuse_own_head(asked: Asked, told: Iterable[Claim]) -> None:
    """Refuse an endpoint that makes every node the host of a registry that no other one meets.

    Args:
        asked: Of the torchrun.
        told: What the platforms of its environment say of this node.

    Raises:
        UsageError: It is `localhost`, and this is not the first of the job's nodes.
    """
    if not asked.loopback or asked.is_host is not None:
        return
    for claim in told:
        if claim.node and claim.nodes == asked.size[1]:
            number, master = claim.values["node_rank"], claim.values.get("master_addr")
            known = master is not None and not is_loopback(master.text)
            first = master.text if master is not None and known else "ADDRESS-OF-NODE-0"
            raise UsageError(
                f"--rdzv-endpoint {asked.host} is this machine, but this is node {number.text} of "
                f"{claim.nodes} ({claim.platform}: {number.source}): it would wait at its own "
                "registry, which no other node meets",
                hint=f"give it the first node: --rdzv-endpoint={with_port(first, asked.port)}",
            )


def head_words(asked: Asked, own: Sequence[str]) -> str:
    """What the others need to know of a registry on this machine; empty where there are none.

    Args:
        asked: Of the torchrun.
        own: The addresses of this machine that others may reach.
    """
    is_name = asked.loopback or not _is_address(asked.host)
    if asked.slots == 1 or not own or not is_name:
        return ""
    place = f"--rdzv-endpoint={with_port(own[0], asked.port)}"
    if asked.loopback:
        return (
            f"--rdzv-endpoint {asked.host} is this machine, which has the registry; nodes on other "
            f"machines need {place}"
        )
    return (
        f"--rdzv-endpoint {asked.host} is this machine, which has the registry; all nodes need "
        f"this name, or {place} where they cannot resolve it"
    )


def _is_address(host: str) -> bool:
    try:
        parse_address(host)
    except ValueError:
        return False
    return True

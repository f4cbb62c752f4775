"""What this node's hosts file says of its peers, beside what the plan of a round says. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from rendezvous.wire.verify import PairProbe, ProbePlan
from rendezvous.wire.words import printable

_MOST_ADDRESSES = 4
_MOST_LETTERS = 253


def with_names(
    pairs: Iterable[PairProbe], plan: ProbePlan, slot: int, known: Mapping[str, AbstractSet[str]]
) -> list[PairProbe]:
    """The pairs, each with where its peer's hostname leads here, if that is not the plan's address.

    Args:
        pairs: What is known of the peers.
        plan: The round's.
        slot: This node's. A peer of its own hostname is told by `X01`.
        known: Addresses by name, in lower case.
    """
    peers = {peer.slot: peer for peer in plan.peers}
    own = peers[slot].hostname.lower() if slot in peers else ""
    found = []
    for pair in pairs:
        peer = peers[pair.slot]
        name = peer.hostname.lower()
        addresses = [text for text in sorted(known.get(name, ())) if _is_address(text)]
        is_other = addresses and name != own and peer.address not in addresses
        words = printable(", ".join(addresses[:_MOST_ADDRESSES]), _MOST_LETTERS)
        found.append(replace(pair, resolved=words) if is_other else pair)
    return found


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

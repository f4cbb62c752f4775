"""Where a client asks instead when another replica owns the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rendezvous.talk.join_string import RegistryPlace, own_port
from rendezvous.wire.errors import Moved, Unavailable
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import printable

MOST_HOPS = 3
"""So often one request is sent on. Between hops there is no pause; between requests there is."""


def trusted_address(place: RegistryPlace, address: str) -> str:
    """An address that another replica was said to have, as the place has it where it does.

    Whoever is there proves itself as the place says before anything is sent. Where nothing is to be
    proven (`plain`) only the place's own addresses and this machine are asked: else a registry that
    lies would have a credential sent anywhere.

    Raises Unavailable for one that is not asked.
    """
    known = {place.host_and_port(one): one for one in place.addresses}
    to = own_port(address)
    if to is None:
        raise Unavailable(f"{printable(repr(address), 100)} is not an address of a registry")
    if to not in known and place.trust == "plain" and not is_loopback(to[0]):
        raise Unavailable(
            f"{address} is not listed as an address of this registry, and without TLS anything "
            "could answer there",
            hint="list the addresses of all replicas, or use a registry with TLS",
        )
    return known.get(to, address)


def next_address(place: RegistryPlace, moved: Moved, been: Sequence[str]) -> str:
    """The address to ask next.

    Args:
        place: Where the registry is.
        moved: The newest refusal.
        been: Where this request was asked, in order.

    Raises:
        Unavailable: This client asks nowhere else.
    """
    try:
        if not moved.address:
            raise Unavailable("it does not say which")
        if len(been) > MOST_HOPS:
            raise Unavailable("none of these says that it does")
        return trusted_address(place, moved.address)
    except Unavailable as exc:
        way = " -> ".join(been)
        error = Unavailable(f"{way}: another replica owns the run: {exc.message}", hint=exc.hint)
        error.told = True
        raise error from None

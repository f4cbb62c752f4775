"""What the nodes of a torchrun's run have in common: the secret, where they meet, and its keys."""

from __future__ import annotations

from launcher.symmetric.start import group_launch_id, group_place
from launcher.torchrun.asked import NEAR, Asked
from rendezvous.frozen import frozen
from rendezvous.talk.credentials import RunKeys, hkdf
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    RegistryString,
    parse_group_token,
)
from rendezvous.wire.errors import UsageError


@frozen
class Group:
    """The run, as each of its nodes makes it for itself from the same secret.

    Attributes:
        keys: All credentials.
        place: Of the registry.
        standing: Of a standing registry; None: one of the nodes' machines has it.
    """

    keys: RunKeys
    place: RegistryPlace
    standing: RegistryString | None = None

    def join(self, slot: int) -> JoinString:
        """For one of its places."""
        return JoinString.of(self.keys, self.place, slot)


def read_group(asked: Asked, token: str | None, registry: str | None) -> Group:
    """The run that is asked for.

    Args:
        asked: Of the torchrun.
        token: RDZV_TOKEN, if it is set.
        registry: RDZV_REGISTRY, if it is set.

    Raises:
        UsageError: There is no secret, or no place to meet.
    """
    standing = RegistryString.parse(registry) if registry else None
    if token is None and standing is None:
        raise UsageError(
            "RDZV_TOKEN_FILE is not set: without a group token anybody could join this run",
            hint="once: 'rdzv token new > token; chmod 600 token'; then set RDZV_TOKEN_FILE to its "
            "path on every node",
        )
    if standing is not None and asked.host:
        raise UsageError(
            f"--rdzv-endpoint {asked.host} and RDZV_REGISTRY name two registries",
            hint="leave --rdzv-endpoint out, or unset RDZV_REGISTRY",
        )
    if standing is None and not asked.host:
        raise UsageError(
            "torchrun was given no --rdzv-endpoint: the nodes do not know where to meet",
            hint="name the machine of one node: --rdzv-endpoint 10.0.0.4:29600",
        )
    if token is not None:
        secret = parse_group_token(token)
    else:
        assert standing is not None
        secret = hkdf(standing.credential.secret, f"torchrun|{asked.run}")
    keys = RunKeys(secret, asked.run, group_launch_id(secret, asked.run))
    if standing is not None:
        return Group(keys, standing.place.ordered_for(asked.run), standing)
    hosts = NEAR if asked.loopback else (asked.host,)
    return Group(keys, group_place(hosts, asked.port, secret))

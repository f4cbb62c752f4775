"""A symmetric start: n equal containers run the same command with one group token.

Rank 0 boots the registry, its key made from the token; the others make their own join strings from
the token, and know by it whether they have met the right registry.
"""

from __future__ import annotations

import ipaddress

from launcher.plan import check_run_id, parse_nnodes
from launcher.settings import LaunchSettings
from rendezvous.errors import UsageError
from rendezvous.security import JoinString, RegistryPlace, RunKeys, hkdf, parse_group_token
from worker.interfaces import look


def check_symmetric(settings: LaunchSettings, group_token: str | None) -> None:
    """Refuse what would make a node train alone, or wait for nothing; raises UsageError."""
    rank = settings.node_rank
    if group_token is None:
        if rank:
            raise UsageError(
                f"NODE_RANK is {rank} and there is no RDZV_TOKEN: this node cannot find the "
                "others, and would run all nodes of the job by itself",
                hint="make one with 'rdzv token new' and give it to every node, or unset NODE_RANK",
            )
        return
    missing = {
        "NUM_NODES (--nnodes)": settings.nnodes is None,
        "NODE_RANK (--node-rank)": rank is None,
        "RDZV_ID (--rdzv-id)": settings.rdzv_id is None,
        "MASTER_ADDR (--master-addr)": not settings.master_addr,
    }
    names = [name for name, is_missing in missing.items() if is_missing]
    if names:
        raise UsageError(
            f"a symmetric start (RDZV_TOKEN) needs {' and '.join(names)} on this node",
            hint="every node needs RDZV_TOKEN, RDZV_ID, NUM_NODES and MASTER_ADDR, the same on "
            "all, and its own NODE_RANK",
        )
    _, nodes = parse_nnodes(settings.nnodes)
    if rank is None or not 0 <= rank < nodes:
        raise UsageError(f"NODE_RANK {rank} is not in 0 to {nodes - 1} (NUM_NODES is {nodes})")
    if rank == 0:
        _check_master_is_here(settings.master_addr or "")


def _check_master_is_here(master: str) -> None:
    try:
        address = str(ipaddress.ip_address(master))
    except ValueError:
        return  # a name: what it means on the other nodes cannot be told here
    own = [cidr.split("/")[0] for interface in look().interfaces for cidr in interface.addresses]
    if address not in own:
        raise UsageError(
            f"NODE_RANK is 0, but MASTER_ADDR {master} is no address of this node "
            f"({', '.join(own)})",
            hint="give NODE_RANK 0 to the node that MASTER_ADDR names",
        )


def group_launch_id(secret: bytes, run: str) -> str:
    """The launch id that all holders of a group token share."""
    return hkdf(secret, f"launch id|{run}", 5).hex()


def symmetric_join(settings: LaunchSettings, group_token: str) -> JoinString:
    """The join string of a node above rank 0; the settings have been checked."""
    from rendezvous.certificate import public_key_pin

    secret = parse_group_token(group_token)
    run = check_run_id(settings.rdzv_id or "")
    rank = settings.node_rank or 0
    keys = RunKeys(secret, run, group_launch_id(secret, run))
    place = RegistryPlace(
        (settings.master_addr or "",), settings.port, "public_key", public_key_pin(secret)
    )
    token = keys.join_token(rank, 1)
    return JoinString(place, run, keys.launch_id, rank, 1, token, keys.row_key, keys.probe_key)

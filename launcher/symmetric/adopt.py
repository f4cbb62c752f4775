"""Which node this is, of how many, and where node 0 is: given, or adopted from a platform. Pure.

What was given (options, RDZV_*, NUM_NODES, NODE_RANK, MASTER_ADDR, RDZV_ID, a file) comes first,
value by value. What was not given comes from one platform: the first in the order of `platforms`
that tells this node's number. Nothing has a default: what neither tells is missing, and a node
without it would train alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from launcher.plan.endpoints import without_program_port
from launcher.symmetric.claim import FIELDS, Claim, Host, Value
from launcher.symmetric.platforms import claims
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.run import DEFAULT_MASTER_PORT

NAMES = {
    "nnodes": "NUM_NODES (--nnodes)",
    "node_rank": "NODE_RANK (--node-rank)",
    "rdzv_id": "RDZV_ID (--rdzv-id)",
    "master_addr": "MASTER_ADDR (--master-addr)",
}
_ALL_FIVE = (
    "every node needs RDZV_TOKEN, RDZV_ID, NUM_NODES and MASTER_ADDR, the same on all, and its "
    "own NODE_RANK"
)
_NAME_IT = "the platform has no job name here: set RDZV_ID to the same value on all nodes"


@frozen
class Adopted:
    """What is known of this node, and from where.

    Attributes:
        values: What is known, by the name of the setting, each with its source.
        given: The settings among them that were given, where the platform does not say the same:
            MASTER_ADDR may well have been set by it.
        platform: What the values that were not given come from; may be empty.
        advice: How to give what is missing, by the name of the setting.
        notes: What contradicts the values that are used.
    """

    values: Mapping[str, Value]
    given: frozenset[str] = frozenset()
    platform: str = ""
    advice: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """The settings that nothing tells."""
        return [name for name in FIELDS if name not in self.values]

    def check(self) -> None:
        """Raise UsageError when a value is missing."""
        if not self.missing:
            return
        hints = [self.advice[name] for name in self.missing if name in self.advice]
        raise UsageError(
            f"a symmetric start (RDZV_TOKEN) needs {' and '.join(NAMES[n] for n in self.missing)} "
            "on this node",
            hint="; ".join(dict.fromkeys(hints)) or _ALL_FIVE,
        )


def adopt(environ: Mapping[str, str], given: Mapping[str, Value], host: Host) -> Adopted:
    """What is known of this node.

    Args:
        environ: The environment.
        given: What a person has given, by the name of the setting; it comes first.
        host: What the node knows of itself beside its environment.

    Raises:
        UsageError: The platform that is to tell what was not given contradicts itself.
    """
    given = _with_master(given, environ)
    found = claims(environ, host, nodes_of(given))
    first = found[0] if found else Claim("")
    chosen = next((claim for claim in found if claim.node is not None or claim.problem), first)
    # NODE_RANK may be the platform's own, and no person's word against it.
    told_number, given_number = chosen.values.get("node_rank"), given.get("node_rank")
    is_own = given_number is not None and told_number == given_number
    if chosen.problem and (is_own or not {"nnodes", "node_rank", "master_addr"} <= set(given)):
        raise chosen.problem
    is_good = chosen.node is not None and chosen.problem is None
    told = _with_master(chosen.values, environ) if chosen.problem is None else {}
    known = told | dict(given)
    values = {name: known[name] for name in FIELDS if name in known}
    return Adopted(
        values,
        frozenset(n for n in given if n not in told or told[n].text != given[n].text),
        chosen.platform if set(values) - set(given) else "",
        _half_told(environ) | ({"rdzv_id": _NAME_IT} if is_good else {}) | chosen.advice,
        tuple(note for claim in found for note in _differences(values, claim)),
    )


def _with_master(values: Mapping[str, Value], environ: Mapping[str, str]) -> dict[str, Value]:
    """The values with node 0's address as it is dialled, where it is plain what is meant."""
    found = dict(values)
    if (master := found.get("master_addr")) is not None:
        ports = (str(DEFAULT_MASTER_PORT), environ.get("MASTER_PORT", ""))
        found["master_addr"] = replace(master, text=without_program_port(master.text, ports))
    return found


def _half_told(environ: Mapping[str, str]) -> dict[str, str]:
    """Advise how to complete PyTorch's own names, of which one alone says nothing."""
    names = ("RANK", "WORLD_SIZE")
    lacks = [name for name in names if not environ.get(name, "").strip()]
    if len(lacks) != 1:
        return {}
    (has,) = set(names) - set(lacks)
    words = f"{has} is set and {lacks[0]} is not: set both, or NODE_RANK and NUM_NODES"
    return {"node_rank": words, "nnodes": words}


def nodes_of(given: Mapping[str, Value]) -> int | None:
    """The greatest number of nodes that was given."""
    text = _most(given["nnodes"].text) if "nnodes" in given else ""
    return int(text) if text.isascii() and text.isdigit() else None


def one_of_several(environ: Mapping[str, str], host: Host, nodes: int | None) -> Claim | None:
    """The platform that says that this node is one of several; None when none does.

    Args:
        environ: The environment.
        host: What the node knows of itself beside it.
        nodes: The number of nodes that was given.
    """
    for claim in claims(environ, host, nodes):
        several = claim.node or (claim.nodes or nodes or 1) > 1 or claim.problem
        if (claim.node is not None or not claim.numbered) and several:
            return claim
    return None


def _differences(values: Mapping[str, Value], claim: Claim) -> list[str]:
    """Where a platform says otherwise. An address and a name may well be the same node."""
    if claim.problem is not None:
        return []
    words = {"nnodes": "the number of nodes", "node_rank": "the node's number"}
    return [
        f"{word} is {values[name].text} ({values[name].source}), and {claim.platform} says "
        f"{claim.values[name].text} ({claim.values[name].source})"
        for name, word in words.items()
        if name in values
        and name in claim.values
        and _most(claim.values[name].text) != _most(values[name].text)
    ]


def _most(size: str) -> str:
    """The 4 of 2:4."""
    return size.rpartition(":")[2]

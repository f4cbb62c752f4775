"""RDMA on all nodes side by side: what is not the same, and what NCCL is to use. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from rendezvous.frozen import frozen
from rendezvous.proof.findings import (
    Property,
    compare_facts,
    differences,
    hostnames_of,
    make_finding,
)
from rendezvous.wire.checks import Check, Level
from rendezvous.wire.node import Facts, Finding, JoinRequest, RdmaPort
from rendezvous.wire.rails import rails
from rendezvous.wire.words import listed, printable, slot_name

_VERBS = ("InfiniBand", "Ethernet")
_LAYERS = {"InfiniBand": "InfiniBand", "Ethernet": "RoCE"}
_FULL_MEMBER = 0x8000
_NO_KEY = "none common to all its ports"
_LOOK = (
    "run 'rdzv doctor' there: does the container have /dev/infiniband, and is a port up (ibstat)?"
)
_SEE = "run 'rdzv doctor' and ibstat there: NCCL would use fewer links, or fall back to sockets"


def compare_rdma(joins: Sequence[JoinRequest], *, required: bool) -> list[Finding]:
    """The checks X04 to X06."""
    have_any = any(join.facts.rdma for join in joins)
    ports = _rdma_ports(joins, required=required) if have_any or required else []
    return ports + (_fabric(joins) if have_any else [])


def _rdma_level(joins: Sequence[JoinRequest], *, required: bool = False) -> Level:
    """Who has switched RDMA off does without it; and a node without GPUs, beside those with."""
    wanted = any(join.facts.gpus and join.facts.wants_rdma for join in joins)
    return "fail" if required or wanted else "warn"


def usable_ports(facts: Facts) -> list[RdmaPort]:
    """Those that NCCL can use, and that the user lets it use."""
    return [port for port in facts.rdma if not port.problem and port.chosen]


def _rdma_ports(joins: Sequence[JoinRequest], *, required: bool) -> list[Finding]:
    ports = Property(Check.PORTS_ALIKE, "RDMA ports", _SEE, _rdma_level(joins, required=required))
    without = [join for join in joins if required and not usable_ports(join.facts)]
    # Of the nodes whose programs use NCCL: those with GPUs, or all when none has.
    using = [join for join in joins if join.facts.gpus] or joins
    rest = [join for join in using if join not in without]
    card = Property(Check.PORTS_ALIKE, "RDMA adapter type")
    firmware = Property(Check.PORTS_ALIKE, "RDMA firmware", "update the adapters' firmware")
    return [
        *_missing(ports, without, hostnames_of(joins)),
        *_uneven(ports, rest),
        *_compare_ports(joins, card, lambda p: p.hca_type),
        *_compare_ports(joins, firmware, lambda p: p.firmware),
    ]


def _missing(
    ports: Property, without: Sequence[JoinRequest], hostnames: Mapping[int, str]
) -> list[Finding]:
    ports = replace(ports, fix=_LOOK)
    return [
        make_finding(
            ports,
            f"{slot_name(join.slot, hostnames)} has no usable RDMA port{_broken(join.facts)}, "
            "but --require-rdma needs one on every node",
            slot=join.slot,
            value="none",
            expected="at least one",
        )
        for join in without
    ]


def _uneven(ports: Property, joins: Sequence[JoinRequest]) -> list[Finding]:
    """Who has other ports than most, and what is wrong there that is not wrong elsewhere.

    Where the rails are the same, as with a port more or less for storage, it is worth a warning.
    """
    facts = {join.slot: join.facts for join in joins}
    have_any = any(usable_ports(own) for own in facts.values())
    values = {s: ports_text(usable_ports(own)) if have_any else "" for s, own in facts.items()}
    texts = {s: ports_text(rails(usable_ports(own))) for s, own in facts.items()}
    if len(set(texts.values())) == 1:
        ports = replace(ports, level="warn")
    found = differences(ports, values, hostnames_of(joins))
    sound = facts.keys() - {finding.slot for finding in found}
    usual = {problem for slot in sound for problem in _problems(facts[slot])}
    return [
        finding
        if finding.slot is None
        else replace(
            finding, cause=printable(finding.cause + _broken(facts[finding.slot], usual), 600)
        )
        for finding in found
    ]


def ports_text(ports: Iterable[RdmaPort]) -> str:
    """`8 x 400 Gb/s InfiniBand`, or `none`."""
    count = Counter((_LAYERS.get(p.link_layer, "EFA"), p.rate_gbps) for p in ports)
    order = sorted(count.items(), key=lambda item: (-item[1], item[0]))
    return listed((f"{n} x {rate:g} Gb/s {layer}" for (layer, rate), n in order), 4) or "none"


def _problems(facts: Facts) -> dict[str, list[str]]:
    """What is wrong with ports of a node, and with which."""
    found = defaultdict(list)
    for port in facts.rdma:
        problem = port.problem if port.chosen else "NCCL_IB_HCA excludes it"
        if problem:
            found[problem].append(f"{port.device}:{port.port}")
    return found


def _broken(facts: Facts, usual: Collection[str] = ()) -> str:
    """` (mlx5_2:1: DOWN)`: why some ports of a node do not count, as far as that is not usual."""
    found = {problem: ports for problem, ports in _problems(facts).items() if problem not in usual}
    words = [f"{listed(ports, 2)}: {problem}" for problem, ports in found.items()]
    return f" ({listed(words, 3)})" if words else ""


def _compare_ports(
    joins: Sequence[JoinRequest],
    what: Property,
    read: Callable[[RdmaPort], str],
    link_layer: str = "",
) -> list[Finding]:
    """What differs between the usable ports, or those of one link layer."""
    return compare_facts(joins, what, lambda f: _set_text(map(read, _of(f, link_layer))))


def _set_text(values: Iterable[str]) -> str:
    return listed(sorted(set(values) - {""}), 4)


def _fabric(joins: Sequence[JoinRequest]) -> list[Finding]:
    prefix = Property(
        Check.INFINIBAND,
        "InfiniBand subnet prefix",
        "nodes in different subnets reach each other only through an InfiniBand router",
    )
    gid = Property(Check.ROCE, "RoCE GID", "NCCL before 2.21 uses the same index on all nodes")
    mtu = Property(Check.ROCE, "MTU of the RoCE ports", "set the same MTU on all of them")
    return [
        *_partition_keys(joins),
        *_compare_ports(joins, prefix, lambda p: p.subnet_prefix, "InfiniBand"),
        *_compare_ports(joins, gid, _gid_text, "Ethernet"),
        *_compare_ports(joins, mtu, lambda p: str(p.mtu or ""), "Ethernet"),
    ]


def _of(facts: Facts, link_layer: str) -> list[RdmaPort]:
    return [port for port in usable_ports(facts) if link_layer in ("", port.link_layer)]


def _gid_text(port: RdmaPort) -> str:
    return "" if port.gid_index is None else f"{port.gid_index} ({port.gid_type})"


def _partition_keys(joins: Sequence[JoinRequest]) -> list[Finding]:
    """Two InfiniBand ports talk when they have a key in common of which one is a full member."""
    keys = {
        join.slot: set.intersection(*({k for k in p.pkeys if k & _FULL_MEMBER} for p in ports))
        for join in joins
        if (ports := _of(join.facts, "InfiniBand")) and all(port.pkeys for port in ports)
    }
    if not keys or (common := set.intersection(*keys.values())):
        texts = {slot: _set_text(hex(key) for key in common) for slot in keys}
    else:
        texts = {slot: _set_text(map(hex, own)) or _NO_KEY for slot, own in keys.items()}
    fix = (
        "the subnet manager's partitions.conf assigns the keys: ask its administrator for one "
        "that all ports have"
    )
    what = Property(Check.INFINIBAND, "partition key (full member)", fix, _rdma_level(joins))
    if set(texts.values()) == {_NO_KEY}:
        return []  # each node has said so by itself
    return differences(what, texts, hostnames_of(joins))


# --- what NCCL is to use ----------------------------------------------------------------------


@frozen
class RdmaExpectation:
    """What NCCL is to use.

    Attributes:
        transport: As NCCL names it in its log; empty when nothing can be expected.
        hcas: For NCCL_IB_HCA, as DEVICE:PORT, by slot; empty when NCCL's own choice is right.
    """

    transport: Literal["", "IB", "Socket", "Libfabric"]
    hcas: dict[int, list[str]] = field(default_factory=dict)


def rdma_of(joins: Sequence[JoinRequest]) -> RdmaExpectation:
    """What NCCL is to use, as far as the nodes' facts tell."""
    usable = {join.slot: usable_ports(join.facts) for join in joins}
    verbs = {slot: [p for p in own if p.link_layer in _VERBS] for slot, own in usable.items()}
    if all(verbs.values()):
        return _of_verbs(verbs, {join.slot: _nccl_would_take(join.facts) for join in joins})
    others = {len(own) for own in usable.values()}
    if any(verbs.values()) or len(others) > 1:
        return RdmaExpectation("")
    return RdmaExpectation("Libfabric" if any(others) else "Socket")


def _of_verbs(ports: Mapping[int, list[RdmaPort]], seen: Mapping[int, int]) -> RdmaExpectation:
    """Of usable ports, where NCCL by itself would take as many as are `seen`."""
    if len({len(own) for own in ports.values()}) > 1:
        return RdmaExpectation("")
    used = {slot: rails(own) for slot, own in ports.items()}
    is_alike = len({ports_text(own) for own in used.values()}) == 1
    if not is_alike or all(len(own) == seen[slot] for slot, own in used.items()):
        return RdmaExpectation("IB")
    hcas = {slot: [f"{p.device}:{p.port}" for p in own] for slot, own in used.items()}
    return RdmaExpectation("IB", hcas)


def _nccl_would_take(facts: Facts) -> int:
    """NCCL asks no more of a port; what is wrong otherwise it finds out too late."""
    seen = [port for port in facts.rdma if port.link_layer in _VERBS and port.chosen]
    return sum(port.openable and port.state == "ACTIVE" for port in seen)

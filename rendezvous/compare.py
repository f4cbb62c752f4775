"""The checks over the whole table: what is not the same on all nodes, and whose fault it is. Pure.

Of a property, the value of more than half of the nodes is the right one, and every other node is
named. Where no value has that many, the nodes are split and nobody is blamed. What a node could not
find out is not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal

from rendezvous.checks import Check, Level, find_check
from rendezvous.rails import rails
from rendezvous.schema import (
    MOST_COMMAND_WORDS,
    Facts,
    Finding,
    JoinRequest,
    PairProbe,
    RdmaPort,
    RunSpec,
)
from rendezvous.words import group_name, listed, node_name, printable, slots_text

Transport = Literal["", "IB", "Socket", "Libfabric"]

_VERBS = ("InfiniBand", "Ethernet")
_LAYERS = {"InfiniBand": "InfiniBand", "Ethernet": "RoCE"}
_FULL_MEMBER = 0x8000
_NO_KEY = "none that all its ports have"


@dataclass(frozen=True, slots=True)
class RdmaExpectation:
    """What NCCL is to use.

    Attributes:
        transport: As NCCL names it in its log; empty when nothing can be expected.
        hcas: For NCCL_IB_HCA, as DEVICE:PORT, by slot; empty when NCCL's own choice is right.
        reason: Why, in words.
    """

    transport: Transport
    hcas: dict[int, list[str]] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Property:
    """Something that is to be the same on all nodes, and how bad it is where it is not."""

    check: Check
    name: str
    fix: str = ""
    level: Level = "warn"


def compare(joins: Sequence[JoinRequest], spec: RunSpec) -> list[Finding]:
    """The checks X01 to X06: for each property one `ok`, or what differs.

    A finding's slot is the node that is the odd one out; None where nobody is. Those of a check
    that is left out are `skipped`.
    """
    found = [
        *_duplicates(joins),
        *_versions(joins),
        *_gpus(joins),
        *_rdma_ports(joins, required=spec.require_rdma),
        *_fabric(joins),
    ]
    return mark_skipped(found, spec)


def mark_skipped(findings: Iterable[Finding], spec: RunSpec) -> list[Finding]:
    """The findings, those of checks that are left out as `skipped`."""
    skip = {"level": "skipped"}
    return [f.model_copy(update=skip) if f.check in spec.skip else f for f in findings]


def names_nodes(finding: Finding) -> bool:
    """Whether its cause is a sentence of its own, which names the nodes."""
    check = find_check(finding.check)
    return check is not None and check.names_nodes


def finding_text(finding: Finding, hostnames: Mapping[int, str]) -> str:
    """A finding as one sentence, without what mends it."""
    if names_nodes(finding):
        return finding.cause
    value = " ".join(filter(None, (finding.subject, finding.value)))
    wanted = f"expected {finding.expected}" if finding.expected else ""
    what = ", ".join(filter(None, (value, wanted)))
    text = ": ".join(filter(None, (what, finding.cause)))
    if finding.slot is None:
        return text
    return f"{node_name(finding.slot, hostnames)}: {text}"


def told_once(
    findings: Iterable[Finding], hostnames: Mapping[int, str]
) -> list[tuple[Finding, str]]:
    """Each finding with its sentence; what several nodes found alike is one, with all of them."""
    alike: dict[tuple[object, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        same = {} if names_nodes(finding) else {"slot": None}
        alike[tuple(finding.model_copy(update=same).model_dump().values())].append(finding)
    told = []
    for first, *more in alike.values():
        text = finding_text(first, hostnames)
        slots = sorted({f.slot for f in (first, *more) if f.slot is not None})
        if more and slots:
            who = group_name(slots, hostnames)
            if len(slots) == len(hostnames) > 2:
                who = f"all {len(slots)} nodes"
            text = f"{who}: {finding_text(first.model_copy(update={'slot': None}), {})}"
        told.append((first, text))
    return told


def hostnames_of(joins: Iterable[JoinRequest]) -> dict[int, str]:
    """Of every slot."""
    return {join.slot: join.hostname for join in joins}


def make_finding(
    what: Property,
    sentence: str,
    *,
    level: Level | None = None,
    slot: int | None = None,
    value: str = "",
    expected: str = "",
) -> Finding:
    """A finding over several nodes, of the property's level if not of another."""
    return Finding(
        check=what.check.id,
        level=level or what.level,
        slot=slot,
        subject=what.name,
        value=printable(value, 600),
        expected=printable(expected, 600),
        cause=printable(sentence, 600),
        fix="" if level == "ok" else printable(what.fix, 600),
    )


def differences(
    what: Property, values: Mapping[int, str], hostnames: Mapping[int, str]
) -> list[Finding]:
    """What is to be said of a property, given its value on each node; empty values are unknown."""
    known = {slot: value for slot, value in values.items() if value}
    if not known:
        return []
    count = Counter(known.values())
    usual, most = count.most_common(1)[0]
    if len(count) == 1:
        who = "all nodes have" if len(known) == len(values) else f"{len(known)} nodes have"
        return [make_finding(what, f"{who} {what.name} {usual}", level="ok", value=usual)]
    if 2 * most <= len(known):
        return [_split(what, known, count, hostnames)]
    return [
        make_finding(
            what,
            _odd_one(what, slot, known, usual, hostnames),
            slot=slot,
            value=value,
            expected=usual,
        )
        for slot, value in sorted(known.items())
        if value != usual
    ]


def _odd_one(
    what: Property, slot: int, known: Mapping[int, str], usual: str, hostnames: Mapping[int, str]
) -> str:
    """`slot 9 (h9) is alone with NCCL 2.19.3; the 15 others have 2.21.5`."""
    count = Counter(known.values())
    same, rest = count[known[slot]], count[usual]
    alone = "is alone" if same == 1 else f"is one of {same}"
    others = f"{rest} other{'s' * (rest > 1)} {'have' if rest > 1 else 'has'}"
    the = "the " if same + rest == len(known) else ""
    name = node_name(slot, hostnames)
    return f"{name} {alone} with {what.name} {known[slot]}; {the}{others} {usual}"


def _split(
    what: Property, known: Mapping[int, str], count: Counter[str], hostnames: Mapping[int, str]
) -> Finding:
    groups = [
        f"{value} on {group_name([s for s in sorted(known) if known[s] == value], hostnames)}"
        for value, _ in count.most_common()
    ]
    sizes = "/".join(str(number) for _, number in count.most_common(5))
    more = "/..." if len(count) > 5 else ""
    return make_finding(
        what,
        f"the nodes are split {sizes}{more} over {what.name}: {listed(groups, 4)}",
        value=listed(count, 5),
        expected="one value",
    )


# --- COMMAND, as each node joins --------------------------------------------------------------


def first_difference(one: Sequence[str], other: Sequence[str]) -> int | None:
    """The first word, from 1, in which two COMMANDs differ; None where they are the same.

    Args:
        one: The words' MACs, as `rendezvous.macs.word_macs` makes them.
        other: The same of another node.
    """
    pairs = enumerate(zip_longest(one, other), start=1)
    return next((number for number, (mine, theirs) in pairs if mine != theirs), None)


def word_text(number: int) -> str:
    """`word 5`, or what lies behind the words that are compared each for itself."""
    most = MOST_COMMAND_WORDS
    return f"word {number}" if number <= most else f"something behind word {most}"


# --- X01: the same thing twice ----------------------------------------------------------------


ONE_A_MACHINE = "ask the scheduler for one node a machine (with Slurm: sbatch --exclusive)"
"""What to try where two nodes are on one: those that pack jobs want to be told."""

_HOSTNAME = Property(
    Check.DUPLICATES,
    "hostname",
    "rdzv goes by addresses and names them node-RANK; NCCL takes two containers of one host and "
    "one hostname for one machine: give every node a hostname of its own",
)
_GPU = Property(
    Check.DUPLICATES,
    "GPU",
    f"two nodes of this run are on one machine and use the same GPUs: {ONE_A_MACHINE}, or give "
    "each its own GPUs (CUDA_VISIBLE_DEVICES)",
    "fail",
)
_GUID = Property(
    Check.DUPLICATES,
    "node GUID",
    "two adapters of one fabric with the same GUID confuse its subnet manager: set another GUID "
    "for one of them",
    "fail",
)


def _duplicates(joins: Sequence[JoinRequest]) -> list[Finding]:
    hostnames = hostnames_of(joins)
    if all(c.is_loopback for join in joins for c in join.candidates):
        return []  # one machine, on purpose
    machines = {join.facts.boot_id or str(join.slot) for join in joins}
    gpu = _GPU if len(machines) > 1 else replace(_GPU, level="warn")
    found = [
        *_twice(_HOSTNAME, {j.slot: [j.hostname.lower()] for j in joins}, hostnames),
        *_twice(gpu, {j.slot: j.facts.gpu_uuids for j in joins}, hostnames),
    ]
    guids = {
        join.slot: [
            # Containers of one machine see the same adapters.
            f"{port.node_guid}/{join.facts.boot_id}"
            for port in join.facts.rdma
            if port.link_layer == "InfiniBand" and port.node_guid.strip("0:")
        ]
        for join in joins
    }
    return found + _same_guid(guids, hostnames)


def _twice(
    what: Property, values: Mapping[int, Iterable[str]], hostnames: Mapping[int, str]
) -> list[Finding]:
    """One finding for every set of nodes that have something in common."""
    owners = defaultdict(list)
    for slot, own in sorted(values.items()):
        for value in dict.fromkeys(own):
            owners[value].append(slot)
    together = defaultdict(list)
    for value, slots in owners.items():
        if len(slots) > 1:
            together[tuple(slots)].append(value)
    return [
        make_finding(
            what,
            f"{group_name(slots, hostnames)} have the same {what.name} {listed(shared, 2)}",
            slot=slots[-1] if len(slots) == 2 else None,
            value=listed(shared, 2),
            expected="a different one on every node",
        )
        for slots, shared in together.items()
    ]


def _same_guid(guids: Mapping[int, list[str]], hostnames: Mapping[int, str]) -> list[Finding]:
    boots = defaultdict(set)
    for own in guids.values():
        for guid, _, boot in (text.partition("/") for text in own):
            boots[guid].add(boot)
    cloned = {
        slot: [guid for text in own if len(boots[guid := text.partition("/")[0]]) > 1]
        for slot, own in guids.items()
    }
    return _twice(_GUID, cloned, hostnames)


# --- X02, X03: versions and GPUs --------------------------------------------------------------


_ONE_IMAGE = "use one image, or one environment, on all nodes"


def _major_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _versions(joins: Sequence[JoinRequest]) -> list[Finding]:
    torch = {_major_minor(join.facts.torch_version) for join in joins} - {""}
    told = f"NCCL refuses a peer of another version: {_ONE_IMAGE}"
    nccl = Property(Check.VERSIONS, "NCCL", told, _level(joins))
    return [
        *_each(joins, nccl, lambda f: f.nccl_version),
        *_each(joins, _version("torch", "fail" if len(torch) > 1 else "warn"), _torch),
        *_each(joins, _version("CUDA"), lambda f: f.cuda_version),
        *_each(joins, _version("Python"), lambda f: f.python_version),
        *_each(joins, _version("rdzv"), lambda f: f.rdzv_version),
        *_each(joins, _version("entry script"), lambda f: f.script_digest[:12]),
    ]


def _version(name: str, level: Level = "warn") -> Property:
    return Property(Check.VERSIONS, name, _ONE_IMAGE, level)


def _torch(facts: Facts) -> str:
    return facts.torch_version


def _gpus(joins: Sequence[JoinRequest]) -> list[Finding]:
    count = Property(
        Check.GPUS_ALIKE,
        "GPU count",
        "see nvidia-smi -L there: a GPU is lost, or not given to it; if it is meant to be so, "
        f"--skip {Check.GPUS_ALIKE.id}",
    )
    short = {j.slot for j in joins if (j.facts.gpus or 1) < j.nproc_per_node}
    model = Property(Check.GPUS_ALIKE, "GPU model", "the slowest sets the pace of all")
    driver = Property(Check.GPUS_ALIKE, "NVIDIA driver", "install one driver on all machines")
    have_any = any(join.facts.gpus for join in joins)
    counts = _each(joins, count, lambda f: str(f.gpus) if have_any else "")
    return [
        *(f.model_copy(update={"level": "fail"}) if _blames(f, short) else f for f in counts),
        *_each(joins, model, lambda f: ", ".join(sorted(set(f.gpu_models)))),
        *_each(joins, driver, lambda f: f.driver_version),
    ]


def _blames(finding: Finding, slots: Collection[int]) -> bool:
    """Whether it is about one of these nodes; what is about nobody in particular is about all."""
    return finding.level == "warn" and bool(slots) and finding.slot in (None, *slots)


def _each(
    joins: Sequence[JoinRequest], what: Property, read: Callable[[Facts], str]
) -> list[Finding]:
    return differences(what, {j.slot: read(j.facts) for j in joins}, hostnames_of(joins))


# --- X08: names -------------------------------------------------------------------------------


_NAMES = Property(
    Check.HOSTNAMES,
    "hostname",
    "mend the line in /etc/hosts there: programs that go by hostnames (torchrun with c10d, Gloo "
    "without GLOO_SOCKET_IFNAME, JAX on CPUs, Horovod) would look for the node elsewhere",
)
_MOST_NAMES = 16


def wrong_names(
    reports: Mapping[int, Sequence[PairProbe]], joins: Sequence[JoinRequest]
) -> list[Finding]:
    """X08: hostnames that some nodes' hosts files lead to an address which is not the node's.

    An address that it does not offer may be its own all the same, where all nodes agree on it.

    Args:
        reports: What the nodes told of their peers, by slot.
        joins: Of these nodes.
    """
    offered = {join.slot: {one.address for one in join.candidates} for join in joins}
    owners = defaultdict(set)
    for slot, own in offered.items():
        for address in own:
            owners[address].add(slot)
    asked = Counter(pair.slot for pairs in reports.values() for pair in pairs)
    wrong: dict[tuple[int, str], list[int]] = defaultdict(list)
    for slot, pairs in sorted(reports.items()):
        for pair in pairs:
            if pair.resolved and pair.slot in offered:
                wrong[pair.slot, pair.resolved].append(slot)
    found: list[Finding] = []
    for (peer, words), slots in sorted(wrong.items()):
        addresses = words.split(", ")
        whose = {slot for address in addresses for slot in owners.get(address, ())}
        is_agreed = len(slots) == asked[peer] and not whose and not _has_loopback(addresses)
        if peer not in whose and not is_agreed and len(found) < _MOST_NAMES:
            found.append(_wrong_name(peer, words, slots, sorted(whose), joins))
    return found


def _has_loopback(addresses: Iterable[str]) -> bool:
    return any(address == "::1" or address.startswith("127.") for address in addresses)


def _wrong_name(
    peer: int, words: str, slots: Sequence[int], others: Sequence[int], joins: Sequence[JoinRequest]
) -> Finding:
    hostnames = hostnames_of(joins)
    own = next(join.candidates[0].address for join in joins if join.slot == peer)
    whose = f", which is {group_name(others, hostnames)}" if others else ""
    return make_finding(
        _NAMES,
        f"on {group_name(slots, hostnames)}, /etc/hosts leads from {hostnames[peer]} to "
        f"{words}{whose}; {node_name(peer, hostnames)} is {own}",
        slot=slots[0] if len(slots) == 1 else None,
        value=words,
        expected=own,
    )


# --- X04 to X06: RDMA -------------------------------------------------------------------------


_LOOK = "see rdzv doctor there: is /dev/infiniband given to the container, is a port up (ibstat)?"
_SEE = "see rdzv doctor there, and ibstat: NCCL would use fewer links, or fall back to sockets"


def _level(joins: Sequence[JoinRequest]) -> Level:
    """Programs without GPUs do without NCCL."""
    return "fail" if any(join.facts.gpus for join in joins) else "warn"


def _rdma_level(joins: Sequence[JoinRequest], *, required: bool = False) -> Level:
    """Who has switched RDMA off does without it; and a node without GPUs, beside those with."""
    wanted = any(join.facts.gpus and join.facts.wants_rdma for join in joins)
    return "fail" if required or wanted else "warn"


def _using(joins: Sequence[JoinRequest]) -> list[JoinRequest]:
    """The nodes whose programs use NCCL: those with GPUs, or all when none has."""
    return [join for join in joins if join.facts.gpus] or list(joins)


def usable_ports(facts: Facts) -> list[RdmaPort]:
    """Those that NCCL can use, and that the user lets it use."""
    return [port for port in facts.rdma if not port.problem and port.chosen]


def _rdma_ports(joins: Sequence[JoinRequest], *, required: bool) -> list[Finding]:
    if not any(join.facts.rdma for join in joins) and not required:
        return []
    ports = Property(Check.PORTS_ALIKE, "RDMA ports", _SEE, _rdma_level(joins, required=required))
    without = [join for join in joins if required and not usable_ports(join.facts)]
    rest = [join for join in _using(joins) if join not in without]
    card = Property(Check.PORTS_ALIKE, "RDMA adapter type")
    firmware = Property(Check.PORTS_ALIKE, "RDMA firmware", "update the adapters' firmware")
    return [
        *_missing(ports, without, hostnames_of(joins)),
        *_uneven(ports, rest),
        *_each(joins, card, lambda f: _set_text(p.hca_type for p in usable_ports(f))),
        *_each(joins, firmware, lambda f: _set_text(p.firmware for p in usable_ports(f))),
    ]


def _missing(
    ports: Property, without: Sequence[JoinRequest], hostnames: Mapping[int, str]
) -> list[Finding]:
    ports = replace(ports, fix=_LOOK)
    return [
        make_finding(
            ports,
            f"{node_name(join.slot, hostnames)} has no usable RDMA port{_broken(join.facts)}, "
            "and --require-rdma asks for one on every node",
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
        else finding.model_copy(
            update={"cause": printable(finding.cause + _broken(facts[finding.slot], usual), 600)}
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
        problem = port.problem if port.chosen else "NCCL_IB_HCA leaves it out"
        if problem:
            found[problem].append(f"{port.device}:{port.port}")
    return found


def _broken(facts: Facts, usual: Collection[str] = ()) -> str:
    """` (mlx5_2:1: DOWN)`: why some ports of a node do not count, as far as that is not usual."""
    found = {problem: ports for problem, ports in _problems(facts).items() if problem not in usual}
    words = [f"{listed(ports, 2)}: {problem}" for problem, ports in found.items()]
    return f" ({listed(words, 3)})" if words else ""


def _set_text(values: Iterable[str]) -> str:
    return listed(sorted(set(values) - {""}), 4)


def _fabric(joins: Sequence[JoinRequest]) -> list[Finding]:
    if not any(join.facts.rdma for join in joins):
        return []
    prefix = Property(
        Check.INFINIBAND,
        "InfiniBand subnet prefix",
        "nodes of two subnets reach each other through an InfiniBand router only",
    )
    gid = Property(Check.ROCE, "RoCE GID", "NCCL before 2.21 uses one index on all nodes")
    mtu = Property(Check.ROCE, "MTU of the RoCE ports", "set the same MTU on all of them")
    return [
        *_partition_keys(joins),
        *_each(joins, prefix, lambda f: _set_text(p.subnet_prefix for p in _of(f, "InfiniBand"))),
        *_each(joins, gid, lambda f: _set_text(_gid_text(p) for p in _of(f, "Ethernet"))),
        *_each(joins, mtu, lambda f: _set_text(str(p.mtu or "") for p in _of(f, "Ethernet"))),
    ]


def _of(facts: Facts, link_layer: str) -> list[RdmaPort]:
    return [port for port in usable_ports(facts) if port.link_layer == link_layer]


def _gid_text(port: RdmaPort) -> str:
    return "" if port.gid_index is None else f"{port.gid_index} ({port.gid_type})"


def _partition_keys(joins: Sequence[JoinRequest]) -> list[Finding]:
    """Two InfiniBand ports talk when they have a key in common of which one is a full member."""
    keys = {
        join.slot: set.intersection(*(_full_keys(port) for port in ports))
        for join in joins
        if (ports := _of(join.facts, "InfiniBand")) and all(port.pkeys for port in ports)
    }
    if not keys or (common := set.intersection(*keys.values())):
        texts = {slot: _set_text(hex(key) for key in common) for slot in keys}
    else:
        texts = {slot: _set_text(map(hex, own)) or _NO_KEY for slot, own in keys.items()}
    fix = "the subnet manager's partitions.conf gives the keys: ask for one that all ports have"
    what = Property(Check.INFINIBAND, "partition key (full member)", fix, _rdma_level(joins))
    if set(texts.values()) == {_NO_KEY}:
        return []  # each node has said so by itself
    return differences(what, texts, hostnames_of(joins))


def _full_keys(port: RdmaPort) -> set[int]:
    return {key for key in port.pkeys if key & _FULL_MEMBER}


# --- what NCCL is to use ----------------------------------------------------------------------


def rdma_of(joins: Sequence[JoinRequest]) -> RdmaExpectation:
    """What NCCL is to use, as far as the nodes' facts tell."""
    if not any(join.facts.rdma for join in joins):
        return RdmaExpectation("Socket", reason="no node has an RDMA device")
    verbs = {join.slot: _verbs_ports(join.facts) for join in joins}
    if all(verbs.values()):
        return _of_verbs(verbs, {join.slot: _nccl_would_take(join.facts) for join in joins})
    if any(verbs.values()):
        without = [slot for slot, ports in sorted(verbs.items()) if not ports]
        return RdmaExpectation("", reason=f"{slots_text(without)} cannot use RDMA, and others can")
    efa = {join.slot: len(usable_ports(join.facts)) for join in joins}
    if not any(efa.values()):
        return RdmaExpectation("Socket", reason="no node has an RDMA port that can be used")
    if len(set(efa.values())) == 1:
        return RdmaExpectation("Libfabric", reason=f"every node has {efa[min(efa)]} EFA devices")
    return RdmaExpectation("", reason="the nodes differ in the number of EFA devices")


def _verbs_ports(facts: Facts) -> list[RdmaPort]:
    return [port for port in usable_ports(facts) if port.link_layer in _VERBS]


def _of_verbs(ports: Mapping[int, list[RdmaPort]], seen: Mapping[int, int]) -> RdmaExpectation:
    """Of usable ports, where NCCL by itself would take as many as are `seen`."""
    if len({len(own) for own in ports.values()}) > 1:
        return RdmaExpectation("", reason="the nodes differ in the number of RDMA ports")
    used = {slot: rails(own) for slot, own in ports.items()}
    have = ports_text(used[min(used)])
    if all(len(own) == seen[slot] for slot, own in used.items()):
        return RdmaExpectation("IB", reason=f"every node has {have}")
    if len({ports_text(own) for own in used.values()}) > 1:
        return RdmaExpectation("IB", reason="the nodes' RDMA ports are of different rates")
    hcas = {slot: [f"{p.device}:{p.port}" for p in own] for slot, own in used.items()}
    more = f"{max(seen.values()) - len(used[min(used)])} of another kind, which NCCL would take"
    return RdmaExpectation("IB", hcas, f"every node has {have}, and {more}")


def _nccl_would_take(facts: Facts) -> int:
    """NCCL asks no more of a port; what is wrong otherwise it finds out too late."""
    seen = [port for port in facts.rdma if port.link_layer in _VERBS and port.chosen]
    return sum(port.openable and port.state == "ACTIVE" for port in seen)

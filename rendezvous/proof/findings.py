"""How a finding over several nodes is made, and how findings become sentences. Pure.

Of a property, the value of more than half of the nodes is the right one, and every other node is
named. Where no value has that many, the nodes are split and nobody is blamed. What a node could not
find out is not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from rendezvous.frozen import frozen
from rendezvous.wire.checks import Check, Level, names_nodes
from rendezvous.wire.node import Facts, Finding, JoinRequest
from rendezvous.wire.run import RunSpec
from rendezvous.wire.words import all_of, group_name, listed, printable, slot_name


@frozen
class Property:
    """Something that is to be the same on all nodes, and how bad it is where it is not."""

    check: Check
    name: str
    fix: str = ""
    level: Level = "warn"


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
    count = Counter(values.values())
    unknown = count.pop("", 0)
    if not count:
        return []
    usual, most = count.most_common(1)[0]
    if len(count) == 1:
        who = f"{most} nodes have" if unknown else "all nodes have"
        return [make_finding(what, f"{who} {what.name} {usual}", level="ok", value=usual)]
    known = {slot: value for slot, value in values.items() if value}
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
    """`slot 9 (h9) is the only node with NCCL 2.19.3; the 15 others have 2.21.5`."""
    count = Counter(known.values())
    same, rest = count[known[slot]], count[usual]
    alone = "is the only node" if same == 1 else f"is one of {same} nodes"
    others = f"{rest} other{'s' * (rest > 1)} {'have' if rest > 1 else 'has'}"
    if same + rest == len(known):
        others = f"the {others}" if rest > 1 else "the other has"
    name = slot_name(slot, hostnames)
    return f"{name} {alone} with {what.name} {known[slot]}; {others} {usual}"


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


def compare_facts(
    joins: Sequence[JoinRequest], what: Property, read: Callable[[Facts], str]
) -> list[Finding]:
    """The same of a property that is read from a node's facts."""
    return differences(what, {j.slot: read(j.facts) for j in joins}, hostnames_of(joins))


def hostnames_of(joins: Iterable[JoinRequest]) -> dict[int, str]:
    """Of every slot."""
    return {join.slot: join.hostname for join in joins}


def mark_skipped(findings: Iterable[Finding], spec: RunSpec) -> list[Finding]:
    """The findings, those of checks that are left out as `skipped`."""
    return [replace(f, level="skipped") if f.check in spec.skip else f for f in findings]


def finding_text(finding: Finding, hostnames: Mapping[int, str]) -> str:
    """A finding as one sentence, without what mends it."""
    if names_nodes(finding.check):
        return finding.cause
    subject = "" if finding.subject in finding.value else finding.subject
    value = " ".join(filter(None, (subject, finding.value)))
    wanted = f"expected {finding.expected}" if finding.expected else ""
    what = ", ".join(filter(None, (value, wanted)))
    text = ": ".join(filter(None, (what, finding.cause)))
    if finding.slot is None:
        return text
    return f"{slot_name(finding.slot, hostnames)}: {text}"


def told_once(
    findings: Iterable[Finding], hostnames: Mapping[int, str]
) -> list[tuple[Finding, str]]:
    """Each finding with its sentence; what several nodes found alike is one, with all of them."""
    alike: defaultdict[Finding, list[Finding]] = defaultdict(list)
    for finding in findings:
        same = finding if names_nodes(finding.check) else replace(finding, slot=None)
        alike[same].append(finding)
    told = []
    for of_nobody, (first, *more) in alike.items():
        text = finding_text(first, hostnames)
        slots = sorted({f.slot for f in (first, *more) if f.slot is not None})
        if more and slots:
            is_all = len(slots) == len(hostnames) > 2
            who = all_of(len(slots)) if is_all else group_name(slots, hostnames)
            text = f"{who}: {finding_text(of_nobody, {})}"
        told.append((first, text))
    return told

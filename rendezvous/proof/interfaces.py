"""Programs that the user's variables send to another interface than the table's. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rendezvous.proof.findings import mark_skipped, told_once
from rendezvous.proof.network_class import NetworkClass
from rendezvous.wire.checks import Check
from rendezvous.wire.node import Finding, JoinRequest
from rendezvous.wire.run import RunSpec
from rendezvous.wire.words import listed, printable

_SUFFIX = "_SOCKET_IFNAME"
_MOST = 3


def left_out(
    joins: Sequence[JoinRequest],
    classes: Sequence[NetworkClass],
    known: Iterable[Finding],
    spec: RunSpec,
) -> list[Finding]:
    """The nodes whose variables leave out the interface that the table takes.

    A variable by which all nodes use one network, be it the table's (the first of the `classes`) or
    one that was not tried, is left alone: somebody means it so. What is `known` of a node is not
    said again.
    """
    taken, said = classes[0].members, {(f.slot, f.subject) for f in known}
    if len(joins) == 1 or all(candidate.is_loopback for candidate in taken.values()):
        return []
    found = [
        Finding(
            check=Check.VARIABLES.id,
            level="warn",
            slot=join.slot,
            subject=name,
            value=value,
            expected=taken[join.slot].interface,
            cause="it excludes the interface that the table uses",
            fix=f"unset {name}: rdzv sets it to the interface that it has verified",
        )
        for join in joins
        for name, value in taken[join.slot].left_out_by.items()
        if (join.slot, name) not in said
    ]
    # What some node would be led away from, in each of the classes.
    led_away = [{name for c in each.members.values() for name in c.left_out_by} for each in classes]
    odd = set.intersection(*led_away)
    return mark_skipped((f for f in found if f.subject in odd), spec)


def is_odd(finding: Finding) -> bool:
    """Whether it warns of the interface that a node's program is to use."""
    is_warning = finding.check == Check.VARIABLES.id and finding.level == "warn"
    return is_warning and finding.subject.endswith(_SUFFIX)


def words_of_odd(findings: Iterable[Finding], hostnames: Mapping[int, str]) -> str:
    """What was warned of, with what mends it, for a program that failed; else empty."""
    told = told_once(filter(is_odd, findings), hostnames)
    words = listed((f"{text} ({finding.check}); {finding.fix}" for finding, text in told), _MOST)
    return printable(f"warning at the start: {words}", 600) if words else ""

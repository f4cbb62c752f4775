"""What flight recorders show: who is behind, in a circle, different, or waits with all. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from features.hang.rules.calls import Point, call_of
from features.hang.rules.evidence import Evidence, Quiet
from features.hang.rules.finding import Finding
from features.hang.rules.seen import Seen
from features.hang.rules.sentences import (
    call_text,
    gone_text,
    is_at_work,
    of_text,
    operation_of,
    place_text,
    rank_text,
    ranks_text,
)
from features.hang.rules.stacks import Kind
from features.hang.rules.verdict import Source
from rendezvous.wire.words import duration_text, listed, numbers_text

_SIZED = frozenset({"all_reduce", "allreduce", "broadcast", "reduce"})
"""Collectives that take the same sizes on all ranks; all others may differ in them."""
_FEWEST = 3
"""Of two ranks, one that waits may as well be the odd one."""


def moving(evidence: Evidence) -> Finding | None:
    """Collectives are called, or the newest call is too young for a hang."""
    points = evidence.points_on(evidence.roots) or evidence.calls.points
    if not points:
        return _all_move(evidence)
    quiet = evidence.quiet(points, evidence.roots)
    if not quiet.is_moving:
        return None
    sentence = _how_it_moves(evidence, quiet, points[0])
    if evidence.gone:
        sentence += f"; {gone_text(evidence.gone)}"
    if evidence.roots and len(evidence.roots) <= len(evidence.calls.waiting):
        found = [evidence.ranks[rank] for rank in evidence.roots]
        has = "have" if len(found) > 1 else "has"
        name = _call(evidence, points[0])
        sentence += f"; {ranks_text(found)} {has} not called {name} yet"
        if len(found) == 1:
            sentence += f": {place_text(found[0])}"
    return Finding("moving", sentence, _sources(evidence))


def _all_move(evidence: Evidence) -> Finding | None:
    """No rank waits: they are well where one of them has called something a moment ago."""
    quiet = evidence.quiet_of_all()
    if quiet is None or not quiet.is_moving:
        return None
    return Finding("moving", _how_it_moves(evidence, quiet, None), ("recorder",))


def _how_it_moves(evidence: Evidence, quiet: Quiet, point: Point | None) -> str:
    if quiet.moved:
        calls = "a collective was" if quiet.moved == 1 else f"{quiet.moved} collectives were"
        return f"not stuck: {calls} called, or ended, during the look"
    if quiet.since_before:
        return f"not stuck: since the look before, ranks have called more{_growth(evidence, point)}"
    if quiet.seconds is None:
        return "not known to be stuck: for how long the ranks have waited was not recorded"
    usual = f" (the longest pause before: {duration_text(quiet.usual)})" if quiet.usual else ""
    return f"not stuck: the newest call is {duration_text(quiet.seconds)} old{usual}"


def _growth(evidence: Evidence, point: Point | None) -> str:
    """`, from #881 to #894 of default_pg`."""
    if point is None:
        return ""
    group = evidence.calls.groups[point.key]
    now = max(part.group.called for part in group.parts.values())
    before = [
        one.called
        for rank in group.parts
        if rank in evidence.before
        for one in evidence.before[rank].look.groups
        if (one.name, one.members) == point.key
    ]
    was = max(before, default=now)
    return f", from #{was} to #{now} of {group.words}" if was < now else ""


def cycle(evidence: Evidence) -> Finding | None:
    """Ranks that wait for each other in several groups."""
    trapped = evidence.calls.trapped()
    if not trapped:
        return None
    points = _circle(evidence, trapped)
    calls: dict[str, dict[str, list[int]]] = {}
    for point in points:
        words = evidence.calls.groups[point.key].words
        calls.setdefault(words, {}).setdefault(_call(evidence, point), []).extend(
            _of(point, trapped)
        )
    names = [_in_group(words, found) for words, found in calls.items()]
    waited = evidence.waited(points)
    since = f", for {duration_text(waited)}" if waited is not None else ""
    sentence = f"ranks wait for each other: {listed(names, 3)}{since}"
    known = all(evidence.is_inside(rank) for point in points for rank in _of(point, trapped))
    certain = known and not evidence.roots and not evidence.veiled
    return Finding("cycle", sentence, _sources(evidence), (), certain)


def _in_group(words: str, calls: dict[str, list[int]]) -> str:
    """`ranks 0-3 in all_reduce #5 of tp`; of several such groups in different calls, `in tp`."""
    ranks = {rank for found in calls.values() for rank in found}
    call = next(iter(calls)) if len(calls) == 1 else f"calls of {words}"
    return f"{numbers_text(ranks)} in {call}"


def _of(point: Point, ranks: set[int]) -> list[int]:
    return [rank for rank in point.waiting if rank in ranks]


def _circle(evidence: Evidence, trapped: set[int]) -> list[Point]:
    """The calls of one circle: from a rank to its call, and from that to a rank that lacks it."""
    way: list[Point] = []
    of_rank: dict[int, int] = {}
    for index, point in enumerate(evidence.calls.points):
        for rank in point.waiting:
            of_rank.setdefault(rank, index)
    rank = min(trapped)
    seen: dict[int, int] = {}
    while True:
        index = of_rank[rank]
        if index in seen:
            return way[seen[index] :]
        seen[index] = len(way)
        way.append(evidence.calls.points[index])
        rank = next(rank for rank in evidence.calls.lacking(index) if rank in trapped)


def behind(evidence: Evidence) -> Finding | None:
    """Ranks that wait for none have not called what others wait in."""
    roots = evidence.roots
    if not roots:
        return _veiled(evidence) or _unread(evidence) or _unlisted(evidence)
    points = evidence.points_on(roots)
    main = max(points, key=lambda point: len(point.waiting))
    found = [evidence.ranks[rank] for rank in roots]
    sentence = f"{_waiting_text(evidence, main, points)}; {_missing(evidence, found)}"
    if evidence.gone:
        sentence += f"; {gone_text(evidence.gone)}"
    sources = _sources(evidence)
    all_waiting = evidence.calls.waiting
    if len(roots) >= len(all_waiting):
        it = "they are" if len(roots) > 1 else "it is"
        sentence += f"; either {it} late, or those that wait call more than the others"
        return Finding("behind", sentence, sources)
    if len({seen.place.words for seen in found}) > 1 or (
        len(found) > 1 and not found[0].place.words
    ):
        sentence += "; they are in several places, so none of them is blamed"
        return Finding("behind", sentence, sources)
    if others := _unseen_waits(evidence) or _other_explanations(evidence):
        sentence += f"; {others}"
        return Finding("behind", sentence, sources)
    at_work = all(is_at_work(seen) for seen in found)
    next_step = "wait until it has done this, or see what it does: rdzv logs RUN" * at_work
    certain = not (evidence.veiled or evidence.gone) and not any(map(evidence.has_no_stack, roots))
    return Finding("behind", sentence, sources, roots, certain, next_step)


def _waiting_text(evidence: Evidence, main: Point, points: Sequence[Point]) -> str:
    """`7 of 8 ranks have waited 4 min in all_reduce #21 of default_pg`."""
    ranks = main.waiting
    waited = evidence.waited(points)
    have = "has" if len(ranks) == 1 else "have"
    verb = "waits" if len(ranks) == 1 else "wait"
    does = f"{have} waited {duration_text(waited)}" if waited is not None else verb
    who = of_text(ranks, evidence.of) if len(ranks) > 2 else numbers_text(ranks)
    call = _call(evidence, main)
    return f"{who} {does} in {call}{_rest(evidence, main)}"


def _rest(evidence: Evidence, main: Point) -> str:
    rest = len(evidence.calls.waiting - set(main.waiting))
    return f", and {rest} in other calls" if rest else ""


def _missing(evidence: Evidence, found: Sequence[Seen]) -> str:
    """Who has not called it, and where they are."""
    if len(found) == 1:
        return f"{rank_text(found[0])} has not called it: {place_text(found[0])}"
    words = {seen.place.words for seen in found}
    where = f": they are in {words.pop()}" if len(words) == 1 and "" not in words else ""
    return f"{ranks_text(found)} have not called it{where}"


def _unseen_waits(evidence: Evidence) -> str:
    """Whether those that are behind may wait themselves, for a rank that waits for none: a receive
    that no recorder has, in a line of the program's own."""
    idle = evidence.idle()
    if idle:
        verb = "waits" if len(idle) == 1 else "wait"
        return f"{numbers_text(idle)} {verb} for none either, so none is blamed"
    unseen = any(evidence.has_no_stack(rank) for rank in evidence.roots)
    known = evidence.is_everyone(evidence.waiting | set(evidence.roots))
    return "" if known or not unseen else "others were not seen, so none is blamed"


def _other_explanations(evidence: Evidence) -> str:
    """What else may hold the ranks, as far as it is seen; empty: nothing."""
    blocking = {rank for point in evidence.calls.points for rank in point.lacking}
    for point in evidence.calls.inside():
        if point.open or point.unseen or blocking.isdisjoint(point.waiting):
            continue
        if not evidence.quiet([point]).is_moving:
            who = numbers_text(point.waiting)
            return (
                f"{who} wait in {_call(evidence, point)}, which all have called, so none is blamed"
            )
    return ""


def _veiled(evidence: Evidence) -> Finding | None:
    """Those that are waited for wait themselves, for what no recorder has."""
    if not evidence.veiled:
        return None
    points = evidence.points_on(evidence.veiled)
    main = max(points, key=lambda point: len(point.waiting))
    sources: tuple[Source, ...] = ("recorder", "stacks")
    found = [evidence.ranks[rank] for rank in evidence.veiled]
    sentence = f"{_waiting_text(evidence, main, points)}; {_missing(evidence, found)}"
    idle = evidence.idle()
    messages = all(seen.place.kind is Kind.MESSAGE for seen in found)
    if len(idle) == 1 and messages and evidence.is_complete and not evidence.has_no_stack(idle[0]):
        one = evidence.ranks[idle[0]]
        sentence += f"; of all ranks only {rank_text(one)} waits for none: {place_text(one)}"
        return Finding("odd_stack", sentence, sources, idle)
    sentence += "; for which rank that waits is not recorded"
    return Finding("behind", sentence, sources)


def _unread(evidence: Evidence) -> Finding | None:
    """One rank's recorder was not read, it alone is seen outside of a collective, and is missed."""
    unread = [rank for rank, seen in evidence.ranks.items() if not seen.is_read]
    missed = [point for point in evidence.calls.points if point.unseen]
    if len(unread) != 1 or not missed or evidence.seen.silent_nodes:
        return None
    one = evidence.ranks[unread[0]]
    others = [rank for rank in evidence.ranks if rank != one.rank]
    if one.place.kind not in (Kind.OTHER, Kind.IMPORTING, Kind.CHILDREN):
        return None
    if not all(evidence.is_inside(rank) and rank in evidence.calls.waiting for rank in others):
        return None
    main = max(missed, key=lambda point: len(point.waiting))
    sentence = (
        f"{_waiting_text(evidence, main, missed)}; {rank_text(one)} is not seen in it, and its "
        f"recorder does not answer: {place_text(one)}"
    )
    return Finding("behind", sentence, ("recorder", "stacks"), unread)


def _unlisted(evidence: Evidence) -> Finding | None:
    """The one rank that waits for none, where the members of a group are not known: a recorder that
    does not have them shows only those that have called something in it."""
    points = [point for point in evidence.calls.inside() if point.open]
    idle = evidence.idle()
    if not points or len(idle) != 1 or not evidence.is_everyone(evidence.waiting | set(idle)):
        return None
    one = evidence.ranks[idle[0]]
    if evidence.of < _FEWEST or evidence.has_no_stack(one.rank):
        return None
    main = max(points, key=lambda point: len(point.waiting))
    sentence = (
        f"{_waiting_text(evidence, main, points)}; of all ranks only {rank_text(one)} waits for "
        f"none: {place_text(one)}"
    )
    return Finding("behind", sentence, _sources(evidence), idle)


def different(evidence: Evidence) -> Finding | None:
    """Ranks have called different collectives under one number."""
    for point in evidence.calls.points:
        if point.peer:
            continue
        group = evidence.calls.groups[point.key]
        calls = {
            rank: call
            for rank, part in group.parts.items()
            if (call := call_of(part.group, point.number)) is not None
        }
        by_form: dict[str, list[int]] = {}
        for rank, call in calls.items():
            by_form.setdefault(operation_of(call.operation), []).append(rank)
        if len(by_form) == 1 and set(by_form) <= _SIZED:
            by_what: dict[str, list[int]] = {}
            for rank, call in calls.items():
                if call.what:
                    by_what.setdefault(call.what, []).append(rank)
            by_form = {f"{next(iter(by_form))} with {what}": by_what[what] for what in by_what}
        if len(by_form) > 1:
            complete = len(calls) == len(group.parts) and not (point.unseen or point.open)
            return _differ(evidence, point, by_form, complete)
    return None


def _differ(
    evidence: Evidence, point: Point, by_form: dict[str, list[int]], complete: bool
) -> Finding:
    (most, _), *others = sorted(by_form.items(), key=lambda item: (-len(item[1]), item[1]))
    few = sorted(rank for _, ranks in others for rank in ranks)
    name = f"#{point.number} of {evidence.calls.groups[point.key].words}"
    end = "the programs differ there"
    if len(few) < len(by_form[most]) and len(others) == 1:
        found = [evidence.ranks[rank] for rank in few]
        calls = "calls" if len(few) == 1 else "call"
        sentence = f"{ranks_text(found)} {calls} {others[0][0]} as {name}, the others {most}: {end}"
        return Finding("different", sentence, ("recorder",), few, complete)
    forms = [f"{numbers_text(ranks)} {form}" for form, ranks in by_form.items()]
    sentence = f"as {name} call {listed(sorted(forms), 3)}: {end}"
    return Finding("different", sentence, ("recorder",), (), complete)


def all_inside(evidence: Evidence) -> Finding | None:
    """All that were seen are in the same call, or wait for those that are."""
    inside = evidence.calls.inside()
    if not inside:
        return None
    main = max(inside, key=lambda point: len(point.waiting))
    waited = evidence.waited(inside)
    since = f", for {duration_text(waited)}" if waited is not None else ""
    who = of_text(main.waiting, evidence.of)
    if len(main.waiting) <= 4 and len(evidence.ranks) > len(main.waiting):
        who = ranks_text([evidence.ranks[rank] for rank in main.waiting])
    verb = "is" if len(main.waiting) == 1 else "are"
    sentence = f"{who} {verb} in {_call(evidence, main)}{since}"
    closed = not (main.unseen or main.open)
    sentence += (
        ": all of its members have called it; the network, a device or the library holds it"
        if closed
        else ": members that were not seen might not have called it"
    )
    if rest := len(evidence.calls.waiting - set(main.waiting)):
        sentence += f"; {rest} other{'s wait' if rest > 1 else ' waits'} in other calls"
    return Finding("all_inside", sentence, _sources(evidence), (), closed and len(inside) == 1)


def _call(evidence: Evidence, point: Point) -> str:
    functions = sorted(
        evidence.ranks[rank].place.function
        for rank in point.waiting
        if evidence.ranks[rank].place.kind is Kind.COLLECTIVE
    )
    function = max(set(functions), key=lambda name: (functions.count(name), name), default="")
    group = evidence.calls.groups[point.key]
    return call_text(group, point, function, brief=evidence.brief != "")


def _sources(evidence: Evidence) -> tuple[Source, ...]:
    sources: list[Source] = ["recorder"]
    if any(not evidence.has_no_stack(rank) for rank in evidence.ranks):
        sources.append("stacks")
    roots = [evidence.ranks[rank] for rank in evidence.roots]
    if any(seen.awaits_disk or is_at_work(seen) for seen in roots):
        sources.append("/proc")
    return tuple(sources)

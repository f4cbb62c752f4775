"""What stacks alone show, where no recorder has anything that ranks wait in. Pure."""

from __future__ import annotations

from features.hang.rules.by_state import SEE_ENDS
from features.hang.rules.evidence import Evidence
from features.hang.rules.finding import Finding
from features.hang.rules.sentences import (
    gone_text,
    of_text,
    place_text,
    places_text,
    ranks_text,
)
from features.hang.rules.stacks import Kind
from features.hang.rules.verdict import Rule, Source
from rendezvous.wire.words import duration_text, listed, numbers_text

_NOT_ALL = "; not all stacks were read, so none is blamed"


def nothing(evidence: Evidence) -> Finding | None:
    """No rank has answered: why."""
    found = evidence.ranks.values()
    if any(seen.answers or seen.is_unstarted or seen.awaits_children for seen in found):
        return None
    stopped = [seen for seen in evidence.ranks.values() if seen.look.state in ("T", "t")]
    if stopped and len(stopped) == len(evidence.ranks):
        return None
    words = [*evidence.seen.words]
    if evidence.ranks and not words:
        words.append(_why(evidence))
    if evidence.seen.silent_nodes:
        count = len(evidence.seen.silent_nodes)
        words.append(f"{count} node{'s' * (count > 1)} did not answer")
    why = "; ".join(words) if words else "no node has looked yet"
    return Finding("nothing", f"where the ranks are is not known: {why}")


def _why(evidence: Evidence) -> str:
    if any(seen.look.recorder == "silent" for seen in evidence.ranks.values()):
        return "no rank answered: each may hold Python's global lock, or be stopped"
    if all(seen.look.state == "" for seen in evidence.ranks.values()):
        return "no process of a rank was found"
    return "no hook runs in the ranks: --look off, or COMMAND is not a Python program"


def odd_stack(evidence: Evidence) -> Finding | None:
    """The ranks that are in no collective, while most others are in one."""
    shown = {rank for rank, seen in evidence.ranks.items() if seen.place.kind is not Kind.UNKNOWN}
    waiting = evidence.waiting & (shown | evidence.calls.waiting)
    others = sorted(shown - waiting)
    if waiting and not others and len(waiting) > 1:
        return _moved(evidence, shown) or _all_wait(evidence, waiting)
    if not others or len(waiting) <= len(others):
        return None
    if moved := _moved(evidence, shown):
        return moved
    groups: dict[tuple[object, ...], list[int]] = {}
    for rank in others:
        stack = evidence.ranks[rank].stack
        groups.setdefault(tuple(stack.frames) if stack is not None else (), []).append(rank)
    smallest = min(groups.values(), key=lambda ranks: (len(ranks), ranks))
    found = [evidence.ranks[rank] for rank in smallest]
    does = _waits_in(evidence, waiting)
    sentence = f"{of_text(waiting, evidence.of)} {does}; {_are(evidence, smallest)}"
    if len(groups) > 1:
        rest = sorted(set(others) - set(smallest))
        sentence += f"; {numbers_text(rest)} {_verb(rest)} elsewhere too, so none is blamed"
        return Finding("odd_stack", sentence, _sources(evidence))
    sentence += _since_before(evidence, shown)
    if not evidence.is_everyone(shown | waiting):
        return Finding("odd_stack", sentence + _NOT_ALL, _sources(evidence))
    named = smallest if len(found) == 1 or len(found) * 2 <= len(waiting) else ()
    return Finding("odd_stack", sentence, _sources(evidence), named)


def _moved(evidence: Evidence, ranks: set[int]) -> Finding | None:
    """Stacks have changed since the look before."""
    moved = sorted(rank for rank in ranks if evidence.has_turned(rank))
    if not moved:
        return None
    sentence = f"not stuck: {numbers_text(moved)} {_has(moved)} moved since the look before"
    if len(moved) == 1:
        sentence += f"; {place_text(evidence.ranks[moved[0]])}"
    return Finding("moving", sentence, ("stacks",))


def _since_before(evidence: Evidence, ranks: set[int]) -> str:
    between = evidence.between(ranks)
    if between is None:
        return "; one look does not show whether this lasts"
    return f"; it was so in the look {duration_text(between)} before"


def _are(evidence: Evidence, ranks: list[int]) -> str:
    found = [evidence.ranks[rank] for rank in ranks]
    if len(found) == 1:
        return f"{ranks_text(found)} is not: {place_text(found[0])}"
    return f"{ranks_text(found)} are not: they are in {found[0].place.words}"


def _waits_in(evidence: Evidence, waiting: set[int]) -> str:
    functions: dict[str, int] = {}
    for rank in waiting:
        function = evidence.ranks[rank].place.function or "a collective"
        functions[function] = functions.get(function, 0) + 1
    names = sorted(functions, key=lambda name: (-functions[name], name))
    verb = "is" if len(waiting) == 1 else "are"
    return f"{verb} in {listed(names, 3)}"


def _all_wait(evidence: Evidence, waiting: set[int]) -> Finding | None:
    """All that were seen wait; by their stacks alone nobody knows for what."""
    if len(waiting) < len(evidence.ranks):
        return None
    kinds = {evidence.ranks[rank].place.function for rank in waiting}
    sentence = f"{of_text(waiting, evidence.of)} {_waits_in(evidence, waiting)}"
    if len(kinds) > 1:
        return Finding(
            "unclear", f"{sentence}: which one waits for which is not recorded", _sources(evidence)
        )
    sentence += ": the network, a device or a rank that is not seen may hold it"
    sentence += _since_before(evidence, waiting)
    return Finding("all_inside", sentence, _sources(evidence))


def unclear(evidence: Evidence) -> Finding:
    """Nothing distinguishes a rank but its end: the places, the biggest first."""
    if evidence.gone and evidence.waiting:
        living = [seen for seen in evidence.ranks.values() if not seen.is_gone]
        all_wait = len(evidence.waiting) >= len(living)
        rule: Rule = "stopped" if all_wait else "unclear"  # another one may be at work
        sentence = f"{gone_text(evidence.gone)}; {places_text(living)}{_moved_since(evidence)}"
        rank = f" --rank {evidence.gone[0].rank}" * (len(evidence.gone) == 1)
        return Finding(rule, sentence, _sources(evidence), next_step=SEE_ENDS + rank)
    found = evidence.ranks.values()
    number = len({seen.place.words for seen in found if seen.place.words and not seen.is_gone})
    head = f"nothing distinguishes a rank: the ranks are in {number} place{'s' * (number != 1)}"
    sentence = f"{head}: {places_text(found)}{_moved_since(evidence)}"
    return Finding("unclear", sentence, _sources(evidence))


def _moved_since(evidence: Evidence) -> str:
    """Which ranks are elsewhere than in the look before, or that none is."""
    ranks = evidence.ranks
    moved = [rank for rank in ranks if evidence.has_turned(rank) or evidence.has_moved(rank)]
    if moved:
        return f"; {numbers_text(moved)} {_has(moved)} moved since the look before"
    between = evidence.between(ranks)
    if between is None or any(seen.stack is None for seen in ranks.values()):
        return ""
    return f"; nothing has moved for {duration_text(between)}"


def _has(ranks: list[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _verb(ranks: list[int]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _sources(evidence: Evidence) -> tuple[Source, ...]:
    return ("recorder", "stacks") if evidence.calls.points else ("stacks",)

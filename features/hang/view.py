"""`rdzv look RUN`: where every rank of a run is, and which one the others wait for."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import click

from features.hang import LOOKS
from features.hang.beside_ranks import beside_ranks
from features.hang.rules import Verdict, groups_of, look_at
from features.hang.wire import Frame, RankLook, RunLook, Stack
from launcher.show.status import (
    RegistryClient,
    StateDir,
    find_run,
    fold_lines,
    registry_of,
    width_of,
)
from rendezvous.talk.questions import answers, ask_nodes
from rendezvous.wire.errors import RdzvError, TooManyRequests
from rendezvous.wire.words import hint_for, listed, node_name, printable, seconds_text, spans_text

SHOWN_FRAMES = 8
_SHOWN_GROUPS = 20
_WAIT_SECONDS = 5.0
_MOST_TRIES = 20


async def show_look(
    root: Path,
    run: str,
    *,
    again: float | None,
    everything: bool,
    as_json: bool,
    save: Path | None,
) -> int:
    """Look at a run that was launched here, and print what was seen.

    Args:
        root: The folder of all runs.
        run: The run id.
        again: Seconds until a second look, which shows what has moved; None: there is none.
        everything: Print every frame, thread and group.
        as_json: Print JSON.
        save: Where all that was seen is written as JSON; a person is shown a summary all the same.

    Raises:
        RdzvError: Nothing can be looked at, or the file cannot be written.
    """
    state = find_run(root, run)
    if state.result() is not None and not state.is_held():
        raise RdzvError(f"run '{run}' has ended, so there is no rank to look at")
    before, found = await _look(state, again)
    verdict = look_at(found, before)
    verdict = replace(verdict, next_step=hint_for(run, verdict.next_step))
    if save is not None:
        _save(save, as_text(run, found, verdict))
    if as_json:
        click.echo(as_text(run, found, verdict))
        return 0
    width = width_of(sys.stdout)
    for line in lines_of(found, verdict, everything=everything):
        click.echo(fold_lines(line, width, len(line) - len(line.lstrip()) + 2))
    if save is not None:
        click.echo(f"saved: {save}")
    return 0


async def _look(state: StateDir, again: float | None) -> tuple[RunLook | None, RunLook]:
    """One look, or two; the first of them first."""
    keys = state.keys()
    assert keys is not None
    async with registry_of(state) as client:
        client.credential = keys.look.text()  # it may look, and do nothing else
        first = await one_look(client, state.run)
        if again is None:
            return None, first
        await asyncio.sleep(again)
        return first, await one_look(client, state.run)


async def one_look(client: RegistryClient, run: str) -> RunLook:
    """Ask all nodes where their ranks are, and wait for what they answer. Raises RdzvError."""
    number = await _ask(client, run)
    for _ in range(_MOST_TRIES):
        found: RunLook = await answers(client, LOOKS, run, number, _WAIT_SECONDS)
        if found.over:
            break
    return found


async def _ask(client: RegistryClient, run: str) -> int:
    """Ask for a look, and return its number; somebody else may have looked just before."""
    for _ in range(_MOST_TRIES):
        try:
            return (await ask_nodes(client, LOOKS, run)).number
        except TooManyRequests as exc:
            waiting = exc
            await asyncio.sleep(1.0)
    raise waiting


def as_text(run: str, found: RunLook, verdict: Verdict) -> str:
    """All that was seen, as JSON."""
    seen = found.model_dump(mode="json")
    whole = {"run": run, "verdict": asdict(verdict), "look": seen.pop("number"), **seen}
    return json.dumps(whole, indent=1)


def _save(path: Path, text: str) -> None:
    try:
        path.touch(mode=0o600)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as exc:
        raise RdzvError(f"{path} cannot be written: {exc.strerror}") from exc


def lines_of(found: RunLook, verdict: Verdict, *, everything: bool) -> Iterator[str]:
    """What a person is shown: the sentence, and under it each place with the ranks that are there.

    Args:
        found: The look.
        verdict: What it says.
        everything: Every frame, thread and group; else the first few of each.
    """
    yield verdict.sentence
    if verdict.next_step:
        yield f"try: {verdict.next_step}"
    ranks, groups = ranks_of(found), groups_of(found)
    shown = groups if everything else groups[:_SHOWN_GROUPS]
    for members, stack in shown:
        yield ""
        yield f"{head_words(members, found, ranks)}:"
        yield from _stack_lines(stack, everything=everything)
        if everything:
            yield from _thread_lines(members[0], found)
    if left := len(groups) - len(shown):
        yield ""
        yield f"and {left} more places, shown by --all"
    beside = beside_ranks(found)
    for place in beside if everything else beside[:_SHOWN_GROUPS]:
        yield ""
        yield f"{place.head}:"
        yield from _stack_lines(place.stack, everything=everything)
    yield from unseen_lines(found)


def ranks_of(found: RunLook) -> dict[int, RankLook]:
    """By global rank what was seen of it."""
    return {one.rank: one for node in found.nodes if node.report for one in node.report.ranks}


def unseen_lines(found: RunLook) -> Iterator[str]:
    """Of which nodes nothing was seen, and why."""
    for node in found.nodes:
        if node.report is None or node.report.words:
            why = node.report.words if node.report is not None else "it has not answered"
            yield f"{node_name(node.node, node.hostname, node.slot)}: {why}"


def head_words(members: tuple[int, ...], found: RunLook, ranks: Mapping[int, RankLook]) -> str:
    """`rank 5 (node 2, gpu-17), in state S, 4.2 s of CPU during the look`."""
    if len(members) > 1:
        return f"{len(members)} ranks, {spans_text(members)}"
    one = ranks[members[0]]
    nodes = (node for node in found.nodes if node.report and one in node.report.ranks)
    where = ", ".join(f"node {node.node}, {node.hostname}" for node in nodes)
    facts = [f"state {one.state}" if one.state else "no such process"]
    if one.cpu >= 0.01:
        facts.append(f"{seconds_text(one.cpu)} of CPU during the look")
    return f"rank {one.rank} ({where}), {listed(facts)}"


def _stack_lines(stack: Stack | None, *, everything: bool) -> Iterator[str]:
    if stack is None:
        yield "    its stack is not known"
        return
    frames = stack.frames if everything else stack.frames[:SHOWN_FRAMES]
    yield from (f"    {frame_text(frame)}" for frame in frames)
    if len(frames) < len(stack.frames):
        yield f"    and {len(stack.frames) - len(frames)} older calls"
    elif stack.cut:
        yield "    and older calls"


def _thread_lines(rank: int, found: RunLook) -> Iterator[str]:
    """The other threads of a rank."""
    for report in [node.report for node in found.nodes if node.report is not None]:
        for index in [i for one in report.ranks if one.rank == rank for i in one.threads]:
            yield f"  another thread of rank {rank}:"
            yield from _stack_lines(report.stacks[index], everything=True)


def frame_text(frame: Frame) -> str:
    """`load_batch (train.py:3)`."""
    return printable(f"{frame.function} ({frame.file}:{frame.line})", 400)

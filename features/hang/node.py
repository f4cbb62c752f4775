"""Looks at this node's ranks when it is asked to, and publishes when nothing moves on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from features.hang import LOOKS, QUIET
from features.hang.options import Options
from features.hang.quiet import Sample, first_quiet, sample_seconds, seen
from features.hang.ranks.fitting import Seen
from features.hang.wire import MAX_HELD_BACK, LookReport, QuietReport
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.question import Question
from worker.agent import NodePort, RunningRanks

Sampled = tuple[Sequence[tuple[int, int]], Sequence[tuple[float, int]]]
"""The `calls` and `work` of a `Sample`."""


def look(ranks: RunningRanks) -> Seen:
    """Look at the ranks, and at what holds them back."""
    from features.hang.ranks.collect import collect  # seldom wanted
    from features.hang.ranks.held_back import held_back
    from features.hang.ranks.held_back_reader import read_groups

    known = [pid for pid in (*ranks.pids.values(), ranks.launcher) if pid is not None]
    before = read_groups(known)
    folder = Path(ranks.folder or os.devnull)
    found = collect(folder, ranks.pids, ranks.first_rank, ranks.launcher)
    return found._replace(held_back=held_back(before, read_groups(known))[:MAX_HELD_BACK])


def sample(ranks: RunningRanks) -> Sampled:
    """Count what the ranks have called, and what they have done."""
    from features.hang.ranks.collect import sample, work  # once the program has run for a while

    place = Path(ranks.folder)
    calls = [(one.called, one.ended) for _, one in sorted(sample(place, ranks.pids).items())]
    return calls, work(place, ranks.pids, ranks.launcher)


class Reads(NamedTuple):
    """Functions that see the ranks, each called in a thread."""

    look: Callable[[RunningRanks], Seen] = look
    sample: Callable[[RunningRanks], Sampled] = sample


async def run(port: NodePort, reads: Reads = Reads()) -> None:  # noqa: B008 (of functions alone)
    """Answer looks, and watch the ranks of each program unless `--stall` is off."""
    port.activity = "sampling the ranks"
    port.answer(LOOKS, partial(_answer, port, reads))
    settings = cast(Options, port.settings)
    if settings.stall != "off":
        await port.beside_programs(partial(_watch, port, reads, settings.stall_timeout))


async def _answer(port: NodePort, reads: Reads, question: Question, ranks: RunningRanks) -> Any:
    """Report where the ranks are, or why that cannot be seen."""
    report = LookReport(number=question.number, epoch=port.epoch)
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        found = await port.in_thread(reads.look, ranks)
    except Exception as exc:  # noqa: BLE001 (who looks is shown why there is nothing to see)
        words = f"looking at its processes failed: {type(exc).__name__}"
        return report.model_copy(update={"words": words})
    lists = {"unstarted": [*found.unstarted], "held_back": [*found.held_back]}
    return report.model_copy(update={"seconds": clock() - began, **found._asdict(), **lists})


async def _watch(port: NodePort, reads: Reads, timeout: float | None) -> None:
    """Sample the ranks of one program every few seconds, and publish what comes of it: each change
    until it is taken, and anew each `QUIET.pause` while nothing moves."""
    clock = asyncio.get_running_loop().time
    known, sent_at = first_quiet(clock(), timeout), float("-inf")
    number, began_at = 0, known.moved_at
    sending: asyncio.Future[bool] | None = None
    try:
        while True:
            await asyncio.sleep(sample_seconds(timeout))
            if (ranks := port.ranks()) is None:
                continue
            if not ranks.folder:
                return
            calls, work = await port.in_thread(reads.sample, ranks)
            if port.ranks() is None:  # it has begun to end meanwhile: it moves as it likes
                continue
            now = clock()
            known = seen(known, Sample(tuple(calls), ranks.printed, ranks.step, tuple(work)), now)
            silence = known.silence(now)
            number, began_at = number + (known.moved_at != began_at), known.moved_at
            is_lost = sending is not None and sending.done() and not sending.result()
            is_due = silence and now - sent_at >= QUIET.pause(port.nodes)
            if silence != known.told or is_lost or is_due:
                if sending is not None:
                    sending.cancel()  # what it says is older
                seconds = now - known.moved_at if silence else None
                early = silence == "early"
                report = QuietReport(epoch=port.epoch, seconds=seconds, early=early, number=number)
                sending, sent_at = asyncio.ensure_future(_publish(port, report)), now
            known = replace(known, told=silence)
    finally:
        if sending is not None:
            sending.cancel()


async def _publish(port: NodePort, report: QuietReport) -> bool:
    """Send a report; returns whether the registry has taken it."""
    try:
        await port.publish(QUIET, report)
    except RdzvError:
        return False
    return True

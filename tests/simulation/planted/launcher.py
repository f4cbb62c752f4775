"""Bugs of the launcher: what it submits, ends, follows, resumes and says."""
# fmt: off

from __future__ import annotations

import asyncio
from contextlib import suppress
from math import inf
from typing import Any, NoReturn

from launcher.cleanup.endings import COMMANDS_AT_ONCE
from launcher.launch.lifecycle import SUBMITS_AT_ONCE
from launcher.launch.slot_run import SlotRun, Step
from launcher.plan.plan import LOCAL
from launcher.schedulers.description import OVER
from rendezvous.compat import timeout
from rendezvous.wire.errors import ExitCode, RegistryLost, SchedulerError, StorageFull
from rendezvous.wire.run import Phase
from tests.simulation.planting import (
    Bug,
    Function,
    always,
    awaited,
    but,
    constant,
    given,
    last,
    nothing,
    nothing_awaited,
    put,
    replace,
    while_set,
    wrap,
)


class _Wall(asyncio.Semaphore):
    """A gate that nobody opens again."""

    def release(self) -> None:
        pass


def _with(**values: Any) -> Function:
    """Make it with these attributes."""
    return lambda real, whole, *rest: last(real(whole, *rest), put(whole, **values), None)


async def _reads_again(real: Function, following: Any) -> Any:
    """Read the events, and forget up to which one."""
    seen = following._seen
    try:
        return await real(following)
    finally:
        following._seen = seen


async def _starts_once(process: Any) -> None:
    """Start the registry, and do not look whether it ends."""
    await process._start()


async def _begins_anew(recovery: Any, *_: object) -> NoReturn:
    """Take up nothing, and ask nobody."""
    raise recovery._silent()


async def _forgets(real: Function, launch: Any, registry: Any, runs: Any, following: Any) -> None:
    """Forget the result where something fails after it."""
    try:
        await real(launch, registry, runs, following)
    except BaseException:
        if following.status is not None:
            following.status = but(following.status, result=None)
        raise


def _fails(kind: type) -> Function:
    """A launch that ends of this fails."""

    def result_of(real: Function, error: Exception, *rest: object) -> Any:
        result = real(error, *rest)
        return but(result, exit_code=int(ExitCode.FAILED)) if isinstance(error, kind) else result

    return result_of


def _release_as_if(**said: object) -> Function:
    """Release as if this was so of every slot."""
    def view(runs: Any) -> Any:
        seen = runs.runs.view
        return but(seen, slots={n: but(slot, **said) for n, slot in seen.slots.items()})

    return while_set(lambda runs: runs.runs, view=view)


def _older(runs: Any, run: Any) -> list[Any]:
    found: list[Any] = runs.runs.older(run)
    return found


def _surely(said: object, lifecycle: Any, run: Any) -> object:
    """Where its submission has failed, it is not there."""
    if isinstance(said, SchedulerError):
        put(run, gone=True).note(lifecycle.ledger)
    return said


async def _tells_beside(real: Function, *rest: Any, **more: Any) -> None:
    """Tell the registry of an intent, and wait for no answer."""
    reporting = asyncio.ensure_future(real(*rest, **more))
    if more.get("is_intent"):
        reporting.add_done_callback(lambda told: told.cancelled() or told.exception())
    else:
        await reporting


async def _writes_once(real: Function, runs: Any, run: Any) -> None:
    """Go on after the first try to write it down."""
    with suppress(TimeoutError):
        async with timeout(0.1):
            await real(runs, run)


async def _ends_nothing(real: Function, runs: Any) -> None:
    """Take what is elsewhere for gone."""
    for run in runs.runs.all:
        run.gone = run.gone or run.starter != LOCAL
    await real(runs)


async def _submits_again(lifecycle: Any, run: Any) -> None:
    """Submit the next generation, and look for nothing."""
    run.step, run.task = Step.INACTIVE, None
    lifecycle.owner.submit_again(run.slot, run.generation + 1)


async def _looks_in_vain(real: Function, lifecycle: Any, run: Any) -> tuple[None, None]:
    """Find nothing."""
    await real(lifecycle, run)
    put(run, handle="")
    return None, None


_STARTING_AND_FOLLOWING = (
    Bug("launch: creation is tried for ever",
        constant("launcher.launch.registry:CREATE_SECONDS", inf)),
    Bug("launch: creation is tried once",
        constant("launcher.launch.registry:CREATE_SECONDS", -inf)),
    Bug("launch: events are shown again",
        wrap("launcher.launch.following:Following._read_events", _reads_again)),
    Bug("launch: a resumed launch shows all again",
        given("launcher.launch.following:Following.until_result", seen=0)),
    Bug("launch: a silent registry is given up at once",
        replace("launcher.launch.following:Following._is_last_try", always(True))),
    Bug("launch: a silent registry is awaited for ever",
        replace("launcher.launch.following:Following._is_last_try", always(False))),
    Bug("launch: the journal is awaited for ever",
        wrap("launcher.launch.following:Following._check_storage",
             lambda real, following, status: real(following, but(status, unwritten_seconds=0.0)))),
    Bug("launch: resumes what runs",
        wrap("launcher.launch.recovery:Recovery._why_ended",
             lambda real, recovery, record, status: real(
                 recovery, record, but(status, phase=Phase.ARMING)))),
    Bug("launch: resumes with another scheduler",
        wrap("launcher.launch.recovery:Recovery._why_ended",
             lambda real, recovery, record, status: real(
                 recovery, but(record, fingerprint="",
                               scheduler=recovery.prepared.settings.starter), status))),
    Bug("launch: never resumes",
        replace("launcher.launch.recovery:Recovery._resume_former", _begins_anew)),
    Bug("launch: a former port is tried once",
        constant("launcher.launch.recovery:OPEN_SECONDS", -inf)),
    Bug("launch: a former run goes on",
        replace("launcher.launch.recovery:Recovery._end_run", _begins_anew)),
    Bug("launch: a resumed launch skips an event",
        wrap("launcher.launch.recovery:Recovery._resume",
             lambda real, recovery, *rest: last(
                 real(recovery, *rest), put(recovery, seen=recovery.seen + 1), None))),
    Bug("launch: a registry is started once",
        replace("launcher.launch.registry:RegistryProcess._supervise", _starts_once)),
    Bug("launch: a registry is started for ever",
        constant("launcher.launch.registry:MOST_STARTS", inf)),
    Bug("launch: a registry is started after the end",
        replace("launcher.launch.registry:RegistryProcess.let_go", nothing)),
)

_LEAVING_AND_ENDING = (
    Bug("launch: remains are not ended",
        wrap("launcher.cleanup.orphans:Orphans.end",
             lambda real, left, *rest: real(put(left, runs=[]), *rest))),
    Bug("launch: the ledger is forgotten",
        wrap("launcher.cleanup.orphans:Orphans.end",
             awaited(lambda _kept, left, *_: [*left.unknown]))),
    Bug("launch: unknown schedulers are forgotten",
        wrap("launcher.cleanup.orphans:Orphans.end",
             awaited(lambda kept, left, *_: [one for one in kept if one not in left.unknown]))),
    Bug("launch: former remains are not named",
        wrap("launcher.cleanup.endings:by_slot",
             lambda real, runs: [one for one in real(runs) if isinstance(one, SlotRun)])),
    Bug("launch: the last events are missing",
        wrap("launcher.launch.following:Following.part",
             lambda real, following, result: real(put(following, _events=None), result))),
    Bug("launch: a known result is lost",
        wrap("launcher.launch.launch:Launch._until_left", _forgets)),
    Bug("launch: no hurry at schedulers",
        replace("launcher.launch.worker_runs:WorkerRuns.hurry", nothing)),
    Bug("launch: nodes hear of no failure",
        replace("launcher.launch.launch:Launch._report_failure", nothing_awaited)),
    Bug("launch: nobody says what is left",
        wrap("launcher.cleanup.endings:by_slot",
             lambda real, runs: [one for one in real(runs) if not isinstance(one, SlotRun)])),
    Bug("launch: the result is not written",
        replace("launcher.state.state_dir:StateDir.write_result", nothing)),
    Bug("launch: nothing is ended",
        wrap("launcher.launch.worker_runs:WorkerRuns.end_all", _ends_nothing)),
    Bug("launch: the first command is believed",
        wrap("launcher.cleanup.endings:Endings._poll",
             awaited(lambda gone, _endings, _run, end: end.cancelled_at is not None or gone))),
    Bug("launch: one look is enough", constant("launcher.cleanup.endings:MOST_MISSES", 1)),
    Bug("launch: no grace", given("launcher.cleanup.endings:Endings.__init__", grace=0.0)),
    Bug("launch: endings are never given up",
        constant("launcher.cleanup.endings:LIMIT_SECONDS", inf)),
    Bug("launch: endings are given up at once",
        wrap("launcher.cleanup.endings:Endings._is_late",
             lambda real, endings, end: end.cancelled_at is not None
             if end.hurried_at is None else real(endings, end))),
    Bug("launch: the queue of commands stands",
        wrap("launcher.cleanup.endings:Endings.__init__",
             lambda real, endings, grace: _with(_commands=_Wall(COMMANDS_AT_ONCE))(
                 real, endings, grace))),
    Bug("launch: nodes are awaited for ever",
        constant("launcher.launch.following:LEAVE_SECONDS", inf)),
    Bug("launch: nodes are not awaited",
        replace("launcher.launch.following:Following._awaits_nodes", always(False))),
    Bug("launch: late nodes of a group are left alone",
        replace("launcher.launch.following:Following._awaits_others", always(False))),
    Bug("launch: submits after a signal",
        replace("launcher.launch.worker_runs:WorkerRuns.stop", nothing,
                within="launcher.launch.launch:Launch._on_signal")),
    Bug("launch: a signal is forgotten",
        replace("launcher.launch.launch:Launch._cancel", nothing_awaited)),
    Bug("launch: a cancel is tried for ever",
        constant("launcher.launch.launch:CANCEL_SECONDS", inf)),
    Bug("launch: a second signal is as the first",
        replace("launcher.launch.launch:Launch._at_once", nothing,
                within="launcher.launch.launch:Launch._on_signal")),
    Bug("launch: signals exit as cancelled",
        replace("launcher.launch.launch:by_signal", lambda result, *_: result)),
    Bug("launch: any result exits by its signal",
        wrap("launcher.launch.launch:by_signal",
             lambda real, result, run, number, *more: but(
                 real(result, run, number, *more), exit_code=128 + number))),
    Bug("launch: a full journal exits as failed",
        wrap("launcher.launch.launch:result_of_error", _fails(StorageFull))),
    Bug("launch: a silent registry exits as failed",
        wrap("launcher.launch.launch:result_of_error", _fails(RegistryLost))),
)

_WORKER_RUNS = (
    Bug("launch: an ill word is believed",
        replace("launcher.launch.lifecycle:_is_believed_over",
                lambda run, found, slot: found.state in OVER)),
    Bug("launch: what is queued is not told",
        replace("launcher.launch.lifecycle:_is_news", always(False))),
    Bug("launch: replaced runs stay",
        replace("launcher.launch.worker_runs:WorkerRuns.end_older", nothing)),
    Bug("launch: submits before the older is gone",
        wrap("launcher.launch.worker_runs:WorkerRuns.is_blocked",
             lambda real, runs, run: not runs.runs.view.outlives and real(runs, run))),
    Bug("launch: an older one's end is not told",
        replace("launcher.launch.worker_runs:WorkerRuns._report_over", nothing)),
    Bug("launch: a fence is not heard of",
        wrap("launcher.launch.worker_runs:WorkerRuns.is_blocked",
             lambda real, runs, run: any(map(runs._may_run, _older(runs, run)))
             if runs.runs.view.outlives else real(runs, run))),
    Bug("launch: no answer is a no",
        wrap("launcher.launch.lifecycle:Lifecycle._try_to_submit", awaited(_surely))),
    Bug("launch: submits before the intent",
        wrap("launcher.launch.registry:Registry.report", _tells_beside)),
    Bug("launch: submits without a ledger",
        wrap("launcher.launch.lifecycle:Lifecycle._write_intent", _writes_once)),
    Bug("launch: what lives is submitted again",
        replace("launcher.launch.lifecycle:Lifecycle.adopt", _submits_again)),
    Bug("launch: what is found is replaced",
        wrap("launcher.launch.lifecycle:Lifecycle._look_up", _looks_in_vain)),
    Bug("launch: ids are forgotten",
        wrap("launcher.launch.lifecycle:Lifecycle._try_to_submit",
             awaited(lambda said, lifecycle, run: last(
                 put(run, handle="").note(lifecycle.ledger), said)))),
    Bug("launch: the table's runs are released",
        wrap("launcher.launch.worker_runs:WorkerRuns._release",
             _release_as_if(node=None, awaited=False))),
    Bug("launch: standbys are released",
        wrap("launcher.launch.worker_runs:WorkerRuns._release", _release_as_if(awaited=False))),
    Bug("launch: gone is not noted",
        wrap("launcher.cleanup.endings:Tracked.note",
             lambda real, run, *rest, **more: run.gone or real(run, *rest, **more))),
    Bug("launch: submits after the result",
        replace("launcher.launch.worker_runs:WorkerRuns.stop",
                lambda runs: put(runs.runs, stopped=True))),
    Bug("launch: the gate is a wall",
        wrap("launcher.launch.lifecycle:Lifecycle.__init__",
             lambda real, *rest: _with(_gate=_Wall(SUBMITS_AT_ONCE))(real, *rest))),
    Bug("launch: ledger notes undo",
        wrap("launcher.state.ledger:Ledger._lines",
             lambda real, ledger: reversed(list(real(ledger))))),
    Bug("launch: a ledger of the gone",
        replace("launcher.state.ledger:Ledger.left", lambda ledger: ledger.entries())),
)

BUGS = (*_STARTING_AND_FOLLOWING, *_LEAVING_AND_ENDING, *_WORKER_RUNS)

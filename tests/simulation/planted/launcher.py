"""Bugs of the launcher: what it submits, ends, follows, resumes and says."""
# fmt: off

from __future__ import annotations

from math import inf
from typing import Any

from launcher.run import inputs
from launcher.run.ground import Search
from launcher.run.values import ChildLost, Key, NotCreated, Resumed, Silent, StorageLost, Why
from launcher.schedulers.description import OVER
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.run import Phase
from tests.simulation.planting import (
    Bug,
    Function,
    always,
    but,
    constant,
    first,
    given,
    last,
    nothing,
    put,
    replace,
    wrap,
)


def _older(replacing: Any, key: Key) -> list[Key]:
    return [each for each in replacing.shared.of_slot[key.slot] if each < key]


def _release_as_if(**said: object) -> Function:
    """Release as if this was so of every slot."""

    def release(real: Function, slots: Any, now: float) -> None:
        seen = slots.shared.seen
        slots.shared.seen = {n: but(slot, **said) for n, slot in seen.items()}
        real(slots, now)
        slots.shared.seen = seen

    return release


def _fails(*kinds: type) -> Function:
    """A launch that ends of these fails."""

    def error(real: Function, failure: object, names: object) -> tuple[Any, ...]:
        code, exit_code, *words = real(failure, names)
        return code, ExitCode.FAILED if isinstance(failure, kinds) else exit_code, *words

    return error


def _looked(real: Function, slots: Any, key: Key, run: Any, said: Any, now: float) -> None:
    """Nothing is ever found."""
    if isinstance(said, inputs.Found) and said.handle:
        run.handle, said = "", but(said, handle=None)
    real(slots, key, run, said, now)


_STARTING_AND_FOLLOWING = (
    Bug("launch: creation is tried for ever",
        wrap("launcher.run.course:Course._not_created",
             lambda real, course, *rest: real(put(course, until=inf), *rest))),
    Bug("launch: creation is tried once",
        wrap("launcher.run.course:Course._not_created",
             lambda real, course, *rest: real(put(course, until=-inf), *rest))),
    Bug("launch: events are shown again",
        wrap("launcher.run.following:Following.events_ended",
             lambda real, following, *rest: put(
                 following, events_after=first(following.events_after, real(following, *rest))))),
    Bug("launch: a resumed launch shows all again",
        given("launcher.run.actions:FollowEvents.__init__", after=0,
              within="launcher.run.following:Following.begin")),
    Bug("launch: a silent registry is given up at once",
        wrap("launcher.run.following:Following.unanswered",
             lambda real, following, *rest: real(put(following, last_try=True), *rest))),
    Bug("launch: a silent registry is awaited for ever",
        replace("launcher.run.following:Following.ask_again",
                lambda following, _now: following._ask())),
    Bug("launch: the journal is awaited for ever",
        wrap("launcher.run.following:Following.check_storage",
             lambda real, following, now: real(put(
                 following, status=but(following.status, unwritten_seconds=0.0)), now))),
    Bug("launch: resumes what runs",
        wrap("launcher.run.ground:Grounding._asked",
             lambda real, ground, status, now: real(
                 ground, but(status, phase=Phase.ARMING) if status.phase is Phase.RUNNING
                 else status, now))),
    Bug("launch: resumes with another scheduler",
        wrap("launcher.run.ground:Grounding._asked",
             lambda real, ground, *rest: real(put(ground, found=but(
                 ground.found, former=but(ground.found.former, fingerprint="",
                                              starter=ground.wanted.starter))), *rest))),
    Bug("launch: never resumes",
        replace("launcher.run.ground:Grounding.begin",
                lambda ground, now: ground._anew(Why.SILENT, now))),
    Bug("launch: a former port is tried once",
        wrap("launcher.run.ground:Grounding._not_opened",
             lambda real, ground, *rest: real(put(ground, until=-inf), *rest))),
    Bug("launch: a former run goes on",
        replace("launcher.run.ground:Grounding._end_run",
                lambda ground, why, now: put(
                    ground, step=Search.CANCELLING, why=why)._close(now))),
    Bug("launch: a resumed launch skips an event",
        wrap("launcher.run.ground:Grounding._make",
             lambda real, ground, made: real(
                 ground, Resumed(made.seen + 1) if isinstance(made, Resumed) else made))),
    Bug("launch: a registry is started once",
        replace("launcher.run.registry_child:RegistryChild.ended",
                lambda child, *_: child.let_go())),
    Bug("launch: a registry is started for ever",
        constant("launcher.run.registry_child:MOST_STARTS", inf)),
    Bug("launch: a registry is started after the end",
        replace("launcher.run.registry_child:RegistryChild.let_go", nothing)),
)

_LEAVING_AND_ENDING = (
    Bug("launch: remains are not ended",
        replace("launcher.run.ending:Endings.begin", nothing,
                within="launcher.run.clearing:Clearing.begin")),
    Bug("launch: the ledger is forgotten",
        replace("launcher.run.clearing:Clearing.kept",
                lambda clearing: tuple(one.name for one in clearing.unknown))),
    Bug("launch: unknown schedulers are forgotten",
        replace("launcher.run.clearing:Clearing.kept",
                lambda clearing: tuple(one.key.former for one in clearing.unended))),
    Bug("launch: former remains are not named",
        replace("launcher.run.clearing:Clearing.say_kept", nothing)),
    Bug("launch: the last events are missing",
        replace("launcher.run.course:Course._part", lambda course, now: course.end(now))),
    Bug("launch: a known result is lost",
        wrap("launcher.run.course:Course.fail",
             lambda real, course, *rest, **more: real(put(course, verdict=None), *rest, **more))),
    Bug("launch: no hurry at schedulers",
        replace("launcher.run.end_of_all:EndOfAll.hurry", nothing)),
    Bug("launch: nodes hear of no failure",
        given("launcher.run.course:Course.give_up", told=False)),
    Bug("launch: nobody says what is left",
        replace("launcher.run.ending:say_left", nothing,
                within="launcher.run.course:Course.close")),
    Bug("launch: the result is not written",
        replace("launcher.state.state_dir:StateDir.write_result", nothing)),
    Bug("launch: nothing is ended",
        wrap("launcher.run.runs:Runs.end",
             lambda real, runs, key, *rest, **more:
                 runs.runs[key].is_local and real(runs, key, *rest, **more),
             within="launcher.run.end_of_all:EndOfAll.settle")),
    Bug("launch: the first command is believed",
        wrap("launcher.run.ending:Endings._rest",
             lambda real, endings, key, end, now:
                 endings._finish(key, end, gone=True) if end.told_at == now
                 else real(endings, key, end, now))),
    Bug("launch: one look is enough", constant("launcher.run.ending:LOOKS", 1)),
    Bug("launch: no grace",
        given("launcher.run.actions:CancelWorkerRun.__init__", grace=0.0)),
    Bug("launch: endings are never given up", constant("launcher.run.ending:LIMIT_SECONDS", inf)),
    Bug("launch: endings are given up at once",
        wrap("launcher.run.ending:Endings._is_late",
             lambda real, endings, end, now: end.told_at is not None
             if end.hurried_at is None else real(endings, end, now))),
    Bug("launch: the queue of commands stands",
        replace("launcher.run.ending:Endings._free", lambda _endings, end: put(end, id=None))),
    Bug("launch: nodes are awaited for ever", constant("launcher.run.leaving:LEAVE_SECONDS", inf)),
    Bug("launch: nodes are not awaited",
        wrap("launcher.run.leaving:Leaving.may_go",
             lambda real, leaving, now: real(leaving, now) or not leaving._awaits_others(
                 leaving.following.status, now))),
    Bug("launch: late nodes of a group are left alone",
        replace("launcher.run.leaving:Leaving._awaits_others", always(False))),
    Bug("launch: submits after a signal",
        replace("launcher.run.submitting:Submitting.stop", nothing,
                within="launcher.run.machine:Machine._signal")),
    Bug("launch: a signal is forgotten",
        replace("launcher.run.machine:Machine._cancel", nothing,
                within="launcher.run.machine:Machine._signal")),
    Bug("launch: a cancel is tried for ever",
        wrap("launcher.run.machine:Machine._cancelled",
             lambda real, machine, *rest: real(put(machine, cancel_until=inf), *rest))),
    Bug("launch: a second signal is as the first",
        replace("launcher.run.course:Course.at_once", nothing,
                within="launcher.run.machine:Machine._signal")),
    Bug("launch: signals exit as cancelled",
        wrap("launcher.run.words:result_of",
             lambda real, verdict, names: real(but(verdict, signal=None), names))),
    Bug("launch: any result exits by its signal",
        wrap("launcher.run.words:result_of",
             lambda real, verdict, names: but(
                 real(verdict, names),
                 **{"exit_code": 128 + verdict.signal} if verdict.signal else {}))),
    Bug("launch: a full journal exits as failed",
        wrap("launcher.run.words:_error", _fails(StorageLost))),
    Bug("launch: a silent registry exits as failed",
        wrap("launcher.run.words:_error", _fails(NotCreated, Silent, ChildLost))),
)

_WORKER_RUNS = (
    Bug("launch: an ill word is believed",
        replace("launcher.run.describing:_is_believed_over",
                lambda run, generation, found, slot: found.state in OVER)),
    Bug("launch: what is queued is not told",
        replace("launcher.run.describing:_is_news", always(False))),
    Bug("launch: replaced runs stay",
        replace("launcher.run.replacing:Replacing.end_older", nothing)),
    Bug("launch: submits before the older is gone",
        wrap("launcher.run.replacing:Replacing._is_held",
             lambda real, replacing, key: not replacing.shared.outlives and real(replacing, key))),
    Bug("launch: an older one's end is not told",
        replace("launcher.run.replacing:Replacing.tell_over", nothing)),
    Bug("launch: a fence is not heard of",
        wrap("launcher.run.replacing:Replacing._is_held",
             lambda real, replacing, key: any(map(replacing._may_run, _older(replacing, key)))
             if replacing.shared.outlives else real(replacing, key))),
    Bug("launch: no answer is a no",
        given("launcher.run.inputs:SubmitFailed.__init__", certain=True)),
    Bug("launch: submits before the intent",
        wrap("launcher.run.slots:Slots._ask_for",
             lambda real, slots, key: last(
                 real(slots, key), slots.replacing.begin(key, slots.shared.runs[key], 0.0)))),
    Bug("launch: submits without a ledger",
        replace("launcher.run.submitting:Submitting.not_written",
                lambda submitting, key, *_: submitting.submit(key, submitting.shared.runs[key]))),
    Bug("launch: what lives is submitted again",
        replace("launcher.run.slots:Slots._look_for",
                lambda slots, key, _run: slots._ask_for(Key(key.slot, key.generation + 1)))),
    Bug("launch: what is found is replaced", wrap("launcher.run.slots:Slots._looked", _looked)),
    Bug("launch: ids are forgotten",
        wrap("launcher.run.slots:Slots.submitted",
             lambda real, slots, said, now: real(slots, but(said, handle=""), now))),
    Bug("launch: the table's runs are released",
        wrap("launcher.run.slots:Slots._release", _release_as_if(node=None, awaited=False))),
    Bug("launch: standbys are released",
        wrap("launcher.run.slots:Slots._release", _release_as_if(awaited=False))),
    Bug("launch: gone is not noted",
        replace("launcher.run.runs:Runs.note", nothing, within="launcher.run.slots:Slots.ended")),
    Bug("launch: submits after the result",
        replace("launcher.run.submitting:Submitting.stop",
                lambda submitting: put(submitting, stopped=True))),
    Bug("launch: the gate is a wall",
        wrap("launcher.run.submitting:Submitting._leave",
             lambda real, submitting: real(put(submitting, count=submitting.count + 1)))),
    Bug("launch: ledger notes undo",
        wrap("launcher.state.ledger:Ledger._lines",
             lambda real, ledger: reversed(list(real(ledger))))),
    Bug("launch: a ledger of the gone",
        replace("launcher.state.ledger:Ledger.left", lambda ledger: ledger.entries())),
)

BUGS = (*_STARTING_AND_FOLLOWING, *_LEAVING_AND_ENDING, *_WORKER_RUNS)

"""Whatever a node is told, in whatever order: it ends, once, and leaves nothing behind."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rendezvous.wire.errors import (
    ArmingFailed,
    Fenced,
    Mismatch,
    NotFound,
    RunOver,
    TooManyRequests,
    Unavailable,
    UsageError,
)
from rendezvous.wire.run import Phase, RestartFacts
from rendezvous.wire.verify import PairProbe
from rendezvous.wire.watch import NodeView
from tests.support.nightly import examples
from tests.worker.agent.drive import (
    BASE,
    OFFER,
    PLAN,
    POLL,
    PROGRAM,
    RESULT,
    RULES,
    SERVING,
    SLOT,
    rank,
    refusal,
    reply,
    table,
    to,
)
from tests.worker.agent.world import World, silence
from worker.agent import actions as do
from worker.agent import inputs
from worker.agent.actions import Effect
from worker.agent.inputs import Input
from worker.contracts import Contract
from worker.nccl.verdict import NetworkVerdict
from worker.program.ending import Ending, LeftBehind
from worker.program.family import Failure, Family

FENCE = 19.0
UNKNOWN = 10_000
"""The number of an effect that nobody has begun."""
TABLES = [table(epoch, port) for epoch in (1, 2) for port in (29_500, 29_600)]
DIGESTS = [one.digest() for one in TABLES]
ERRORS = [
    Unavailable("nobody listens"),
    TooManyRequests("wait"),
    Fenced("another has the slot"),
    NotFound("no such run"),
    RunOver("over"),
    Mismatch("another job", command_word=2),
    UsageError("no such option"),
    ArmingFailed("a disk is full"),
]
NCCL = Contract(["train"], {}, nccl_log="/logs/%p", fatal_workers=True, notes=["as you said"])
FAMILIES = [
    (),
    (rank(0), rank(1, 4.0, 1)),
    (rank(0, 5.0, 143), rank(1, 4.0, 1)),
    (rank(0), rank(1, 4.0, 0)),
    (rank(0), rank(1, 4.0, 1), rank(1, None, None, started=9.0)),
]
ENDINGS = [
    Ending(0, 5.0),
    Ending(0, 5.0, left=LeftBehind(1)),
    Ending(1, 5.0, Failure(4.0, 101, 9, 1, 1)),
    Ending(143, 50.0, was_told=True),
]

views = st.builds(
    NodeView,
    seq=st.integers(0, 9),
    poll_seconds=st.just(POLL),
    phase=st.sampled_from([*Phase, Phase.ARMING, Phase.ARMING]),
    epoch=st.integers(1, 2),
    reason=st.sampled_from(["", "1 of 2 nodes joined, 5 s left"]),
    digest=st.sampled_from(DIGESTS),
    plan=st.sampled_from([None, PLAN]),
    table=st.none(),
    released=st.sampled_from([[], [], [], [SLOT]]),
    why_released=st.sampled_from([{}, {SLOT: "too slow"}]),
    stop=st.sampled_from([False, False, True]),
    result=st.sampled_from([None, None, None, RESULT]),
    restarts=st.sampled_from([None, None, RestartFacts(outlives_nodes=True)]),
    retired=st.sampled_from([[], [], [], [], [SLOT]]),
)


@st.composite
def news(draw: st.DrawFn) -> NodeView:
    """Of any phase; a table has its own digest and epoch, as the client sees to it."""
    view = draw(views)
    if view.phase is not Phase.ARMING:
        return view
    number = draw(st.integers(0, len(TABLES) - 1))
    changes = {"table": TABLES[number], "digest": DIGESTS[number], "epoch": TABLES[number].epoch}
    return view.model_copy(update=changes)


def good(effect: Effect, draw: st.DrawFn) -> Input:
    """What comes of an effect that goes well."""
    number = effect.number
    match effect:
        case do.Watch():
            return inputs.Viewed(number, draw(news()))
        case do.Listen():
            port = draw(st.sampled_from([7_000, None]))
            return inputs.Listening(number, port, "" if port else "no")
        case do.Connect():
            return inputs.Connected(number, BASE)
        case do.MakeOffer():
            return inputs.Offered(number, OFFER)
        case do.Join():
            fence = draw(st.sampled_from([None, FENCE]))
            joined = reply(fence=fence)
            return inputs.Joined(number, joined, BASE)
        case do.Visit():
            bad = PairProbe(slot=0, outcome="timeout")
            return inputs.Visited(number, draw(st.sampled_from([(), (bad,)])), 0.5)
        case do.Arm():
            contract = draw(st.sampled_from([PROGRAM, PROGRAM, SERVING, NCCL, None]))
            if contract is not None:
                return inputs.Armed(number, contract)
            epoch = {"epoch": effect.table.epoch}
            return inputs.NotArmed(number, refusal("bad_table").model_copy(update=epoch))
        case do.Start():
            ending = draw(st.sampled_from(ENDINGS)) if effect.contract.argv else None
            return inputs.ProgramGone(number, ending)
        case do.ReadTrouble():
            return inputs.TroubleRead(number, draw(st.sampled_from(["", "a cable"])))
    return inputs.Done(number)


def bad(effect: Effect, draw: st.DrawFn) -> Input:
    """What comes of an effect that does not."""
    kinds = [inputs.Broken, inputs.Failed, inputs.Failed]
    kind: Any = draw(
        st.sampled_from(kinds + [inputs.Late] * (getattr(effect, "limit", None) is not None))
    )
    if kind is inputs.Failed:
        most = 2 if isinstance(effect, do.Watch | do.Tell) else len(ERRORS)
        errors = ERRORS[: draw(st.sampled_from([most, len(ERRORS)]))]
        return inputs.Failed(effect.number, draw(st.sampled_from(errors)))
    said: Input = kind(effect.number, *[ValueError("not this way")] * (kind is inputs.Broken))
    return said


def of_program(number: int, draw: st.DrawFn) -> Input:
    """What a program does by itself."""
    main = draw(st.sampled_from([None, None, inputs.MainEnd(1, 5.0), inputs.MainEnd(0, 5.0)]))
    verdict = NetworkVerdict("fallback", draw(st.sampled_from(["ok", "warn", "fail"])), "sockets")
    family = Family(None, draw(st.sampled_from(FAMILIES)))
    events = [inputs.ProgramSeen(number, family, main), inputs.NetworkSaid(number, verdict)]
    return draw(st.sampled_from([inputs.Started(number), *events]))


def anything(world: World, draw: st.DrawFn) -> None:
    """One more thing happens."""
    under_way = list(world.effects.values())
    numbers = [effect.number for effect in under_way if isinstance(effect, do.Start)]
    kind = draw(
        st.sampled_from(["good"] * 10 + ["bad", "program", "time", "signal", "odd", "sleep"])
    )
    if kind in ("good", "bad") and under_way:
        watches = [effect for effect in under_way if isinstance(effect, do.Watch)]
        effect = draw(st.sampled_from(under_way + watches * 2))
        world.say(good(effect, draw) if kind == "good" else bad(effect, draw))
    elif kind == "program":
        world.say(of_program(draw(st.sampled_from([*numbers, UNKNOWN])), draw))
    elif kind == "time":
        world.pass_time(world.drive.now + draw(st.sampled_from([0.0, 0.4, 1.0, 3.0, 11.0, 18.0])))
    elif kind == "sleep":  # the process is stopped: it looks at no clock
        world.drive.now += draw(st.sampled_from([2.0, 30.0]))
    elif kind == "signal":
        signals = [signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1]
        world.signal(draw(st.sampled_from(signals)), parent_lives=draw(st.booleans()))
    elif kind == "odd":
        odd: list[Input] = [inputs.Done(UNKNOWN), inputs.Late(UNKNOWN)]
        odd += [inputs.PartBroken("sending metrics", OSError("no")), inputs.Publish()]
        world.say(draw(st.sampled_from(odd)))


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_once_all_is_answered_or_late_it_ends(data: st.DataObject) -> None:
    draw: Any = data.draw
    states = "running running starting acknowledging arming verifying joined connecting begun"
    contract = draw(st.sampled_from([PROGRAM, NCCL, SERVING]))
    rules = replace(RULES, join_timeout=9.0, orphan_timeout=20.0, remote=draw(st.booleans()))
    state = draw(st.sampled_from(states.split()))
    fence = draw(st.sampled_from([None, FENCE, FENCE]))
    world = World(to(state, rules, contract, fence=fence))
    for _ in range(draw(st.integers(5, 30))):
        anything(world, draw)
    hangs = draw(st.booleans())

    def answer(effect: Effect) -> Input | None:
        if isinstance(effect, do.Arm) and hangs:
            return None
        if isinstance(effect, do.Watch | do.Tell | do.Connect | do.Join):
            return silence(effect)
        return good(effect, draw)

    world.come_to_rest(answer)
    world.say(inputs.Done(UNKNOWN))
    world.signal(signal.SIGTERM, parent_lives=True)

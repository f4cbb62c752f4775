"""The agent's talk with the registry and its peers: one try each, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rendezvous.talk.retry import retry_pause
from rendezvous.wire.errors import ArmingFailed, Fenced
from rendezvous.wire.reports import AckReport, ExitReport, LeaveReport, Report
from rendezvous.wire.run import Phase
from rendezvous.wire.verify import PairProbe, ProbePlan
from rendezvous.wire.watch import NodeView
from tests.worker.agent.drive import AWAY, BASE, OFFER, at_once, plan, reply, virtually
from tests.worker.test_table import join
from worker.agent import AgentEnvironment, inputs
from worker.agent import actions as do
from worker.agent.arming import NodeSpec
from worker.agent.session import one_try, talk
from worker.agent.shell import rules_of
from worker.agent.visiting import visit
from worker.probe.packets import Identity
from worker.settings import WorkerSettings

VIEW = NodeView(seq=4, phase=Phase.GATHERING, epoch=1, reason="", poll_seconds=2.0)
REPORT = ExitReport(epoch=1, exit_code=3)


ANSWERS = {"connect": BASE, "join": reply(), "watch": VIEW, "report": None, "close": None}


class Registry:
    """A `RegistryClient` whose registry answers after some seconds, or refuses."""

    base = BASE
    pause = staticmethod(retry_pause)

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.asked_at = 0.0
        self._seconds = seconds
        self._error = error

    def __getattr__(self, name: str) -> Any:
        async def answer(*given: Any) -> Any:
            self.asked.append((name, given[-1] if given else None))
            self.asked_at = asyncio.get_running_loop().time()
            await asyncio.sleep(self._seconds)
            if self._error is not None:
                raise self._error
            return ANSWERS[name]

        return answer


def said(registry: Any, asked: do.Effect, after: float = 0.0) -> inputs.Input:
    """What comes of one try."""

    async def work() -> inputs.Input:
        await asyncio.sleep(after)
        return await one_try(asked, lambda: talk(asked, registry, join()), registry.pause)

    return virtually(work())


WATCH = do.Watch(7, after=3, poll=2.0, limit=4.0)


def tell(report: Report, began_at: float = 0.0, **changes: Any) -> do.Tell:
    return do.Tell(7, report, began_at, **changes)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (do.Connect(7), inputs.Connected(7, BASE)),
        (do.Join(7, OFFER), inputs.Joined(7, reply(), BASE)),
        (WATCH, inputs.Viewed(7, VIEW)),
        (tell(REPORT), inputs.Done(7)),
    ],
)
def test_each_question_is_answered_by_one_input_or_the_registrys_refusal(
    asked: do.Effect, answer: inputs.Input
) -> None:
    assert said(Registry(), asked) == answer
    for error in (AWAY, Fenced("newer")):
        assert said(Registry(error=error), asked) == inputs.Failed(7, error)


@pytest.mark.parametrize(
    ("seconds", "asked", "answer"),
    [
        (4.1, WATCH, inputs.Late(7)),
        (3.9, WATCH, inputs.Viewed(7, VIEW)),
        (3.9, replace(WATCH, pause=True), inputs.Viewed(7, VIEW)),
        (3.1, tell(LeaveReport(), limit=3.0), inputs.Late(7)),
    ],
)
def test_a_limit_that_has_passed_is_an_answer_and_a_pause_no_part_of_it(
    seconds: float, asked: do.Effect, answer: inputs.Input
) -> None:
    registry = Registry(seconds)
    assert said(registry, asked) == answer
    assert registry.asked_at == 0.0 or 0.2 <= registry.asked_at <= 0.5


@pytest.mark.parametrize(
    ("asked", "age"),
    [
        (tell(REPORT, began_at=15.0, since=10.0), 30.0),
        (tell(REPORT, began_at=15.0), 25.0),
        (tell(REPORT, since=50.0), 0.0),  # what has not begun yet by this clock
    ],
)
def test_an_exit_report_is_as_old_as_what_it_tells_of_when_it_is_sent(
    asked: do.Tell, age: float
) -> None:
    registry = Registry()
    said(registry, asked, after=40.0)
    assert registry.asked == [("report", REPORT.model_copy(update={"age_seconds": age}))]


class Whole(Registry):
    """The same, which notes all that it is given."""

    def __getattr__(self, name: str) -> Any:
        async def answer(*given: Any) -> Any:
            self.asked.append((name, given))
            return ANSWERS[name]

        return answer


def test_each_question_has_all_its_values_in_their_order() -> None:
    registry, own = Whole(), join()
    ack = AckReport(epoch=3, digest="f" * 64)
    watch = do.Watch(7, after=3, poll=2.5, limit=4.0, question=11, views=13)
    asks = [
        do.Connect(1),
        do.Join(2, OFFER),
        watch,
        replace(watch, brings=ack),
        replace(watch, brings=ack, since=10.0, views=None),
        replace(watch, brings=REPORT, since=10.0),
        replace(watch, brings=REPORT, importing=True),
        tell(ack, began_at=5.0),
        do.CloseClient(9),
    ]
    for asked in asks:
        said(registry, asked, after=40.0)
    of, known = (own.run, own.slot), (3, 2.5)
    aged = REPORT.model_copy(update={"age_seconds": 30.0})
    assert registry.asked == [
        ("connect", ()),
        ("join", (own.run, OFFER)),
        ("watch", (*of, *known, None, 11, 13, False)),
        ("watch", (*of, *known, ack, 11, 13, False)),
        ("watch", (*of, *known, ack, 11, 0, False)),
        ("watch", (*of, *known, aged, 11, 13, False)),
        ("watch", (*of, *known, REPORT, 11, 13, True)),
        ("report", (*of, ack)),
        ("close", ()),
    ]


def test_a_system_calls_own_time_out_is_no_limit_that_has_passed() -> None:
    with pytest.raises(TimeoutError, match="NFS"):
        said(Registry(error=TimeoutError("NFS")), do.Connect(7))


def test_a_bug_is_no_answer_and_a_limit_of_the_machine_is_one_in_words() -> None:
    with pytest.raises(ZeroDivisionError):
        said(Registry(error=ZeroDivisionError()), do.Connect(7))
    answer = said(Registry(error=MemoryError()), do.Connect(7))
    assert isinstance(answer, inputs.Failed)
    assert isinstance(answer.error, ArmingFailed)


def test_no_other_report_has_an_age_and_the_connections_are_closed() -> None:
    registry = Registry()
    said(registry, tell(LeaveReport(), since=1.0), after=40.0)
    assert said(registry, do.CloseClient(7)) == inputs.Done(7)
    assert registry.asked == [("report", LeaveReport()), ("close", None)]


# --- a node's share of the visits -----------------------------------------------------------------


OWN = Identity(bytes(32), "llama", "launch0001", 1)
UNFIT = plan(0, 1, 2)
UNFIT.peers[0] = UNFIT.peers[0].model_copy(update={"probe_port": 22})
GONE = {"why_unusable": lambda address, interface: f"{address} is gone from {interface}"}


async def hangs(work: Any, *args: Any) -> Any:
    """A thread that does not come back."""
    await asyncio.sleep(1_000.0)


def on_loopback(*slots: int) -> ProbePlan:
    """Of three slots, these are at a loopback address."""
    made = plan(0, 1, 2)
    for slot in slots:
        near = {"address": f"127.0.0.{slot + 1}", "hostname": f"h{slot}"}
        made.peers[slot] = made.peers[slot].model_copy(update=near)
    return made


@pytest.mark.parametrize(
    ("given", "offers", "reached"),
    [
        (on_loopback(0, 1, 2), True, [0, 2]),
        (on_loopback(), True, [0, 2]),  # it has offered others as well
        (on_loopback(0, 1, 2), False, []),  # a registry cannot make it knock at its own doors
        (on_loopback(0, 2), True, []),
        (on_loopback(1), True, []),
        (on_loopback(0), True, [2]),
    ],
)
def test_loopback_is_visited_from_loopback_alone(
    given: ProbePlan, offers: bool, reached: list[int]
) -> None:
    async def probe(identity: Identity, asked: ProbePlan, slots: Iterable[int]) -> Any:
        return [PairProbe(slot=slot, outcome="ok") for slot in slots]

    values: dict[str, Any] = {"hosts_file": Path("/etc/hosts"), "in_thread": at_once}
    values |= {"probe": probe, "why_unusable": lambda *_: "", "known_names": lambda *_: {}}
    asked = visit(do.Visit(7, 1, given), OWN, AgentEnvironment(**values), near=offers)
    assert [pair.slot for pair in virtually(asked).pairs if pair.outcome == "ok"] == reached


def fresh(*slots: int) -> ProbePlan:
    """Of three slots, these are new among them."""
    return plan(0, 1, 2).model_copy(update={"fresh": [*slots]})


@pytest.mark.parametrize(
    ("given", "world", "told"),
    [
        (plan(0, 1, 2), {}, ["0 ok10.9.9.9", "2 ok"]),  # what the hosts file says is added
        (plan(0, 1), {"in_thread": hangs}, ["0 ok"]),  # but not where it hangs
        (plan(0, 1), GONE, ["0 no_route10.0.0.5 is gone from eth0"]),
        (UNFIT, {}, ["0 error10.9.9.9", "2 ok"]),
        (plan(0, 2), {}, []),  # this node is in no plan
        (plan(1), {}, []),  # or alone in it
        (fresh(2), {}, ["2 ok"]),  # the others are proven already
        (fresh(1), {}, ["0 ok10.9.9.9", "2 ok"]),
        (fresh(0, 2), {}, ["0 ok10.9.9.9", "2 ok"]),
    ],
)
def test_peers_are_visited_from_an_address_that_is_there_and_reported(
    given: ProbePlan, world: dict[str, Any], told: list[str]
) -> None:
    visited: list[int] = []

    async def probe(identity: Identity, asked: ProbePlan, slots: Iterable[int]) -> Any:
        visited.extend(slots)
        await asyncio.sleep(2.0)
        return [PairProbe(slot=slot, outcome="ok") for slot in visited]

    values: dict[str, Any] = {
        "hosts_file": Path("/etc/hosts"),
        "in_thread": at_once,
        "probe": probe,
        "why_unusable": lambda address, interface: "",
        "known_names": lambda file, run: {"n0": {"10.9.9.9"}},
    }
    environment = AgentEnvironment(**(values | world))
    found = virtually(visit(do.Visit(7, 1, given), OWN, environment, near=False))
    details = [pair.detail if pair.outcome == "no_route" else pair.resolved for pair in found.pairs]
    outcomes = [f"{pair.slot} {pair.outcome}" for pair in found.pairs]
    assert [a + (b or "") for a, b in zip(outcomes, details, strict=True)] == told
    assert visited == [pair.slot for pair in found.pairs if pair.outcome == "ok"]
    assert found.seconds == (0.0 if world is GONE else 2.0)


def test_the_machine_reckons_with_the_grace_that_its_program_has() -> None:
    spec = NodeSpec(WorkerSettings(grace=7.0), join(), ["train"], remote=False)
    assert rules_of(spec, AgentEnvironment()).grace == 7.0

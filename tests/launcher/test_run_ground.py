"""What a launch begins on, by value: a new launch, or the one that a killed launcher has left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.run import actions as do
from launcher.run import inputs as said
from launcher.run.clearing import Clearance
from launcher.run.ground import (
    Anew,
    AskFormer,
    AskSame,
    EndRun,
    Former,
    OnDisk,
    Wanted,
    decide,
    is_there,
    judge,
)
from launcher.run.sentences import (
    BeginsAnew,
    EndsAtOnce,
    EndsFormer,
    EndsLeft,
    EndsRun,
    FormerStays,
    MayBeLeft,
    PortKept,
    Resumes,
    Stand,
    StandingWaits,
    StandKind,
    UnknownLeft,
)
from launcher.run.values import (
    ErrorKind,
    Fresh,
    Key,
    Left,
    Outcome,
    Resumed,
    Trouble,
    Why,
)
from launcher.schedulers.description import Description
from rendezvous.wire.errors import NotFound, RunOver, StorageFull, TooManyRequests, Unavailable
from rendezvous.wire.run import NodeState, Phase, SlotState, SlotStatus
from tests.launcher.drive import FOREIGN, SILENT, SLURM, Drive, facts, over, slot, status

FORMER = Former("k7f2a9c1xy", "h1", "slurm", owns_registry=True, port=29_600, fingerprint="f")
WANTED = Wanted("h1", "slurm", "f")
STANDING = replace(WANTED, standing=True)
EXISTS = Trouble(ErrorKind.RUN_EXISTS, "run_exists", "it is held")
TAKEN = Trouble(ErrorKind.OTHER, "usage", "port 29600 is taken", "", 2)
LEFT = Left(Key(1, 1, "rdzv-k7f2a9c1xy-1-1"), SLURM, "100")


def kinds(done: list[do.Action]) -> list[str]:
    return [type(action).__name__ for action in done]


def asking(found: OnDisk | None = None, wanted: Wanted = WANTED) -> Drive:
    """Up to the question how the former run stands."""
    drive = Drive.new(facts(owns=not wanted.standing), found or OnDisk(FORMER), wanted).begin()
    drive.take(said.Done(drive.open(do.OpenFormer).id))
    return drive


def made(drive: Drive) -> object:
    """The ground that is being made."""
    return drive.open(do.Establish).ground


def closed(drive: Drive) -> Drive:
    """The former registry is down."""
    drive.take(said.Done(drive.open(do.CloseChild).id))
    return drive


# --- decisions


@pytest.mark.parametrize(
    ("former", "wanted", "decision"),
    [
        (None, WANTED, Anew(Why.NOTHING_FORMER)),
        (replace(FORMER, ended=True), WANTED, Anew(Why.NOTHING_FORMER)),
        (FORMER, WANTED, AskFormer(listens=True)),
        (replace(FORMER, host="h2"), WANTED, Anew(Why.OTHER_HOST, "h2")),
        (replace(FORMER, owns_registry=False), WANTED, Anew(Why.NOTHING_FORMER)),
        (FORMER, STANDING, Anew(Why.NOTHING_FORMER)),
        (replace(FORMER, owns_registry=False), STANDING, AskFormer(listens=False)),
        (replace(FORMER, owns_registry=False, has_keys=False), STANDING, Anew(Why.NOTHING_FORMER)),
        (replace(FORMER, owns_registry=False, ended=True), STANDING, Anew(Why.NOTHING_FORMER)),
    ],
)
def test_17_18_19_who_is_asked(
    former: Former | None, wanted: Wanted, decision: Anew | AskFormer
) -> None:
    assert decide(OnDisk(former), wanted) == decision


@pytest.mark.parametrize(
    ("former", "phase", "decision"),
    [
        (FORMER, "finished", Anew(Why.OVER, "waiting")),
        (FORMER, "running", EndRun(Why.RUNNING)),
        (FORMER, "gathering", AskSame()),
        (FORMER, "arming", AskSame()),
        (replace(FORMER, starter="docker"), "gathering", EndRun(Why.OTHER_SCHEDULER)),
        (replace(FORMER, fingerprint="g"), "gathering", EndRun(Why.OTHER_OPTIONS)),
        (replace(FORMER, fingerprint=""), "gathering", AskSame()),
    ],
)
def test_21_22_23_d3_what_the_answer_means(
    former: Former, phase: str, decision: Anew | EndRun | AskSame
) -> None:
    assert judge(former, WANTED, status(phase=Phase(phase))) == decision


@pytest.mark.parametrize(
    ("node", "silent", "there"),
    [
        (None, None, False),
        (NodeState.LEFT, 0.0, False),
        (NodeState.LOST, 0.0, False),
        (NodeState.RUNNING, 4.9, True),
        (NodeState.RUNNING, 5.1, False),
    ],
)
def test_24_who_could_still_hear(node: NodeState | None, silent: float | None, there: bool) -> None:
    assert is_there(slot(1, node=node, silent=silent)) is there


# --- the way there


def drive_on(found: OnDisk | None = None, wanted: Wanted = WANTED) -> Drive:
    return Drive.new(facts(owns=not wanted.standing), found, wanted).begin()


def silent(drive: Drive, kind: type[do.Action], seconds: float, trouble: Trouble = SILENT) -> None:
    """Nobody answers this as long as it is asked."""
    while drive.machine.course.refused is None and drive.all_open(kind):
        drive.refuse(kind, trouble)
        drive.wait(seconds)


def child_ends_for_good(drive: Drive) -> None:
    for _ in range(5):
        drive.take(said.ChildEnded(drive.open(do.StartChild).id, 1, "no room"))
        drive.wait(0.7)


def taken_up(found: OnDisk | None = None, wanted: Wanted = WANTED) -> Drive:
    """The former launch is the same one."""
    drive = asking(found, wanted)
    drive.came(status(slot(1), version=17))
    drive.answer(do.CreateRun)
    return drive


def cancelling(*slots: SlotStatus) -> Drive:
    """The former run is under way, and being cancelled."""
    drive = asking()
    drive.came(status(*slots, phase=Phase.RUNNING, version=4))
    return drive


@pytest.mark.parametrize(
    ("found", "wanted", "words"),
    [
        (None, WANTED, []),  # rules 26, 28
        (None, STANDING, []),
        (OnDisk(replace(FORMER, host="h2")), WANTED, [BeginsAnew(Why.OTHER_HOST, "h2")]),
    ],
)
def test_17_19_26_28_where_nobody_is_asked_the_ground_is_made_at_once(
    found: OnDisk | None, wanted: Wanted, words: list[BeginsAnew]
) -> None:
    drive = drive_on(found, wanted)
    assert (drive.said(), made(drive)) == (words, Fresh())
    assert kinds(drive.done)[-1] == "Establish"


def test_20_the_former_port_is_tried_for_ten_seconds() -> None:
    drive = drive_on(OnDisk(FORMER))
    silent(drive, do.OpenFormer, 0.2, TAKEN)
    assert len(drive.of(do.OpenFormer)) in (51, 52)
    assert drive.said() == [BeginsAnew(Why.PORT_HELD, TAKEN.message)]
    assert made(drive) == Fresh()


def test_21_the_former_registry_is_started_and_asked_for_ten_seconds() -> None:
    drive = asking()
    assert kinds(drive.last) == ["StartChild", "AskStatus"]
    drive.refuse(do.AskStatus, SILENT)
    assert kinds(drive.wait(0.05)) == ["AskStatus"]
    silent(drive, do.AskStatus, 0.5)
    assert 10.0 <= drive.now < 11.0
    assert drive.said() == [BeginsAnew(Why.SILENT)]
    assert made(closed(drive)) == Fresh()


def test_21_a_registry_that_does_not_know_the_run_or_ends_for_good_is_not_asked_again() -> None:
    drive = asking()
    drive.refuse(do.AskStatus, FOREIGN)
    assert drive.said() == [BeginsAnew(Why.SILENT)]
    drive = asking()
    child_ends_for_good(drive)
    assert drive.said() == [BeginsAnew(Why.SILENT)]
    drive = asking()
    drive.came(over(reason="it is over"))  # and a launch that is over is not resumed
    assert drive.said() == [BeginsAnew(Why.OVER, "it is over")]
    assert made(closed(drive)) == Fresh()


def test_22_d2_the_same_launch_is_taken_up_with_the_registry_that_was_asked() -> None:
    drive = taken_up()
    assert drive.said() == [Resumes("k7f2a9c1xy", "waiting")]
    assert made(drive) == Resumed(16)
    drive.take(said.Done(drive.open(do.Establish).id))
    assert drive.of(do.CloseChild) == []
    assert len(drive.of(do.StartChild)) == 1
    assert drive.machine.course.stage == "following"
    # D9: only what happens from then on; the version is 1 before the first event
    assert drive.open(do.FollowEvents).after == 16


def test_d1_a_port_that_has_no_effect_is_said() -> None:
    drive = taken_up(wanted=replace(WANTED, port=30_000))
    assert drive.said()[0] == PortKept(30_000, 29_600)
    for port in (None, 29_600):
        drive = taken_up(wanted=replace(WANTED, port=port))
        assert [type(sentence) for sentence in drive.said()] == [Resumes]


def test_22_23_another_job_ends_the_former_one() -> None:
    drive = asking()
    drive.came(status(slot(1)))
    drive.refuse(do.CreateRun, SILENT)  # the comparison is tried again while there is time
    assert kinds(drive.wait(0.05)) == ["CreateRun"]
    drive.refuse(do.CreateRun, EXISTS)
    assert drive.said() == [EndsFormer(Phase.GATHERING, Why.OTHER_OPTIONS)]
    assert drive.open(do.CancelRun).reason is Why.OTHER_OPTIONS


def test_24_its_nodes_have_fifteen_seconds_to_hear_of_it_unless_they_have_left() -> None:
    drive = cancelling(slot(1, node=NodeState.RUNNING, silent=0.0))
    here = status(slot(1, node=NodeState.RUNNING, silent=0.0), phase=Phase.RUNNING, version=4)
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, here))
    while drive.all_open(do.AskStatus):
        assert drive.open(do.AskStatus).wait == 1.0
        drive.now += 1.0
        drive.came(here)
    assert drive.now == 15.0
    assert kinds(drive.last) == ["CloseChild"]
    drive = cancelling()
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, over(slot(1, node=NodeState.LEFT))))
    assert kinds(drive.last) == ["CloseChild"]


def test_24_a_registry_that_goes_away_meanwhile_stops_nothing() -> None:
    drive = cancelling()
    for _ in range(100):
        if drive.all_open(do.CancelRun):
            drive.refuse(do.CancelRun, SILENT)
            drive.wait(0.5)
    assert made(closed(drive)) == Fresh()
    drive = cancelling(slot(1, node=NodeState.RUNNING))
    child_ends_for_good(drive)
    assert drive.said() == [EndsFormer(Phase.RUNNING, Why.RUNNING)]


OTHERS = OnDisk(replace(FORMER, owns_registry=False))
SAME = OnDisk(replace(FORMER, owns_registry=False, same_registry=True), (LEFT,))


def test_17_a_killed_launchers_run_at_a_standing_registry_is_ended() -> None:
    drive = asking(OTHERS, STANDING)
    assert drive.of(do.StartChild) == []
    drive.came(status(slot(1)))
    assert drive.said() == [EndsFormer(Phase.GATHERING, Why.RUNNING)]
    drive.take(said.StatusCame(drive.open(do.CancelRun).id, over()))
    assert made(drive) == Fresh()
    drive = asking(OTHERS, STANDING)
    drive.refuse(do.AskStatus, FOREIGN)  # one that does not know it is not worth a word
    assert (drive.said(), made(drive)) == ([], Fresh())
    drive = asking(OTHERS, STANDING)
    silent(drive, do.AskStatus, 1.0)  # nor another one that is silent
    assert 10.0 < drive.now < 13.0
    assert (drive.said(), made(drive)) == ([], Fresh())


@pytest.mark.parametrize(("asks", "least", "most"), [(True, 20.0, 23.0), (False, 15.0, 18.0)])
def test_17_nothing_is_ended_while_the_registry_of_both_launches_does_not_answer(
    asks: bool, least: float, most: float
) -> None:
    drive = asking(SAME, STANDING)
    if asks:
        silent(drive, do.AskStatus, 1.0)
        assert drive.said() == [StandingWaits("nobody answers"), FormerStays(FORMER.launch_id)]
        assert drive.of(do.End)[-1].outcome.refused == SILENT
    else:
        drive.came(status(slot(1)))
        while drive.machine.course.refused is None:
            drive.refuse(do.CancelRun, SILENT)
            drive.wait(1.0)
    assert least < drive.now < most
    assert not drive.of(do.Describe)
    assert not drive.of(do.Establish)


# --- beside the launch


def test_90_what_is_left_is_ended_by_cancel_as_well_and_an_adapter_may_fail() -> None:
    machine = Clearance.of((LEFT,), (), 10.0)
    machine.step(said.Begin(), 0.0)
    assert machine.step(said.SignalCame(2), 0.0) == []
    assert machine.step(said.PartFailed(999, "?"), 0.0) == []
    machine.step(said.PartFailed(1, "KeyError('x')"), 0.0)
    due = machine.due()
    assert due is not None
    assert machine.step(said.Due(), due) == [do.Describe(2, LEFT.key, "100")]
    done = machine.step(said.Described(2, Description(SlotState.ENDED)), due)
    assert done == [do.Note(LEFT.key, "100", gone=True), do.End(Outcome(None))]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StorageFull("full"), ErrorKind.STORAGE_FULL),
        (Unavailable("away"), ErrorKind.NOT_NOW),
        (TooManyRequests("wait"), ErrorKind.NOT_NOW),
        (RunOver("over"), ErrorKind.RUN_OVER),
        (NotFound("what"), ErrorKind.NOT_FOUND),
        (ValueError("odd"), ErrorKind.OTHER),
    ],
)
def test_errors_are_values(error: Exception, kind: ErrorKind) -> None:
    assert Trouble.of(error).kind is kind


# --- what the ledger has left


def test_26_what_a_former_launch_has_left_is_ended_before_it_is_forgotten() -> None:
    drive = Drive.new(found=OnDisk(left=(LEFT,))).begin()
    assert drive.said() == [EndsLeft(1)]
    assert drive.of(do.Establish) == []
    drive.described(LEFT.key, SlotState.RUNNING)
    drive.told(LEFT.key)
    drive.wait(0.2)
    drive.described(LEFT.key, SlotState.ENDED)
    assert drive.last == [
        do.Note(LEFT.key, "100", gone=True),
        do.Establish(drive.open(do.Establish).id, Fresh()),
    ]


def test_27_d5_what_could_not_be_ended_is_said_and_stays_in_the_ledger() -> None:
    unknown = UnknownLeft("rdzv-old-2-1", "there is no such profile")
    drive = Drive.new(found=OnDisk(left=(LEFT,), unknown=(unknown,))).begin()
    drive.now += 100.0
    drive.take(said.SchedulerSilent(drive.open(do.Describe).id, "down"))
    stand = Stand(StandKind.SILENT, detail="down")
    assert drive.said() == [unknown, EndsLeft(1), MayBeLeft(LEFT.key, "100", stand)]
    assert made(drive) == Fresh(("rdzv-old-2-1", LEFT.key.former))


def test_26_what_is_resumed_is_not_ended() -> None:
    drive = taken_up(OnDisk(FORMER, left=(LEFT,), own=(Left(Key(1, 1), SLURM, "100"),)))
    drive.take(said.Done(drive.open(do.Establish).id))
    assert list(drive.machine.slots.shared.runs) == [Key(1, 1)]
    assert drive.machine.ends.ends == {}


# --- when it cannot begin


def test_32_a_ground_that_cannot_be_made_is_the_end_without_a_result() -> None:
    drive = Drive.new().begin()
    drive.refuse(do.Establish, TAKEN)
    assert drive.last == [do.CloseBoard(), do.End(Outcome(None, refused=TAKEN))]


def test_d6_a_signal_before_the_launch_is_said_and_ends_what_was_begun() -> None:
    drive = asking()
    assert drive.signal(2) == [
        do.Say(EndsRun(2)),
        do.BreakOff(3),
        do.CloseChild(drive.open(do.CloseChild).id),
    ]
    drive.signal(2)
    assert drive.said()[-1] == EndsAtOnce(2, again=True)
    closed(drive)
    assert drive.last == [do.CloseBoard(), do.End(Outcome(None, signal=2))]
    assert drive.of(do.WriteResult) == []  # the former launch can still be resumed


def test_d6_what_is_being_ended_then_stays_in_the_ledger() -> None:
    drive = Drive.new(found=OnDisk(left=(LEFT,))).begin()
    number = drive.open(do.Describe).id
    assert drive.signal(15)[:2] == [do.Say(EndsRun(15)), do.BreakOff(number)]
    assert drive.of(do.Note) == []
    assert drive.of(do.Establish) == []
    assert drive.of(do.End) == [do.End(Outcome(None, signal=15))]

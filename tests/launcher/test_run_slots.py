"""Which worker runs a launch submits, takes up again, describes and lets go, by value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from launcher.schedulers.contract import NothingSubmitted
from rendezvous.wire.errors import Fenced
from rendezvous.wire.run import EpochEnd, NodeState, Phase, SlotState, SlotStatus
from tests.launcher.drive import FOREIGN, QUIET, SILENT, Drive, Steps, over, result, slot, status
from tests.launcher.outer import (
    BLIND,
    LOCAL,
    MANUAL,
    ONE,
    SLURM,
    Facts,
    Former,
    Key,
    Left,
    Starter,
    Troubled,
)

ZERO = Key(0, 1)
KEEPS_LOGS = Starter("vessl", 1.0, keeps_logs=True)
RUNNING, FAILED, GO = SlotState.RUNNING, SlotState.FAILED, Phase.RUNNING
LOST = NodeState.LOST

ENDED: list[EpochEnd] = [EpochEnd(epoch=1, message="node 1 failed")]
PAUSES: dict[str, Any] = {"phase": Phase.RESTARTING, "ended": ENDED}
THERE = slot(1, its=NodeState.JOINED, node=5, state=RUNNING)
WITHOUT = slot(1, its=NodeState.RELEASED, state=RUNNING)


def replace(one: SlotStatus, wanted: int = 1, **changes: Any) -> SlotStatus:
    """The slot with these changes."""
    return one.model_copy(update={"wanted_generation": wanted} | changes)


EXPLAINED = result("node_lost", 86, slot=1, message="node 1 failed; the scheduler reports: down")
STEPS: Steps = {
    # what the registry says
    "wanted": status(slot(1, 0, 1)),
    "replaced": status(slot(1, 1, 2)),
    "uncalled": status(slot(1, state=RUNNING, state_seconds=20.0)),
    "fresh": status(slot(1, state=RUNNING, state_seconds=19.9)),
    "replaced-there": status(slot(1, 1, 2, its=NodeState.JOINED)),
    "called": status(slot(1, state=RUNNING, state_seconds=20.0, its=NodeState.JOINED)),
    "go-replaced": status(slot(1, 1, 2, node=5), phase=GO),
    "go-without": status(slot(1), phase=GO),
    "go-unwanted": status(slot(1, 1, 2), phase=GO),
    "go": status(slot(1, its=NodeState.RUNNING, node=5), phase=GO),
    "program-ended": status(slot(1, its=NodeState.EXITED, node=5), phase=GO),
    "node-left": status(slot(1, its=NodeState.LEFT, node=5), phase=GO),
    # between two epochs
    "pauses": status(THERE, **PAUSES),
    "pauses-without": status(WITHOUT, **PAUSES),
    "pauses-unwanted": status(replace(WITHOUT, 2), **PAUSES),
    "pauses-replaced": status(replace(THERE, 2), **PAUSES),
    "pauses-lost": status(replace(THERE, node_state=LOST), **PAUSES),
    "arms-without": status(WITHOUT, phase=Phase.ARMING, ended=ENDED),
    "gathers": status(replace(THERE, node=None), ended=ENDED),
    "over-waiting": over(*(slot(number, 0, 1) for number in range(1, 41)), left=False),
    "explained": ("explain", over(result=EXPLAINED)),
    "fenced": ("tell slot", Fenced("it has a newer one")),
    "foreign": ("tell slot", FOREIGN),
    "unheard": lambda drive, _: drive.answer("tell slot", SILENT, drawn=0.5),
    # what the disk and the scheduler say, and who waits
    "full": lambda drive, _: unwritable(drive, "full"),
    "gone": lambda drive, _: unwritable(drive, "gone"),
    "room": lambda drive, _: drive.breaks.clear(),
    "certain": ("submit", NothingSubmitted("no", final=True)),
    "busy": ("submit", Troubled("busy")),
    "again": ("submit", Troubled("")),
    "line": ("read last line", "no image"),
    "long-line": ("read last line", "x" * 400),
    "cannot": ("read last line", "rdzv: cannot start: no rdzv"),
}


def unwritable(drive: Drive, why: str) -> None:
    """From now on nothing can be into the ledger."""
    drive.breaks["write intent"], drive.drawn = OSError(why), 1.0


SENT = "wanted heard "
UNREAD = "break off read last line"
TOLD_101 = "note 101 gone; tell slot failed 101"
STOPS = "say SIGTERM: ..."
UNTOLD = "break off tell slot; break off submit"
LEFT = "say worker run rdzv-n3wl4unch1-1-1 (slot 1, id 101) may still exist: error 500| ..."
STUCK = "go-without 76 silent"
RARELY = " ".join(f"{STUCK} {60 * 2**tries + 1}" for tries in range(6)) + f" {STUCK}"
NEXT = "write intent 1.2; submit 1.2"
UNWRITTEN = "say /state/r/worker-runs.jsonl cannot be written, so rdzv submits nothing"
CANNOT = "its last line: 'rdzv: cannot start: no rdzv'"
BY_HAND = "say copy slot 1's script to its machine, and start it there: start 101"
EPOCH = "say epoch 1 ended ..."
ENDED_TWO = "note 1.2 101 gone; tell slot 1.2 failed 101"
RUNS = SENT + "submitted heard running heard "
DOWN = RUNS + "go 2 failed:down heard "
IT_ENDS = "node-lost running 3.2 running told 0.4 ended "
ENDED_BY = "close board; write result node_lost node 1 failed"


@pytest.mark.parametrize(
    ("script", "then"),
    [
        # 54, 56: intent, ledger, submission, id, news, description, in this order
        ("wanted", "tell slot submitting"),
        ("wanted wanted wanted", ""),  # asked for once, however often it is wanted
        ("wanted heard", "write intent; submit"),
        (SENT + "submitted", "note 101; tell slot submitted 101"),
        (SENT + "submitted heard", "describe 101"),
        # 57, 53: of a run that is over nothing is submitted; another refusal ends the launch
        ("wanted unwanted", ""),
        ("wanted unwanted 60", ""),
        ("wanted fenced", ""),
        ("wanted unwanted end", "close child"),
        (SENT + "submitted unwanted", "describe 101"),
        ("wanted foreign", "cancel run its launcher failed: no such run; break off follow events"),
        # 58: news that nobody answers are told again with jitter, for ever
        ("wanted unheard 0.3", ""),
        ("wanted" + " unheard 0.36" * 50, "0.35: tell slot submitting"),
        # 59: without a ledger nothing is submitted, and each reason is said once
        ("wanted full heard", f"write intent; {UNWRITTEN}: full"),
        ("wanted full heard 0.9", "0.5: write intent"),
        ("wanted full heard gone 0.9", f"0.5: write intent; {UNWRITTEN}: gone"),
        ("wanted full heard room 0.9", "0.5: write intent; submit"),
        # 54, D11: a newer generation takes the older one's place
        ("wanted full heard replaced", "note gone; tell slot 1.2 submitting"),
        ("wanted full heard replaced room heard2", NEXT),
        # 62: what was not refused for certain may exist, and is ended by its name
        (SENT + "unclear", "tell slot failed error 500"),
        (SENT + "unclear heard replaced heard2", f"{NEXT}; find"),
        (SENT + "refused", "note gone; tell slot failed no"),
        (SENT + "go-replaced heard2", ""),
        (SENT + "certain", "note gone; tell slot failed no final"),
        (SENT + "go-replaced heard2 refused", f"note gone; {NEXT}"),
        # 63: a further try waits until the registry has heard of the first, if it is still wanted
        (SENT + "busy", "tell slot submitting busy"),
        (SENT + "busy heard", "try again"),
        (SENT + "busy unwanted", "break off submit"),
        # what another worker run has said already is not told, and nobody waits
        (SENT + "again", "try again"),
        (SENT + "busy heard again", "try again"),
        # once it is told, a try is waited for again, as the first one is
        (SENT + "busy heard signal", f"{STOPS}; cancel run SIGTERM at the launcher"),
        (SENT + "busy heard signal submitted", "note 101; tell slot submitted 101"),
        (SENT + "busy heard busy signal", f"{STOPS}; {UNTOLD}; cancel run SIGTERM at the launcher"),
        (SENT + "go-replaced heard2 again", "break off submit; find"),
        (SENT + "busy unwanted signal end", "break off cancel run; find"),
        (SENT + "signal busy", "break off submit"),
        (SENT + "busy signal", f"{STOPS}; {UNTOLD}; cancel run SIGTERM at the launcher"),
        (SENT + "end busy", "break off submit; find"),
        (SENT + "go-without busy", "break off submit; find"),
        (SENT + "busy go-without heard", "break off submit; find"),
        (SENT + "busy replaced heard", "break off submit"),
        (SENT + "replaced heard2 busy", "break off submit; find"),
        # 60, D10: before the go the older one is ended beside the newer one, then in front of it
        (RUNS + "replaced heard2", f"{NEXT}; describe 101"),
        (RUNS + "replaced heard2 running", "cancel worker run 101 12.0"),
        (RUNS + "go-replaced heard2", "describe 101"),
        (RUNS + "go-replaced heard2 running told 0.2 ended", f"note 101 gone; {NEXT}"),
        (RUNS + "go-replaced heard2 running told 75 silent", f"{LEFT}; {NEXT}"),
        (SENT + "replaced heard2 submitted", "note 101; describe 101"),  # D13
        (SENT + "replaced submitted", "note 101; describe 101"),
        # 70, 74: one that is over is noted, told, and submitted again when the registry wants it
        (RUNS + "1 failed:OOM", "note 101 gone; tell slot failed 101 OOM"),
        (RUNS + "1 failed heard 600", ""),
        (RUNS + "1 failed!:P", "note 101 gone; tell slot failed 101 P preempted"),
        (RUNS + "1 running!:P", "tell slot running 101 P preempted"),
        (RUNS + "1 running!:P heard 1 running heard 1 failed", TOLD_101),
        (RUNS + "1 running!:P heard 1 failed:9", "note 101 gone; tell slot failed 101 9 preempted"),
        (RUNS + "1 failed heard 600 replaced", "tell slot 1.2 submitting"),
        # 72: the same is not told twice, and a queue before the registry forgets it
        (RUNS + "1 running", ""),
        (RUNS + "1 running 1 running:n17", "tell slot running 101 n17"),
        (RUNS + "1 queued heard" + " 1 queued" * 30, ""),
        (RUNS + "1 queued heard" + " 1 queued" * 31, "tell slot queued 101"),
        # 73: a scheduler that does not answer is told as unknown, and asked again
        (RUNS + "1 silent", "tell slot unknown 101 error 500"),
        (RUNS + "1 silent heard 1", "1: describe 101"),
        # D12: one whose node is there is not believed to be over until it has left
        (RUNS + "go 1 ended", "tell slot ended 101"),
        (RUNS + "go 1 ended heard 1", "1: describe 101"),
        (RUNS + "program-ended 1 ended", "tell slot ended 101"),
        (RUNS + "go 1 ended heard node-left 1 ended", "note 101 gone"),
        (RUNS + "go 1 ended heard node-left 1 ended 60", ""),
        (RUNS + "go 1 ended heard end", "describe 101"),
        # one that goes on after all has not failed
        (DOWN + IT_ENDS + "explained closed", ENDED_BY + "| the scheduler reports: down; end"),
        (f"{DOWN} 2 running heard {IT_ENDS} closed", f"{ENDED_BY}; end"),
        (f"{DOWN} 2 running heard 2 failed:down heard {IT_ENDS} explained", "close child"),
        ("replaced-there heard2 submitted2 heard2 failed", ENDED_TWO),  # not its node
        (RUNS + "1 replaced", "break off describe; tell slot 1.2 submitting"),  # 75
        # 78: from the go on a worker run without a rank is ended once, if not by itself
        (RUNS + "go-without", "describe 101"),
        (RUNS + "go-without go-without", ""),
        (RUNS + "go-without running", ""),
        (RUNS + "go-without running 3.2 running", "cancel worker run 101 12.0"),
        ("go-unwanted", ""),
        # between two epochs nothing is ended, and nothing submitted for what the run goes without
        (RUNS + "go pauses", EPOCH),
        (RUNS + "go pauses-without", EPOCH),
        (RUNS + "go pauses-unwanted", EPOCH),
        (RUNS + "go pauses arms-without", ""),
        (RUNS + "go pauses gathers", ""),
        (RUNS + "go pauses go-without", "describe 101"),
        # what is replaced there ends before the newer one is submitted, as its program may run
        (RUNS + "go pauses-replaced heard2", "describe 101"),
        (RUNS + "go pauses-replaced heard2 running told 0.2 ended", f"note 101 gone; {NEXT}"),
        # D14: one that cannot be ended is tried again ever more rarely
        (RUNS + "go-replaced heard2 running told 75 silent 61 go-replaced", ""),
        (RUNS + STUCK, ""),  # nothing waits for it: nothing is said
        (RUNS + STUCK + " 59 go-without", ""),
        (RUNS + STUCK + " 61 go-without", "describe 101"),
        (RUNS + f"{STUCK} 61 {STUCK} 119 go-without", ""),
        (RUNS + f"{STUCK} 61 {STUCK} 121 go-without", "describe 101"),
        (RUNS + f"{STUCK} 61 {STUCK} 121 {STUCK} 239 go-without", ""),
        (RUNS + f"{RARELY} 1919 go-without", ""),
        (RUNS + f"{RARELY} 1921 go-without", "describe 101"),
    ],
)
def test_53_to_78_what_is_done_about_a_worker_run(script: str, then: str) -> None:
    assert Drive().following().play(script, STEPS, QUIET, then) == then


@pytest.mark.parametrize(
    ("starter", "script", "then"),
    [
        (Starter("slurm", 0.5), "0.5 running:n17", ""),  # 72: within a second it is not told
        # 76, 77: one that ends is told with its last line until the go
        (KEEPS_LOGS, "1 failed:full", "note 101 gone; read last line 101"),
        (KEEPS_LOGS, "1 failed:full line", "tell slot failed 101 full| its last line: 'no image'"),
        (KEEPS_LOGS, "1 failed:full 9.9", ""),
        (KEEPS_LOGS, "1 failed:full 10", f"10: {UNREAD}; tell slot failed 101 full"),
        (KEEPS_LOGS, "1 failed long-line", f"tell slot failed 101 its last line: '{'x' * 299}…'"),
        (KEEPS_LOGS, "go node-left 1 failed", TOLD_101),
        (KEEPS_LOGS, "pauses 1 failed", "tell slot failed 101"),
        (KEEPS_LOGS, "pauses-lost 1 failed", TOLD_101),
        # 77: one that runs for a while and does not call is told again with its last line
        (KEEPS_LOGS, "uncalled" + " 1 running" * 30, ""),
        # what says that no other one would start is not submitted again
        (KEEPS_LOGS, "1 failed:full cannot", f"tell slot failed 101 full| {CANNOT} final"),
        (KEEPS_LOGS, "uncalled" + " 1 running" * 31 + " cannot", f"tell slot running 101 {CANNOT}"),
        (KEEPS_LOGS, "uncalled" + " 1 running" * 31, "read last line 101"),
        (KEEPS_LOGS, "fresh" + " 1 running" * 31, ""),
        (KEEPS_LOGS, "called" + " 1 running" * 31, ""),
    ],
)
def test_72_76_77_what_is_done_about_what_another_scheduler_says(
    starter: Starter, script: str, then: str
) -> None:
    drive = Drive(Facts(others=starter)).following()
    assert drive.play(RUNS + script, STEPS, QUIET, then) == then


GATHERS, ARMS, RESTARTS = Phase.GATHERING, Phase.ARMING, Phase.RESTARTING
COMES = slot(1, state=SlotState.QUEUED)
DEAD = slot(1, state=FAILED)


@pytest.mark.parametrize(
    ("one", "phase", "is_looked_for"),
    [
        (THERE, RESTARTS, True),
        (THERE, ARMS, True),
        (replace(THERE, node=None), RESTARTS, True),  # it has joined again
        (replace(THERE, node=None), GATHERS, True),
        (COMES, GATHERS, True),
        (COMES, ARMS, False),
        (DEAD, GATHERS, False),
        (DEAD, RESTARTS, False),
        (WITHOUT, GATHERS, False),
        (WITHOUT, RESTARTS, False),
        (replace(WITHOUT, node_state=NodeState.LEFT), ARMS, False),
    ],
)
def test_between_two_epochs_what_belongs_to_the_run_is_taken_up_again(
    one: SlotStatus, phase: Phase, *, is_looked_for: bool
) -> None:
    """And submitted again, where its worker run is gone with its launcher."""
    drive = Drive(Facts(), Former(), Left(ONE, SLURM, "101"))
    drive.resumed(one, phase=phase, ended=ENDED)
    assert bool(drive.all_open("find")) is is_looked_for
    if is_looked_for:
        drive.answer("find", None, ONE)
        drive.described(ONE, SlotState.ENDED)
        assert drive.open("tell slot").key == Key(1, 2)
    else:  # at the go it is ended
        assert drive.told[-1].words == "ask status 1 2.0"
        drive.status(one, phase=GO, ended=ENDED)
        assert drive.open("describe").key == ONE


@pytest.mark.parametrize(
    ("left", "script", "then"),
    [
        # 55, 65: it is found and taken up; an id is enough where its scheduler says that it lives
        (Left(ONE, SLURM, ""), "found", "note 101 whole; describe 101"),
        (Left(ONE, BLIND, "101"), "missed", "describe 101"),
        (Left(ONE, BLIND, "101"), "missed queued", "note 101 whole; describe 101"),
        # one that a person starts is shown again, with the command
        (Left(ONE, MANUAL, ""), "found", f"note 101 whole; {BY_HAND}; describe 101"),
        # 67: one that is not there is submitted as the next generation, unless a signal came
        (Left(ONE, SLURM, ""), "missed", "tell slot 1.2 submitting"),
        (Left(ONE, SLURM, "101"), "missed unknown", "tell slot 1.2 submitting"),
        (Left(ONE, SLURM, "101"), "missed ended", "tell slot 1.2 submitting"),
        (Left(ONE, SLURM, "101"), "missed failed", "tell slot 1.2 submitting"),
        (Left(ONE, SLURM, ""), "signal missed", ""),
        # 65: a scheduler that does not answer is asked again
        (Left(ONE, SLURM, "101"), "silent", "tell slot unknown 101 error 500"),
        (Left(ONE, SLURM, "101"), "silent heard", ""),
        (Left(ONE, SLURM, "101"), "silent heard 1 silent heard 1", "1: find"),
        # 66, 68: one that is replaced meanwhile is ended
        (Left(ONE, SLURM, "101"), "replaced", "break off find; tell slot 1.2 submitting"),
        (Left(ONE, SLURM, "101"), "replaced heard2", f"{NEXT}; describe 101"),
    ],
)
def test_55_65_to_68_what_is_done_about_what_a_killed_launcher_has_left(
    left: Left, script: str, then: str
) -> None:
    its = left.starter
    drive = Drive(Facts(others=its), Former(starter=its.name), left)
    # one object is asked about all: it remembers what it has submitted and seen
    another = SimpleNamespace(**its._asdict(), close=drive.prepared.others.close)
    drive.scheduler = lambda *_: another  # type: ignore[method-assign]
    drive.resumed(slot(0), slot(1))
    drive.answer("find", None, ZERO)
    assert drive.open("tell slot").key == Key(0, 2)  # 67: a child has died with its launcher
    assert drive.play(script, STEPS, QUIET, then) == then


def test_66_what_one_that_is_taken_up_has_replaced_is_ended() -> None:
    left = Left(ONE, SLURM, "100"), Left(Key(1, 2), SLURM, "101")
    drive = Drive(Facts(), Former(), *left).resumed(slot(1, 2, 2))
    done = {one.words for one in drive.answer("find", "101", Key(1, 2))}
    assert done == {"note 1.2 101 whole", "describe 1.2 101", "describe 100"}


def test_76_what_is_told_of_a_worker_run_is_cut_and_printable() -> None:
    drive = Drive().submitting(ONE)
    drive.answer("submit", "1" * 300, ONE)
    assert len(drive.of("tell slot")[-1].of.handle) == 253
    drive.heard(ONE)
    drive.described(ONE, FAILED, "\x1b" + "x" * 700)
    detail = drive.of("tell slot")[-1].of.detail
    assert (len(detail), detail[:2]) == (600, "?x")


# --- several of them


def asked(numbers: range, told: int) -> Drive:
    """The registry wants these slots, and has heard so of the first of them."""
    drive = Drive().following()
    drive.status(*(slot(number, 0, 1) for number in numbers))
    for number in numbers[:told]:
        drive.heard(Key(number, 1))
    return drive


def test_56_a_local_worker_run_needs_no_ledger() -> None:
    drive = asked(range(1), 0)
    assert [one.words for one in drive.heard(ZERO)] == ["submit 0.1"]
    told = [one.words for one in drive.answer("submit", "77", ZERO)]
    assert told == ["tell slot 0.1 submitted 77"]


def test_56_sixteen_are_submitted_at_once_and_the_rest_when_a_place_is_free() -> None:
    drive = asked(range(1, 41), told=40)
    drive.status(slot(18, 1, 2))  # D11: it waits for its turn, and is not wanted any more
    assert drive.open_keys("submit") == [Key(number, 1) for number in range(1, 17)]
    assert len(drive.of("write intent")) == 16
    for number in (1, 2):
        drive.answer("submit", "101", Key(number, 1))
    assert drive.open_keys("submit")[-2:] == [Key(17, 1), Key(19, 1)]
    for left in range(36, 0, -1):  # as one is answered, the next one begins
        drive.answer("submit", "101", drive.open_keys("submit")[0])
        assert len(drive.all_open("submit")) == min(16, left)


@pytest.mark.parametrize("end", ["signal", "over-waiting", "forgets"])
def test_d11_nothing_that_waits_for_its_turn_is_submitted_after_the_end_has_begun(end: str) -> None:
    """Nor what waits for its ledger."""
    drive = asked(range(1, 41), told=8)
    unwritable(drive, "full")
    for number in range(9, 31):
        drive.heard(Key(number, 1))
    written = len(drive.of("write intent"))
    drive.play(f"{end} room", STEPS)
    for key in drive.open_keys("submit"):
        drive.answer("submit", "7", key)
    drive.wait(1.0)
    assert len(drive.of("submit")) == 8
    assert len(drive.of("write intent")) == written == 16


def test_what_the_run_goes_without_before_its_submission_gives_its_place_back() -> None:
    """The ledger cannot be written when it goes: nothing was submitted, and nothing is looked for
    or said to exist; a node that is lost later has a place for its next worker run."""
    drive = asked(range(1, 41), told=0)
    unwritable(drive, "full")
    for number in range(1, 31):
        drive.heard(Key(number, 1))
    rows = [slot(n, 1, 1, node=40 - n if n > 38 else None) for n in range(1, 41)]
    done = drive.status(*rows, phase=GO, on_node_loss="replace")
    gone = [one.key for one in done if one.words.endswith("gone")]
    assert gone == [Key(number, 1) for number in range(1, 17)]
    told = [one for one in done if one.kind == "tell slot" and one.of]
    assert [one.key for one in told] == [Key(number, 1) for number in range(1, 39)]
    assert {one.of.state for one in told} == {SlotState.ENDED}
    for number in range(1, 39):
        drive.heard(Key(number, 1))
    rows[38] = slot(39, 1, 2, its=LOST, awaited=True)
    drive.status(*rows, phase=GO, on_node_loss="replace")
    drive.heard(Key(39, 2))
    assert {one.key for one in drive.wait(70.0)} == {Key(39, 2)}
    drive.breaks.clear()
    drive.wait(1.0)
    assert drive.open_keys(("find", "submit")) == [Key(39, 2)]
    assert [words for words in drive.said() if "cannot be written" not in words] == []


@pytest.mark.parametrize(
    ("starter", "slots", "pause"), [(LOCAL, 40, 0.1), (SLURM, 3, 1.0), (SLURM, 40, 4.0)]
)
def test_71_a_scheduler_that_serves_others_is_asked_less_often(
    starter: Starter, slots: int, pause: float
) -> None:
    drive = Drive(Facts(here=starter, others=starter))
    drive.running(*(Key(number, 1) for number in range(slots)))
    for seconds, count in ((pause - 0.01, 0), (0.02, slots)):
        done = drive.wait(seconds)
        assert len([one for one in done if one.kind == "describe"]) == count

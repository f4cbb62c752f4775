"""What viewers are told: whoever applies the changes, in whatever rhythm, ends with the state."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.ui import told as told_module
from launcher.ui.shapes import State
from launcher.ui.told import EVENTS_TOLD, End, LaunchFacts, Told
from rendezvous.wire.run import (
    EpochEnd,
    EventLine,
    NodeState,
    Phase,
    Result,
    RunStatus,
    SlotState,
    SlotStatus,
    Standing,
    Suspect,
)
from tests.launcher import drive
from tests.support.nightly import examples

FIRST = 1_000
FACTS = LaunchFacts("llama", "k7f2a9c1xy", ["train.py", "a b"], "2", "slurm", "login", 5.0)
OK = Result(status="ok", exit_code=0, message="all nodes ended", hint="")


def made() -> Told:
    return Told(FACTS, FIRST, "reading")


def slot(number: int, **known: Any) -> SlotStatus:
    usual: dict[str, Any] = {"state": SlotState.RUNNING}
    return drive.slot(number, **usual | known)


def status(*slots: SlotStatus, **known: Any) -> RunStatus:
    usual: dict[str, Any] = {"phase": Phase.RUNNING, "epoch": 1, "reason": "running"}
    usual |= {"min_nodes": 2, "max_nodes": 2, "elapsed_seconds": 1.0}
    return drive.status(*slots, **usual | known)


def event(number: int, **known: Any) -> EventLine:
    usual: dict[str, Any] = {"kind": "joined", "reason": "", "phase": Phase.GATHERING, "epoch": 0}
    return EventLine(**{"number": number, "at_seconds": float(number)} | usual | known)


class Part:
    """A feature's part: names, each with what came last of it."""

    def __init__(self, told: Told) -> None:
        self._told, self._known = told, dict[str, tuple[int, int]]()
        told.parts = lambda after: {"part": found} if (found := self._since(after)) else {}

    def take(self, names: Iterable[str]) -> None:
        """Something new of these."""
        n = self._told.next()
        self._known |= dict.fromkeys(names, (n, n))

    def _since(self, after: int) -> dict[str, int]:
        return {name: value for name, (n, value) in self._known.items() if n > after}


class Viewer:
    """As the page does: takes the state, then applies changes."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.resets = 0
        self.state: State = copy.deepcopy(told.state())

    def look(self) -> None:
        change = copy.deepcopy(self.told.changes(self.state["n"]))
        if change is None:
            return
        if change.get("reset"):
            self.resets += 1
            self.state = copy.deepcopy(self.told.state())
            return
        state = cast(dict[str, Any], self.state)
        state["n"] = change["n"]
        state |= {part: change[part] for part in ("head", "epochs") if part in change}
        known = {one["slot"]: one for one in [*state["slots"], *change.get("slots", [])]}
        state["slots"] = [known[number] for number in sorted(known)]
        for name, news in change.get("parts", {}).items():
            state["parts"][name] = state["parts"].get(name, {}) | news
        state["events"] = [*state["events"], *change.get("events", [])][-EVENTS_TOLD:]


def seen(state: State) -> dict[str, Any]:
    """What counts: the page runs the clock itself."""
    whole: dict[str, Any] = json.loads(json.dumps(state))
    whole["head"] |= {"elapsed": 0, "remaining": 0}
    return whole


# ---- every number is its own ---------------------------------------------------------------------


def test_each_number_of_an_event_and_the_head_stands_under_its_name() -> None:
    told = made()
    told.event(event(7, at_seconds=2.5, slot=3, epoch=5, kind="exited", reason="x", usual=True))
    [found] = told.state()["events"]
    expected = {"number": 7, "at": 2.5, "kind": "exited", "reason": "x", "phase": "gathering"}
    assert found == expected | {"epoch": 5, "slot": 3, "usual": True}
    head: dict[str, Any] = {
        "epoch": 6,
        "restarts": 1,
        "max_restarts": 2,
        "replacements": 3,
        "resubmitted": 4,
    }
    head |= {"max_replacements": 5, "digest": "d" * 64, "trouble": "t", "finding": "s"}
    told.status(status(silence="q", elapsed_seconds=8.0, remaining_seconds=9.0, **head))
    assert told.head.items() >= (head | {"silence": "q", "elapsed": 8.0, "remaining": 9.0}).items()
    ended: dict[str, Any] = {"epoch": 4, "exit_code": 11, "ran_seconds": 12.0, "then": "again"}
    told.status(status(ended=[EpochEnd(message="m", **ended)]))
    [end] = told.state()["epochs"]
    assert end.items() >= ended.items()


def test_of_two_first_causes_the_first_one_is_marked_no_more() -> None:
    """A late report may move it."""
    told = made()
    viewer = Viewer(told)
    rows = [slot(number, node=3 - number, node_state=NodeState.EXITED) for number in range(3)]
    for cause in (1, 2, 0):
        failed = Result(status="failed", exit_code=3, message="it failed", slot=cause)
        told.status(status(*rows, result=failed, phase=Phase.FINISHED))
        viewer.look()
        assert [row["slot"] for row in viewer.state["slots"] if row["mark"]] == [cause]


def test_whom_the_others_wait_for_is_marked_as_long_as_they_do() -> None:
    told = made()
    viewer = Viewer(told)
    rows = [slot(number, node=number, node_state=NodeState.RUNNING) for number in range(3)]
    suspect = Suspect(slot=1, rank=9)
    words = "nothing has moved for 5 s: rank 9 has not called it"
    told.status(status(*rows, suspect=suspect, finding=f"{words}; try: rdzv logs llama --rank 9"))
    viewer.look()
    marks = [(row["mark"], row["suspect"], row["tone"]) for row in viewer.state["slots"]]
    assert marks == [("", None, "good"), ("waited for", 9, "wait"), ("", None, "good")]
    head = viewer.state["head"]
    assert (head["finding"], head["next_step"]) == (words, "rdzv logs llama --rank 9")
    told.status(status(*rows))
    viewer.look()
    assert [row["mark"] for row in viewer.state["slots"]] == ["", "", ""]
    assert viewer.state["head"]["next_step"] == ""
    failed = Result(status="failed", exit_code=3, message="it failed", slot=2)
    told.status(status(*rows, suspect=suspect, result=failed, phase=Phase.FINISHED))
    viewer.look()
    assert [row["mark"] for row in viewer.state["slots"]] == ["", "", "first cause"]


def test_parts_and_checks_are_changes_and_stay_through_every_status() -> None:
    told = made()
    part, viewer = Part(told), Viewer(told)
    assert viewer.state["parts"] == {}
    for names in (["a", "b"], ["b"]):
        part.take(names)
        viewer.look()
    expected = {"part": {"a": FIRST + 1, "b": FIRST + 2}}
    assert viewer.state["parts"] == told.state()["parts"] == expected
    assert told.changes(FIRST + 1) == {"n": FIRST + 2, "parts": {"part": {"b": FIRST + 2}}}
    told.checks("8 ok")
    told.status(status())
    viewer.look()
    assert viewer.state["head"]["checks"] == "8 ok"
    assert viewer.state["parts"] == expected
    assert viewer.resets == 0


# ---- one after another ---------------------------------------------------------------------------


def test_at_first_it_says_what_it_waits_for_and_what_the_launch_is() -> None:
    state = made().state()
    head = state["head"]
    assert (head["state"], head["tone"], head["sentence"]) == ("starting", "wait", "reading")
    assert (head["command"], head["nodes"], head["host"]) == ("train.py 'a b'", "2", "login")
    assert not any((state["slots"], state["events"], state["parts"], state["epochs"]))
    assert state["n"] == FIRST


def test_nodes_have_numbers_by_slot() -> None:
    told = made()
    assert told.numbers() == {}
    told.status(status(slot(0), slot(3, node=1)))
    assert told.numbers() == {0: None, 3: 1}


@pytest.mark.parametrize(
    ("known", "tone"),
    [
        ({}, "good"),
        ({"ending": True}, "wait"),
        ({"finding": "nothing moves"}, "wait"),
        ({"silence": "no output"}, "wait"),
        ({"phase": Phase.GATHERING}, "wait"),
        ({"phase": Phase.RESTARTING}, "wait"),
    ],
)
def test_a_run_that_does_not_just_run_is_awaited(known: dict[str, Any], tone: str) -> None:
    told = made()
    told.status(status(**known))
    phase = known.get("phase", Phase.RUNNING)
    assert (told.head["state"], told.head["tone"], told.head["over"]) == (phase, tone, False)


@pytest.mark.parametrize(
    ("result", "tone"), [("ok", "good"), ("failed", "bad"), ("cancelled", "off")]
)
def test_a_run_that_has_ended_says_how(result: str, tone: str) -> None:
    told = made()
    how = {"status": result, "message": "so", "hint": "do this"}
    end = Result.model_validate(OK.model_dump() | how)
    told.status(status(phase=Phase.FINISHED, reason="so", result=end))
    head = told.head
    assert (head["state"], head["tone"], head["over"]) == (result, tone, True)
    assert (head["next_step"], head["result"]) == ("do this", end.model_dump(mode="json"))


def test_the_next_step_of_a_failed_run_names_the_rank_whose_log_is_meant() -> None:
    for rank, words in ((3, "rdzv logs llama --rank 3"), (None, "rdzv logs llama")):
        told = made()
        end = Result(status="failed", exit_code=3, message="m", hint="rdzv logs RUN", rank=rank)
        told.status(status(phase=Phase.FINISHED, result=end))
        assert told.head["next_step"] == words


def test_sizes_are_as_the_person_gave_them_or_as_the_registry_has_them() -> None:
    for nodes, least, found in (("1:2", 1, "1:2"), ("", 1, "1:2"), ("", 2, "2")):
        told = Told(LaunchFacts("llama", nodes=nodes), FIRST, "")
        told.status(status(min_nodes=least))
        assert told.head["nodes"] == found


def test_a_silent_registry_is_said_in_whole_seconds_until_it_answers() -> None:
    told = made()
    told.status(status())
    told.silent(3.2, "its registry does not answer")
    n, whole = told.n, 3.0
    assert told.head["silent_seconds"] == whole
    told.silent(3.4, "its registry does not answer")
    assert told.n == n
    told.silent(None, "")
    head = told.head
    assert (head["silent_seconds"], head["trouble"]) == (None, "")


def test_after_the_end_nobody_is_silent() -> None:
    told = made()
    told.ended(End("killed", "its launcher was killed", "cancel it"))
    told.silent(9.0, "it does not answer")
    head = told.head
    assert (head["state"], head["tone"], head["silent_seconds"]) == ("killed", "bad", None)
    assert (head["next_step"], head["result"]) == ("cancel it", None)
    told.say("then this")
    assert told.head["next_step"] == "cancel it; then this"
    told.ended(End("failed", "rank 3 failed", "look at it"))
    assert told.head["next_step"] == "look at it; then this"
    told.say("then this")
    assert told.head["next_step"] == "look at it; then this"


def test_how_it_ended_replaces_what_was_wrong() -> None:
    told = made()
    more = {"trouble": "disk full", "finding": "rank 3", "silence": "no output"}
    told.status(status(remaining_seconds=3.0, **more))
    told.ended(End("ok", "all ended", result=OK))
    head = told.head
    assert (head["state"], head["trouble"], head["finding"], head["silence"]) == ("ok", "", "", "")
    assert head["remaining"] is None
    assert head["result"] == OK.model_dump(mode="json")
    assert head["elapsed"] == 1.0


STOPPED = {"node_state": NodeState.LEFT, "exit_code": 143, "stopped": True}
BROKEN = {"node_state": NodeState.LEFT, "exit_code": 1}


def rows_of(told: Told) -> list[tuple[int, str, str]]:
    """Each slot's tone and mark, in the order of the page's table."""
    rows = sorted(told.state()["slots"], key=lambda row: (-row["worse"], row["slot"]))
    return [(row["slot"], row["tone"], row["mark"]) for row in rows]


@pytest.mark.parametrize("comes_at_the_end", [False, True])
@pytest.mark.parametrize(("certain", "mark"), [(True, "first cause"), (False, "failed first")])
def test_of_a_failed_run_the_first_cause_comes_first_and_who_was_stopped_is_grey(
    comes_at_the_end: bool, certain: bool, mark: str
) -> None:
    result = Result(status="failed", exit_code=1, message="no", slot=2, certain=certain)
    slots = [slot(0, **STOPPED), slot(1, **BROKEN), slot(2, **BROKEN), slot(3, **STOPPED)]
    told = Told(LaunchFacts("llama"), 0, "")
    told.status(status(*slots))
    assert rows_of(told) == [(1, "bad", ""), (2, "bad", ""), (0, "off", ""), (3, "off", "")]
    n = told.n
    if comes_at_the_end:  # as where only result.json has it
        told.ended(End("failed", "no", "", result))
    else:
        told.status(status(*slots, phase=Phase.FINISHED, result=result))
    assert rows_of(told) == [(2, "bad", mark), (1, "bad", ""), (0, "off", ""), (3, "off", "")]
    change = told.changes(n)
    assert change is not None
    assert [row["slot"] for row in change["slots"]] == [2]


@pytest.mark.parametrize("comes_at_the_end", [False, True])
def test_of_a_cancelled_run_no_slot_is_red_whatever_its_agent_ended_with(
    comes_at_the_end: bool,
) -> None:
    result = Result(
        status="cancelled", exit_code=130, message="you stopped it", finding=Standing(words="W")
    )
    failed = {"state": SlotState.FAILED, "detail": "exit code 84"}
    slots = [slot(0, **STOPPED), slot(1, **BROKEN), slot(2, node_state=NodeState.LEFT, **failed)]
    told = made()
    told.status(status(*slots))
    assert [tone for _, tone, _ in rows_of(told)] == ["bad", "bad", "off"]
    if comes_at_the_end:
        told.ended(End("cancelled", "you stopped it", "", result))
    else:
        told.status(status(*slots, phase=Phase.FINISHED, result=result))
    assert rows_of(told) == [(0, "off", ""), (1, "off", ""), (2, "off", "")]
    assert {row["counts_as"] for row in told.state()["slots"]} == {"stopped by rdzv"}
    assert (told.head["tone"], told.head["finding"]) == ("off", "W")


def test_how_long_it_took_is_told_as_everywhere_else() -> None:
    told = made()
    told.status(status(elapsed_seconds=1.0))
    told.ended(End("ok", "all ended", result=OK, took_seconds=3.5))
    assert told.head["elapsed"] == 3.5


def test_a_node_is_stopped_because_of_another_one_that_has_failed() -> None:
    told = made()
    nodes = [slot(5 - number, node=number, nproc_per_node=2) for number in range(3)]
    told.status(status(*nodes))
    assert [told.has_stopped(node) for node in range(3)] == [False] * 3
    assert [told.first_rank(node) for node in range(3)] == [0, 2, 4]
    nodes[1] = nodes[1].model_copy(update={"exit_code": 1})
    nodes[2] = nodes[2].model_copy(update={"exit_code": 143, "stopped": True})
    told.status(status(*nodes))
    assert [told.has_stopped(node) for node in range(3)] == [True, False, True]
    for how, node, expected in (
        ("failed", 0, [False, True, True]),
        ("cancelled", None, [True, True, True]),
        ("ok", None, [False, False, False]),
    ):
        result = Result(status=how, exit_code=0, message="x", node=node)  # type: ignore[arg-type]
        told.ended(End(how, "x", "", result))
        assert [told.has_stopped(node) for node in range(3)] == expected


def test_a_slot_comes_with_its_phases_and_again_when_one_of_both_changes() -> None:
    told = made()
    told.event(event(1, slot=0))
    told.status(status(slot(0, node_state=NodeState.JOINED, hostname="h0"), slot(1)))
    assert [one["phase"] for one in told.state()["slots"][0]["spans"]] == ["joined"]
    assert [one["host"] for one in told.state()["slots"]] == ["h0", ""]
    n = told.n
    told.event(event(2, kind="lost", slot=0))
    change = told.changes(n)
    assert change is not None
    assert [one["slot"] for one in change["slots"]] == [0]
    assert [one["number"] for one in change["events"]] == [2]
    n = told.n
    told.status(status(slot(0, node_state=NodeState.JOINED, hostname="h0"), slot(1)))
    assert told.changes(n) is None


def test_progress_is_told_by_its_event_at_once() -> None:
    told = made()
    told.status(status(slot(0, node_state=NodeState.RUNNING)))
    n = told.n
    said = {"kind": "progressed", "phase": Phase.RUNNING, "progress": "step 7: loss 2"}
    told.event(event(1, slot=0, **said))
    change = told.changes(n)
    assert change is not None
    assert [one["progress"] for one in change["slots"]] == ["step 7: loss 2"]
    told.status(status(slot(0, node_state=NodeState.RUNNING, progress="step 8")))
    assert [one["progress"] for one in told.state()["slots"]] == ["step 8"]
    n = told.n
    for number, where in ((2, None), (3, 5)):  # of the run, and of a slot that is not known yet
        told.event(event(number, slot=where, **said))
    assert "slots" not in (told.changes(n) or {})


def test_what_no_row_shows_of_a_slot_changes_none() -> None:
    told = made()
    told.status(status(slot(0, node_state=NodeState.RUNNING, detail="pid 7")))
    n = told.n
    told.status(status(slot(0, node_state=NodeState.RUNNING, detail="pid 8")))
    assert told.changes(n) is None


def test_rows_of_slots_that_have_not_changed_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def slot_row(slot: SlotStatus, spans: Any) -> Any:
        rows.append(slot.slot)
        return {"slot": slot.slot, "host": slot.hostname, "progress": slot.progress}

    monkeypatch.setattr(told_module, "slot_row", slot_row)
    told = made()
    told.status(status(slot(0), slot(1), slot(2)))
    n = told.n
    told.status(status(slot(0), slot(1, progress="step 9"), slot(2, silent_seconds=1.0)))
    assert rows == [0, 1, 2, 1]
    change = told.changes(n)
    assert change is not None
    assert [one["slot"] for one in change["slots"]] == [1]


def test_the_clock_alone_is_no_change() -> None:
    told = made()
    told.status(status(remaining_seconds=9.0))
    n = told.n
    told.status(status(remaining_seconds=8.0, elapsed_seconds=2.0))
    assert (told.n, told.head["elapsed"], told.head["remaining"]) == (n, 2.0, 8.0)


def test_epochs_that_have_ended_are_in_words() -> None:
    told = made()
    end = EpochEnd(
        epoch=1, message="rank 3 \x1b[2J", exit_code=1, then="restart 1", evidence=["\0"]
    )
    told.status(status(ended=[end]))
    [epoch] = told.state()["epochs"]
    assert (epoch["epoch"], epoch["then"], epoch["evidence"]) == (1, "restart 1", ["?"])
    assert epoch["words"].isprintable()


def test_events_are_bounded_and_older_ones_are_told_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(told_module, "MOST_EVENTS", 500)
    told = made()
    assert told.newest_event == 0
    for number in range(1, 701):
        told.event(event(number))
    assert told.newest_event == 700
    assert [one["number"] for one in told.state()["events"]] == list(range(501, 701))
    assert [one["number"] for one in told.events_before(501)] == list(range(301, 501))
    assert [one["number"] for one in told.events_before(250)] == list(range(201, 250))
    assert told.events_before(201) == []


def test_an_event_that_is_told_again_changes_nothing() -> None:
    told = made()
    for number in (1, 2, 3, 1, 2, 3, 4):
        told.event(event(number))
    assert [one["number"] for one in told.state()["events"]] == [1, 2, 3, 4]


def test_who_was_away_for_long_starts_anew() -> None:
    told = made()
    n = told.n
    for number in range(EVENTS_TOLD):
        told.event(event(number + 1))
    change = told.changes(n)
    assert change is not None
    assert len(change["events"]) == EVENTS_TOLD
    told.event(event(EVENTS_TOLD + 1))
    assert told.changes(n) == {"n": told.n, "reset": True}


@pytest.mark.parametrize("after", [0, FIRST - 1, FIRST + 1, 1 << 60])
def test_a_number_of_somebody_else_is_told_to_start_anew(after: int) -> None:
    told = made()
    assert told.changes(after) == {"n": FIRST, "reset": True}
    assert told.changes(FIRST) is None


def test_what_peers_have_said_is_printable_and_bounded() -> None:
    told, bad = made(), "\x1b[2J\u202e</script>" * 1_000
    told.status(status(slot(0, hostname=bad, problem=bad), reason=bad, trouble=bad, finding=bad))
    told.event(event(1, reason=bad))
    told.ended(End("failed", bad, bad))
    texts = [told.head["sentence"], told.head["next_step"], told.state()["events"][0]["reason"]]
    assert all(text.isprintable() and len(text) <= 4_000 for text in texts)


# ---- in whatever rhythm --------------------------------------------------------------------------

PHASES = st.sampled_from(list(Phase))
SLOTS = st.lists(
    st.builds(
        slot,
        st.integers(0, 3),
        node_state=st.none() | st.sampled_from(list(NodeState)),
        exit_code=st.none() | st.integers(0, 2),
        silent_seconds=st.none() | st.floats(0, 20),
    ),
    max_size=4,
    unique_by=lambda one: one.slot,
)
ENDED = st.lists(st.builds(EpochEnd, epoch=st.integers(1, 3), message=st.just("so")), max_size=2)


def doing(name: str, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Callable[[Told], None]]:
    return st.tuples(*values).map(lambda given: lambda told: getattr(told, name)(*given))


def with_slots(slots: Iterable[SlotStatus], **known: Any) -> RunStatus:
    return status(*slots, **known)


COMES = st.one_of(
    doing(
        "status",
        st.builds(
            with_slots,
            SLOTS,
            phase=PHASES,
            ended=ENDED,
            elapsed_seconds=st.floats(0, 100),
            result=st.none() | st.just(OK),
        ),
    ),
    doing("silent", st.none() | st.floats(0, 9), st.sampled_from(["", "it does not answer"])),
    doing("ended", st.just(End("ok", "all ended", result=OK))),
    doing("say", st.just("see it again")),
)
EVENTS = st.tuples(
    st.sampled_from(["joined", "acked", "exited", "lost", "slot", "progressed"]),
    st.integers(0, 3),
    PHASES,
    st.sampled_from([1, 1, 1, 90, EVENTS_TOLD + 1]),
)
NAMES = st.lists(st.sampled_from("abcd"), max_size=3)
LOOKS = st.sets(st.integers(0, 2))


@given(st.lists(st.tuples(COMES | EVENTS | NAMES, LOOKS), max_size=40), st.integers(0, 5))
@settings(max_examples=examples(150))
def test_a_viewer_ends_with_the_state_in_whatever_rhythm_it_looks(
    story: list[tuple[Any, set[int]]], late: int
) -> None:
    told, number = made(), 0
    part = Part(told)
    viewers = [Viewer(told) for _ in range(3)]
    for at, (what, looks) in enumerate(story):
        if at == late:
            viewers.append(Viewer(told))
        before = told.n
        if callable(what):
            what(told)
        elif isinstance(what, list):
            part.take(what)
        else:
            kind, where, phase, times = what
            for _ in range(times):
                number += 1
                told.event(event(number, kind=kind, slot=where, phase=phase))
        assert told.n >= before
        for index in looks:
            viewers[index].look()
            assert seen(viewers[index].state) == seen(told.state())
    for viewer in viewers:
        viewer.look()
        assert seen(viewer.state) == seen(told.state())
        assert told.changes(viewer.state["n"]) is None


def test_a_command_of_several_lines_stands_on_one() -> None:
    told = Told(LaunchFacts("r", command=["sh", "-c", "echo a\necho b"]), 1, "")
    assert told.head["command"] == "sh -c 'echo a; echo b'"

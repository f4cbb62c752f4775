"""What a launch submits, takes up again, tells the registry of, and ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launcher import ending as ending_of_runs
from launcher import worker_runs
from launcher.ledger import Ledger, LedgerEntry
from launcher.plan import make_plan
from launcher.settings import LaunchSettings
from launcher.worker_runs import WorkerRuns
from rendezvous.compat import timeout
from rendezvous.errors import RunOver, SchedulerError
from rendezvous.schema import NodeState, Phase, RunStatus, SlotNews, SlotState, SlotStatus
from rendezvous.security import JoinString, RegistryPlace, RunKeys
from tests.launcher.fleet import Fleet

LAUNCH = "k7f2a9c1xy"
KEYS = RunKeys(b"s" * 32, "llama", LAUNCH)
LIMIT_SECONDS = 30.0


def join_string(slot: int, generation: int) -> JoinString:
    place = RegistryPlace(("127.0.0.1",), 9)
    token = KEYS.join_token(slot, generation)
    return JoinString(place, "llama", LAUNCH, slot, generation, token, KEYS.row_key, KEYS.probe_key)


def status(*slots: tuple[int, int, int], phase: Phase = Phase.GATHERING) -> RunStatus:
    """Slots as (number, generation, wanted generation)."""
    return RunStatus(
        run="llama",
        launch_id=LAUNCH,
        version=1,
        phase=phase,
        epoch=0,
        reason="waiting",
        min_nodes=4,
        max_nodes=4,
        elapsed_seconds=0.0,
        slots=[
            SlotStatus(
                slot=slot, generation=generation, wanted_generation=wanted, state=SlotState.NONE
            )
            for slot, generation, wanted in slots
        ],
    )


@dataclass
class Stage:
    """Worker runs on a fleet, with a registry that only listens."""

    folder: Path
    fleet: Fleet = field(default_factory=Fleet)
    told: list[tuple[int, int, str, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    over: bool = False
    broken: bool = False
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    launchers: list[WorkerRuns] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "worker-runs.jsonl")

    def launcher(self) -> WorkerRuns:
        """A launcher; a second one is the first one's successor."""
        settings = LaunchSettings(nnodes="4", hosts="off", local_node=False, scheduler="fleet")
        plan = make_plan(
            settings, ["x"], {}, run="llama", launch_id=LAUNCH, source="w.sh", template="text"
        )
        made = WorkerRuns(
            plan,
            join=join_string,
            tell=self._tell,
            say=self.said.append,
            scheduler=self.fleet,
            local=None,
            ledger=self.ledger,
            hurry=self.hurry,
        )
        self.launchers.append(made)
        return made

    async def _tell(self, slot: int, news: SlotNews) -> None:
        if self.broken:
            raise SchedulerError("out of order")
        if self.over and news.state is SlotState.SUBMITTING:
            raise RunOver("the run is over")
        self.told.append((slot, news.generation, news.state.value, news.detail))

    def names(self) -> list[str]:
        """Slot and generation of what the fleet has made, in order."""
        return [name.removeprefix(f"rdzv-{LAUNCH}-") for name in self.fleet.made]

    async def until(self, check: Callable[[], object]) -> None:
        """Wait for it; a part of the launcher that fails, fails here."""
        async with timeout(LIMIT_SECONDS):
            while not check():
                await asyncio.sleep(0.01)


def running(*ranks: int | None) -> RunStatus:
    """A run after its go: the rank of each slot, None for those that the table goes without."""
    found = status(*((slot, 1, 1) for slot in range(len(ranks))), phase=Phase.RUNNING)
    slots = zip(found.slots, ranks, strict=True)
    return found.model_copy(
        update={"slots": [slot.model_copy(update={"rank": rank}) for slot, rank in slots]}
    )


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.hurry.set()
    for launcher in made.launchers:
        await launcher.end_all()


async def test_the_intent_is_told_and_written_before_the_id_and_what_becomes_of_it(
    stage: Stage,
) -> None:
    stage.fleet.open.clear()
    launcher = stage.launcher()
    launcher.see(status((2, 0, 1)), submit=True)
    await stage.until(lambda: stage.ledger.left())
    assert stage.told == [(2, 1, "submitting", "")]
    assert [(e.name, e.handle) for e in stage.ledger.left()] == [(f"rdzv-{LAUNCH}-2-1", "")]
    assert stage.names() == []
    stage.fleet.open.set()
    await stage.until(lambda: (2, 1, "running", "") in stage.told)
    assert [state for _, _, state, _ in stage.told] == ["submitting", "submitted", "running"]
    assert [e.handle for e in stage.ledger.left()] == ["100"]
    stage.hurry.set()
    await launcher.end_all()
    assert (stage.ledger.left(), stage.said) == ([], [])


async def test_each_slot_is_submitted_once_however_often_it_is_wanted(stage: Stage) -> None:
    launcher = stage.launcher()
    for _ in range(3):
        launcher.see(status((1, 0, 1), (2, 0, 1)), submit=True)
        await asyncio.sleep(0)
    await stage.until(lambda: len(stage.fleet.made) == 2)
    launcher.see(status((1, 1, 1), (2, 1, 1)), submit=True)
    await asyncio.sleep(0.1)
    assert stage.names() == ["1-1", "2-1"]


@pytest.mark.parametrize(("phase", "submit"), [(Phase.FINISHED, True), (Phase.GATHERING, False)])
async def test_nothing_is_submitted_for_a_run_that_ends(
    stage: Stage, phase: Phase, submit: bool
) -> None:
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1), phase=phase), submit=submit)
    stage.over = True
    launcher.see(status((2, 0, 1)), submit=True)
    await asyncio.sleep(0.1)
    assert (stage.names(), stage.told) == ([], [])


async def test_a_newer_generation_ends_the_one_that_it_replaces(stage: Stage) -> None:
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: (1, 1, "running", "") in stage.told)
    launcher.see(status((1, 1, 2)), submit=True)
    await stage.until(lambda: stage.fleet.made[f"rdzv-{LAUNCH}-1-1"].state is SlotState.ENDED)
    await stage.until(lambda: (1, 2, "running", "") in stage.told)
    await stage.until(lambda: [e.generation for e in stage.ledger.left()] == [2])
    assert (1, 1, "ended", "") not in stage.told


async def test_a_submission_that_fails_is_told_in_the_schedulers_words(stage: Stage) -> None:
    stage.fleet.answer = "not made"
    stage.launcher().see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: len(stage.told) == 2)
    assert stage.told == [(1, 1, "submitting", ""), (1, 1, "failed", "the fleet is full")]


async def test_what_a_first_try_comes_to_is_told_while_it_is_tried_again(stage: Stage) -> None:
    stage.fleet.trouble = "the fleet answered 500"
    stage.fleet.open.clear()
    stage.launcher().see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: len(stage.told) == 2)
    assert stage.told[-1] == (1, 1, "submitting", "the fleet answered 500")
    stage.fleet.open.set()
    await stage.until(lambda: (1, 1, "running", "") in stage.told)


async def test_nothing_is_tried_again_for_a_run_that_is_over(stage: Stage) -> None:
    stage.fleet.trouble = "the fleet answered 500"
    launcher, tell = stage.launcher(), stage._tell

    async def over_after_the_intent(slot: int, news: SlotNews) -> None:
        await tell(slot, news)
        stage.over = True

    launcher._tell = over_after_the_intent
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: all(task.done() for task in launcher._tasks) and stage.told)
    launcher.see(status((1, 1, 1)), submit=True)
    assert (stage.names(), len(stage.told)) == ([], 1)


async def test_a_run_that_was_made_without_an_answer_is_ended_with_the_launch(
    stage: Stage,
) -> None:
    stage.fleet.answer = "not told"
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: (1, 1, "failed", "no answer from the fleet") in stage.told)
    stage.hurry.set()
    await launcher.end_all()
    assert stage.fleet.made[f"rdzv-{LAUNCH}-1-1"].state is SlotState.ENDED
    assert (stage.ledger.left(), stage.said) == ([], [])


async def test_one_that_ends_before_the_go_is_told_with_its_last_line(stage: Stage) -> None:
    stage.fleet.lines = ["pulling", "no such \x1b[31mimage", "  "]
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: (1, 1, "running", "") in stage.told)
    made = stage.fleet.made[f"rdzv-{LAUNCH}-1-1"]
    made.state, made.detail = SlotState.FAILED, "ImagePullBackOff"
    await stage.until(lambda: len(stage.told) == 4)
    assert stage.told[-1] == (
        (1, 1, "failed", "ImagePullBackOff; its last line: 'no such ?[31mimage'")
    )


async def test_one_that_runs_and_does_not_call_is_told_again_with_its_last_line(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.worker_runs._SAY_AGAIN_SECONDS", 0.0)
    stage.fleet.lines = ["10.0.3.7:29600: timed out"]
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1), (2, 0, 1)), submit=True)
    await stage.until(lambda: {(1, 1, "running", ""), (2, 1, "running", "")} <= {*stage.told})
    told = len(stage.told)
    late = {"state": SlotState.RUNNING, "state_seconds": 20.0}
    here = status((1, 1, 1), (2, 1, 1))
    slots = [slot.model_copy(update=late) for slot in here.slots]
    slots[1] = slots[1].model_copy(update={"node_state": NodeState.JOINED})
    launcher.see(here.model_copy(update={"slots": slots}), submit=True)
    await stage.until(lambda: len(stage.told) > told)
    words = "its last line: '10.0.3.7:29600: timed out'"
    assert set(stage.told[told:]) == {(1, 1, "running", words)}


async def test_after_the_go_the_agents_words_are_enough(stage: Stage) -> None:
    stage.fleet.lines = ["step 100"]
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: (1, 1, "running", "") in stage.told)
    launcher.see(status((1, 1, 1), phase=Phase.RUNNING), submit=True)
    stage.fleet.made[f"rdzv-{LAUNCH}-1-1"].state = SlotState.ENDED
    await stage.until(lambda: (1, 1, "ended", "") in stage.told)


async def test_from_the_go_on_a_worker_run_without_a_rank_is_ended(stage: Stage) -> None:
    launcher = stage.launcher()
    launcher.see(status((0, 0, 1), (1, 0, 1), (2, 0, 1)), submit=True)
    await stage.until(lambda: [each[2] for each in stage.told].count("running") == 3)
    for _ in range(2):  # once, however often it is seen
        launcher.see(running(0, None, 1), submit=True)
    await stage.until(lambda: stage.fleet.told)
    await stage.until(lambda: (1, 1, "ended", "") in stage.told)
    states = {name[-3:]: made.state for name, made in stage.fleet.made.items()}
    assert states == {
        "0-1": SlotState.RUNNING,
        "1-1": SlotState.ENDED,
        "2-1": SlotState.RUNNING,
    }
    assert len(stage.fleet.told) == 1


async def test_a_scheduler_that_cannot_be_asked_is_told_and_asked_again(stage: Stage) -> None:
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: (1, 1, "running", "") in stage.told)
    stage.fleet.down = 1
    await stage.until(
        lambda: (
            stage.told[-2:]
            == [
                (1, 1, "unknown", "error 500"),
                (1, 1, "running", ""),
            ]
        )
    )


async def test_without_room_for_the_intent_nothing_is_submitted(stage: Stage) -> None:
    path = stage.ledger.path
    path.mkdir()
    stage.launcher().see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: stage.said)
    assert stage.said[0].startswith(f"{path} cannot be written, so nothing is submitted: ")
    assert stage.names() == []
    path.rmdir()
    await stage.until(lambda: stage.names() == ["1-1"])


# ---- the launcher after a killed one ------------------------------------------------------------


async def former(stage: Stage, *slots: int, answered: bool = True) -> None:
    """A launcher that was killed when it had submitted these."""
    for slot in slots:
        run = make_plan(
            LaunchSettings(nnodes="4", hosts="off"),
            ["x"],
            {},
            run="llama",
            launch_id=LAUNCH,
            source="w.sh",
            template="text",
        ).worker_run(slot, 1)
        entry = LedgerEntry.of(run, "fleet")
        stage.ledger.begin(entry)
        handle = await stage.fleet.submit(run, "")
        if answered:
            stage.ledger.note(entry.model_copy(update={"handle": handle}))


@pytest.mark.parametrize("answered", [True, False])
async def test_what_a_former_launcher_submitted_is_found_and_only_the_rest_is_submitted(
    stage: Stage, answered: bool
) -> None:
    await former(stage, 1, answered=answered)
    launcher = stage.launcher()
    launcher.see(status((1, 1, 1), (2, 0, 1)), submit=True)
    await stage.until(lambda: (1, 1, "running", "") in stage.told)
    await stage.until(lambda: (2, 1, "running", "") in stage.told)
    assert stage.names() == ["1-1", "2-1"]
    assert [e.handle for e in stage.ledger.left()] == ["100", "101"]
    stage.hurry.set()
    await launcher.end_all()
    assert stage.ledger.left() == []
    assert len(stage.fleet.told) == 2


async def test_what_never_came_to_the_scheduler_is_submitted_as_the_next_generation(
    stage: Stage,
) -> None:
    stage.launcher().see(status((1, 1, 1)), submit=True)
    await stage.until(lambda: (1, 2, "running", "") in stage.told)
    assert stage.names() == ["1-2"]


async def test_an_id_is_enough_where_nobody_can_look_for_a_name(stage: Stage) -> None:
    stage.fleet.finds = False
    await former(stage, 1)
    stage.launcher().see(status((1, 1, 1)), submit=True)
    await stage.until(lambda: (1, 1, "running", "") in stage.told)
    assert stage.names() == ["1-1"]


async def test_one_that_ended_meanwhile_is_replaced(stage: Stage) -> None:
    await former(stage, 1)
    stage.fleet.made[f"rdzv-{LAUNCH}-1-1"].state = SlotState.FAILED
    stage.launcher().see(status((1, 1, 1)), submit=True)
    await stage.until(lambda: (1, 2, "running", "") in stage.told)
    await stage.until(lambda: [e.generation for e in stage.ledger.left()] == [2])


async def test_while_the_scheduler_does_not_answer_nothing_is_submitted_twice(
    stage: Stage,
) -> None:
    await former(stage, 1)
    stage.fleet.down = 3
    stage.launcher().see(status((1, 1, 1)), submit=True)
    await stage.until(lambda: (1, 1, "running", "") in stage.told)
    assert stage.told[0] == (1, 1, "unknown", "error 500")
    assert stage.names() == ["1-1"]


async def test_one_that_is_replaced_while_it_is_looked_for_is_ended_and_not_submitted_twice(
    stage: Stage,
) -> None:
    await former(stage, 1)
    stage.fleet.down = 5
    launcher = stage.launcher()
    launcher.see(status((1, 1, 1)), submit=True)
    await stage.until(lambda: stage.told)
    launcher.see(status((1, 1, 2)), submit=True)
    await stage.until(lambda: (1, 2, "running", "") in stage.told)
    await stage.until(lambda: stage.fleet.made[f"rdzv-{LAUNCH}-1-1"].state is SlotState.ENDED)
    assert stage.names() == ["1-1", "1-2"]


# ---- what a scheduler says of an end -----------------------------------------------------------


async def test_how_a_worker_run_ended_is_known_unless_this_launch_has_ended_it(
    stage: Stage,
) -> None:
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1), (2, 0, 1), (3, 0, 1)), submit=True)
    await stage.until(lambda: [each[2] for each in stage.told].count("running") == 3)
    for slot, words in ((1, "CANCELLED"), (3, "")):
        made = stage.fleet.made[f"rdzv-{LAUNCH}-{slot}-1"]
        made.state, made.detail = SlotState.FAILED, words
    stage.hurry.set()
    await launcher.end_all()
    assert [launcher.words_of_end(slot) for slot in (1, 2, 3, 4)] == ["CANCELLED", "", "", ""]


# ---- the end ------------------------------------------------------------------------------------


async def test_a_submission_that_is_under_way_is_waited_for_and_ended_by_its_id(
    stage: Stage,
) -> None:
    stage.fleet.open.clear()
    stage.fleet.finds = False
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: stage.ledger.left())
    asyncio.get_running_loop().call_later(0.2, stage.fleet.open.set)
    await launcher.end_all()
    assert [handle for handle, _ in stage.fleet.told] == ["100"]
    assert (stage.ledger.left(), stage.said) == ([], [])


async def test_in_a_hurry_a_submission_under_way_is_broken_off_and_looked_for(
    stage: Stage,
) -> None:
    stage.fleet.open.clear()
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: stage.ledger.left())
    stage.hurry.set()
    await launcher.end_all()
    assert (stage.names(), stage.ledger.left(), stage.said) == ([], [], [])


async def test_what_is_left_in_the_end_is_said(stage: Stage) -> None:
    stage.fleet.finds = False
    stage.fleet.answer = "not told"
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    await stage.until(lambda: len(stage.told) == 2)
    await launcher.end_all()
    [left] = stage.said
    assert left == (
        f"worker run rdzv-{LAUNCH}-1-1 (slot 1) may still be there: its submission was not "
        "answered, and this scheduler cannot look for it; look for a run of that name"
    )
    [line] = stage.ledger.path.read_text().splitlines()
    assert json.loads(line)["name"] == f"rdzv-{LAUNCH}-1-1"


async def test_what_does_not_end_for_a_while_is_said_and_need_not_be_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_runs, "_SAY_SECONDS", 0.05)
    stage.fleet.stays = True
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1), (2, 0, 1)), submit=True)
    await stage.until(lambda: len(stage.names()) == 2)
    ending = asyncio.create_task(launcher.end_all())
    await stage.until(lambda: stage.said)
    assert stage.said[0].startswith("waiting for the worker runs of slots 1-2 to end, ")
    monkeypatch.setattr(ending_of_runs, "_HURRY_SECONDS", 0.1)
    stage.hurry.set()
    await asyncio.wait_for(ending, LIMIT_SECONDS)
    assert len(stage.said) == 3
    stage.fleet.stays = False


async def test_a_part_of_the_launcher_that_fails_is_not_lost(stage: Stage) -> None:
    stage.broken = True
    launcher = stage.launcher()
    launcher.see(status((1, 0, 1)), submit=True)
    (part,) = launcher._tasks
    await asyncio.wait({part})
    with pytest.raises(SchedulerError, match="out of order"):
        launcher.see(status((1, 0, 1)), submit=True)

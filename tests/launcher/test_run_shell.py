"""What a launch's shell does for each action: on a virtual clock, in a world in memory."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.plan.plan import Submission, WorkerRun
from launcher.run.footing import Surveyor
from launcher.run.shell import end_left
from launcher.run.values import Fresh, Key, Outcome
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.manual import ManualScheduler
from launcher.state.ledger import Ledger, LedgerEntry
from launcher.state.state_dir import StateDir
from launcher.symmetric.start import group_launch_id
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.run import EventLine, Phase, Result, SlotState
from tests.launcher.world import OK, Port, World, virtual

STARTING = Unavailable("it is being started")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "state")


def left(world: World) -> list[tuple[int, int, str]]:
    return [(e.run.slot, e.run.generation, e.handle) for e in world.state().ledger.left()]


@virtual
async def test_a_launch_from_its_port_to_its_result(world: World) -> None:
    async with world.going() as task:
        assert left(world) == [(0, 1, "100"), (1, 1, "101")]
        world.registry.change(phase=Phase.RUNNING, digest="d1")
        await world.until(lambda: (world.state().path / "report.json").exists())
    assert task.result().verdict.result == OK  # type: ignore[union-attr]
    opened = ["port 29600 opened", "registry started"]
    assert world.log == [*opened, "registry ended", "port 29600 closed", "board closed"]
    assert (left(world), world.state().result(), world.said) == ([], OK, [])
    kept = [world.state().path / f"{name}.json" for name in ("status", "table", "report")]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}


@virtual
async def test_the_registry_hears_the_name_and_the_token_of_what_will_be_submitted(
    world: World,
) -> None:
    world.fleet.trouble = "the fleet answered 500"
    async with world.going(told=8):
        pass
    (intent, troubled, submitted, running) = [n for slot, n in world.registry.told if slot == 1]
    record, keys = world.state().record(), world.state().keys()
    assert record is not None
    assert keys is not None
    assert intent.name == f"rdzv-{record.launch_id}-1-1" == list(world.fleet.made)[1]
    assert intent.token_sha256 == keys.join_token(1, 1).sha256()
    assert troubled.detail == "the fleet answered 500"
    assert (submitted.token_sha256, submitted.name, submitted.handle) == (None, "", "101")
    assert running.state is SlotState.RUNNING


@virtual
async def test_a_ledger_that_cannot_be_written_is_named(world: World) -> None:
    world.registry.down = STARTING
    task = asyncio.create_task(world.go())
    await world.until(lambda: "create" in world.registry.asked)
    path = world.state().ledger.path
    path.mkdir()
    world.registry.down = None
    await world.until(lambda: world.said)
    await asyncio.sleep(5)
    assert list(world.fleet.made) == []
    path.rmdir()
    await world.until(lambda: len(world.fleet.made) == 2)
    world.registry.end()
    await task
    (words,) = world.said
    assert words.startswith(f"{path} cannot be written, so nothing is submitted: ")


@virtual
async def test_what_a_worker_run_printed_last_is_told_in_words(world: World) -> None:
    world.fleet.lines = ["pulling", "no such \x1b[31mimage", "  "]
    async with world.going():
        for made in world.fleet.made.values():
            made.state, made.detail = SlotState.FAILED, "ImagePullBackOff"
        await world.until(lambda: len(world.registry.told) == 8)
    news = world.registry.newest(1)
    assert news is not None
    assert news.detail == "ImagePullBackOff; its last line: 'no such ?[31mimage'"


@virtual
async def test_a_signal_cancels_the_run_and_a_second_one_ends_everything(world: World) -> None:
    task = asyncio.create_task(world.go())
    await world.until(lambda: len(world.registry.told) == 6)
    world.registry.down = Unavailable("nobody answers")
    assert world.signal is not None
    world.signal(signal.SIGHUP)
    await asyncio.sleep(1)
    world.signal(signal.SIGINT)
    assert (await task).signal == signal.SIGHUP
    assert "cancel: SIGHUP at the launcher" in world.registry.asked
    assert world.said == [
        "SIGHUP: ending the run (once more: at once)",
        "SIGINT again: ending everything at once",
    ]
    assert {grace for _, grace in world.fleet.told} == {0.0}
    result = world.state().result()
    assert result is not None
    assert (result.status, result.code, result.exit_code) == ("cancelled", "cancelled", 84)
    assert result.message == "run 'r' was ended at once by a second signal"


@virtual
async def test_a_registry_that_ends_again_and_again_is_named_with_its_last_words(
    world: World,
) -> None:
    task = asyncio.create_task(world.go())
    for count in range(1, 6):
        await world.until(lambda count=count: len(world.processes) == count)  # type: ignore[misc]
        world.processes[-1].over.set_result(1)
    await task
    result = world.state().result()
    assert result is not None
    message = "the registry ended 5 times within 30 s; its last words: no room"
    assert (result.code, result.message) == ("registry_lost", message)
    assert result.hint == f"see {world.state().logs / 'registry.log'}"


@virtual
async def test_14_the_last_line_is_said_when_the_result_is_on_disk_and_the_folder_is_free(
    world: World,
) -> None:
    task = asyncio.create_task(world.run())
    await world.until(lambda: len(world.registry.told) == 6)
    assert (world.state().path / "lock").read_text().startswith(f"pid {os.getpid()} on ")
    assert world.echoed == []
    world.registry.end()
    assert await task == 0
    assert world.echoed == [(f"rdzv: run 'r' ok: {OK.message}", False)]
    assert world.state().result() == OK


CANCELLED = OK.model_copy(update={"status": "cancelled", "exit_code": 84})
FAILED = OK.model_copy(update={"status": "failed", "exit_code": 3})


@pytest.mark.parametrize(
    ("outcome", "result", "code"),
    [
        (Outcome(None), OK, 0),
        (Outcome(None), FAILED, 3),
        (Outcome(None), CANCELLED, 84),  # by `rdzv cancel`
        (Outcome(None, signal=15), CANCELLED, 143),
        (Outcome(None, signal=15), FAILED, 3),
        (Outcome(None, signal=15), OK, 0),
        (Outcome(None, signal=2), None, 130),  # it had not begun
    ],
)
@virtual
async def test_93_the_exit_code_is_the_results_or_that_of_the_signal_which_cancelled_the_run(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Outcome,
    result: Result | None,
    code: int,
) -> None:
    class Ended:
        """A launch that ended so."""

        def __init__(self, *_: object) -> None:
            self.result = result

        async def go(self) -> Outcome:
            return outcome

    monkeypatch.setattr("launcher.run.command.Launch", Ended)
    assert await world.run() == code
    assert len(world.echoed) == (result is not None)


@virtual
async def test_events_are_shown_once(world: World) -> None:
    async with world.going(told=0):
        await world.until(lambda: world.registry.spec)
        for number in (1, 2, 3):
            line = EventLine(number, 0.0, "joined", "a node joined", Phase.GATHERING, 0)
            world.registry.lines.append(line)
            await asyncio.sleep(1)
    assert world.events == [1, 2, 3]


@virtual
async def test_95_what_nobody_expected_ends_everything_and_is_raised(world: World) -> None:
    async def broken(*_: object, **__: object) -> str:
        raise KeyError("x")

    world.fleet.submit = broken  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        await world.go()
    assert "cancel: its launcher failed: KeyError('x')" in world.registry.asked
    assert world.log[-1] == "board closed"
    assert world.state().result() is None


@virtual
async def test_a_board_that_fails_ends_everything_and_is_raised(world: World) -> None:
    def broken(status: object) -> None:
        raise ValueError("no terminal")

    world.status = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="no terminal"):
        await world.go()
    assert "registry ended" in world.log


# --- the launcher after a killed one


async def killed(world: World) -> None:
    """A launcher that was killed when it had submitted both slots."""
    launch, state = world.launch()
    task = asyncio.create_task(launch.go())
    await world.until(lambda: len(world.registry.told) == 6)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    state.release()
    world.log.clear()
    world.registry.asked.clear()


@virtual
async def test_d2_the_next_launcher_takes_up_the_launch_with_the_registry_it_has_asked(
    world: World,
) -> None:
    world.registry.lines = [EventLine(1, 0.0, "joined", "one", Phase.GATHERING, 0)]
    await killed(world)
    world.events.clear()
    async with world.going():
        await world.until(lambda: world.said)
        await asyncio.sleep(5)
    (words,) = world.said
    assert words.startswith("resuming launch ")
    assert world.log.count("registry started") == 1
    assert world.log.count("port 29600 opened") == 1
    assert world.registry.asked.count("create") == 1
    assert len(world.fleet.made) == 2
    assert world.events == []  # D9: they were shown before
    assert left(world) == []


@virtual
async def test_d3_d4_with_other_options_a_new_launch_begins_when_the_ground_is_decided(
    world: World,
) -> None:
    await killed(world)
    before = world.state().record()
    world.registry.down = STARTING
    task = asyncio.create_task(world.go(set=["IMAGE=other"]))
    await world.until(lambda: "status" in world.registry.asked)
    assert world.state().record() == before
    world.registry.down = None
    await world.until(lambda: len(world.registry.told) == 6 and len(world.fleet.made) == 4)
    world.registry.end()
    await task
    assert "its COMMAND or options were others" in world.said[0]
    assert "cancel: its COMMAND or options were others" in world.registry.asked
    assert world.said[1] == "2 worker runs of the former launch may be left: ending what is there"


@virtual
async def test_d5_what_cannot_be_ended_stays_in_the_ledger_of_the_new_launch(world: World) -> None:
    world.fleet.stays = True
    await killed(world)
    world.fleet.poll_seconds = 1.0
    world.registry.end()
    former = sorted(world.fleet.made)
    task = asyncio.create_task(world.go())
    await world.until(lambda: any("may still be there" in words for words in world.said))
    await world.until(lambda: len(world.fleet.made) == 4)
    assert sorted(e.name for e in world.state().ledger.left() if e.former) == former
    world.fleet.stays = False
    world.registry.end()
    await task
    assert sorted(e.name for e in world.state().ledger.left()) == former


@virtual
async def test_d6_a_signal_before_the_launch_leaves_the_former_one_as_it_was(world: World) -> None:
    await killed(world)
    before = (world.state().record(), left(world))
    world.registry.down = STARTING
    task = asyncio.create_task(world.go())
    await world.until(lambda: "status" in world.registry.asked)
    assert world.signal is not None
    world.signal(signal.SIGTERM)
    outcome = await task
    assert (outcome.verdict, outcome.signal) == (None, signal.SIGTERM)
    assert (world.state().record(), left(world)) == before
    assert world.state().result() is None
    assert world.log[-3:] == ["registry ended", "port 29600 closed", "board closed"]


# --- the ground


def test_28_a_new_launch_takes_the_next_port_and_a_symmetric_one_its_own_alone(
    world: World,
) -> None:
    secret = b"s" * 32
    asked = []

    def listen(port: int, *, address: str, exact: bool) -> Port:
        asked.append((port, address, exact))
        return Port(world, port)

    world.listen = listen  # type: ignore[method-assign]
    state = world.state()
    state.acquire()
    own = Surveyor(world.prepared(), state, world).make(Fresh())
    group = replace(world.prepared(), group_secret=secret)
    symmetric = Surveyor(group, state, world).make(Fresh())
    state.release()
    assert asked == [(29_600, "", False), (29_600, "", True)]
    assert own.keys.launch_id != symmetric.keys.launch_id == group_launch_id(secret, "r")
    assert symmetric.keys.secret == secret
    assert (own.spec().managed, symmetric.spec().managed) == (True, False)
    assert (len(own.spec().token_sha256), len(symmetric.spec().token_sha256)) == (0, 2)  # rule 100


@virtual
async def test_29_without_an_address_of_its_own_a_launch_is_refused(world: World) -> None:
    world.addresses = list  # type: ignore[method-assign]
    outcome = await world.go()
    assert outcome.refused is not None
    assert "has no address" in outcome.refused.message
    assert outcome.refused.hint == "name one with --registry-address"
    assert outcome.verdict is None
    assert world.log == ["port 29600 opened", "port 29600 closed", "board closed"]


@pytest.mark.parametrize(
    ("here", "addresses"), [(True, ("127.0.0.1", "::1")), (False, ("10.0.0.1",))]
)
def test_69_a_node_beside_its_registry_joins_by_loopback(
    world: World, here: bool, addresses: tuple[str, ...]
) -> None:
    state = world.state()
    state.acquire()
    footing = Surveyor(world.prepared(local_node=here), state, world).make(Fresh())
    state.release()
    joins = [JoinString.parse(footing.join(Key(slot, 1))) for slot in (0, 1)]
    assert [join.place.addresses for join in joins] == [addresses, ("10.0.0.1",)]
    assert [join.slot for join in joins] == [0, 1]


# --- what a former launch has left


async def test_what_a_former_launch_has_left_is_ended_and_noted(tmp_path: Path) -> None:
    context = SchedulerContext(tmp_path / "submissions", {})
    run = Submission(1, 1, "rdzv-k7f2-1-1", {"NAME": "rdzv-k7f2-1-1"}, "w.sh", "# <<NAME>> it is\n")
    script = await ManualScheduler(context).submit(run, "")
    ledger = Ledger(tmp_path / "worker-runs.jsonl")
    ledger.begin(LedgerEntry(run, "manual"))
    ledger.note(LedgerEntry(run, "manual", script))
    said: list[str] = []
    for _ in range(2):
        assert await end_left(ledger, context, said.append, grace=0.0)
        assert said == ["1 worker run of the former launch may be left: ending what is there"]
    assert (Path(script).exists(), ledger.left()) == (False, [])


async def test_what_was_left_at_a_scheduler_that_is_no_longer_known_is_listed(
    tmp_path: Path,
) -> None:
    profile = str(tmp_path / "gone.toml")
    ledger = Ledger(tmp_path / "worker-runs.jsonl")
    ledger.begin(LedgerEntry(WorkerRun(1, 1, "rdzv-k7f2-1-1", {}, "w.sh"), profile))
    said: list[str] = []
    assert not await end_left(ledger, SchedulerContext(tmp_path, {}), said.append, grace=0.0)
    (words,) = said
    assert words.startswith("worker run rdzv-k7f2-1-1 may still be there: ")
    assert profile in words
    assert len(ledger.left()) == 1


def test_two_launches_entries_of_one_slot_are_told_apart(tmp_path: Path) -> None:
    state = StateDir(tmp_path, "r")
    state.acquire()
    for name, generation in (("rdzv-old-1-3", 3), ("rdzv-gone-1-1", 1)):
        state.ledger.begin(LedgerEntry(WorkerRun(1, generation, name, {}, "w.sh"), "slurm"))
    state.forget_launch(["rdzv-old-1-3"])
    state.ledger.begin(LedgerEntry(WorkerRun(1, 1, "rdzv-new-1-1", {}, "w.sh"), "slurm"))
    state.release()
    found = [(entry.name, entry.former) for entry in state.ledger.entries()]
    assert found == [("rdzv-old-1-3", True), ("rdzv-new-1-1", False)]

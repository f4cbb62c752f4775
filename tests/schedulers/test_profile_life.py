"""What the scheduler of a profile does with a worker run, from its submit to its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from launcher.schedulers import profile
from launcher.schedulers.contract import SERVICE_FAILS
from launcher.schedulers.description import Description
from launcher.schedulers.gate import TRIES
from rendezvous.wire.errors import SchedulerError
from rendezvous.wire.run import SlotState
from tests.schedulers.behaving import REFUSAL
from tests.schedulers.test_profile import BATCH, NO_FIND, ONCE, Bench, Changes, bench, changed
from tests.support.bed import join_text

# ---- submitting ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "submits", "looks"),
    [
        ([], 3, 9),
        ([ONCE], 1, 3),
        ([("[find]", "retry = 'Socket timed out'\n[find]")], 1, 3),
        ([("[find]", "retry = 'Invalid account'\n[find]")], 3, 9),
        ([("[find]", "refused = 'Invalid account'\n[find]")], 1, 0),
    ],
    ids=["any", "never", "not these words", "these words", "for certain"],
)
async def test_a_submit_is_tried_again_only_where_the_profile_says_so(
    tmp_path: Path, changes: list[Changes], submits: int, looks: int
) -> None:
    made = bench(tmp_path, changed(*changes), "refuses")
    error = await made.refused()
    verbs = [call["argv"][0] for call in made.calls()]
    assert [verbs.count("submit"), verbs.count("list")] == [submits, looks]
    assert error.message == f"'batch' ended with exit code 1: {REFUSAL}"


async def test_each_try_that_comes_to_nothing_is_told_before_a_look(tmp_path: Path) -> None:
    made = bench(tmp_path, BATCH, "refuses-once")
    heard = []

    async def trouble(words: str) -> None:
        heard.append((words, len(made.calls())))

    assert await made.scheduler().submit(made.run(), join_text(), trouble=trouble) == "7001"
    assert heard == [(f"'batch' ended with exit code 1: {REFUSAL}", 1)]
    assert len(made.made()) == 1


BUSY = BATCH.replace(
    "retry_submit", "at_once = 2\nbusy = 'dropped[\\s\\S]*^exit code 255$'\nretry_submit", 1
)
DROPS = """#!/bin/sh
echo x >> calls
[ $(wc -l < calls) -gt {count} ] || {{ echo 'connection dropped' >&2; exit {code}; }}
echo job 7 submitted
"""


def dropping(folder: Path, count: int, code: int = 255) -> Bench:
    """A scheduler whose first commands are dropped."""
    made = bench(folder, BUSY)
    (made.bin / "batch").write_text(DROPS.format(count=count, code=code))
    (made.bin / "batch").chmod(0o755)
    made.commands = []  # the program
    return made


async def test_commands_that_are_dropped_are_tried_again_and_one_alone_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scheduler, heard = dropping(tmp_path, 6).scheduler(), []

    async def trouble(words: str) -> None:
        heard.append(words)

    made = dropping(tmp_path, 6)
    submits = [
        scheduler.submit(made.run(slot), join_text(slot), trouble=trouble) for slot in (1, 2, 3)
    ]
    assert await asyncio.gather(*submits) == ["7", "7", "7"]
    assert [*filter(None, heard)] == [
        (
            "'batch' ended with exit code 255: connection dropped; from now on fewer connections "
            "are opened at a time, with growing pauses"
        )
    ]
    assert len(heard) == 6
    assert len((tmp_path / "calls").read_text().split()) == 9


async def test_a_command_that_is_always_dropped_is_no_longer_tried_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = await dropping(tmp_path, 99).refused()
    assert error.message == "'batch' ended with exit code 255: connection dropped"
    assert len((tmp_path / "calls").read_text().split()) == TRIES


async def test_what_is_not_dropped_is_no_reason_for_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = dropping(tmp_path, 1, code=1)
    with pytest.raises(SchedulerError, match="exit code 1: connection dropped"):
        await made.scheduler().find(made.run())
    assert len((tmp_path / "calls").read_text().split()) == 1


async def test_without_find_a_submit_without_an_id_is_an_error_at_once(tmp_path: Path) -> None:
    made = bench(tmp_path, changed(ONCE, NO_FIND), "lost")
    assert made.scheduler().finds is False
    assert await made.scheduler().find(made.run()) is None
    assert "Connection reset by peer" in (await made.refused()).message


async def test_an_id_counts_whatever_the_exit_code_and_the_last_one_is_it(tmp_path: Path) -> None:
    made = bench(tmp_path)
    (made.bin / "batch").write_text(
        "#!/bin/sh\necho 'job 6 submitted\njob 7 submitted'\necho bad >&2\nexit 1\n"
    )
    (made.bin / "batch").chmod(0o755)
    made.commands = []  # the program
    assert await made.submit() == "7"


@pytest.mark.parametrize("word", ["--all", "-1", "x" * 300])
async def test_what_could_pass_for_an_option_is_no_id(tmp_path: Path, word: str) -> None:
    made = bench(tmp_path, changed(ONCE, (r"'^job (\d+) submitted$'", "'^(.+)$'")))
    made.says |= {"submit": (0, word), "list": (0, "")}
    assert "gave no id of a worker run" in (await made.refused()).message


async def test_a_run_that_was_made_twice_by_a_lost_answer_is_ended_twice(tmp_path: Path) -> None:
    made = bench(tmp_path, BATCH, "lost", "late")
    scheduler = made.scheduler()
    scheduler.looks = (0.0,)  # too few: it tries again, and the first one appears later
    handle = await scheduler.submit(made.run(), join_text())
    assert len(made.made()) > 1
    made.turn("queued", looks=9)
    await scheduler.cancel(made.run(), handle, grace_seconds=0.0)
    assert {run["state"] for run in made.made()} == {"ended"}


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (f"{BATCH}\n[hints]\n'no.*queue' = 'is <<QUEUE>> right?'\n'In' = 'b'\n", "is long right?"),
        (f"{BATCH}\n[hints]\n'something else' = 'a'\n", "try it by hand: batch submit --q"),
        (changed(("[find]", "retry = 'Invalid'\n[find]")), SERVICE_FAILS),
    ],
)
async def test_the_hint_of_an_error_fits_its_words(tmp_path: Path, text: str, hint: str) -> None:
    assert (await bench(tmp_path, text, "refuses").refused()).hint.startswith(hint)


async def test_a_missing_command_is_told_with_the_profiles_hint_filled_in(tmp_path: Path) -> None:
    made = bench(tmp_path, changed(("batch-client", "batch-client, for <<QUEUE>>")))
    made.commands = []
    error = await made.refused()
    assert error.message == "the command 'batch' is not on this machine"
    assert error.hint == (
        f"install it, or put it on the launcher's PATH ({made.environ()['PATH']}); "
        "batch comes with the package batch-client, for long"
    )


CLEARING = changed(("[find]", '[clear]\nargv = ["batch", "list", "clear", "<<NAME>>"]\n[find]'))


def clearings(made: Bench) -> int:
    """How often what a run has beside it was taken away."""
    return [call["argv"] for call in made.calls()].count(["list", "clear", made.run().name])


async def test_what_a_refused_submit_has_made_beside_the_run_is_taken_away(tmp_path: Path) -> None:
    made = bench(tmp_path, CLEARING.replace(*ONCE), "refuses")
    assert "Invalid account" in (await made.refused()).message
    assert made.calls()[-1]["argv"][1:2] == ["clear"]
    assert clearings(made) == 1


@pytest.mark.parametrize("state", ["ended", "failed"])
async def test_what_lies_beside_a_run_is_taken_away_once_it_is_over(
    tmp_path: Path, state: str
) -> None:
    made = bench(tmp_path, CLEARING, "lost")
    scheduler = made.scheduler()
    handle = await scheduler.submit(made.run(), join_text())
    await scheduler.describe(made.run(), handle)
    assert clearings(made) == 0
    made.turn(state)
    for _ in range(2):
        await scheduler.describe(made.run(), handle)
    assert clearings(made) == 1


# ---- afterwards ---------------------------------------------------------------------------------

LISTING = changed(
    ('argv = ["batch", "show", "<<ID>>"]', 'list = true\nargv = ["batch", "list"]'),
    (r"'^state=(?P<state>\S+) reason=(?P<detail>.*)$'", r"'^<<ID>> \S+ (?P<state>\S+)$'"),
    ('"WAITING"', '"queued"'),
    ("poll_seconds = 0.1", "poll_seconds = 600"),
)


async def test_one_answer_is_for_all_worker_runs_as_long_as_it_is_fresh(tmp_path: Path) -> None:
    made = bench(tmp_path, LISTING)
    scheduler = made.scheduler()
    handles = [await scheduler.submit(made.run(slot), join_text(slot)) for slot in (1, 2)]
    assert (await scheduler.describe(made.run(1), handles[0])).state is SlotState.QUEUED
    handles.append(await scheduler.submit(made.run(3), join_text(3)))
    before = len(made.calls())
    asked = [scheduler.describe(made.run(slot), handles[slot - 1]) for slot in (1, 2, 3)]
    assert await asyncio.gather(*asked) == [Description(SlotState.QUEUED)] * 3
    assert len(made.calls()) == before + 1
    await scheduler.cancel(made.run(1), handles[0], grace_seconds=0.0)
    assert (await scheduler.describe(made.run(1), handles[0])).detail == "ended"
    assert (await scheduler.describe(made.run(2), handles[1])).state is SlotState.QUEUED
    assert len(made.calls()) == before + 3


async def test_what_was_cancelled_is_looked_for_soon_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may wait for its end, and it is still listed at first."""
    monkeypatch.setattr(profile, "_SOON_SECONDS", 0.0)
    made = bench(tmp_path, LISTING)
    scheduler = made.scheduler()
    handle = await scheduler.submit(made.run(), join_text())
    for _ in range(2):
        await scheduler.describe(made.run(), handle)
    before = len(made.calls())
    await scheduler.cancel(made.run(), handle, grace_seconds=0.0)
    for _ in range(2):
        await scheduler.describe(made.run(), handle)
    assert len(made.calls()) == before + 3


async def test_a_run_that_was_listed_and_is_no_longer_is_gone(tmp_path: Path) -> None:
    made = bench(tmp_path, LISTING)
    scheduler = made.scheduler()
    scheduler.poll_seconds = 0.0
    handle = await scheduler.submit(made.run(), join_text())
    assert (await scheduler.describe(made.run(), handle)).state is SlotState.QUEUED
    (made.kept / "run-7001.json").unlink()
    gone = Description(SlotState.ENDED, "the scheduler no longer knows it")
    assert await scheduler.describe(made.run(), handle) == gone


@pytest.mark.parametrize("text", [LISTING, BATCH])
async def test_a_run_never_seen_is_gone_only_at_the_third_look(tmp_path: Path, text: str) -> None:
    made = bench(tmp_path, text)
    scheduler = made.scheduler()
    scheduler.poll_seconds = 0.0
    states = [(await scheduler.describe(made.run(), "4711")).state for _ in range(3)]
    assert states == [SlotState.UNKNOWN, SlotState.UNKNOWN, SlotState.ENDED]


@pytest.mark.parametrize(
    ("said", "described"),
    [
        ("state=WAITING reason=because", Description(SlotState.QUEUED, "because")),
        ("state=WAITING reason=", Description(SlotState.QUEUED)),
        ("state=ACTIVE reason=node  n1", Description(SlotState.RUNNING, "node n1")),
        ("state=DONE reason=", Description(SlotState.ENDED, "DONE")),
        ("state=BROKEN reason=exit code 3", Description(SlotState.FAILED, "BROKEN: exit code 3")),
        ("state=ODD reason=", Description(SlotState.UNKNOWN, "ODD")),
        ("state=ODD reason=why", Description(SlotState.UNKNOWN, "ODD: why")),
        ("maintenance until 6 am", Description(SlotState.UNKNOWN, "maintenance until 6 am")),
    ],
)
async def test_the_detail_is_what_the_state_does_not_say(
    tmp_path: Path, said: str, described: Description
) -> None:
    made = bench(tmp_path)
    made.says["show"] = (0, said)
    assert await made.describe() == described


@pytest.mark.parametrize(
    ("said", "state", "preempted"),
    [
        ("state=TAKEN reason=", SlotState.FAILED, True),  # no other list has it
        ("state=BROKEN reason=was TAKEN.", SlotState.FAILED, True),
        ("state=BROKEN reason=MISTAKEN", SlotState.FAILED, False),
        ("state=ACTIVE reason=TAKEN soon", SlotState.RUNNING, True),
        ("state=DONE reason=TAKEN", SlotState.ENDED, True),
        ("state=WAITING reason=TAKEN before", SlotState.QUEUED, False),
        ("state=ODD reason=TAKEN", SlotState.UNKNOWN, False),
    ],
)
async def test_a_state_or_a_word_of_its_reason_says_that_a_run_is_preempted(
    tmp_path: Path, said: str, state: SlotState, *, preempted: bool
) -> None:
    made = bench(
        tmp_path, changed(('failed = ["BROKEN"]', 'failed = ["BROKEN"]\npreempted = ["TAKEN"]'))
    )
    made.says["show"] = (0, said)
    found = await made.describe()
    assert (found.state, found.preempted) == (state, preempted)


@pytest.mark.parametrize(
    ("said", "state", "detail"),
    [
        ("F 0", SlotState.ENDED, "F"),
        ("F", SlotState.ENDED, "F"),
        ("F 00", SlotState.ENDED, "F"),
        ("F 3", SlotState.FAILED, "F, exit code 3"),
        ("F 0 node c3", SlotState.ENDED, "F: node c3"),
        ("X 1", SlotState.FAILED, "X, exit code 1"),
        ("R 0", SlotState.RUNNING, ""),
    ],
)
async def test_a_run_that_is_over_has_failed_with_any_exit_code_but_0(
    tmp_path: Path, said: str, state: SlotState, detail: str
) -> None:
    pattern = r"'^(?P<state>[A-Z])(?: (?P<code>\d+))?(?: (?P<detail>.+))?$'"
    words = [('["DONE"]', '["F"]'), ('["BROKEN"]', '["X"]'), ('["ACTIVE"]', '["R"]')]
    text = changed((r"'^state=(?P<state>\S+) reason=(?P<detail>.*)$'", pattern), *words)
    made = bench(tmp_path, text)
    made.says["show"] = (0, said)
    assert await made.describe() == Description(state, detail)


async def test_a_spec_that_ends_the_run_too_stays_to_be_needed_again(tmp_path: Path) -> None:
    made = bench(tmp_path, changed(('"--grace=<<GRACE>>", ', '"--file=<<SPEC>>", ')))
    handle = await made.submit()
    for _ in range(2):
        await made.scheduler().cancel(made.run(), handle, grace_seconds=0.0)
    assert made.files() == [made.submissions / f"{made.run().name}.sh"]


async def test_a_cancel_that_fails_is_fine_when_the_run_is_over(tmp_path: Path) -> None:
    made = bench(tmp_path)
    made.says["kill"] = (1, "")
    handle = await made.submit()
    with pytest.raises(SchedulerError, match="'batch' ended with exit code 1"):
        await made.scheduler().cancel(made.run(), handle, grace_seconds=0.0)
    made.turn("failed")
    await made.scheduler().cancel(made.run(), handle, grace_seconds=0.0)


async def test_the_grace_is_told_in_whole_seconds_and_never_cut(tmp_path: Path) -> None:
    made = bench(tmp_path)
    handle = await made.submit()
    await made.scheduler().cancel(made.run(), handle, grace_seconds=32.1)
    assert made.calls()[-1]["argv"] == ["kill", "--grace=33", handle]
    assert made.scheduler().cancel_words(made.run(), handle) == f"batch kill --grace=0 {handle}"


NO_FOLLOW = (BATCH[BATCH.index("follow = ") :], "")


@pytest.mark.parametrize(
    ("changes", "follow", "followed"),
    [([], False, False), ([], True, True), ([NO_FOLLOW], True, False)],
)
async def test_logs_are_the_newest_lines_and_are_followed_where_they_can_be(
    tmp_path: Path, changes: list[Changes], follow: bool, followed: bool
) -> None:
    made = bench(tmp_path, changed(*changes))
    handle = await made.submit()
    lines = made.scheduler().logs(made.run(), handle, lines=2, follow=follow)
    assert [line async for line in lines] == [f"line 1 of {handle}", f"line 2 of {handle}"]
    assert ("--follow" in made.calls()[-1]["argv"]) is followed

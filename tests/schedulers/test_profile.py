"""What a profile file may say, and what the scheduler that it makes does with it."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from launcher.cli import main
from launcher.plan.plan import HIDDEN, Submission
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SERVICE_FAILS, SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.profile_file import read_profile
from rendezvous.wire.errors import SchedulerError, TemplateError, UsageError
from rendezvous.wire.run import SlotState
from tests.support.bed import OWN, Bed, join_text, time_out_once

BATCH = OWN["batch"].read_text()


def written(folder: Path, text: str) -> Path:
    """A profile file; each has a name of its own, since a file is read once."""
    path = folder / f"p{len(list(folder.iterdir()))}.toml"
    path.write_text(text)
    (folder / "batch.sh").write_text(OWN["batch"].with_suffix(".sh").read_text())
    return path


def changed(old: str, new: str) -> str:
    """The example profile with one place changed."""
    assert BATCH.count(old) >= 1
    return BATCH.replace(old, new)


class Bench(Bed):
    """A bed of the example, with its profile changed."""

    text = BATCH
    spec: tuple[str, str] | None = None

    def scheduler(self) -> ProfileScheduler:
        """See the base class."""
        path = written(self.folder / "profiles", self.text)
        made = scheduler_entry(str(path)).make(SchedulerContext(self.submissions, self.environ()))
        assert isinstance(made, ProfileScheduler)
        made.looks, made.try_again_seconds = (0.0, 0.0, 0.0), 0.0
        return made

    def own_run(self, source: str, template: str, **more: Any) -> Submission:
        """A worker run with a spec of its own."""
        run = self.run()
        return Submission(
            run.slot, run.generation, run.name, run.variables | more, source, template
        )


def bench(folder: Path, text: str = BATCH, *faults: str) -> Bench:
    made = Bench("batch", folder, set(faults))
    (folder / "profiles").mkdir(exist_ok=True)
    made.text = text
    return made


# ---- the file -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (changed('secret = "spec"', 'secret = "argv"'), "secret: Input should be 'spec', 'stdin'"),
        (changed('secret = "spec"', 'scret = "spec"'), "secret: Field required"),
        (BATCH + "\n[cancle]\n", "cancle: Extra inputs are not permitted"),
        (changed("gone = 'no such job'", "gnoe = ''"), "describe.gnoe: Extra inputs"),
        (
            changed("poll_seconds = 0.1", "poll_seconds = 0"),
            "poll_seconds: Input should be greater",
        ),
        (changed('"<<SPEC>>"', '"<<RDZV_JOIN>>"'), "submit.argv: <<RDZV_JOIN>> is a secret"),
        (
            changed("needs =", 'environ = { J = "<<RDZV_JOIN>>" }\nneeds ='),
            "<<RDZV_JOIN>> is a secret",
        ),
        (changed(r"job (\d+)", r"job (\d+"), "submit.id: not a regular expression: missing )"),
        (changed(r"job (\d+)", r"job \d+"), "submit.id: group 1 is the id"),
        (changed("(?P<state>", "(?P<stat>"), "describe.state: it needs a group (?P<state>...)"),
        (changed('["ACTIVE"]', '["DONE"]'), "states: DONE cannot stand for two states"),
        (changed("queued =", "waiting ="), "states.waiting: Extra inputs"),
        (
            changed('"<<SPEC>>"]', '"<<SPEC>>"]\nstdin = "join"'),
            "submit.stdin = 'join' goes with secret = 'stdin'",
        ),
        (
            changed('secret = "spec"', 'secret = "stdin"').replace(
                '"<<SPEC>>"]', '"<<SPEC>>"]\nstdin = "spec"'
            ),
            "secret = 'stdin': standard input cannot carry the spec too",
        ),
        (
            changed('secret = "spec"', 'secret = "file"\nsecret_path = "env.RDZV_JOIN"'),
            "secret_path goes with secret = 'spec'",
        ),
        (BATCH[: BATCH.index("[find]")] + BATCH[BATCH.index("[describe]") :], "retry_submit needs"),
        (
            changed("retry_submit = true", "").replace("[find]", "retry = 'x'\n[find]"),
            "submit.retry goes with retry_submit = true",
        ),
        (changed("gone = 'no such job'", "list = true"), "describe: list = true: the command is"),
        (
            changed("gone = 'no such job'", "list = true").replace('"show", "<<ID>>"', '"list"'),
            "describe: list = true: 'state' has to pick the run",
        ),
    ],
)
def test_a_profile_that_cannot_be_meant_is_refused_with_its_key(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert caught.value.message.startswith(f"{path}: {message}")
    assert caught.value.hint == "docs/schedulers.md shows the format, key by key"


def test_a_profile_that_is_not_toml_or_not_there_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "summary = ")
    with pytest.raises(
        UsageError, match=rf"the scheduler profile {path} is not TOML: Invalid value"
    ):
        scheduler_entry(str(path))
    with pytest.raises(UsageError, match=r"cannot be read: .*No such file"):
        scheduler_entry(str(tmp_path / "none.toml"))


def test_a_users_profile_finds_its_spec_beside_itself_and_is_named_by_its_file(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, BATCH)
    entry = scheduler_entry(str(path))
    assert entry.spec == str(tmp_path / "batch.sh")
    assert entry.commands == ("batch",)
    assert entry.make(SchedulerContext(tmp_path, {})).name == path.stem


# ---- variables ----------------------------------------------------------------------------------


def test_a_variable_that_the_profile_needs_and_nobody_gave_is_named(tmp_path: Path) -> None:
    needing = changed('needs = ["QUEUE"]', 'needs = ["QUEUE", "HOST", "ZONE", "IMAGE"]')
    made = bench(tmp_path, needing.replace('"kill"', '"kill", "<<HOST>>", "<<ZONE>>"'))
    name = made.scheduler().name
    with pytest.raises(UsageError) as caught:
        made.scheduler().prepare(made.run(), HIDDEN)
    assert caught.value.message.endswith("needs the variable HOST and ZONE")
    assert caught.value.message.startswith(f"the scheduler '{name[0]}")
    assert caught.value.hint == (
        "give it with --hostlist, --hostfile or --set HOST=... and --set ZONE=..."
    )


@pytest.mark.parametrize("word", ["<<QUEU>>", "x<<QUEU>>y"])
@pytest.mark.parametrize("table", ["submit", "kill"])
async def test_a_word_that_nothing_can_fill_is_refused_before_anything_is_run(
    tmp_path: Path, table: str, word: str
) -> None:
    made = bench(tmp_path, changed(f'"{table}"', f'"{table}", "{word}"'))
    with pytest.raises(TemplateError) as caught:
        await made.scheduler().submit(made.run(), join_text())
    assert "word:3: <<QUEU>> has no variable of that name" in caught.value.message
    assert caught.value.hint == "did you mean <<QUEUE>>?"
    assert made.calls() == []


async def test_a_list_alone_in_a_word_gives_its_items_and_one_line_elsewhere(
    tmp_path: Path,
) -> None:
    made = bench(tmp_path, changed('"<<SPEC>>"]', '"<<SPEC>>", "<<COMMAND>>", "x<<COMMAND>>"]'))
    await made.scheduler().submit(made.run(), join_text())
    command = made.run().variables["COMMAND"]
    assert isinstance(command, list)
    assert made.calls()[0]["argv"][-len(command) - 1 :] == [*command, f"x{shlex.join(command)}"]


VALUES = ['it\'s "x"', "a: b", "#no", "a|b&c;d", "0123", "yes", "12e4567", "-n", "한국어 中文", ""]


@pytest.mark.parametrize("value", [*VALUES, "two\nlines"])
async def test_values_reach_the_command_as_they_are(tmp_path: Path, value: str) -> None:
    made = bench(tmp_path)
    run = made.own_run("spec.sh", "x=<<QUEUE>>\nj=<<RDZV_JOIN>>\n", QUEUE=value)
    await made.scheduler().submit(run, join_text())
    assert made.calls()[0]["argv"][1] == f"--queue={value}"


def test_a_profiles_own_variables_have_defaults_that_set_overrides(tmp_path: Path) -> None:
    text = changed(
        "[submit]", '[variables]\nZONE = "eu"\nMORE = ["-v"]\nSIZE = 3\n\n[submit]'
    ).replace('"submit"', '"<<ZONE>>-<<SIZE>>", "<<MORE>>", "submit"')
    made = bench(tmp_path, text)
    shown = made.scheduler().prepare(made.run(), HIDDEN)
    assert shown.startswith("# batch eu-3 -v submit --queue=long ")
    run = made.own_run("spec.sh", "<<ZONE>>", ZONE="us", MORE="-p 22 -o 'a b'", SIZE="9")
    spec = made.submissions / f"{run.name}.sh"
    assert made.scheduler().prepare(run, HIDDEN) == (
        f"# batch us-9 -p 22 -o 'a b' submit --queue=long --name={run.name} {spec}\nus"
    )
    with pytest.raises(UsageError, match="--set MORE: No closing quotation"):
        made.scheduler().prepare(made.own_run("spec.sh", "", MORE="'"), HIDDEN)


async def test_variables_in_a_regular_expression_are_taken_literally(tmp_path: Path) -> None:
    made = bench(tmp_path)
    await made.scheduler().submit(made.run(), join_text())
    run = made.run()
    any_name = Submission(1, 1, ".*", run.variables | {"NAME": ".*"}, run.source, run.template)
    assert await made.scheduler().find(run) == "7001"
    assert await made.scheduler().find(any_name) is None


# ---- the secret ---------------------------------------------------------------------------------


async def test_a_secret_on_standard_input_is_alone_there_and_on_no_disk(tmp_path: Path) -> None:
    made = bench(tmp_path, changed('secret = "spec"', 'secret = "stdin"'))
    run = made.own_run("spec.sh", "rdzv worker")
    assert made.scheduler().prepare(run, HIDDEN).splitlines()[0].endswith(".sh < join")
    await made.scheduler().submit(run, join_text())
    assert made.calls()[0]["stdin"] == join_text()
    assert [path.read_text() for path in made.files()] == ["rdzv worker"]


async def test_a_secret_in_a_file_is_named_to_command_and_spec_and_removed_at_the_end(
    tmp_path: Path,
) -> None:
    text = changed('secret = "spec"', 'secret = "file"').replace('"<<SPEC>>"', '"<<JOIN_FILE>>"')
    made = bench(tmp_path, text)
    run = made.own_run("spec.sh", "mount <<JOIN_FILE>>")
    path = made.submissions / f"{run.name}.join"
    assert made.scheduler().prepare(run, HIDDEN).endswith(f"\nmount {path}")
    handle = await made.scheduler().submit(run, join_text())
    assert made.files() == [path]
    assert path.read_text() == join_text()
    assert path.stat().st_mode & 0o777 == 0o600
    await made.scheduler().cancel(run, handle, grace_seconds=0.0)
    assert made.files() == []


@pytest.mark.parametrize("channel", ["stdin", "file"])
def test_a_spec_that_mentions_the_secret_is_refused_where_it_travels_otherwise(
    tmp_path: Path, channel: str
) -> None:
    made = bench(tmp_path, changed('secret = "spec"', f'secret = "{channel}"'))
    with pytest.raises(TemplateError, match="<<RDZV_JOIN>> has no variable of that name"):
        made.scheduler().prepare(made.run(), HIDDEN)


async def test_a_spec_on_standard_input_is_on_no_disk(tmp_path: Path) -> None:
    text = changed(', "<<SPEC>>"]', ']\nstdin = "spec"')
    made = bench(tmp_path, text)
    with pytest.raises(SchedulerError):
        await made.scheduler().submit(made.run(), join_text())
    assert made.calls()[0]["stdin"] == made.scheduler().render(made.run(), join_text())
    assert made.files() == []


PATHS = changed('secret = "spec"', 'secret = "spec"\nsecret_path = "env.J"\nname_path = "name"')


def test_secret_and_name_are_set_in_a_parsed_spec_that_does_not_mention_them(
    tmp_path: Path,
) -> None:
    made = bench(tmp_path, PATHS)
    template = "name: worker-<<NODE_RANK>>  # <<NAME>>\nport: 0123\nrun: |\n  a\n  b\n"
    run = made.own_run("w.yaml", template)
    text = made.scheduler().render(run, join_text())
    assert text.splitlines()[:2] == ["port: 0123", "run: |"]
    assert yaml.safe_load(text)["env"] == {"J": join_text()}
    assert yaml.safe_load(text)["name"] == run.name
    found = json.loads(
        made.scheduler().render(made.own_run("w.json", '{"env": {"A": 1}}'), join_text())
    )
    assert found == {"env": {"A": 1, "J": join_text()}, "name": run.name}


def test_a_spec_that_mentions_secret_and_name_is_left_alone(tmp_path: Path) -> None:
    made = bench(tmp_path, PATHS)
    text = made.scheduler().render(made.own_run("w.yaml", "a: <<NAME>>\nb: <<RDZV_JOIN>>"), HIDDEN)
    assert yaml.safe_load(text) == {"a": made.run().name, "b": HIDDEN}


@pytest.mark.parametrize(
    ("source", "template", "message"),
    [
        ("w.sh", "true", "w.sh: env.J cannot be set, since it is neither YAML nor JSON"),
        ("w.yaml", "env: [a]", "w.yaml: env.J cannot be set: what it lies in is no mapping"),
        ("w.yaml", "", "w.yaml: env.J cannot be set: what it lies in is no mapping"),
        ("w.json", '{"env": 3}', "w.json: env.J cannot be set: what it lies in is no mapping"),
    ],
)
def test_a_spec_in_which_the_secret_has_no_place_is_refused(
    tmp_path: Path, source: str, template: str, message: str
) -> None:
    made = bench(tmp_path, PATHS)
    with pytest.raises(TemplateError) as caught:
        made.scheduler().prepare(made.own_run(source, template), HIDDEN)
    assert caught.value.message == message


# ---- submitting ---------------------------------------------------------------------------------


async def test_a_submit_that_is_refused_once_is_tried_again_and_makes_one_run(
    tmp_path: Path,
) -> None:
    made = bench(tmp_path, BATCH, "refuses-once")
    assert await made.scheduler().submit(made.run(), join_text()) == "7001"
    assert len(made.made()) == 1


@pytest.mark.parametrize(
    ("text", "submits", "looks"),
    [
        (BATCH, 3, 9),
        (changed("retry_submit = true", ""), 1, 3),
        (changed("[find]", "retry = 'Socket timed out'\n[find]"), 1, 3),
        (changed("[find]", "retry = 'Invalid account'\n[find]"), 3, 9),
        (changed("[find]", "refused = 'Invalid account'\n[find]"), 1, 0),
    ],
    ids=["any", "never", "not these words", "these words", "for certain"],
)
async def test_a_submit_is_tried_again_only_where_the_profile_says_so(
    tmp_path: Path, text: str, submits: int, looks: int
) -> None:
    made = bench(tmp_path, text, "refuses")
    with pytest.raises(SchedulerError) as caught:
        await made.scheduler().submit(made.run(), join_text())
    verbs = [call["argv"][0] for call in made.calls()]
    assert [verbs.count("submit"), verbs.count("list")] == [submits, looks]
    assert caught.value.message == (
        "slot 1: 'batch' ended with exit code 1: error: Invalid account or partition: no-such-queue"
    )


async def test_each_try_that_comes_to_nothing_is_told_at_once_and_before_it_is_looked_for(
    tmp_path: Path,
) -> None:
    made = bench(tmp_path, BATCH, "refuses-once")
    heard = []

    async def trouble(words: str) -> None:
        heard.append((words, len(made.calls())))

    await made.scheduler().submit(made.run(), join_text(), trouble=trouble)
    words = "'batch' ended with exit code 1: error: Invalid account or partition: no-such-queue"
    assert heard == [(words, 1)]


@pytest.mark.parametrize(("fault", "runs"), [("hangs", 0), ("hangs-after", 1)])
async def test_a_submit_that_does_not_answer_is_ended_and_its_run_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, runs: int
) -> None:
    made = bench(tmp_path, changed("retry_submit = true", ""), fault)
    time_out_once(monkeypatch, made.made if runs else made.calls)
    if runs:
        assert await made.scheduler().submit(made.run(), join_text()) == "7001"
    else:
        with pytest.raises(SchedulerError, match=r"slot 1: 'batch' did not answer in time"):
            await made.scheduler().submit(made.run(), join_text())
    assert len(made.made()) == runs


async def test_without_find_a_submit_without_an_id_is_an_error_at_once(tmp_path: Path) -> None:
    text = changed("retry_submit = true", "")
    text = text[: text.index("[find]")] + text[text.index("[describe]") :]
    made = bench(tmp_path, text, "lost")
    assert made.scheduler().finds is False
    assert await made.scheduler().find(made.run()) is None
    with pytest.raises(SchedulerError, match="Connection reset by peer"):
        await made.scheduler().submit(made.run(), join_text())


async def test_an_id_counts_whatever_the_exit_code_and_the_last_one_is_it(tmp_path: Path) -> None:
    made = bench(tmp_path)
    script = "#!/bin/sh\necho 'job 6 submitted\njob 7 submitted'\necho bad >&2\nexit 1\n"
    (made.bin / "batch").write_text(script)
    assert await made.scheduler().submit(made.run(), join_text()) == "7"


@pytest.mark.parametrize("word", ["--all", "-1", "x" * 300])
async def test_what_could_pass_for_an_option_is_no_id(tmp_path: Path, word: str) -> None:
    text = changed(r"'^job (\d+) submitted$'", "'^(.+)$'")
    made = bench(tmp_path, text.replace("retry_submit = true", ""))
    (made.bin / "batch").write_text(f"#!/bin/sh\n[ $1 = list ] || echo '{word}'\n")
    with pytest.raises(SchedulerError, match="there is no worker run"):
        await made.scheduler().submit(made.run(), join_text())


async def test_a_run_that_was_made_twice_by_a_lost_answer_is_ended_twice(tmp_path: Path) -> None:
    made = bench(tmp_path, BATCH, "lost", "late")
    scheduler = made.scheduler()
    scheduler.looks = (0.0,)  # too few: it tries again, and the first one appears later
    handle = await scheduler.submit(made.run(), join_text())
    assert len(made.made()) > 1
    for run in made.made():
        (made.kept / f"run-{run['id']}.json").write_text(json.dumps(run | {"looks": 9}))
    await scheduler.cancel(made.run(), handle, grace_seconds=0.0)
    assert {run["state"] for run in made.made()} == {"ended"}


@pytest.mark.parametrize(
    ("hints", "hint"),
    [
        ("[hints]\n'no.*queue' = 'is <<QUEUE>> right?'\n'Invalid' = 'b'\n", "is long right?"),
        ("[hints]\n'something else' = 'a'\n", "try it by hand: batch "),
        ("retry = 'Invalid'", SERVICE_FAILS),
    ],
)
async def test_the_hint_of_an_error_fits_its_words(tmp_path: Path, hints: str, hint: str) -> None:
    text = f"{BATCH}\n{hints}"
    if hints.startswith("retry"):
        text = changed("[find]", f"{hints}\n\n[find]")
    made = bench(tmp_path, text, "refuses")
    with pytest.raises(SchedulerError) as caught:
        await made.scheduler().submit(made.run(), join_text())
    assert caught.value.hint.startswith(hint)


async def test_a_missing_command_is_an_error_with_the_profiles_hint_filled_in(
    tmp_path: Path,
) -> None:
    made = bench(tmp_path, changed("batch-client", "batch-client, for <<QUEUE>>"))
    (made.bin / "batch").unlink()
    with pytest.raises(SchedulerError) as caught:
        await made.scheduler().submit(made.run(), join_text())
    assert caught.value.message == "slot 1: the command 'batch' is not on this machine"
    assert caught.value.hint == (
        f"install it, or put it on the launcher's PATH ({made.environ()['PATH']}); "
        "batch comes with the package batch-client, for long"
    )


async def test_without_a_hint_the_command_to_try_by_hand_is_shown(tmp_path: Path) -> None:
    made = bench(tmp_path, BATCH, "nothing")
    with pytest.raises(SchedulerError) as caught:
        await made.scheduler().submit(made.run(), join_text())
    argv = made.calls()[0]["argv"]
    assert caught.value.hint == f"try it by hand: batch {shlex.join(argv)}"


async def test_a_spec_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    made = bench(tmp_path)
    (tmp_path / "state").write_text("")
    with pytest.raises(SchedulerError, match=r"slot 1: .*\.sh cannot be written: Not a directory"):
        await made.scheduler().submit(made.run(), join_text())


CLEARING = changed("[find]", '[clear]\nargv = ["batch", "list", "clear", "<<NAME>>"]\n[find]')


async def test_what_a_refused_submit_has_made_beside_the_run_is_taken_away(tmp_path: Path) -> None:
    made = bench(tmp_path, CLEARING.replace("retry_submit = true", ""), "refuses")
    with pytest.raises(SchedulerError, match="Invalid account"):
        await made.scheduler().submit(made.run(), join_text())
    assert clearings(made) == 1
    assert made.calls()[-1]["argv"] == ["list", "clear", made.run().name]


@pytest.mark.parametrize("state", ["ended", "failed"])
async def test_what_a_run_has_beside_it_is_taken_away_once_it_is_over(
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


def clearings(made: Bed) -> int:
    """How often that was asked for."""
    return [call["argv"] for call in made.calls()].count(["list", "clear", made.run().name])


# ---- afterwards ---------------------------------------------------------------------------------

LISTING = changed('argv = ["batch", "show", "<<ID>>"]', 'list = true\nargv = ["batch", "list"]')
LISTING = LISTING.replace(
    r"'^state=(?P<state>\S+) reason=(?P<detail>.*)$'", r"'^<<ID>> \S+ (?P<state>\S+)$'"
).replace('"WAITING"', '"queued"')


async def test_one_answer_is_for_all_worker_runs_as_long_as_it_is_fresh(tmp_path: Path) -> None:
    made = bench(tmp_path, LISTING.replace("poll_seconds = 0.1", "poll_seconds = 600"))
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


async def test_a_run_that_was_listed_and_is_no_longer_is_gone(tmp_path: Path) -> None:
    made = bench(tmp_path, LISTING.replace("poll_seconds = 0.1", "poll_seconds = 0.001"))
    scheduler = made.scheduler()
    handle = await scheduler.submit(made.run(), join_text())
    assert (await scheduler.describe(made.run(), handle)).state is SlotState.QUEUED
    (made.kept / "run-7001.json").unlink()
    await asyncio.sleep(0.01)
    gone = Description(SlotState.ENDED, "the scheduler no longer knows it")
    assert await scheduler.describe(made.run(), handle) == gone


@pytest.mark.parametrize(
    "text", [LISTING.replace("poll_seconds = 0.1", "poll_seconds = 0.001"), BATCH]
)
async def test_a_run_that_was_never_seen_is_gone_only_at_the_third_look(
    tmp_path: Path, text: str
) -> None:
    made = bench(tmp_path, text)
    scheduler, states = made.scheduler(), []
    for _ in range(3):
        states.append((await scheduler.describe(made.run(), "4711")).state)
        await asyncio.sleep(0.01)
    assert states == [SlotState.UNKNOWN, SlotState.UNKNOWN, SlotState.ENDED]


async def test_an_answer_without_a_state_is_unknown_and_is_shown(tmp_path: Path) -> None:
    made = bench(tmp_path)
    (made.bin / "batch").write_text("#!/bin/sh\necho maintenance until 6 am\n")
    found = await made.scheduler().describe(made.run(), "7001")
    assert found == Description(SlotState.UNKNOWN, "maintenance until 6 am")


@pytest.mark.parametrize(
    ("state", "detail", "described"),
    [
        ("WAITING", "because", Description(SlotState.QUEUED, "because")),
        ("WAITING", "", Description(SlotState.QUEUED)),
        ("ACTIVE", "node  n1", Description(SlotState.RUNNING, "node n1")),
        ("DONE", "", Description(SlotState.ENDED, "DONE")),
        ("BROKEN", "exit code 3", Description(SlotState.FAILED, "BROKEN: exit code 3")),
        ("ODD", "", Description(SlotState.UNKNOWN, "ODD")),
        ("ODD", "why", Description(SlotState.UNKNOWN, "ODD: why")),
    ],
)
async def test_the_detail_is_what_the_state_does_not_say(
    tmp_path: Path, state: str, detail: str, described: Description
) -> None:
    made = bench(tmp_path)
    (made.bin / "batch").write_text(f"#!/bin/sh\necho 'state={state} reason={detail}'\n")
    assert await made.scheduler().describe(made.run(), "7001") == described


async def test_a_spec_that_ends_the_run_too_stays_since_it_may_be_needed_again(
    tmp_path: Path,
) -> None:
    made = bench(tmp_path, changed('"--grace=<<GRACE>>", ', '"--file=<<SPEC>>", '))
    handle = await made.scheduler().submit(made.run(), join_text())
    await made.scheduler().cancel(made.run(), handle, grace_seconds=0.0)
    await made.scheduler().cancel(made.run(), handle, grace_seconds=0.0)
    assert made.files() == [made.submissions / f"{made.run().name}.sh"]


async def test_a_cancel_that_fails_is_fine_when_the_run_is_over(tmp_path: Path) -> None:
    made = bench(
        tmp_path, changed("[logs]", "#").split("[cancel]")[0] + '[cancel]\nargv = ["false"]'
    )
    scheduler = made.scheduler()
    handle = await scheduler.submit(made.run(), join_text())
    with pytest.raises(SchedulerError, match="slot 1: 'false' ended with exit code 1"):
        await scheduler.cancel(made.run(), handle, grace_seconds=0.0)
    made.turn("failed")
    await scheduler.cancel(made.run(), handle, grace_seconds=0.0)


async def test_the_grace_is_told_in_whole_seconds_and_never_cut(tmp_path: Path) -> None:
    made = bench(tmp_path)
    handle = await made.scheduler().submit(made.run(), join_text())
    await made.scheduler().cancel(made.run(), handle, grace_seconds=32.1)
    assert made.calls()[-1]["argv"] == ["kill", "--grace=33", handle]
    assert made.scheduler().cancel_words(made.run(), handle) == f"batch kill --grace=0 {handle}"


async def test_logs_are_the_newest_lines_and_can_be_followed(tmp_path: Path) -> None:
    made = bench(tmp_path)
    handle = await made.scheduler().submit(made.run(), join_text())
    newest = [f"line 1 of {handle}", f"line 2 of {handle}"]
    lines = made.scheduler().logs(made.run(), handle, lines=2, follow=False)
    assert [line async for line in lines] == newest
    following = made.scheduler().logs(made.run(), handle, lines=2, follow=True)
    assert [await anext(following), await anext(following)] == newest
    await following.aclose()  # type: ignore[attr-defined]


async def test_after_a_restart_the_name_is_enough(tmp_path: Path) -> None:
    """A restarted launcher has a worker run's name and variables, and no template."""
    made = bench(tmp_path)
    handle = await made.scheduler().submit(made.run(), join_text())
    run = Submission(1, 1, made.run().name, made.run().variables, "", "")
    assert await made.scheduler().find(run) == handle
    assert (await made.scheduler().describe(run, handle)).state is SlotState.QUEUED
    await made.scheduler().cancel(run, handle, grace_seconds=0.0)
    assert made.files() == []


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
    text = changed(r"'^state=(?P<state>\S+) reason=(?P<detail>.*)$'", pattern)
    text = text.replace('["DONE"]', '["F"]').replace('["BROKEN"]', '["X"]')
    made = bench(tmp_path, text.replace('["ACTIVE"]', '["R"]'))
    (made.bin / "batch").write_text(f"#!/bin/sh\necho '{said}'\n")
    assert await made.scheduler().describe(made.run(), "7") == Description(state, detail)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (".", "/work/job"),
        ("src/../code", "/work/job/code"),
        ("/data", "/data"),
        ("azureml:code:3", "azureml:code:3"),
        ("git+ssh://host/repository", "git+ssh://host/repository"),
    ],
)
def test_a_path_is_taken_from_the_launchers_folder(tmp_path: Path, given: str, sent: str) -> None:
    made = bench(tmp_path, changed('needs = ["QUEUE"]', 'needs = ["QUEUE"]\npaths = ["CODE"]'))
    run = made.own_run("worker.json", '{"code": "<<CODE>>"}', CODE=given, CWD="/work/job")
    assert f'"code": "{sent}"' in made.scheduler().prepare(run, HIDDEN)


@pytest.mark.parametrize(
    ("length", "name"), [(15, r"r[a-z2-7]{10}-1-1"), (63, r"rdzv-to-be-made-1-1")]
)
def test_a_launch_names_its_worker_runs_as_the_profile_says(
    tmp_path: Path, length: int, name: str
) -> None:
    bench(tmp_path)
    path = written(tmp_path / "profiles", changed("poll_s", f"name_length = {length}\npoll_s"))
    argv = ["launch", "--dry-run", "--scheduler-profile", str(path), "--set", "QUEUE=long"]
    shown = CliRunner().invoke(main, [*argv, "--nnodes", "2", "--", "train.py"])
    assert shown.exit_code == 0, shown.output
    assert re.search(rf"--name={name} ", shown.output)


def test_a_name_cannot_be_shorter_than_what_tells_worker_runs_apart(tmp_path: Path) -> None:
    path = written(tmp_path, changed("poll_s", "name_length = 14\npoll_s"))
    with pytest.raises(
        UsageError, match="name_length: Input should be greater than or equal to 15"
    ):
        read_profile(path)

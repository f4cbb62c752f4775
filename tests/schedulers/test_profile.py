"""What a profile file may say, and what the scheduler that it makes does with it."""

from __future__ import annotations

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
from launcher.schedulers.contract import SchedulerContext
from launcher.schedulers.description import Description
from launcher.schedulers.profile import ProfileScheduler
from launcher.schedulers.profile_file import read_profile
from rendezvous.wire.errors import SchedulerError, TemplateError, UsageError
from tests.support.bed import OWN, Bed, join_text

BATCH = OWN["batch"].read_text()
Changes = tuple[str, str]


def changed(*changes: Changes) -> str:
    """The example profile with places changed."""
    text = BATCH
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def written(folder: Path, text: str) -> Path:
    """A profile file; each has a name of its own, since a file is read once."""
    path = folder / f"p{len(list(folder.iterdir()))}.toml"
    path.write_text(text)
    (folder / "batch.sh").write_text(OWN["batch"].with_suffix(".sh").read_text())
    return path


class Bench(Bed):
    """A bed of the example, with its profile changed."""

    text = BATCH

    def scheduler(self) -> ProfileScheduler:
        """See the base class."""
        (self.folder / "profiles").mkdir(exist_ok=True)
        path = written(self.folder / "profiles", self.text)
        context = SchedulerContext(self.submissions, self.environ())
        made = self.played(scheduler_entry(str(path)).make(context))
        assert isinstance(made, ProfileScheduler)
        return made

    def own_run(self, source: str, template: str, **more: Any) -> Submission:
        """A worker run with a spec of its own."""
        run = self.run()
        variables = run.variables | more
        return Submission(run.slot, run.generation, run.name, variables, source, template)

    async def submit(self) -> str:
        """Submit slot 1's worker run."""
        return await self.scheduler().submit(self.run(), join_text())

    async def describe(self) -> Description:
        """What is said of a worker run."""
        return await self.scheduler().describe(self.run(), "7001")

    async def refused(self) -> SchedulerError:
        """The error of a submit."""
        with pytest.raises(SchedulerError) as caught:
            await self.submit()
        return caught.value


def bench(folder: Path, text: str = BATCH, *faults: str) -> Bench:
    made = Bench("batch", folder, set(faults))
    made.text = text
    return made


# ---- the file -----------------------------------------------------------------------------------

ONCE = ("retry_submit = true", "")
STDIN = ('secret = "spec"', 'secret = "stdin"')
FILE = ('secret = "spec"', 'secret = "file"')
NO_FIND = (BATCH[BATCH.index("[find]") : BATCH.index("[describe]")], "")
LAST = '"<<SPEC>>"]'
LIST = ("gone = 'no such job'", "list = true")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([('secret = "spec"', 'secret = "argv"')], "secret: Input should be 'spec', 'stdin'"),
        ([("secret =", "scret =")], "scret: unknown key"),
        ([('secret = "spec"', "")], "secret: this key is missing"),
        ([("summary = ", "summary = 3 #")], "summary: must be text"),
        ([("[find]", "[fnid]")], "fnid: unknown key"),
        ([("[logs]", "[cancle]\n[logs]")], "cancle: unknown key"),
        ([("gone = 'no such job'", "gnoe = ''")], "describe.gnoe: unknown key"),
        ([("poll_seconds = 0.1", "poll_seconds = 0")], "poll_seconds: Input should be greater"),
        ([("poll_s", "name_length = 14\npoll_s")], "name_length: Input should be greater than or"),
        ([('"<<SPEC>>"', '"<<RDZV_JOIN>>"')], "submit.argv: <<RDZV_JOIN>> is a secret"),
        ([("needs", 'environ = { J = "<<RDZV_JOIN>>" }\nneeds')], "<<RDZV_JOIN>> is a secret"),
        ([(r"job (\d+)", r"job (\d+")], "submit.id: not a regular expression: missing )"),
        ([(r"job (\d+)", r"job \d+")], "submit.id: group 1 is the id"),
        ([("(?P<state>", "(?P<stat>")], "describe.state: it needs a group (?P<state>...)"),
        ([('["ACTIVE"]', '["DONE"]')], "states: DONE cannot mean two states"),
        ([("queued =", "waiting =")], "states.waiting: unknown key"),
        ([(LAST, f'{LAST}\nstdin = "join"')], "submit.stdin = 'join' goes with secret = 'stdin'"),
        ([STDIN, (LAST, f'{LAST}\nstdin = "spec"')], "secret = 'stdin': standard input cannot"),
        ([FILE, ("poll_s", 'secret_path = "a"\npoll_s')], "secret_path goes with secret = 'spec'"),
        ([NO_FIND], "retry_submit needs"),
        ([ONCE, ("[find]", "retry = 'x'\n[find]")], "submit.retry goes with retry_submit = true"),
        ([LIST], "describe: list = true: the command is"),
        ([LIST, ('"show", "<<ID>>"', '"list"')], "describe: list = true: 'state' must select"),
    ],
)
def test_a_profile_that_cannot_be_meant_is_refused_with_its_key(
    tmp_path: Path, changes: list[Changes], message: str
) -> None:
    path = written(tmp_path, changed(*changes))
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert caught.value.message.startswith(f"{path}: {message}")
    near = {
        "cancle: unknown key": "'cancel'",
        "describe.gnoe: unknown key": "'gone'",
        "scret: unknown key": "'secret'",
        "fnid: unknown key": "'find'",
    }.get(message)
    explained = "'rdzv docs schedulers' explains every key"
    assert caught.value.hint == (f"did you mean {near}?" if near else explained)


def test_a_profile_that_is_not_toml_or_not_there_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "summary = ")
    with pytest.raises(UsageError, match=rf"scheduler profile {path} is not TOML: Invalid value"):
        scheduler_entry(str(path))
    with pytest.raises(UsageError, match=r"cannot be read: .*No such file"):
        scheduler_entry(str(tmp_path / "none.toml"))


def test_a_users_profile_finds_its_spec_beside_it_and_is_named_by_its_file(tmp_path: Path) -> None:
    path = written(tmp_path, BATCH)
    entry = scheduler_entry(str(path))
    assert entry.spec == str(tmp_path / "batch.sh")
    assert entry.commands == ("batch",)
    assert entry.make(SchedulerContext(tmp_path, {})).name == path.stem


# ---- variables ----------------------------------------------------------------------------------


def test_a_variable_that_the_profile_needs_and_nobody_gave_is_named(tmp_path: Path) -> None:
    needs = ('needs = ["QUEUE"]', 'needs = ["QUEUE", "HOST", "ZONE", "IMAGE"]')
    made = bench(tmp_path, changed(needs, ('"kill"', '"kill", "<<HOST>>", "<<ZONE>>"')))
    with pytest.raises(UsageError) as caught:
        made.scheduler().prepare(made.run(), HIDDEN)
    assert caught.value.message == "the scheduler 'p0' needs HOST and ZONE"
    assert caught.value.hint == ("add --hostlist, --hostfile or --set HOST=... and --set ZONE=...")


@pytest.mark.parametrize("word", ["<<QUEU>>", "x<<QUEU>>y"])
@pytest.mark.parametrize(
    ("table", "number"), [("submit", 3), ("list", 3), ("show", 3), ("kill", 3), ("--follow", 5)]
)
async def test_a_word_that_nothing_can_fill_is_refused_before_anything_is_run(
    tmp_path: Path, table: str, number: int, word: str
) -> None:
    made = bench(tmp_path, changed((f'"{table}"', f'"{table}", "{word}"')))
    with pytest.raises(TemplateError) as caught:
        await made.submit()
    assert f"word:{number}: <<QUEU>> has no variable of that name" in caught.value.message
    assert caught.value.hint == "did you mean <<QUEUE>>?"
    assert made.calls() == []


async def test_a_value_comes_as_it_is_and_a_list_alone_gives_its_items(tmp_path: Path) -> None:
    words = ('"<<SPEC>>"]', '"<<SPEC>>", "<<COMMAND>>", "x<<COMMAND>>"]')
    made, value = bench(tmp_path, changed(words)), 'it\'s "x": b #no\n한국어'
    run = made.own_run("spec.sh", "x=<<QUEUE>>\nj=<<RDZV_JOIN>>\n", QUEUE=value)
    await made.scheduler().submit(run, join_text())
    command, argv = run.variables["COMMAND"], made.calls()[0]["argv"]
    assert isinstance(command, list)
    assert argv[-len(command) - 1 :] == [*command, f"x{shlex.join(command)}"]
    assert argv[1] == f"--queue={value}"


def test_a_profiles_own_variables_have_defaults_that_set_overrides(tmp_path: Path) -> None:
    variables = '[variables]\nZONE = "eu"\nMORE = ["-v"]\nSIZE = 3\n\n[submit]'
    words = ('"submit"', '"<<ZONE>>-<<SIZE>>", "<<MORE>>", "submit"')
    made = bench(tmp_path, changed(words, ("[submit]", variables)))
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
    await made.submit()
    any_name = made.own_run("", "", NAME=".*")
    assert await made.scheduler().find(made.run()) == "7001"
    assert await made.scheduler().find(any_name) is None


REMOTE = ("/data", "azureml:code:3", "git+ssh://host/repository")


@pytest.mark.parametrize(
    ("given", "sent"),
    [(".", "/srv/job"), ("src/../code", "/srv/job/code"), *zip(REMOTE, REMOTE, strict=True)],
)
def test_a_path_is_taken_from_the_launchers_folder(tmp_path: Path, given: str, sent: str) -> None:
    made = bench(tmp_path, changed(("needs =", 'paths = ["CODE"]\nneeds =')))
    run = made.own_run("worker.json", '{"code": "<<CODE>>"}', CODE=given, CWD="/srv/job")
    assert f'"code": "{sent}"' in made.scheduler().prepare(run, HIDDEN)


def test_a_launch_names_its_worker_runs_as_the_profile_says(tmp_path: Path) -> None:
    path = written(tmp_path, changed(("poll_s", "name_length = 15\npoll_s")))
    argv = ["launch", "--dry-run=full", "--scheduler-profile", str(path), "--set", "QUEUE=long"]
    shown = CliRunner().invoke(main, [*argv, "--nnodes", "2", "--", "train.py"])
    assert shown.exit_code == 0, shown.output
    assert re.search(r"--name=r[a-z2-7]{10}-1-1 ", shown.output)


# ---- the secret ---------------------------------------------------------------------------------


async def test_a_secret_on_standard_input_is_alone_there_and_on_no_disk(tmp_path: Path) -> None:
    made = bench(tmp_path, changed(STDIN))
    run = made.own_run("spec.sh", "rdzv worker")
    assert (
        made.scheduler()
        .prepare(run, HIDDEN)
        .splitlines()[0]
        .endswith(".sh, with the join string on standard input")
    )
    await made.scheduler().submit(run, join_text())
    assert made.calls()[0]["stdin"] == join_text()
    assert [path.read_text() for path in made.files()] == ["rdzv worker"]


async def test_a_secret_in_a_file_is_named_to_both_and_removed_at_the_end(tmp_path: Path) -> None:
    made = bench(tmp_path, changed(FILE, ('"<<SPEC>>"', '"<<JOIN_FILE>>"')))
    run = made.own_run("spec.sh", "mount <<JOIN_FILE>>")
    path = made.submissions / f"{run.name}.join"
    assert made.scheduler().prepare(run, HIDDEN).endswith(f"\nmount {path}")
    handle = await made.scheduler().submit(run, join_text())
    assert made.files() == [path]
    assert path.read_text() == join_text()
    assert path.stat().st_mode & 0o777 == 0o600
    await made.scheduler().cancel(run, handle, grace_seconds=0.0)
    assert made.files() == []


@pytest.mark.parametrize("channel", [STDIN, FILE])
def test_a_spec_that_mentions_the_secret_is_refused_where_it_travels_otherwise(
    tmp_path: Path, channel: Changes
) -> None:
    made = bench(tmp_path, changed(channel))
    with pytest.raises(TemplateError, match="<<RDZV_JOIN>> has no variable of that name"):
        made.scheduler().prepare(made.run(), HIDDEN)


async def test_a_spec_on_standard_input_is_on_no_disk(tmp_path: Path) -> None:
    made = bench(tmp_path, changed((', "<<SPEC>>"]', ']\nstdin = "spec"')))
    made.says["submit"] = (0, "job 7 submitted")
    await made.submit()
    assert made.calls()[0]["stdin"] == made.scheduler().render(made.run(), join_text())
    assert made.files() == []


PATHS = changed(('secret = "spec"', 'secret = "spec"\nsecret_path = "env.J"\nname_path = "name"'))
HOLDER = "env.J cannot be set: its parent is not a mapping"


def test_secret_and_name_are_set_in_a_parsed_spec_that_mentions_none(tmp_path: Path) -> None:
    scheduler, own_run = bench(tmp_path, PATHS).scheduler(), bench(tmp_path).own_run
    run = own_run("w.yaml", "name: worker-<<NODE_RANK>>  # <<NAME>>\nport: 0123\nrun: |\n  a\n")
    text = scheduler.render(run, join_text())
    assert text.splitlines()[:2] == ["port: 0123", "run: |"]
    assert yaml.safe_load(text)["env"] == {"J": join_text()}
    assert yaml.safe_load(text)["name"] == run.name
    found = json.loads(scheduler.render(own_run("w.json", '{"env": {"A": 1}}'), join_text()))
    assert found == {"env": {"A": 1, "J": join_text()}, "name": run.name}
    text = scheduler.render(own_run("w.yaml", "a: <<NAME>>\nb: <<RDZV_JOIN>>"), HIDDEN)
    assert yaml.safe_load(text) == {"a": run.name, "b": HIDDEN}


@pytest.mark.parametrize(
    ("source", "template", "message"),
    [
        ("w.sh", "true", "env.J cannot be set, since it is neither YAML nor JSON"),
        ("w.yaml", "env: [a]", HOLDER),
        ("w.yaml", "", HOLDER),
        ("w.json", '{"env": 3}', HOLDER),
    ],
)
def test_a_spec_in_which_the_secret_has_no_place_is_refused(
    tmp_path: Path, source: str, template: str, message: str
) -> None:
    made = bench(tmp_path, PATHS)
    with pytest.raises(TemplateError) as caught:
        made.scheduler().prepare(made.own_run(source, template), HIDDEN)
    assert caught.value.message == f"{source}: {message}"

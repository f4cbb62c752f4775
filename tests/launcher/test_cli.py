"""The command line: help, errors of two lines with their exit code, secrets, missing packages."""

from __future__ import annotations

import ast
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
from click.testing import CliRunner

import launcher
from launcher.cli import help as help_module
from launcher.cli import main, process
from launcher.cli.help import SECTIONS, code_help, feature_commands
from launcher.cli.process import LAUNCHER_PACKAGES, log_to_file, log_to_stderr, secret_text
from launcher.plan.plan import WorkerRun
from launcher.prepare.preparation import prepare
from launcher.run_file.fields import flag_of
from launcher.schedulers.catalog import known_schedulers
from launcher.settings import BenchSettings, LaunchSettings, ServeSettings
from launcher.show.installation import how_to_install
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.feature import Feature, Lazy, declared
from rendezvous.secret_variables import anonymous_file, path_of
from rendezvous.talk.credentials import RunKeys, new_secret
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    group_token_text,
    parse_group_token,
)
from rendezvous.wire.errors import ExitCode, JoinTimeout, UsageError
from rendezvous.wire.run import RunReport
from tests.launcher.command import launched, rdzv
from tests.launcher.commands import OF_FEATURES
from tests.support.registry import running
from tests.support.sources import nodes
from tests.test_packages import modules, tree
from worker.contracts import OWN
from worker.options import Settings
from worker.settings import WorkerSettings

pytestmark = pytest.mark.usefixtures("bare")

# In an interpreter that has none of the launcher's packages: what each command line says.
BARE = """
import json, sys
packages, lines = json.loads(sys.argv[1])
for name in packages:
    sys.modules[name] = None
from click.testing import CliRunner
import rdzv_command
rdzv_command.install_features()
from launcher.cli import main
found = []
for line in lines:
    result = CliRunner().invoke(main, line.split(), prog_name="rdzv")
    found.append([result.exit_code, result.stderr, isinstance(result.exception, Exception)])
print(json.dumps(found))
"""
BEHIND = (
    "the number of nodes is missing: --nnodes is after 'train.py', so it belongs to that program"
)
JOINLESS = "RDZV_JOIN is not set: this worker does not know which run to join"
DRY = "launch --scheduler manual --rdzv-id r --nnodes 2 --dry-run full"


def commands(group: click.Group = main, *before: str) -> Iterator[str]:
    for name, command in group.commands.items():
        yield " ".join((*before, name))
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)


# ---- help ---------------------------------------------------------------------------------------


WITH_SETTINGS: dict[str, type[Settings]] = {
    "launch": LaunchSettings,
    "bench": BenchSettings,
    "worker": WorkerSettings,
    "serve": ServeSettings,
}


@pytest.mark.parametrize("words", ["", *commands()])
def test_every_command_explains_itself_and_what_runs_its_exit_codes(words: str) -> None:
    long, short = (rdzv(*words.split(), flag) for flag in ("--help", "-h"))
    assert (long.exit_code, long.stderr, long.stdout) == (0, "", short.stdout)
    assert long.stdout.startswith(f"Usage: {f'rdzv {words}'.strip()} ")
    if words in WITH_SETTINGS:
        long = rdzv(*words.split(), "--help-all")
    text = " ".join(long.stdout.split())
    codes = {f" {code.value} {code_help(code)}" in text for code in ExitCode}
    assert codes == {words in ("", *WITH_SETTINGS, "schedulers check")}


@pytest.mark.parametrize("words", [*commands()])
def test_the_examples_of_a_command_are_command_lines_that_it_takes(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDZV_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('command = "train.py"')
    text = re.sub(r"\\\n +", "", rdzv(*words.split(), "--help").stdout)
    examples = re.findall(rf"\b(rdzv {words}(?: [^)\n>]+)?)(?:[)>].*)?$", text, re.MULTILINE)
    assert "Example" in text
    assert len(examples) > 1  # the first one is the usage
    for line in examples[1:]:
        command: click.Command = main
        rest = shlex.split(line)[1:]
        while isinstance(command, click.Group) and rest and rest[0] in command.commands:
            command = command.commands[rest.pop(0)]
        command.make_context(line, rest)


@pytest.mark.parametrize("command", [*WITH_SETTINGS])
def test_the_short_help_fits_a_page_and_the_long_one_has_every_option(command: str) -> None:
    short, long = (rdzv(command, flag).stdout for flag in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 60
    assert max(map(len, short.splitlines())) <= 80
    shown = {
        flag_of(name, field)
        for name, field in WITH_SETTINGS[command].model_fields.items()
        if "'hidden': True" not in str(field.json_schema_extra)
    }
    assert {flag for flag in shown if not re.search(rf"(?:  |, | / ){flag}\b", long)} == set()
    assert "--help-all  " in short


def test_every_page_that_a_message_names_is_there() -> None:
    """No message names a file of the checkout, which an installation may lack."""
    every = [node for name in modules() for node in nodes(tree(name))]
    docstrings = {id(node.value) for node in every if isinstance(node, ast.Expr)}
    files = {file for feature in declared() for file in feature.files}
    texts = [
        node.value
        for node in every
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in docstrings and node.value not in files
    ]
    named = {page for text in texts for page in re.findall(r"rdzv docs ([a-z-]+)", text)}
    assert {"checks", "schedulers", "frameworks", "symmetric"} <= named
    for page in named:
        assert rdzv("docs", page).stdout.startswith("# ")
    assert [text for text in texts if re.search(r"(docs|examples)/[a-z_]+\.", text)] == []
    assert {line.split()[0] for line in rdzv("docs").stdout.splitlines()} >= named
    assert rdzv("docs", "chekcs").stderr.endswith("did you mean 'checks'?\n")
    first, *found = rdzv("docs", "check").stdout.splitlines()
    assert first == "There is no page 'check': did you mean 'checks'? It is mentioned in:"
    assert "checks" in {line.split()[0] for line in found}
    first, *found = rdzv("docs", "nomad-jobs").stdout.splitlines()  # as another page may be called
    assert first == "There is no page 'nomad-jobs'. It is mentioned in:"
    assert found[0].split()[0] == "schedulers"
    assert rdzv("docs", "wire").stdout.startswith("# The wire")  # of docs/internals


def test_a_newcomer_is_shown_sixteen_options_of_launch() -> None:
    shown = re.findall(r"^  (?:-f, )?(--[a-z-]+)", rdzv("launch", "--help").stdout, re.MULTILINE)
    assert len(set(shown) - {"--help-all"}) == 16
    listed = re.findall(r"^  ([a-z][a-z-]*)  ", rdzv("--help").stdout, re.MULTILINE)
    assert (listed[0], sorted(listed)) == ("launch", sorted(main.commands))


def test_every_command_has_a_section_of_the_help_and_no_list_names_what_only_rdzv_uses() -> None:
    shown = rdzv("--help").stdout
    assert {name for names in SECTIONS.values() for name in names} == {*main.commands}
    assert "\nCommands:" not in shown
    unknown = rdzv("launch", "--framework", "nosuch", "--", "x").stderr
    for text in (unknown, rdzv("launch", "--help-all").stdout, rdzv("worker", "--help").stdout):
        assert "command" in text
        assert not [name for name in OWN if re.search(rf"'{name}'|[ ,]{name},", text)]
    line = ["launch", "--dry-run", "--nnodes", "1", "--framework", "bench", "--", "--size", "1"]
    assert rdzv(*line).exit_code == 0  # what starts its nodes names it


@click.command("umbrella")
def umbrella() -> None:
    """Take one."""


def test_a_command_that_cannot_be_loaded_costs_a_line_and_no_other_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {"doctor": Lazy("tests.nowhere:command"), "bench": Lazy("builtins:len")}
    features = (
        Feature("bad", commands=bad),
        Feature("good", commands={"doctor": Lazy(f"{__name__}:umbrella")}),
    )
    monkeypatch.setattr(help_module, "declared", lambda: features)
    monkeypatch.setattr(help_module, "SECTIONS", {"All": ("doctor", "bench")})
    assert feature_commands() == [umbrella]
    assert help_module.SECTIONS == {"All": ("umbrella", "doctor", "bench")}
    errors = (
        ModuleNotFoundError("No module named 'tests.nowhere'"),
        AttributeError("'builtin_function_or_method' object has no attribute 'name'"),
    )
    lines = [f"rdzv: feature 'bad' cannot be loaded: {error!r}" for error in errors]
    assert capsys.readouterr().err.splitlines() == lines


def test_without_a_command_the_help_is_shown_and_the_version_is_told() -> None:
    result = rdzv()
    assert result.exit_code == ExitCode.USAGE
    assert result.output.startswith("Usage: rdzv [OPTIONS] COMMAND")
    folder = re.escape(str(Path(launcher.__file__).parent.parent))
    about = r"(commit [0-9a-f]{10}, )?Python 3\.[0-9.]+, the launcher's packages"
    line = rf"rdzv \d+\.\d+\.\d+ from {folder} \({about}\)\n"
    assert re.fullmatch(line, rdzv("--version").stdout)


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "env", "message", "hint"),
    [
        (
            "launch --nnodes 2",
            {},
            "no COMMAND was given",
            "use rdzv launch --nnodes 2 -- train.py --epochs 3",
        ),
        ("launch -- train.py", {}, "the number of nodes is missing", "give --nnodes 4, or --nno"),
        ("launch -- train.py --nnodes=4", {}, BEHIND, "use rdzv launch --nnodes=4 -- train.py"),
        (
            *("launch --nnodes 2 --scheduler sge -- train.py", {}, "there is no scheduler 'sge'"),
            f"choose one of {', '.join(known_schedulers())}, or give your own profile with -",
        ),
        ("worker -- train.py", {}, JOINLESS, "the worker spec of the scheduler sets it, or R"),
        (
            "launch --nnodes 2 -- train.py",
            {"ROLE": "Worker"},
            JOINLESS,
            "the worker spec of the sc",
        ),
        ("worker -- t.py", {"RDZV_JOIN": "rdzv1-cut0ff"}, "RDZV_JOIN is damaged: 12 char", ""),
        ("_registri", {}, "No such command '_registri'", "rdzv --help lists the commands"),
        ("token metrics", {}, "neither RUN nor RDZV_REGISTRY is", "name a run that was launched"),
        ("launch --framework mipch -- x", {}, "Invalid value for '--fr", "did you mean 'mpich'?"),
        ("launch --nnodes 2 --scheduler slrum -- x", {}, "there is no sch", "did you mean 'slur"),
        ("launch --bogus", {}, "No such option '--bogus'", "see rdzv launch --help"),
        ("worker --prefer no -- x", {}, "Invalid value for '--prefer'", "see rdzv worker --help"),
        ("token new x", {}, "Got unexpected extra argument (x)", "see rdzv token new --help"),
        ("logs r --lines x", {}, "--lines takes a whole number, such as 20; 'x' is", "see rdzv"),
        ("logs r --lines -1", {}, "--lines cannot be -1: it must be at least 0", "see rdzv logs"),
        ("logs r --rank 1.5", {}, "--rank takes a whole number; '1.5' is not one", "see rdzv logs"),
        (
            "schedulers check --timeout x",
            {},
            "--timeout takes a number of seconds, such",
            "see rdzv",
        ),
    ],
)
def test_a_wrong_command_line_is_two_lines_and_exit_code_2(
    line: str, env: dict[str, str], message: str, hint: str
) -> None:
    result = rdzv(*line.split(), env=env)
    first, second = result.stderr.splitlines()
    assert first.startswith(f"rdzv: {message}")
    assert second.startswith(f"      {hint}")
    assert (result.stdout, result.exit_code, "cut0ff" in result.stderr) == (
        "",
        ExitCode.USAGE,
        False,
    )


@pytest.mark.parametrize(("rank", "join"), [("0", None), ("2", 2)])
def test_09_with_a_token_every_node_above_rank_0_is_a_worker_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, rank: str, join: int | None
) -> None:
    began: list[int | None] = []

    def work(settings: object, command: object, join: JoinString) -> NoReturn:
        began.append(join.slot)
        raise SystemExit(7)

    async def launch(*_: object, **__: object) -> int:
        began.append(None)
        return 7

    monkeypatch.setattr("launcher.cli._work", work)
    monkeypatch.setattr("launcher.run.command.launch", launch)
    env = {"RDZV_TOKEN": group_token_text(new_secret()), "NUM_NODES": "4", "NODE_RANK": rank}
    env |= {"RDZV_ID": "llama", "MASTER_ADDR": "localhost"}
    assert rdzv("launch", "--", "train.py", env=env).exit_code == 7
    assert began == [join]


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UsageError("what\x1b happened", hint="try"), 64, "rdzv: what? happened\n      try\n"),
        (JoinTimeout("late", hint=""), JoinTimeout.exit_code, "rdzv: late\n"),
        (KeyboardInterrupt(), 130, ""),
        (
            *(ZeroDivisionError("by zero"), ExitCode.INTERNAL),
            "\nrdzv: this is a bug in rdzv; please report the lines above\n",
        ),
    ],
)
def test_an_error_has_its_own_exit_code_and_only_a_fault_of_ours_a_traceback(
    error: BaseException, code: int, says: str
) -> None:
    @click.command()
    def broken() -> None:
        raise error

    result = CliRunner().invoke(type(main)(commands={"broken": broken}), ["broken"])
    assert result.stderr.endswith(says)
    assert ("in broken" in result.stderr) is (code == ExitCode.INTERNAL) is (says != result.stderr)
    assert (result.stdout, result.exit_code) == ("", code)


def test_what_the_agent_says_is_kept_in_a_file_of_its_user_alone(tmp_path: Path) -> None:
    folder, root = tmp_path / "logs", logging.getLogger()
    keys = RunKeys(bytes(32), "llama", "k7f2a9c1xy")
    join = JoinString.of(keys, RegistryPlace(("10.0.0.4",), 1), 4)
    assert log_to_file(None, join) is None
    (tmp_path / "file").touch()
    assert log_to_file(tmp_path / "file" / "logs", join) is None
    for count in (1, 2):  # the second one says whose the rest is
        handler = log_to_file(folder, join)
        assert handler is not None
        assert handler in root.handlers
        root.warning("said\nin two lines")
        root.removeHandler(handler)
        handler.close()
        text = (folder / "agent-4.log").read_text()
        assert text.count("said") == count
        assert text.count("--- run 'llama', launch k7f2a9c1xy, generation 1") == count - 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "agent-4.log").stat().st_mode & 0o777 == 0o600


# ---- packages that are not there ----------------------------------------------------------------


def test_where_only_a_worker_is_installed_the_other_commands_say_what_to_install() -> None:
    lines = ["launch --nnodes 2 -- train.py", "serve", "status", "cancel llama", "logs llama"]
    lines += ["schedulers", "doctor --env", "bench --nnodes 2"]
    lines += [f"{name} llama" for name in OF_FEATURES]
    lines += ["restart llama", "drain llama 1", "prune", "ui", "tenant list"]
    lines += ["schedulers check local", "tenant add x --prefix x-", "tenant revoke x"]
    lines += ["token view llama", "replay llama"]
    own = ["launch --help", "worker -- x", "token new"]
    done = subprocess.run(
        [sys.executable, "-I", "-c", BARE, json.dumps([LAUNCHER_PACKAGES, lines + own])],
        capture_output=True,
        text=True,
        check=True,
    )
    message = (
        "rdzv: this command needs the package 'cryptography', which is not installed\n"
        f"      install the launcher's packages: {how_to_install('launcher')}\n"
    )
    *found, help_, worker, token = json.loads(done.stdout)
    assert found == [[64, message, False]] * len(lines)
    assert (help_, token) == ([0, "", False], [0, "", False])
    assert worker[1].startswith("rdzv: RDZV_JOIN is not set")


# ---- secrets ------------------------------------------------------------------------------------


def test_a_secret_comes_from_its_variable_before_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "join").write_text("from file\n")
    assert secret_text("RDZV_JOIN") is None
    monkeypatch.setenv("RDZV_JOIN_FILE", str(tmp_path / "join"))
    assert secret_text("RDZV_JOIN") == "from file\n"
    monkeypatch.setenv("RDZV_JOIN", "")
    assert secret_text("RDZV_JOIN") == "from file\n"
    monkeypatch.setenv("RDZV_JOIN", "from variable")
    assert secret_text("RDZV_JOIN") == "from variable"


def test_the_anonymous_file_of_a_secret_is_closed_once_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with anonymous_file("rdzv_join", b"secret") as file:
        fd = os.dup(file.fileno())
    monkeypatch.setenv("RDZV_JOIN_FILE", path_of(fd))
    assert secret_text("RDZV_JOIN") == "secret"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: "),
        (b"\xff", "cannot be read: "),
        (b"", "is empty"),
        (b" \n", "is e"),
    ],
)
def test_a_secrets_file_that_holds_none_is_named(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "join"
    if content is not None:
        path.write_bytes(content)
    result = rdzv("worker", "--", "train.py", env={"RDZV_JOIN_FILE": str(path)})
    assert result.stderr.startswith(f"rdzv: RDZV_JOIN_FILE names {path}, which {says}")
    assert result.exit_code == ExitCode.USAGE


def test_a_new_group_token_is_one_word_and_another_one_each_time() -> None:
    first, second = (rdzv("token", "new").stdout for _ in range(2))
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]+\n", first)
    assert len(parse_group_token(first)) == 32
    assert first != second


# ---- dry run ------------------------------------------------------------------------------------


def test_a_dry_run_shows_runs_commands_and_variables_and_leaves_nothing(tmp_path: Path) -> None:
    result = rdzv(*DRY.split(), "--", "accelerate", "launch", "x.py")
    runs, _, rest = result.stdout.partition("# each node then starts:\n")
    commands, mark, variables = rest.partition("# each node's program gets")
    assert re.findall("^# slot.*", runs, re.MULTILINE) == [
        "# slot 0, by local: rdzv-to-be-made-0-1",
        "# slot 1, by manual: rdzv-to-be-made-1-1",
    ]
    assert 'RDZV_JOIN: "RDZV_JOIN-hidden"' in runs
    assert " --framework accelerate -- accelerate launch x.py" in runs
    assert commands.startswith("#   node 0: accelerate launch --num_machines 2 ")
    assert mark
    assert "\n#   RDZV_ID=r " in variables
    assert result.stderr == (
        "rdzv: COMMAND begins with 'accelerate launch': using --framework accelerate\n"
    )
    assert (result.exit_code, (tmp_path / "state").exists()) == (0, False)


def test_an_option_that_changes_nothing_is_named() -> None:
    result = rdzv("launch", "--nnodes", "2", "--dry-run", "--interface", "eth9", "--", "t.py")
    assert result.stderr.startswith("rdzv: --interface has no effect with --scheduler local: ")
    assert (result.exit_code, rdzv(*DRY.split(), "--hosts", "off", "--", "t.py").stderr) == (0, "")


@pytest.mark.parametrize("words", ["launch --nnodes 2 --dry-run", "launch --role worker", "worker"])
def test_a_command_that_torchrun_cannot_start_is_refused_before_all_else(words: str) -> None:
    env = {"RDZV_JOIN": "rdzv1-cut0ff"}
    result = rdzv(*words.split(), "--", "bash", "-c", "true", env=env)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr.startswith("rdzv: COMMAND's 'bash' is not a Python script")
    named = rdzv(*words.split(), "--framework", "torchrun", "--", "bash", "x", env=env)
    assert "COMMAND" not in named.stderr


# ---- runs that were launched here ---------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of all runs."""
    return tmp_path / "state"


@pytest.mark.parametrize(
    "line",
    [
        *("status x", "cancel x", "restart x", "logs x", "replay x"),
        *(f"{name} x" for name in OF_FEATURES),
        *("ui x", "ui x --save x.html", "prune x", "drain x 1", "token view x"),
        *("status x --checks", "status x --env 0", "status x --epochs"),
        *(f"status x --{name}" for feature in declared() for name in feature.views),
        *("status x --matrix", "logs x --follow"),
    ],
)
def test_a_run_that_was_not_launched_here_is_named_with_those_that_were(
    line: str, root: Path
) -> None:
    nowhere = f"rdzv: no run 'x' was launched here (looked in {root})\n"
    assert rdzv(*line.split()).stderr == nowhere
    launched(root)
    result = rdzv(*line.split())
    assert (result.stderr, result.exit_code) == (
        f"{nowhere}      the newest runs here: llama\n",
        ExitCode.USAGE,
    )


@pytest.mark.parametrize(
    "line",
    [
        *("status {}", "logs {}", "prune {}", "token view {}", "cancel {}"),
        *(f"{name} {{}}" for name in OF_FEATURES),
    ],
)
def test_a_run_is_found_by_the_end_of_its_id_and_several_are_listed(line: str, root: Path) -> None:
    first = launched(root)
    for number, run in enumerate(("run-d0026d37", "mpt-d0026d37", "run-77aa26d3")):
        shutil.copytree(first.path, root / run)
        record = json.loads((root / run / "launch.json").read_text())
        record |= {"run": run, "launch_id": f"{number:010d}"}
        (root / run / "launch.json").write_text(json.dumps(record))
    several = rdzv(*line.format("d0026d37").split())
    assert several.exit_code == ExitCode.USAGE
    assert several.stderr.startswith("rdzv: 'd0026d37' may be 2 runs here: ")
    assert all(run in several.stderr for run in ("run-d0026d37", "mpt-d0026d37"))
    assert rdzv(*line.format("77aa26d3").split()).stderr.startswith("rdzv: run 'run-77aa26d3'\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("logs x --node -1", "--node cannot be -1: it must be at least 0"),
        ("logs x --rank -5", "--rank cannot be -5: it must be at least 0"),
        (
            "schedulers check local --timeout nan",
            "--timeout cannot be nan: it must be a finite number",
        ),
    ],
)
def test_a_number_that_no_command_takes_is_refused(line: str, message: str) -> None:
    result = rdzv(*line.split())
    assert (result.exit_code, result.stderr.startswith(f"rdzv: {message}")) == (64, True)


@pytest.mark.parametrize(
    ("words", "place"), [("status", "afile"), ("cancel x", "afile/below"), ("replay x", "afile")]
)
def test_a_state_directory_that_is_a_file_or_below_one_is_refused(
    words: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "afile").write_text("")
    result = rdzv(*words.split(), state=tmp_path / place)
    assert (result.stdout, result.exit_code) == ("", ExitCode.USAGE)
    assert result.stderr.startswith(f"rdzv: the state directory {tmp_path / place} cannot be used")


def killed_words(state: StateDir, more: str = "") -> str:
    return (
        "rdzv: the launcher of run 'llama' was killed, and its registry no longer answers\n     "
        f" to see what happened: rdzv replay {state.journal}{more}\n"
    )


def test_a_run_whose_launcher_was_killed_says_so_and_where_its_journal_is(root: Path) -> None:
    assert rdzv("status").output.startswith("no runs in ")
    state = launched(root)
    result = rdzv("status", "llama")
    assert (result.stderr, result.exit_code) == (killed_words(state), ExitCode.REGISTRY_LOST)
    assert re.search(r"\nllama +killed +its launcher was killed\n", rdzv("status").stdout)
    for view in ("--checks", "--matrix"):
        assert "the launcher of run 'llama' was killed" in rdzv("status", "llama", view).stderr
    for _ in range(2):
        done = rdzv("cancel", "llama")
        words = "the launcher of run 'llama' was killed; nothing that it started is still running\n"
        assert (done.output, done.exit_code) == (words, ExitCode.OK)
    state.ledger.begin(LedgerEntry(WorkerRun(1, 1, "rdzv-k7f2-1-1", {}, "w.sh"), "manual"))
    end = "; clean up with: rdzv cancel llama"
    assert rdzv("status", "llama").stderr == killed_words(state, end)


def test_a_registry_that_does_not_know_the_run_is_believed_if_it_is_a_standing_one(
    tmp_path: Path, root: Path
) -> None:
    with running(tmp_path) as other:
        place = RegistryPlace(("127.0.0.1",), other.port)
        state = launched(root, place)
        result = rdzv("status", "llama")
        assert (result.stderr, result.exit_code) == (killed_words(state), ExitCode.REGISTRY_LOST)
        assert rdzv("cancel", "llama").exit_code == ExitCode.OK
        launched(root, place, owns_registry=False)
        for command in ("status", "cancel"):
            result = rdzv(command, "llama")
            assert result.stderr == "rdzv: there is no run 'llama' here, or it is not yours\n"
            assert result.exit_code == ExitCode.REFUSED
        state.write("report.json", RunReport(run="llama").model_dump_json().encode())
        kept = rdzv("status", "llama", "--checks")
        assert (kept.stdout, kept.exit_code) == ("the checks have not found anything yet\n", 0)


def test_a_run_is_replayed_before_a_folder_and_after_a_file_of_its_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("os.execv", lambda _, words: asked.append(words[-1]))
    monkeypatch.setattr("signal.pthread_sigmask", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    kept, named = launched(root).journal, tmp_path / "llama"
    kept.write_bytes(b"the run's")
    named.mkdir()
    rdzv("replay", "llama")
    named.rmdir()
    named.write_bytes(b"the file's")
    kept.unlink()
    rdzv("replay", "llama")
    assert asked == [str(kept), "llama"]


def test_the_newest_lines_of_each_log_are_shown(root: Path) -> None:
    state = launched(root)
    (state.logs / "node-0.log").write_bytes(b"1\n2\xff\n3\n")
    (state.logs / "node-1.log").write_text("a\n")
    first, second = (f"==> {state.logs / name}\n" for name in ("node-0.log", "node-1.log"))
    assert rdzv("logs", "llama", "--lines", "2").stdout == f"{first}2\ufffd\n3\n{second}a\n"
    assert rdzv("logs", "llama", "--node", "1").stdout == f"{second}a\n"
    newest = rdzv("logs", "--node", "1")
    assert (newest.stdout, newest.stderr) == (f"{second}a\n", "rdzv: run 'llama'\n")
    result = rdzv("logs", "llama", "--node", "7")
    assert result.stderr == (
        f"rdzv: there is no node-7.log in {state.logs}\n"
        "      there are: node-0.log, node-1.log; a node on another machine keeps its log there\n"
    )
    assert result.exit_code == ExitCode.USAGE
    (state.logs / "node-0.e2.log").write_text("4\n")
    again = f"==> {state.logs / 'node-0.e2.log'}\n"
    assert rdzv("logs", "llama", "--node", "0").stdout == f"{again}4\n"
    assert rdzv("logs", "llama", "--epoch", "1", "--lines", "1").stdout == f"{first}3\n{second}a\n"


def test_a_second_standing_registry_in_one_folder_is_refused(tmp_path: Path) -> None:
    state = StateDir(tmp_path, "registry")
    state.acquire()
    result = rdzv("serve", state=tmp_path)
    assert result.stderr.startswith(f"rdzv: a registry already uses {tmp_path / 'registry'}\n")
    assert result.exit_code == ExitCode.FAILED
    state.release()


# ---- what is known early ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "command", "words"),
    [
        (["--framework", "command"], ["/bin/sh", "no.sh"], ["no.sh does not exist in "]),
        (
            ["--framework", "command"],
            ["nosuch"],
            ["'nosuch' of COMMAND is not on this node's PATH"],
        ),
        ([], ["train.py"], ["'torchrun' is not on this node's PATH", "pip install torch"]),
        (["--scheduler", "manual"], ["train.py"], ["'torchrun' is not", "add --no-local-node"]),
    ],
)
@pytest.mark.usefixtures("alone_on_path")
def test_what_this_node_would_not_find_is_refused_before_anything_is_made(
    tmp_path: Path, options: list[str], command: list[str], words: list[str]
) -> None:
    path = {"PATH": f"{tmp_path}/bin"}
    given = ["--nnodes", "2", "--state-dir", f"{tmp_path}/s", *options]
    done = rdzv("launch", *given, "--", *command, env=path)
    assert done.exit_code == int(ExitCode.ARMING_FAILED)
    assert not [one for one in words if one not in done.stderr]
    assert len(done.stderr.splitlines()) == 2  # the error and what to try, and no other line
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("settings", "certain"),
    [
        ({}, True),
        ({"scheduler": "manual"}, True),
        ({"scheduler": "manual", "worker_spec": Path("specs/manual/worker.sh")}, True),
        ({"worker_spec": Path("specs/local/worker.yaml")}, False),
        ({"scheduler": "manual", "local_node": False}, False),
        ({"nnodes": "1:2"}, False),
        ({"spares": 1}, False),
    ],
    ids=str,
)
def test_only_what_this_node_needs_for_certain_is_looked_for_early(
    settings: dict[str, Any], certain: bool
) -> None:
    asked = LaunchSettings.model_validate({"nnodes": "2", "framework": "command", **settings})
    assert prepare(asked, ["true"], {"HOME": "/nowhere"}).starts_here is certain


# ---- what is logged -----------------------------------------------------------------------------


def test_nobody_waits_for_a_reader_who_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that is full must not silence an agent: its node would be lost."""
    monkeypatch.setattr(process, "_PATIENCE_SECONDS", 0.1)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read_end, os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        log_to_stderr("info", "rdzv[slot 1]")
        logger = logging.getLogger("agent")
        for number in range(100):
            logger.warning("%s %s", number, "x" * 3000)
        kept = os.read(read_end.fileno(), 1 << 20).decode().splitlines()
        logger.warning("all is well")
        said = os.read(read_end.fileno(), 1 << 20).decode().splitlines()
    assert [line.split()[2] for line in kept] == [str(number) for number in range(len(kept))]
    assert 0 < len(kept) < 100
    words = f"{100 - len(kept)} messages are not shown: this output was not read meanwhile"
    assert said == [f"rdzv[slot 1]: {words}", "rdzv[slot 1]: all is well"]

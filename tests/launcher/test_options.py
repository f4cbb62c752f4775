"""Options from flags, environment, file and default, in that order; COMMAND stays as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import settings as law
from hypothesis import strategies as st

from launcher.option_values import LEAST_VERIFY_SECONDS
from launcher.options import misspelt_variables, options_from, read
from launcher.run_file.fields import flag_of, variables_of
from launcher.settings import LaunchSettings, ServeSettings
from rendezvous.wire.errors import UsageError
from tests.support.nightly import examples
from worker.options import Settings
from worker.probe.mesh import Pace
from worker.settings import WorkerSettings

UGLY = [
    *("", " ", "two words", 'it\'s "quoted"', "line\nbreak", "$HOME", "$(id)", "`id`", "*", "\\"),
    *("-", "--", "--nnodes", "--help", "-h", "--epochs=3", "a=b", "<<NAME>>", "é"),
]
NO_PROCESSES = "is not a number from 1 to 4096, and not auto, gpu or cpu"
WORD = st.one_of(st.sampled_from(UGLY), st.text(st.characters(codec="utf-8"), max_size=10))


def parse(
    *words: str, env: dict[str, str] | None = None, model: type[Settings] = LaunchSettings
) -> tuple[Settings, tuple[str, ...]]:
    """What a command with these options gets, from a command line and an environment."""
    found: list[tuple[Settings, tuple[str, ...]]] = []

    @click.command(context_settings={"allow_interspersed_args": False})
    @options_from(model)
    @click.argument("command", nargs=-1, type=click.UNPROCESSED)
    def program(command: tuple[str, ...], **values: Any) -> None:
        found.append((read(model, values), command))

    # Whatever of ours is set where the tests run is not set here.
    unset = {name: None for field in model.model_fields.items() for name in variables_of(*field)}
    result = CliRunner().invoke(
        program, words, env={**unset, **(env or {})}, catch_exceptions=False, standalone_mode=False
    )
    if result.exception is not None:
        raise result.exception
    return found[0]


def launch(*words: str, env: dict[str, str] | None = None) -> LaunchSettings:
    settings, _ = parse(*words, env=env)
    assert isinstance(settings, LaunchSettings)
    return settings


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


# ---- precedence ---------------------------------------------------------------------------------


def test_without_anything_the_defaults_of_the_model_hold() -> None:
    assert launch() == LaunchSettings()
    assert parse(model=WorkerSettings)[0] == WorkerSettings()
    assert parse(model=ServeSettings)[0] == ServeSettings()


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "rdzv.toml", "port = 1\ngrace = 1.5\nlease = 3\nnnodes = 7")
    env = {"RDZV_FILE": file, "RDZV_PORT": "2", "RDZV_GRACE": "2.5"}
    given = {"port": 3, "grace": 2.5, "lease": 3.0, "nnodes": "7"}
    assert launch("--port", "3", env=env) == LaunchSettings(**given)


def test_a_flag_can_take_back_what_the_environment_switched_on() -> None:
    assert launch(env={"RDZV_STRICT": "1"}).strict
    assert not launch("--no-strict", env={"RDZV_STRICT": "1"}).strict
    assert launch("--dry-run=off", env={"RDZV_DRY_RUN": "full"}).dry_run is None
    assert launch(env={"RDZV_NNODES": "2", "NUM_NODES": "4"}).nnodes == "2"


def test_an_empty_variable_is_not_set() -> None:
    env = {"RDZV_PORT": "", "NUM_NODES": "", "NODE_RANK": "", "RDZV_ADDRESS": "", "RDZV_PREFIX": ""}
    assert launch(env=env) == LaunchSettings()


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("NUM_NODES", "4", "nnodes", "4"),
        ("RDZV_NNODES", "2:4", "nnodes", "2:4"),
        ("GPUS_PER_NODE", "8", "nproc_per_node", "8"),
        ("RDZV_ID", "llama-7b", "rdzv_id", "llama-7b"),
        ("RDZV_BACKEND", "c10d", "rdzv_backend", "c10d"),
        ("NODE_RANK", "3", "node_rank", 3),
        ("MASTER_ADDR", "10.0.0.1", "master_addr", "10.0.0.1"),
        ("ROLE", "worker", "role", "worker"),
        ("ROLE", "trainer", "role", "trainer"),
        ("RDZV_STATE_DIR", "/state", "state_dir", Path("/state")),
        ("RDZV_PREFIX", "0", "prefix", False),
        ("RDZV_ADDRESS", "10.0.0.1 fd00::1", "address", ["10.0.0.1", "fd00::1"]),
    ],
)
def test_a_variable_sets_its_option(
    variable: str, value: str, field: str, expected: object
) -> None:
    assert launch(env={variable: value}) == LaunchSettings(**{field: expected})


# ---- values -------------------------------------------------------------------------------------


def test_a_repeatable_option_keeps_its_order() -> None:
    settings = launch("--set", "B=2 3", "--set", "A=1", "--pass-env", "X")
    assert (settings.set, settings.pass_env, settings.network) == (["B=2 3", "A=1"], ["X"], [])


NO_CHECK = "there is no such check; did you mean {}?"
TOO_SHORT = (
    "below 30 s healthy nodes would be blamed: they need up to 20 s to report that their peers"
)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--nnodes four", "'four': a size is N or MIN:MAX, for example 4 or 2:4"),
        ("--nnodes 4:2", "'4:2': a run has 1 to 20000 nodes, and MIN is not above MAX"),
        ("--nproc-per-node 2,x", f"'2,x': 'x' {NO_PROCESSES}"),
        ("--nproc-per-node ²", f"'²': '²' {NO_PROCESSES}"),
        ("--grace nan", "nan: it must be a finite number"),
        ("--grace -1", "-1: it must be at least 0"),
        ("--last-call 1e8", "100000000: it must be at most 10000000"),
        ("--lease 1.5", "1.5: it must be at least 2"),
        ("--port 70000", "70000: it must be at most 65535"),
        ("--skip L06 --skip L99", f"'L99': {NO_CHECK.format('L09 or L19')}"),
        ("--skip P01", f"'P01': {NO_CHECK.format('L01 or X01')}"),
        ("--verify-timeout 5", f"5: {TOO_SHORT} are silent"),
    ],
)
def test_a_value_out_of_range_names_the_flag_and_what_it_takes(words: str, message: str) -> None:
    flag = words.split()[0]
    with pytest.raises(UsageError) as caught:
        launch(*words.split())
    assert caught.value.message == f"{flag} cannot be {message}"
    field = LaunchSettings.model_fields[flag[2:].replace("-", "_")]
    assert caught.value.hint == f"{flag}: {field.description}"


@pytest.mark.parametrize(
    ("flag", "taken", "refused"),
    [
        ("--port", "1 65535", "0 65536"),
        ("--lease", "2 3600", "1.999 3600.5 nan inf"),
        ("--submit-retries", "0 100", "-1 101"),
        ("--max-restarts", "0 10000", "-1 10001"),
        ("--node-rank", "0 19999", "-1 20000"),
        ("--spares", "0 1000", "-1 1001"),
        ("--standby", "0 1000", "-1 1001"),
        ("--max-replacements", "0 10000", "-1 10001"),
        ("--fence-timeout", "0 1e7", "-0.001 10000000.5 inf"),
        ("--last-call", "0 1e7", "-0.001 10000000.5 inf"),
        ("--verify-timeout", "30 1e7", "29.9 0 -0.001 10000000.5 inf"),
        ("--arm-timeout", "0 1e7", "-0.001 10000000.5 inf"),
    ],
)
def test_a_bound_is_taken_and_what_lies_beyond_it_is_not(
    flag: str, taken: str, refused: str
) -> None:
    name = flag[2:].replace("-", "_")
    for word in taken.split():
        assert getattr(launch(flag, word), name) == float(word)
    for word in refused.split():
        with pytest.raises(UsageError, match=f"{flag} cannot be"):
            launch(flag, word)


def test_the_least_time_to_verify_outlasts_the_longest_round_of_probes() -> None:
    assert 1.5 * Pace().round_seconds <= LEAST_VERIFY_SECONDS


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        (["--port", "x"], {}, "--port takes a whole number, such as 29600; 'x' is not one"),
        (["--port", "1.5"], {}, "--port takes a whole number, such as 29600; '1.5' is not one"),
        (["--master-port", "x"], {}, "--master-port takes a whole number; 'x' is not one"),
        (
            ["--join-timeout", "soon"],
            {},
            "--join-timeout takes a number of seconds, such as 600; 'soon' is not one",
        ),
        (["--hosts", "maybe"], {}, "'maybe' is not one of 'auto', 'require', 'off'"),
        (
            [],
            {"RDZV_GRACE": "x"},
            "RDZV_GRACE takes a number of seconds, such as 10; 'x' is not one",
        ),
        ([], {"NODE_RANK": "x"}, "NODE_RANK takes a whole number; 'x' is not one"),
        ([], {"RDZV_STRICT": "maybe"}, "'maybe' is not a valid boolean"),
        ([], {"RDZV_DRY_RUN": "fulll"}, "'fulll' is not one of 'short', 'full'"),
        (["--portt", "1"], {}, "No such option '--portt'"),
    ],
)
def test_a_value_of_the_wrong_kind_names_the_flag(
    words: list[str], env: dict[str, str], message: str
) -> None:
    with pytest.raises(click.UsageError) as caught:
        launch(*words, env=env)
    assert message in caught.value.format_message()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"NUM_NODES": "2.0"}, "NUM_NODES cannot be '2.0': a size is N or MIN:MAX, for example 4"),
        (
            {"GPUS_PER_NODE": "a100:8"},
            "GPUS_PER_NODE cannot be 'a100:8': 'a100:8' is Slurm's way",
        ),
        ({"NODE_RANK": "-1"}, "NODE_RANK cannot be -1: it must be at least 0"),
        ({"RDZV_NNODES": "0", "NUM_NODES": "2"}, "RDZV_NNODES cannot be '0': a run has 1 to 20000"),
        (
            {"RDZV_JOIN_TIMEOUT": "nan"},
            "RDZV_JOIN_TIMEOUT cannot be nan: it must be a finite number",
        ),
    ],
)
def test_a_variable_that_has_a_wrong_value_is_named_and_not_its_flag(
    env: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        launch(env=env)
    assert caught.value.message.startswith(message)


def test_a_value_of_a_file_is_named_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        launch("--file", file := write(tmp_path / "rdzv.toml", "port = 65536"))
    message = f"--port (in {file}) cannot be 65536: it must be at most 65535"
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("a100:8", "8"),
        ("gpu:a100:8", "8"),
        ("gpu:4(S:0-1)", "4"),
        ("8(x2)", "8"),
        ("2,h100:4", "4"),
    ],
)
def test_a_number_in_slurms_form_is_refused_with_what_to_write(word: str, written: str) -> None:
    with pytest.raises(UsageError, match=f"is Slurm's way to write it; write {written}\n"):
        launch("--nproc-per-node", word)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600), ("10s", 10), ("2 h", 7200), ("1d", 86400)]
)
def test_a_time_with_its_unit_is_refused_with_its_seconds(
    tmp_path: Path, text: str, seconds: int
) -> None:
    with pytest.raises(click.UsageError) as caught:
        launch("--join-timeout", text)
    assert f"{text!r} is not one: write {seconds}" in caught.value.format_message()
    file = write(tmp_path / "rdzv.toml", f'join-timeout = "{text}"')
    with pytest.raises(UsageError, match=f"is not one: write {seconds}\n"):
        launch("--file", file)
    with pytest.raises(
        UsageError, match=r"'hostlist' cannot be 'n1,n2': write a list, \['n1,n2'\]"
    ):
        launch("--file", write(tmp_path / "rdzv.toml", 'hostlist = "n1,n2"'))


@given(
    st.sampled_from(["--port", "--nnodes", "--nproc-per-node", "--join-timeout", "--node-rank"]),
    st.one_of(st.text("0123456789-.:,eainfgpu_ x()", max_size=8), st.floats().map(str)),
)
@law(max_examples=examples(60))
def test_no_number_breaks_an_option(flag: str, text: str) -> None:
    variable = "RDZV_" + flag[2:].upper().replace("-", "_")
    for words, env in ([f"{flag}={text}"], {}), ([], {variable: text}):
        try:
            launch(*words, env=env)
        except (UsageError, click.UsageError) as exc:
            said = exc.message if isinstance(exc, UsageError) else exc.format_message()
            assert (flag if words else variable) in said


# ---- variables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("RDZV_NPROC_PER_NOD", "RDZV_NPROC_PER_NODE"),
        ("RDZV_NNODE", "RDZV_NNODES"),
        ("RDZV_JOIN_TIMEOT", "RDZV_JOIN_TIMEOUT"),
        ("RDZV_TOKNE", ""),
        ("RDZV_TOKENS", "RDZV_TOKEN"),
        ("RDZV_ENDPOINT", ""),
        ("NUM_NODE", ""),
    ],
)
def test_a_variable_that_looks_like_one_of_ours_is_told(name: str, near: str) -> None:
    said = misspelt_variables({name: "1", "RDZV_NNODES": "2", "PATH": "/"})
    assert said == [
        f"{name} is set, and rdzv reads no such variable; did you mean {word}?"
        for word in [near]
        if word
    ]


def test_no_variable_that_the_docs_name_is_taken_for_another() -> None:
    docs = Path(__file__).parent.parent.parent / "docs"
    text = "".join(page.read_text("utf-8") for page in docs.rglob("*.md"))
    names = set(re.findall(r"\bRDZV_[A-Z_]*[A-Z]\b", text))
    assert len(names) > 80
    renamed = "RDZV_CONFIG is set, and rdzv reads RDZV_FILE in its place"
    assert misspelt_variables(dict.fromkeys(names, "1")) == [renamed]
    assert misspelt_variables(dict.fromkeys(names - {"RDZV_CONFIG"}, "1")) == []


# ---- the file -----------------------------------------------------------------------------------


def test_a_file_may_spell_the_options_with_hyphens_or_underscores(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rdzv.toml",
        'rdzv-id = "llama"\nnproc_per_node = 2\nstate-dir = "/state"\ndry_run = true\njson = true\n'
        'prefix = false\nlast-call = 5\nset = ["A=1", "B=x y"]\nnetwork = []\n',
    )
    assert launch("--file", file) == LaunchSettings(
        rdzv_id="llama",
        nproc_per_node="2",
        state_dir=Path("/state"),
        dry_run="short",
        json_events=True,
        prefix=False,
        last_call=5.0,
        set=["A=1", "B=x y"],
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('port = "29600"', "takes a whole number, such as 29600; '29600' is not one"),
        ("port = true", "takes a whole number, such as 29600; True is not one"),
        ('grace = "soon"', "takes a number of seconds, such as 10; 'soon' is not one"),
        ("master-port = 1.5", "takes a whole number; 1.5 is not one"),
        ("dry-run = 1", "cannot be "),
        ('address = "10.0.0.1"', "cannot be "),
        ("address = [[]]", "cannot be "),
        ("nnodes = [2, 4]", "cannot be "),
        ("hosts = false", "cannot be "),
        ("rdzv-id = 2026-01-02", "cannot be "),
        ("state-dir = {}", "cannot be "),
    ],
)
def test_a_value_of_another_kind_in_a_file_is_named_with_what_its_key_takes(
    tmp_path: Path, line: str, message: str
) -> None:
    file, key = write(tmp_path / "rdzv.toml", line), line.split(" ")[0]
    with pytest.raises(UsageError) as caught:
        launch("--file", file)
    assert caught.value.message.startswith(f"{file}, line 1: '{key}' {message}")
    assert caught.value.hint.startswith(f"{key}: ")


def test_a_choice_that_a_file_gets_wrong_names_the_flag(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError) as caught:
        launch("--file", write(tmp_path / "rdzv.toml", 'hosts = "maybe"'))
    assert caught.value.format_message().startswith("Invalid value for '--hosts'")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^the run file /nowhere/x.toml cannot be read: No such"):
        launch("--file", "/nowhere/x.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"latin.toml cannot be read: 'utf-8' codec"):
        launch("--file", str(tmp_path / "latin.toml"))


# ---- COMMAND ------------------------------------------------------------------------------------


def test_command_keeps_its_own_flags() -> None:
    settings, command = parse("--nnodes", "2", "--", "train.py", "--nnodes", "9", "-h")
    assert settings == LaunchSettings(nnodes="2")
    assert command == ("train.py", "--nnodes", "9", "-h")


def test_command_may_begin_without_the_two_hyphens_and_be_a_module() -> None:
    settings, command = parse("--nnodes", "2", "train.py", "--port", "1", "--", "x")
    assert settings == LaunchSettings(nnodes="2")
    assert command == ("train.py", "--port", "1", "--", "x")
    assert parse("--", "-m", "package.train", "-x")[1] == ("-m", "package.train", "-x")


@given(st.lists(WORD))
@law(max_examples=examples(25))
@example(UGLY)
def test_every_word_of_command_arrives_as_it_was_written(words: list[str]) -> None:
    assert parse("--nnodes", "2", "--", *words)[1] == tuple(words)


# ---- the options themselves ---------------------------------------------------------------------


@pytest.mark.parametrize("model", [LaunchSettings, WorkerSettings, ServeSettings])
def test_every_option_has_a_flag_and_variables_of_its_own_and_says_what_it_is(
    model: type[Settings],
) -> None:
    fields = model.model_fields.items()
    flags = [flag_of(name, field) for name, field in fields]
    variables = [variable for name, field in fields for variable in variables_of(name, field)]
    assert len(set(flags)) == len(flags)
    assert len(set(variables)) == len(variables)
    assert all((field.description or "").endswith(".") for _, field in fields)

"""The run file, by value: how it is read, what it refuses and where, and how it is written."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import settings as law
from hypothesis import strategies as st

from launcher.options import options_from
from launcher.run_file.fields import extra_of, flag_of
from launcher.run_file.first import first_file
from launcher.run_file.schema import schema
from launcher.run_file.text import BadText, as_written, read_toml, read_yaml
from launcher.run_file.values import RunFile, read_run_file
from launcher.run_file.write import run_file_text
from launcher.settings import LaunchSettings, ServeSettings
from rendezvous.compat import tomllib
from rendezvous.wire.errors import UsageError
from tests.support.nightly import examples
from worker.settings import WorkerSettings

TOML = """\
# a comment
name = "llama"
command = ["train.py", "--lr", 0.10, "--epochs", 3]
nnodes = "2:4"
nproc-per-node = 8
join-timeout = 900
network = ["10.0.0.0/8"]
ui = true
hostfile = "hosts"
cwd = "src"
dry-run = "full"

[env]
NCCL_DEBUG = "INFO"
LEVEL = 007.5
HF_TOKEN = {secret = true}
"""
YAML = """\
name: llama
command: [train.py, --lr, 0.10, --epochs, 3]
nnodes: 2:4
nproc-per-node: 8
join-timeout: 900
network: [10.0.0.0/8]
ui: true
hostfile: hosts
cwd: src
dry-run: full
env:
  NCCL_DEBUG: INFO
  LEVEL: 007.5
  HF_TOKEN: {secret: true}
"""


def read(text: str, path: str = "run.toml", **more: Any) -> RunFile:
    return read_run_file(LaunchSettings, path, text, place=lambda word: f"/at/{word}", **more)


def refused(text: str, path: str = "run.toml", **more: Any) -> tuple[str, str]:
    with pytest.raises(UsageError) as caught:
        read(text, path, **more)
    return caught.value.message, caught.value.hint


# ---- reading ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"), [("run.toml", TOML.replace("007.5", '"007.5"')), ("run.YAML", YAML)]
)
def test_a_file_of_either_format_holds_the_whole_run(path: str, text: str) -> None:
    assert read(text, path) == RunFile(
        {
            "rdzv_id": "llama",
            "nnodes": "2:4",
            "nproc_per_node": "8",
            "join_timeout": 900,
            "network": ["10.0.0.0/8"],
            "ui": True,
            "hostfile": "/at/hosts",
            "cwd": "/at/src",
            "dry_run": "full",
        },
        ("train.py", "--lr", "0.10", "--epochs", "3"),
        {"env": ("NCCL_DEBUG=INFO", "LEVEL=007.5"), "secret_env": ("HF_TOKEN",)},
    )


def test_an_empty_file_says_nothing() -> None:
    assert read("") == read("", "run.yml") == read("# nothing\n", "run.yml") == RunFile({})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train.py --epochs 3", ["train.py", "--epochs", "3"]),
        ("train.py 'a b' \"c d\" e\\ f", ["train.py", "a b", "c d", "e f"]),
        ("train.py $HOME *.txt ~ #1", ["train.py", "$HOME", "*.txt", "~", "#1"]),
        ("train.py --filter 'a|b' \"x;y\" k=v", ["train.py", "--filter", "a|b", "x;y", "k=v"]),
    ],
)
def test_one_line_is_split_as_a_shell_splits_it(line: str, words: list[str]) -> None:
    assert read(f"command = {json.dumps(line)}").command == tuple(words)
    assert read(f"command: {json.dumps(line)}", "r.yml").command == tuple(words)


@given(st.lists(st.text("abc $\"'\\|&;<> ", min_size=1), min_size=1))
@law(max_examples=examples(50))
def test_a_quoted_command_of_quoted_words_is_these_words(words: list[str]) -> None:
    inner = [word for word in words if not set(word) <= set("();<>|&")]
    if inner:
        assert read(f"command = {json.dumps(shlex.join(inner))}").command == tuple(inner)
    assert read(f"command = {json.dumps(words)}").command == tuple(words)


@pytest.mark.parametrize("operator", ["&&", "|", ">", ";", "2>&1 &"])
def test_a_line_for_a_shell_is_refused_with_how_to_have_one(operator: str) -> None:
    message, hint = refused(f"nnodes = 2\ncommand = 'cd x {operator} train.py'")
    assert message.startswith("run.toml, line 2: 'command' has ")
    assert message.endswith("which is a shell's, and no shell runs it")
    assert f'command = ["sh", "-c", "cd x {operator} train.py"]' in hint


def test_yaml_is_read_as_version_1_2_has_it() -> None:
    """In version 1.1 `off` is false, 2:4 is 124, and 010 is 8."""
    text = "a: off\nb: 2:4\nc: 010\nd: 1.10\ne: yes\nf: true\ng: 'true'\nh: ~\ni: 1e3\nj:\n"
    found = read_yaml(text).values
    assert [found[key] for key in "abefghj"] == ["off", "2:4", "yes", True, "true", None, None]
    assert [as_written(found[key]) for key in "cdi"] == ["010", "1.10", "1e3"]
    assert (found["c"], found["d"]) == (10, 1.1)
    assert as_written(True) is as_written([]) is as_written(None) is None


def test_an_anchor_of_yaml_is_what_it_names() -> None:
    text = "set: &s [A=1]\nskip: *s\nenv: {A: &v x, B: *v}\n"
    found = read(text, "run.yaml")
    assert (found.options["set"], found.options["skip"]) == (["A=1"], ["A=1"])
    assert found.lists == {"env": ("A=x", "B=x")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2", "not a valid YAML file: 'a' is given twice (at line 2)"),
        ("a: [1", "not a valid YAML file: expected ',' or ']'"),
        ("a: 1\n\tb: 2", "not a valid YAML file: found character"),
        ("- a", "not a file of options: it has no keys"),
        ("[1]: 2", "not a file of options: the key in line 1 is not a text"),
        ("a: &a [*a]", "not a valid YAML file: "),
        ("a: 1\n---\nb: 2", "not a valid YAML file: but found another document"),
    ],
)
def test_what_no_run_file_can_be_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadText, match=f"^{re.escape(words)}"):
        read_yaml(text)
    assert refused(text, "x.yml")[0].startswith(f"x.yml is {words}")
    nested = refused("a = " + "[" * 5_000)[0]
    assert nested == "run.toml is not a valid TOML file: it is nested too deeply"


@pytest.mark.parametrize(
    ("text", "line", "about", "advice"),
    [
        ("nnodes = 2\n\njoin-timeuot = 3", 3, "there is no option 'join-timeuot'", "join_timeout"),
        ("set = [\n 'A=1',\n]\n# x\nenvv = 1", 5, "there is no option 'envv'", "'env'"),
        ("comand = 'x'", 1, "there is no option 'comand'", "'command'"),
        ("[env]\nA = 1\n\nB = true", 4, "[env] B cannot be true: a variable is a text", '"true"'),
        ("[env]\nA = ['hf_x']", 2, "[env] A cannot be a list", 'write A = "VALUE"'),
        ("[env]\nA = {b = 'hf_x'}", 2, "[env] A cannot be a table", "A = {secret = true}"),
        ("[env]\nA = 2026-01-01", 2, "[env] A cannot be a date or a time", 'write A = "VALUE"'),
        (
            "[env]\nA = {secret = true, value = 'x'}",
            2,
            "[env] A is a secret and has more than that",
            "set A where you launch",
        ),
        ("[env]\n'A=B' = 'x'", 2, "[env] 'A=B' is not a name of a variable", "write NAME"),
        ("[launch]\nnnodes = 2", 1, "there is a table [launch]", "write 'nnodes = 2' at the top"),
        ("rdzv-id = 'a'\nname = 'b'", 2, "'name' gives an option again", "keep one"),
        ("join_timeout = 3\njoin-timeout = 4", 2, "'join-timeout' gives an option again", "one"),
        ("command = []", 1, "'command' cannot be []", '["train.py"'),
        ("command = [['a']]", 1, "'command' cannot be [['a']]", '["train.py"'),
        ("command = {a = 1}", 1, "'command' cannot be {'a': 1}", '["train.py"'),
        ("command = ''", 1, "'command' is empty", "train.py"),
        ('command = "a \'b"', 1, "'command' cannot be split as a shell does", "as a list"),
        ("ui = 'yes'", 1, "'ui' cannot be 'yes': write true", "ui: Print a link"),
        ("port = 'x'", 1, "'port' takes a whole number, such as 29600; 'x' is not one", "port: "),
    ],
)
def test_a_refusal_names_the_line_and_what_to_write(
    text: str, line: int, about: str, advice: str
) -> None:
    message, hint = refused(text)
    assert message.startswith(f"run.toml, line {line}: {about}")
    assert advice in hint


def test_a_refusal_of_yaml_names_the_line_too() -> None:
    message, _ = refused("nnodes: 2\nenv:\n  A: x\n  B: [1]\n", "a.yml")
    assert message == "a.yml, line 4: [env] B cannot be a list"
    assert refused("env:\n  B:\n", "a.yml")[0] == "a.yml, line 2: [env] B has no value"
    assert refused("cwd: ~", "a.yml")[0] == "a.yml, line 1: 'cwd' has no value"
    assert refused("ui: yes", "a.yml")[0] == "a.yml, line 1: 'ui' cannot be 'yes': write true"
    assert refused("nodes: 2", "a.yml")[1] == "did you mean 'nnodes'?"


def test_yaml_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    message = "a.yml is a YAML file, which needs the package PyYAML: install it here, or write TOML"
    assert refused("nnodes: 2", "a.yml")[0] == message


def test_only_a_run_has_command_name_and_environment() -> None:
    with pytest.raises(UsageError, match="there is no option 'command'"):
        read_run_file(ServeSettings, "s.toml", "command = 'x'", has_command=False)
    assert read_run_file(WorkerSettings, "w.toml", "command = 'x'").command == ("x",)
    with pytest.raises(UsageError, match="there is no option 'name'"):
        read_run_file(WorkerSettings, "w.toml", "name = 'x'")
    with pytest.raises(UsageError, match="there is no option 'env'"):
        read_run_file(WorkerSettings, "w.toml", "[env]\nA = 'x'")


@given(st.text("ab=[]{}\"'\n#1 ", max_size=40))
@law(max_examples=examples(100))
def test_no_text_breaks_the_reader(text: str) -> None:
    for path in ("a.toml", "a.yml"):
        with contextlib.suppress(UsageError):
            read(text, path)


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=2),
        st.sampled_from(["1", '"""\nx = 2\n"""', "[\n1,\n2]"]),
    )
)
@law(max_examples=examples(40))
def test_the_line_of_a_key_is_the_one_that_begins_with_it(values: dict[str, str]) -> None:
    lines = [line for key, value in values.items() for line in ("", "# k = 1", f"{key} = {value}")]
    text = "\n".join(lines)
    found = read_toml(text)
    for key in values:
        assert text.splitlines()[found.line(key) - 1].startswith(f"{key} = ")


# ---- writing ------------------------------------------------------------------------------------


def test_a_launch_is_written_as_a_file_that_says_the_same() -> None:
    settings = LaunchSettings(
        rdzv_id="a'b\"c",
        nnodes="2:4",
        nproc_per_node="8",
        hostlist=["n1,n2"],
        join_timeout=900.0,
        grace=2.5,
        ui=True,
        strict=False,
        hostfile=Path("hosts"),
        state_dir=Path("/state"),
        node_rank=0,
        dry_run="file",
        parent=3,
    )
    text = run_file_text(
        settings,
        ["train.py", "a b", "\x7f\n"],
        {"B": "x\ty", "A-1": "é"},
        {"HF_TOKEN"},
        ["Z%%"],
        folder="/here",
    )
    assert text == (
        'name = "a\'b\\"c"\n'
        'command = ["train.py", "a b", "\\u007f\\n"]\n'
        'nnodes = "2:4"\n'
        "nproc-per-node = 8\n"
        "grace = 2.5\n"
        "join-timeout = 900\n"
        'hostlist = ["n1,n2"]\n'
        'hostfile = "/here/hosts"\n'
        'state-dir = "/state"\n'
        "strict = false\n"
        "ui = true\n"
        'pass-env = ["Z%%"]\n'
        "\n[env]\n"
        '"A-1" = "é"\n'
        'B = "x\\ty"\n'
        "HF_TOKEN = {secret = true}\n"
    )
    found = read_run_file(LaunchSettings, "run.toml", text)
    assert found.command == ("train.py", "a b", "\x7f\n")
    assert found.lists == {
        "env": ("A-1=é", "B=x\ty"),
        "pass_env": ("Z%%",),
        "secret_env": ("HF_TOKEN",),
    }
    again = LaunchSettings(**found.options)
    assert again.model_dump(exclude={"hostfile", "node_rank", "dry_run", "parent"}) == (
        settings.model_dump(exclude={"hostfile", "node_rank", "dry_run", "parent"})
    )


def test_a_launch_without_anything_is_an_empty_file() -> None:
    assert run_file_text(LaunchSettings(), (), {}, (), folder="/") == ""


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.integers(), st.booleans())
@law(max_examples=examples(60))
def test_what_is_written_is_toml(text: str, number: int, truth: bool) -> None:
    from launcher.run_file.write import toml

    for value in (text, number, truth, [text, "x"], number / 7):
        assert tomllib.loads(f"a = {toml(value)}")["a"] == value


# ---- the schema, and the file to begin with -----------------------------------------------------


def test_the_schema_knows_every_key_that_is_read() -> None:
    found = schema()
    fields = LaunchSettings.model_fields.items()
    flags = {
        flag_of(name, field)[2:] for name, field in fields if not extra_of(field).get("hidden")
    }
    assert set(found["properties"]) == flags | {"command", "env", "name"}
    assert found["properties"]["hosts"]["enum"] == ["auto", "require", "off"]
    assert found["properties"]["spares"] | {"description": ""} == {
        "description": "",
        "type": "integer",
        "minimum": 0,
        "maximum": 1000,
    }
    assert all(one["description"].endswith(".") for one in found["properties"].values())


def test_the_schema_takes_what_is_taken_and_no_more() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    text = TOML.replace("007.5", '"007.5"')
    assert [*validator.iter_errors(tomllib.loads(text))] == []
    assert [
        *validator.iter_errors(tomllib.loads(first_file("run.toml", "local", local=True)))
    ] == []
    for wrong in ("nnodes = [2]", "ui = 'yes'", "envv = 1", "[env]\nA = true", "hosts = 'x'"):
        assert [*validator.iter_errors(tomllib.loads(wrong))] != []


@pytest.mark.parametrize("local", [True, False])
def test_the_file_to_begin_with_can_be_launched_with_every_line_of_it(local: bool) -> None:
    text = first_file(
        "run.toml", "slurm", local=local, hosts=True, needs=["IMAGE"], also=["SBATCH"]
    )
    found = read(text)
    assert found.command == ("train.py", "--epochs", "3")
    assert found.options["scheduler"] == "slurm"
    assert found.options.get("local_node") is (None if local else False)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    examples = [line[2:] for line in lines if re.match(r"# [a-zA-Z_-]+ = ", line)]
    assert len(examples) > 9
    for line in examples:
        in_env = line[0].isupper()
        assert read(f"[env]\n{line}" if in_env else line) != RunFile({})


def test_options_from_a_model_without_fields_of_a_run_has_a_file_still() -> None:
    assert callable(options_from(ServeSettings))

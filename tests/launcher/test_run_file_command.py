"""The run file through the command line: what wins, what is kept, and a run that is repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.run_file.text import read_toml
from launcher.state.state_dir import RUN_FILE
from tests.launcher.command import rdzv

SHOW = 'import os, sys; print(sys.argv[1:], os.getcwd(), os.environ.get("COLOUR"))'


def dry(*words: str, env: dict[str, str] | None = None) -> str:
    """The launch as a file."""
    done = rdzv("launch", "--dry-run=file", *words, env=env)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.toml"
    path.write_text('command = "train.py --epochs 3"\nnnodes = 3\njoin-timeout = 7\nport = 1\n')
    return path


def test_flags_win_over_variables_and_those_over_the_file(file: Path) -> None:
    text = dry("-f", "run.toml", "--nnodes", "2", env={"RDZV_PORT": "2", "RDZV_NNODES": "9"})
    assert read_toml(text).values == {
        "command": ["train.py", "--epochs", "3"],
        "nnodes": 2,
        "join-timeout": 7,
        "port": 2,
    }


def test_the_variable_names_a_file_as_well(file: Path) -> None:
    assert dry(env={"RDZV_FILE": str(file)}) == dry("--file", "run.toml") == dry("-frun.toml")


def test_a_command_that_is_typed_takes_the_place_of_the_files(file: Path) -> None:
    for words in (["--", "other.py"], ["other.py"]):
        assert read_toml(dry("-f", "run.toml", *words)).values["command"] == ["other.py"]


def test_what_is_printed_as_a_file_is_the_same_launch(file: Path, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost\nb\n")
    words = ("--hostfile", "hosts", "--rdzv-id", "x", "--verbose", "--no-local-node", "t.py", "-m")
    (tmp_path / "again.toml").write_text(text := dry("--framework", "command", *words))
    assert dry("-f", "again.toml") == text
    assert read_toml(text).values == {
        "name": "x",
        "command": ["t.py", "-m"],
        "framework": "command",
        "hostfile": str(tmp_path / "hosts"),
        "local-node": False,
        "verbose": True,
    }


def test_paths_in_a_file_start_at_its_folder(file: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "hosts").write_text("localhost\nb\n")
    (tmp_path / "in" / "r.yaml").write_text("command: t.py\nhostfile: hosts\nlog-dir: l\ncwd: ..\n")
    values = read_toml(dry("-f", "in/r.yaml")).values
    assert values["hostfile"] == str(tmp_path / "in" / "hosts")
    assert (values["cwd"], values["log-dir"]) == (str(tmp_path), "l")
    assert Path.cwd() == tmp_path


def test_variables_of_flags_and_of_the_file_are_one_list_in_which_the_flags_win(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.env").write_text("X=file\nA=1")
    (tmp_path / "b.env").write_text("B=2")
    file.write_text(
        "command = 't.py'\nnnodes = 2\nenv-file = ['a.env']\nsecret-env = ['PLAIN']\n"
        "[env]\nPLAIN = 'pl41n'\nC = '3'\nD = '4'\n"
    )
    env = {"RDZV_SECRET_ENV": "ODD", "ODD": "0dd", "RDZV_ENV": "D=5"}
    words = ("-f", "run.toml", "--env-file", "b.env")
    values = read_toml(text := dry(*words, env=env)).values
    secret = {"secret": True}
    assert values["env"] == {
        "X": "file",
        "A": "1",
        "B": "2",
        "C": "3",
        "D": "5",
        "PLAIN": secret,
        "ODD": secret,
    }
    shown = rdzv("launch", *words, "--dry-run", env=env).stdout
    assert "pl41n" not in text + shown
    assert "0dd" not in text + shown
    assert "# set by [env] of run.toml" in shown


def test_what_looks_like_a_secret_is_in_no_file(file: Path) -> None:
    given = ("--env", "U=postgres://u:pw1@h/x", "--env", "T=hf_abcdefgh1234", "--env=V=1")
    assert read_toml(dry("-f", "run.toml", *given)).values["env"] == {
        "U": {"secret": True},
        "T": {"secret": True},
        "V": "1",
    }


def test_all_secrets_that_are_not_set_here_are_named(file: Path) -> None:
    file.write_text("command='t.py'\nnnodes=2\n[env]\nA={secret=true}\nB={secret=true}\n")
    said = rdzv("launch", "-f", "run.toml", "--dry-run").stderr
    assert said == (
        "rdzv: [env] of run.toml: A, B: the variables are not set here\n"
        "      set it where you launch\n"
    )


def test_what_is_nearer_wins_over_what_it_excludes_in_the_file(file: Path) -> None:
    file.write_text("command = 't.py'\nhostlist = ['localhost,b']\nscheduler = 'ssh'\n")
    Path("hosts").write_text("localhost\nc\n")
    values = read_toml(dry("-f", "run.toml", "--hostfile", "hosts")).values
    assert ("hostlist" in values, "hostfile" in values) == (False, True)


def test_a_hint_to_copy_has_no_secret(file: Path) -> None:
    said = rdzv("launch", "--env", "HF_TOKEN=hunter2", "--env=A=1", "t.py", "--dry-run").stderr
    assert "for rdzv: rdzv launch --env HF_TOKEN --env=A=1 " in said
    assert "hunter2" not in said


def test_a_folder_of_the_runs_name_is_not_its_file(file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    words = ("--state-dir", str(tmp_path / "s"), "--", "x", "--state-dir=y")
    done = rdzv("launch", "-f", "mine", *words)
    assert done.stderr.startswith("rdzv: there is no file 'mine', and no run of that name")


def test_a_word_that_is_no_file_and_no_run_is_refused(tmp_path: Path) -> None:
    done = rdzv("launch", "-f", "nothing", state=tmp_path)
    assert done.exit_code == 64
    assert done.stderr.startswith(
        "rdzv: there is no file 'nothing', and no run of that name was launched here\n"
    )
    assert rdzv("launch", "-f", "run.yml").stderr.startswith("rdzv: there is no file 'run.yml'\n")
    assert rdzv("worker", "-f", "no.toml").stderr.startswith("rdzv: the run file no.toml cannot be")


def test_a_file_that_lacks_command_says_so(file: Path) -> None:
    file.write_text("nnodes = 2")
    assert "COMMAND" in rdzv("launch", "-f", "run.toml").stderr


def test_a_wrong_command_of_a_file_is_answered_with_a_line(file: Path) -> None:
    file.write_text('command = "bash run.sh"\nnnodes = 2')
    said = rdzv("launch", "-f", "run.toml").stderr
    assert "rdzv launch -f run.toml --framework command -- bash run.sh" in said


def test_a_folder_of_command_that_is_not_here_is_refused(file: Path) -> None:
    done = rdzv("launch", "-f", "run.toml", "--cwd", "nowhere")
    assert done.exit_code == 64
    assert (
        "COMMAND is to start in nowhere, which cannot be entered here: No such file" in done.stderr
    )
    assert (
        rdzv("launch", "-f", "run.toml", "--cwd", "/x", "--no-local-node", "--dry-run").exit_code
        == 0
    )


def test_a_file_of_a_secret_is_found_from_the_folder_of_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("join").write_text("rdzv1-x")
    (tmp_path / "in").mkdir()
    for command in ("launch", "worker"):
        name = "RDZV_REGISTRY_FILE" if command == "launch" else "RDZV_JOIN_FILE"
        words = ("--cwd", "in", "--nnodes", "1", "--framework", "command", "--", "true")
        said = rdzv(command, *words, env={name: "join", "PWD": str(tmp_path)}).stderr
        assert "does not begin with" in said or "is damaged" in said
        os.chdir(tmp_path)


def test_init_writes_a_file_once_for_each_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = rdzv("init", "slurm")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "wrote run.toml; edit it, then: rdzv launch -f run.toml --dry-run\n"
    assert "4 nodes" in rdzv("launch", "-f", "run.toml", "--nnodes=4", "--dry-run").stdout
    assert rdzv("init").stderr.startswith("rdzv: run.toml is there already, and stays as it is\n")
    assert rdzv("init", "slrum", "-o", "-").stderr.endswith("did you mean 'slurm'?\n")
    assert rdzv("init", "-o", "no/where.toml").stderr.startswith("rdzv: no/where.toml cannot be")
    for name in ("local", "ssh", "kubernetes", "vessl", "docker", "azureml", "manual"):
        text = rdzv("init", name, "-o", "-").stdout
        (tmp_path / "x.toml").write_text(text)
        assert rdzv("launch", "-f", "x.toml", "--dry-run").exit_code in (0, 64)
    assert '# set = ["IMAGE=...", "GPUS=..."]' in rdzv("init", "kubernetes", "-o", "-").stdout


def launch(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """A real launch on two nodes of this machine."""
    return subprocess.run(
        [sys.executable, "-m", "rdzv", "launch", *words],
        cwd=folder,
        env=os.environ | {"RDZV_STATE_DIR": str(folder / "state")} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_run_of_a_file_is_repeated_by_its_name_from_another_folder(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "run.yaml").write_text(
        f"name: mine\nnnodes: 2\nframework: command\ncommand: [{sys.executable}, show.py, 'a b']\n"
        "env: {COLOUR: blue}\n"
    )
    first = launch(tmp_path, "-f", "run.yaml")
    assert first.returncode == 0, first.stderr
    line = f"['a b'] {tmp_path} blue"
    assert sorted(first.stdout.splitlines()) == [f"[0] {line}", f"[1] {line}"]
    kept = tmp_path / "state" / "mine" / RUN_FILE
    assert kept.stat().st_mode & 0o777 == 0o600
    assert "state-dir" not in read_toml(kept.read_text()).values  # a variable of that launch
    (tmp_path / "elsewhere").mkdir()
    state = ("--state-dir", str(tmp_path / "state"))
    again = launch(tmp_path / "elsewhere", "-f", "mine", *state, "--rdzv-id", "other")
    assert again.returncode == 0, again.stderr
    assert f"rdzv: in {tmp_path}, where run 'mine' was launched" in again.stderr
    assert sorted(again.stdout.splitlines()) == sorted(first.stdout.splitlines())
    twice = launch(tmp_path, "-f", "mine", *state, RDZV_NNODES="1")
    assert twice.stdout.splitlines() == [line]


def test_command_starts_in_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "show.py").write_text(SHOW)
    (tmp_path / "run.toml").write_text(
        "cwd = 'in'\nnnodes = 1\nframework = 'command'\n"
        f"command = ['{sys.executable}', 'show.py']\n"
    )
    done = launch(tmp_path, "-f", "run.toml")
    assert done.stdout.splitlines() == [f"[] {tmp_path / 'in'} None"], done.stderr

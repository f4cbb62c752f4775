"""`specs/vessl/start.sh`: how rdzv, and VESSL's command, come into a run's image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launcher.schedulers import specs_folder

START = specs_folder() / "vessl" / "start.sh"
SHELL_TOOLS = "/usr/bin:/bin"


@pytest.fixture
def image(tmp_path: Path) -> dict[str, str]:
    """An image with a Python of the user's, where rdzv is installed; a fake that says its words."""
    command = tmp_path / "rdzv" / "command"
    command.mkdir(parents=True)
    _program(command / "rdzv", 'echo "$PATH"; for word; do echo "<$word>"; done')
    _program(tmp_path / "bin" / "python3", "exit 1")
    for version in ("3.9", "3.10", "3.11", "3.12"):
        _program(tmp_path / "bin" / f"python{version}", "exit 1")
    return {
        "PATH": f"{tmp_path}/bin:{SHELL_TOOLS}",
        "RDZV_VENV": str(tmp_path / "rdzv"),
        "RDZV_VESSL_VENV": str(tmp_path / "vessl"),
        "HOME": str(tmp_path),
    }


def _program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def start(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(START), *words], env=environ, capture_output=True, text=True, timeout=20
    )


def test_rdzv_gets_the_words_as_they_are_and_the_users_path_stays_first(
    image: dict[str, str],
) -> None:
    words = ["worker", "--nnodes", "2", "--", "a b", "it's", "$HOME", "", "two\nlines"]
    done = start(*words, **image)
    assert done.returncode == 0, done.stderr
    path, *said = done.stdout.split("\n", 1)
    assert path == f"{image['PATH']}:{image['RDZV_VENV']}/command"
    assert said == ["".join(f"<{word}>\n" for word in words)]


@pytest.mark.parametrize(
    "environ",
    [{"RDZV_SCHEDULER": "vessl-http"}, {"RDZV_SCHEDULER": "vessl", "ROLE": "worker"}, {}],
)
def test_only_the_launcher_that_calls_it_needs_vessls_command(
    image: dict[str, str], environ: dict[str, str]
) -> None:
    assert start("launch", **image, **environ).returncode == 0


def test_a_command_that_is_there_is_taken(image: dict[str, str], tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "vessl", "exit 0")
    done = start("launch", **image, RDZV_SCHEDULER="vessl")
    assert done.stdout.splitlines()[0] == f"{image['PATH']}:{image['RDZV_VENV']}/command"


def test_a_command_that_was_installed_before_is_taken(
    image: dict[str, str], tmp_path: Path
) -> None:
    _program(tmp_path / "vessl" / "command" / "vessl", "exit 0")
    done = start("launch", **image, RDZV_SCHEDULER="vessl")
    assert done.stdout.splitlines()[0].endswith(f":{image['RDZV_VESSL_VENV']}/command")


def test_the_command_is_installed_for_a_python_that_it_runs_on(
    image: dict[str, str], tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    venv = 'mkdir -p "$4/bin" && cp "$0" "$4/bin/python"'
    _program(
        tmp_path / "bin" / "python3.11",
        f'echo "$*" >> {calls}; case "$2" in venv) {venv};; pip) : > "${{0%/*}}/vessl";; esac',
    )
    done = start("launch", **image, RDZV_SCHEDULER="vessl")
    assert done.returncode == 0, done.stderr
    home = image["RDZV_VESSL_VENV"]
    assert "installing vessl 0.1.199 for python3.11" in done.stderr
    assert calls.read_text().splitlines()[1:] == [
        f"-m venv --clear {home}/venv",
        "-m pip install --quiet --disable-pip-version-check vessl==0.1.199",
    ]
    assert Path(home, "command", "vessl").resolve() == Path(home, "venv", "bin", "vessl")


def test_without_a_python_that_the_command_runs_on_the_other_way_is_named(
    image: dict[str, str],
) -> None:
    done = start("launch", **image, RDZV_SCHEDULER="vessl")
    assert done.returncode == 1
    assert "needs Python 3.9 to 3.12" in done.stderr
    assert "RDZV_SCHEDULER: vessl-http" in done.stderr

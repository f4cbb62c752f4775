"""`specs/vessl/start.sh`: how rdzv, and VESSL's command, come into a run's image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder

START = specs_folder() / "vessl" / "start.sh"
SHELL_TOOLS = "/usr/bin:/bin"


@pytest.fixture
def image(tmp_path: Path) -> dict[str, str]:
    """An image without the command vessl, where rdzv is installed; a fake that says its words."""
    command = tmp_path / "rdzv" / "command"
    command.mkdir(parents=True)
    version = f"rdzv 0.1.0 from {specs_folder().parent} (Python 3.11.7, the launcher's packages)"
    told = f'[ "$1" != --version ] || {{ echo "{version}"; exit; }}; '
    _program(
        command / "rdzv",
        told + 'echo "$PATH"; echo "by ${RDZV_SCHEDULER:-}"; for word; do echo "<$word>"; done',
    )
    return {
        "PATH": f"{tmp_path}/bin:{SHELL_TOOLS}",
        "RDZV_VENV": str(tmp_path / "rdzv"),
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
    path, _, *said = done.stdout.split("\n", 2)
    assert path == f"{image['PATH']}:{image['RDZV_VENV']}/command"
    assert said == ["".join(f"<{word}>\n" for word in words)]


@pytest.mark.parametrize(
    ("environ", "scheduler"),
    [
        ({"RDZV_SCHEDULER": "vessl-http"}, "vessl-http"),
        ({"RDZV_SCHEDULER": "vessl", "ROLE": "worker"}, "vessl"),
        ({"RDZV_SCHEDULER": "vessl"}, "vessl-http"),
        ({}, ""),
    ],
)
def test_a_launcher_whose_image_has_no_vessl_command_uses_the_http_api(
    image: dict[str, str], environ: dict[str, str], scheduler: str
) -> None:
    done = start("launch", **image, **environ)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == f"by {scheduler}"
    assert ("using VESSL's HTTP API" in done.stderr) == (
        scheduler != environ.get("RDZV_SCHEDULER", "")
    )


def test_a_command_that_is_there_is_taken(image: dict[str, str], tmp_path: Path) -> None:
    _program(tmp_path / "bin" / "vessl", "exit 0")
    done = start("launch", **image, RDZV_SCHEDULER="vessl")
    assert done.stdout.splitlines()[:2] == [
        f"{image['PATH']}:{image['RDZV_VENV']}/command",
        "by vessl",
    ]


def test_another_rdzv_on_the_path_is_not_the_one_that_runs(
    image: dict[str, str], tmp_path: Path
) -> None:
    _program(tmp_path / "bin" / "rdzv", "echo an older one")
    assert "an older one" not in start("launch", **image).stdout

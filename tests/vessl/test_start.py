"""`specs/vessl/start.sh`: how rdzv, and VESSL's command, come into a run's image."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder

START = specs_folder() / "vessl" / "start.sh"


@pytest.fixture
def image(tmp_path: Path) -> dict[str, str]:
    """An image without the command vessl, where rdzv is installed; a fake that says its words."""
    version = f"rdzv 0.1.0 from {specs_folder().parent} (Python 3.11.7, the launcher's packages)"
    told = f'[ "$1" != --version ] || {{ echo "{version}"; exit; }}; '
    says = 'echo "$PATH"; echo "by ${RDZV_SCHEDULER:-}"; for word; do echo "<$word>"; done'
    program(tmp_path / "rdzv" / "command" / "rdzv", told + says)
    # Another rdzv on the path is not the one that runs.
    program(tmp_path / "bin" / "rdzv", "echo an older one")
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    return {"PATH": path, "RDZV_VENV": str(tmp_path / "rdzv"), "HOME": str(tmp_path)}


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def start(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    argv = ["sh", str(START), *words]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)


def test_rdzv_gets_the_words_as_they_are_and_the_users_path_is_first(image: dict[str, str]) -> None:
    words = ["worker", "--nnodes", "2", "--", "a b", "it's", "$HOME", "", "two\nlines"]
    path, _, *said = start(*words, **image).stdout.split("\n", 2)
    assert path == f"{image['PATH']}:{image['RDZV_VENV']}/command"
    assert said == ["".join(f"<{word}>\n" for word in words)]


@pytest.mark.parametrize(
    ("environ", "is_there", "scheduler"),
    [
        ({"RDZV_SCHEDULER": "vessl-http"}, False, "vessl-http"),
        ({"RDZV_SCHEDULER": "vessl", "ROLE": "worker"}, False, "vessl"),
        ({"RDZV_SCHEDULER": "vessl"}, False, "vessl-http"),
        ({"RDZV_SCHEDULER": "vessl"}, True, "vessl"),
        ({}, False, ""),
    ],
)
def test_a_launcher_whose_image_has_no_vessl_command_uses_the_http_api(
    image: dict[str, str], tmp_path: Path, environ: dict[str, str], is_there: bool, scheduler: str
) -> None:
    if is_there:
        program(tmp_path / "bin" / "vessl", "exit 0")
    done = start("launch", **image, **environ)
    assert done.stdout.splitlines()[1] == f"by {scheduler}"
    changed = scheduler != environ.get("RDZV_SCHEDULER", "")
    assert ("using VESSL's HTTP API" in done.stderr) is changed

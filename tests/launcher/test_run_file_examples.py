"""Every launch that the documentation shows works as a run file, too: its dry run is the same."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from launcher.cli import main
from launcher.run_file.values import read_run_file
from launcher.settings import LaunchSettings
from tests.schedulers.test_own_profile import written

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FILE = re.compile(r"```(toml|yaml)\n(.*?)```", re.DOTALL)
_LINE = re.compile(r"(?:^\s*\$? ?|`)(rdzv launch (?:[^`\n\\]|\\\n)+)", re.MULTILINE)


def lines() -> list[str]:
    """The command lines of all pages, each once."""
    found = [line for page in PAGES for line in _LINE.findall(page.read_text(encoding="utf-8"))]
    return list(dict.fromkeys(line.replace("\\\n", " ").strip() for line in found))


def words_of(line: str) -> list[str]:
    """The words behind `rdzv launch`, without a dry run and what a shell would do with them."""
    try:
        words = shlex.split(line, comments=True)[2:]
    except ValueError:
        return []
    end = next((n for n, word in enumerate(words) if word in ("|", ">", "&&", "&")), len(words))
    return [word for word in words[:end] if not word.startswith("--dry-run")]


def launch(*words: str) -> tuple[int, str]:
    """The exit code and the output of a dry run."""
    done = CliRunner().invoke(main, ["launch", "--state-dir", "state", *words], prog_name="rdzv")
    return done.exit_code, done.stdout


def test_each_launch_of_the_documentation_is_the_same_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("launcher.prepare.preparation.secrets.token_hex", lambda _: "0" * 8)
    written(tmp_path, "A scheduler of your own").rename("api.toml")
    for name in ("train.py", "hosts"):
        Path(name).write_text("localhost\nn1\n")
    tried = []
    for line in lines():
        words = words_of(line)
        code, shown = launch("--dry-run=full", *words)
        if code or not shown or "--node-rank" in words or "-f" in words:
            continue  # it needs a file, a variable, or another machine
        code, text = launch("--dry-run=file", *words)
        assert code == 0, line
        Path("run.toml").write_text(text)
        assert launch("--dry-run=full", "-f", "run.toml") == (0, shown), line
        tried.append(line)
    assert len(tried) >= 40, tried


def test_the_files_that_the_page_shows_are_run_files() -> None:
    page = (ROOT / "docs" / "run-file.md").read_text(encoding="utf-8")
    shown = _FILE.findall(page)
    assert [kind for kind, _ in shown] == ["toml", "yaml"]
    for kind, text in shown:
        found = read_run_file(LaunchSettings, f"run.{kind}", text)
        assert found.command == ("train.py", "--epochs", "3")
        secrets = found.lists["secret_env"]
        assert (found.options["rdzv_id"], secrets) == ("llama-7b", ("HF_TOKEN",))

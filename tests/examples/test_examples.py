"""Every command line that the examples and their pages name is one that rdzv takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from launcher.cli import main

FOLDER = Path(__file__).parent.parent.parent / "examples"
SCRIPTS = sorted(path for path in FOLDER.glob("*_digits.py"))
FILES = [*sorted(FOLDER.glob("*.py")), *sorted(FOLDER.glob("*.c")), *sorted(FOLDER.rglob("*.md"))]
_LINE = re.compile(r"^[ *$]*rdzv launch ((?:.*\\\n)*.*)$", re.MULTILINE)
_CELL = re.compile(r"^\| `\S+` \| .* \| `(.*)` \|$", re.MULTILINE)


def command_lines(path: Path) -> Iterator[str]:
    """What stands behind `rdzv launch` in the file."""
    text = path.read_text(encoding="utf-8")
    for found in _LINE.findall(text):
        yield " ".join(found.replace("\\\n", " ").split("  #")[0].split())
    if path == FOLDER / "README.md":
        yield from (f"--nnodes 2 {cell}" for cell in _CELL.findall(text))


LINES = sorted({(path.name, line) for path in FILES for line in command_lines(path)})


def test_every_script_says_how_it_is_launched() -> None:
    named = {name for name, _ in LINES}
    assert {path.name for path in SCRIPTS} - named == set()
    assert {"mpi_hello.c", "mpi_torch.py", "README.md"} <= named


@pytest.mark.parametrize(("name", "line"), LINES)
def test_a_named_command_line_is_taken(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER.parent)
    words = ["--state-dir", str(tmp_path), "--rdzv-id", "r", "--dry-run", *shlex.split(line)]
    result = CliRunner().invoke(main, ["launch", *words], prog_name="rdzv")
    assert result.exit_code == 0, result.output
    script = next((word for word in words if word.startswith("examples/")), "")
    assert not script or (FOLDER.parent / script).is_file()


def test_every_file_stands_in_the_list() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    files = {path.name for path in FOLDER.iterdir() if path.is_file()} - {"README.md"}
    assert {name for name in files if f"| `{name}` |" not in text} == set()

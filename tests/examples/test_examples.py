"""Every command line that the examples and their pages name is one that rdzv takes."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from launcher.cli import main
from launcher.plan.plan import HIDDEN, Site, Spec, make_plan
from launcher.schedulers.catalog import scheduler_entry
from launcher.schedulers.contract import SchedulerContext
from launcher.settings import LaunchSettings

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


# ---- the fine-tuning's specs for VESSL ----------------------------------------------------------


FINETUNE = FOLDER / "finetune"


def launcher_spec() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((FINETUNE / "vessl" / "launcher.yaml").read_text("utf-8"))
    return spec


def here(path: str) -> Path:
    """A path inside the run as it lies in this checkout."""
    return FINETUNE / path.removeprefix("/code/")


def set_of(spec: dict[str, Any]) -> list[str]:
    """What its command line gives as --set, with the variables of its file."""
    words = shlex.split(spec["run"])
    given = [words[n + 1].partition("=$") for n, word in enumerate(words) if word == "--set"]
    return [f"{name}={spec['env'][variable]}" for name, _, variable in given]


def test_the_launcher_s_spec_names_files_that_are_there() -> None:
    spec = launcher_spec()
    words = shlex.split(spec["run"])
    assert words[0] == "sh"
    named = [words[1], words[words.index("--") + 1], spec["env"]["RDZV_WORKER_SPEC"]]
    assert [path for path in named if not here(path).is_file()] == []


def test_a_worker_run_starts_as_the_launcher_does() -> None:
    spec = launcher_spec()
    words = shlex.split(spec["run"])
    command = words[words.index("--") + 1 :]
    template = here(spec["env"]["RDZV_WORKER_SPEC"])
    plan = replace(
        make_plan(
            LaunchSettings(nnodes="2", nproc_per_node="8", set=set_of(spec)),
            command,
            {},
            Site(Spec(str(template), template.read_text("utf-8")), cwd="/root"),
            run="finetune",
            launch_id="k7f2a9c1xy",
        ),
        master_addr="10.0.0.1",
    )
    scheduler = scheduler_entry("vessl").make(SchedulerContext(Path("/state"), {}))
    worker = yaml.safe_load(scheduler.prepare(plan.submission(1, 1), HIDDEN))
    for field in ("resources", "image"):
        assert worker[field] == spec[field]
    assert worker["import"] == spec["import"]
    run = shlex.split(worker["run"])
    assert run[run.index("sh") + 1] == words[1]
    assert run[run.index("--") + 1 :] == command


def test_the_start_script_is_one_for_a_plain_shell() -> None:
    subprocess.run(["sh", "-n", str(FINETUNE / "vessl" / "start.sh")], check=True, timeout=20)

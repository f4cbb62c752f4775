"""A newcomer's first hour: what README says to type works on a machine that has nothing of ours."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing_programs
from tests.newcomer.machine import make_machine, run_inside
from tests.newcomer.readme import ROOT, commands, dry_runs, missing, outputs, script
from tests.schedulers.test_own_profile import written
from tests.support.missing import give_up

README = (ROOT / "README.md").read_text(encoding="utf-8")
LIMIT_SECONDS = 1500.0

pytestmark = [pytest.mark.nightly, pytest.mark.netns, pytest.mark.timeout(LIMIT_SECONDS + 600)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A fresh machine, as a folder; the files that README supposes are in its checkout."""
    if reason := missing_programs("mmdebstrap", "unshare", "chroot"):
        give_up(reason)
    folder = tmp_path / "machine"
    make_machine(folder)
    checkout = folder / "root" / "rdzv"
    written(checkout, "A scheduler of your own").rename(checkout / "api.toml")
    (checkout / "train.py").touch()
    yield folder
    shutil.rmtree(folder)


def test_what_the_readme_says_to_type_works_and_prints_what_it_shows(machine: Path) -> None:
    typed = commands(README, "run")
    lines = [command.typed for command in typed] + dry_runs(README)
    printed = run_inside(machine, script(lines), LIMIT_SECONDS)
    found = outputs(printed)
    assert len(found) == len(lines), printed
    assert [line for line, (_, code) in zip(lines, found, strict=True) if code] == [], printed
    lacking = {c.typed: missing(c, text) for c, (text, _) in zip(typed, found, strict=False)}
    assert {line: shown for line, shown in lacking.items() if shown} == {}, printed

"""A newcomer's first hour: what README and docs/first-hour.md say to type, on a fresh machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing_programs
from tests.newcomer.machine import make_machine, run_inside
from tests.newcomer.readme import PAGES, commands, dry_runs, missing, outputs, script
from tests.schedulers.test_own_profile import written
from tests.support.missing import give_up

README, FIRST_HOUR = (page.read_text(encoding="utf-8") for page in PAGES)
LIMIT_SECONDS = 2400.0

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


def test_what_the_pages_say_to_type_ends_as_they_say_and_prints_what_they_show(
    machine: Path,
) -> None:
    """In one shell: whoever has typed README's commands goes on with those of the first hour."""
    typed = [*commands(README, "run"), *commands(FIRST_HOUR, "run", "fails")]
    lines = [command.typed for command in typed] + dry_runs(README)
    printed = run_inside(machine, script(lines), LIMIT_SECONDS)
    found = outputs(printed)
    assert len(found) == len(lines), printed
    expected = [command.fails for command in typed] + [False] * len(dry_runs(README))
    ended = zip(lines, found, expected, strict=True)
    assert [line for line, (_, code), fails in ended if bool(code) is not fails] == [], printed
    lacking = {c.typed: missing(c, text) for c, (text, _) in zip(typed, found, strict=False)}
    assert {line: shown for line, shown in lacking.items() if shown} == {}, printed

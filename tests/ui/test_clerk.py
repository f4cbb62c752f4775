"""The one who reads the runs' secrets: what it hands out, and that it outlives nobody."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.ui.clerk import Clerk, Keys
from rendezvous.talk.credentials import RunKeys
from tests.launcher.command import LAUNCH_ID
from tests.support.pages import RUN, kept_run


@pytest.fixture
def clerk(tmp_path: Path) -> Iterator[Clerk]:
    kept_run(tmp_path)
    made = Clerk(tmp_path, acts=False)
    yield made
    made.close()


def test_it_hands_out_what_sees_and_with_acts_what_changes(clerk: Clerk, tmp_path: Path) -> None:
    secret = bytes.fromhex((tmp_path / RUN / "secret").read_text())
    keys = RunKeys(secret, RUN, LAUNCH_ID)
    assert clerk.keys(RUN) == Keys(keys.read, keys.logs)
    acting = Clerk(tmp_path, acts=True)
    assert acting.keys(RUN) == Keys(keys.read, keys.logs, keys.look, keys.admin)
    acting.close()


@pytest.mark.parametrize("run", ["nosuch", "..", "a" * 300, "\udcff", "x\0y"])
def test_of_what_is_no_run_it_has_none_and_goes_on(clerk: Clerk, run: str) -> None:
    assert clerk.keys(run) == Keys()
    assert clerk.keys(RUN).read is not None


def test_one_folder_that_cannot_be_read_takes_nothing_from_the_others(
    clerk: Clerk, tmp_path: Path
) -> None:
    (tmp_path / "odd").mkdir()
    record = (tmp_path / RUN / "launch.json").read_text()
    (tmp_path / "odd" / "launch.json").write_text(record)
    (tmp_path / "odd" / "secret").mkdir()
    assert clerk.keys("odd") == Keys()
    (tmp_path / "odd" / "secret").rmdir()
    (tmp_path / "odd" / "secret").write_text("damaged")
    assert clerk.keys("odd") == Keys()
    assert clerk.keys(RUN).read is not None


def test_without_it_nothing_is_handed_out_and_nobody_waits(clerk: Clerk) -> None:
    clerk.process.kill()
    clerk.process.wait()
    assert clerk.keys(RUN) == Keys()

"""The one who reads the runs' secrets: what it hands out, and that it outlives nobody."""

from __future__ import annotations

import signal
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


def test_one_that_was_killed_is_started_again(
    clerk: Clerk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("launcher.ui.clerk.PATIENCE_SECONDS", 20.0)
    monkeypatch.setattr("launcher.ui.clerk.PAUSE_SECONDS", 0.0)
    for _ in range(2):
        clerk.process.kill()
        clerk.process.wait()
        assert clerk.keys(RUN).read is not None
    assert caplog.text.count("starting it again") == 2


def test_one_that_hangs_holds_nobody_up(clerk: Clerk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert clerk.keys(RUN).read is not None
    clerk._socket.settimeout(0.2)
    hangs = clerk.process
    hangs.send_signal(signal.SIGSTOP)
    monkeypatch.setattr("launcher.ui.clerk.PAUSE_SECONDS", 3600.0)
    assert clerk.keys(RUN) == Keys()
    assert hangs.returncode == -signal.SIGKILL
    assert clerk.keys(RUN) == Keys()  # not started again and again
    monkeypatch.setattr("launcher.ui.clerk.PATIENCE_SECONDS", 20.0)
    monkeypatch.setattr("launcher.ui.clerk.PAUSE_SECONDS", 0.0)
    assert clerk.keys(RUN).read is not None


def test_one_that_cannot_be_started_is_no_end_of_the_page(
    clerk: Clerk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    clerk.process.kill()
    monkeypatch.setattr("launcher.ui.clerk.PAUSE_SECONDS", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr("launcher.ui.clerk.subprocess.Popen", start)
        assert clerk.keys(RUN) == Keys()
        assert clerk.keys(RUN) == Keys()
    monkeypatch.setattr("launcher.ui.clerk.PATIENCE_SECONDS", 20.0)
    assert clerk.keys(RUN).read is not None

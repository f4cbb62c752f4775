"""What tests of the command line share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.drive import Drive
from worker.preflight import own_environment


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable is set but where runs and files go; what a command does to logging ends."""
    for name in [*os.environ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RDZV_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def alone_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is in rdzv's own environment: PATH alone counts."""
    monkeypatch.setattr(own_environment, "own_folders", list)


@pytest.fixture(autouse=True)
def _no_drive_is_left() -> Iterator[None]:
    """What a step-by-step launch still waits for ends with its test."""
    yield
    Drive.dispose_all()

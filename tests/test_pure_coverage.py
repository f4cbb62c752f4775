"""What CI counts of the modules that decide: too little of it is a failure of its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from coverage import Coverage

from tests import pure_coverage
from tests.pythons import ROOT

COUNTED = ROOT / "rendezvous" / "enums.py"
"""It has a branch for older Pythons, so that no Python runs all of it."""


@pytest.mark.parametrize(
    ("wanted", "before", "after"),
    [
        (50, pytest.ExitCode.OK, pytest.ExitCode.OK),
        (99, pytest.ExitCode.OK, pure_coverage.TOO_LITTLE),
        (99, pytest.ExitCode.TESTS_FAILED, pure_coverage.TOO_LITTLE),
        (99, pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERRUPTED),
    ],
)
def test_too_little_is_a_failure_whatever_else_has_failed(
    wanted: int, before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "pyproject.toml"
    settings.write_text(
        f'[tool.coverage.run]\nbranch = true\ninclude = ["{COUNTED}"]\n'
        f"[tool.coverage.report]\nfail_under = {wanted}\n"
    )
    monkeypatch.setattr(pure_coverage, "FOLDER", tmp_path / "data")
    monkeypatch.setattr(pure_coverage, "SETTINGS", str(settings))
    telling: Any = pure_coverage.Telling()
    counting = Coverage(
        str(tmp_path / "data" / "data"), data_suffix=True, config_file=str(settings)
    )
    (tmp_path / "data").mkdir()
    with counting.collect():
        exec(compile(COUNTED.read_text("utf-8"), COUNTED, "exec"), {"__name__": "enums"})
    counting.save()
    session = SimpleNamespace(exitstatus=before)
    telling.pytest_sessionfinish(session)
    assert session.exitstatus == after
    assert 50 < telling.found < 99


def test_every_module_that_is_counted_has_a_name() -> None:
    names = pure_coverage.modules(Coverage(None, config_file=pure_coverage.SETTINGS))
    assert {"rendezvous.enums", "rendezvous.run", "worker.agent.node"} <= {*names}

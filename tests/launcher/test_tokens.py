"""The token for a registry's /metrics: of a run with its own registry, and of a standing one."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import metrics_credential, registry_credential
from rendezvous.talk.join_string import RegistryPlace, RegistryString
from rendezvous.wire.errors import ExitCode
from tests.launcher.command import rdzv, record_of

PLACE = RegistryPlace(("10.0.0.1",), 29600)
SECRET = bytes(range(32))
TOKEN = metrics_credential(registry_credential(SECRET).sha256()).text()


def launched(root: Path, *, owns_registry: bool) -> None:
    state = StateDir(root, "llama")
    state.acquire()
    state.secret(lambda: SECRET)
    state.write_record(record_of(PLACE, owns_registry=owns_registry))
    state.release()


def test_of_a_run_with_a_registry_of_its_own(tmp_path: Path) -> None:
    launched(tmp_path, owns_registry=True)
    result = rdzv("token", "metrics", "llama", state=tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{TOKEN}\n")


def test_of_a_standing_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "credential"
    path.write_text(RegistryString(PLACE, registry_credential(SECRET)).text() + "\n")
    monkeypatch.setenv("RDZV_REGISTRY_FILE", str(path))
    result = rdzv("token", "metrics")
    assert (result.exit_code, result.stdout) == (0, f"{TOKEN}\n")


def test_a_run_at_a_standing_registry_has_none(tmp_path: Path) -> None:
    launched(tmp_path, owns_registry=False)
    result = rdzv("token", "metrics", "llama", state=tmp_path)
    assert result.exit_code == ExitCode.USAGE
    assert "run 'llama' uses a standing registry" in result.stderr
    assert result.stdout == ""


def test_without_a_run_and_a_registry_it_says_how_to_name_one() -> None:
    result = rdzv("token", "metrics")
    assert result.exit_code == ExitCode.USAGE
    assert "name a run that was launched here" in result.stderr

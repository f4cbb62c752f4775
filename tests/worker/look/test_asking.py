"""Real processes that run the hook, asked; none has a torch but one of a few lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.worker.look.ranks import SLEEPS, TORCH, folder_in, started, until
from worker.agent.environment import AgentEnvironment
from worker.look.asking import Asked, ask, importing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_in(tmp_path)


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers does so in time, also on a busy machine."""

    def patiently(folder: Path, ranks: Iterable[int], what: bytes, _: float) -> Asked:
        return ask(folder, ranks, what, 20.0)

    monkeypatch.setattr("worker.look.asking.ask", patiently)


def test_ranks_import_torch_until_each_of_them_has(folder: Path) -> None:
    assert importing(folder, range(2)) is None  # none has begun
    with started(folder, TORCH + SLEEPS):
        assert AgentEnvironment().importing(str(folder), 1) is False
        assert importing(folder, range(2)) is None
    package = folder.parent / "slow" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import torch.distributed\n")
    (package / "distributed.py").write_text(SLEEPS + "load_batch()\n")
    code = f"import sys\nsys.path.insert(0, {str(package.parent)!r})\nimport torch\n"
    with started(folder, code, rank=1):
        assert until(lambda: importing(folder, range(2)), 30)

"""Real processes that run the hook, found and asked; none has a torch but one of a few lines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.worker.look.ranks import SLEEPS, TORCH, folder_in, started, until
from worker.look.asking import Asked, ask
from worker.look.ranks import Known, find, importing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_in(tmp_path)


@pytest.fixture(autouse=True)
def in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers does so in time, also on a busy machine."""

    def patiently(folder: Path, ranks: Iterable[int], what: bytes, _: float) -> Asked:
        return ask(folder, ranks, what, 20.0)

    monkeypatch.setattr("worker.look.ranks.ask", patiently)


def test_a_rank_is_the_process_that_says_so_if_it_is_the_known_one_or_below_it(
    folder: Path,
) -> None:
    proc = Path("/proc")
    with started(folder, SLEEPS) as process:
        pid = process.pid
        found = find(folder, 0, pid, proc)
        assert found.pid == pid
        assert found.signal > 0
        assert find(folder, 0, None, proc) == find(folder, 0, os.getpid(), proc) == found
        assert find(folder, 0, 1 << 22, proc) == Known(1 << 22)
        assert find(folder, 1, pid, proc) == Known(pid)
        assert find(folder, 1, None, proc) == Known(0)
    assert find(folder, 0, pid, proc) == Known(pid)


def test_ranks_import_torch_until_each_of_them_has(folder: Path) -> None:
    assert importing(folder, range(2)) is None  # none has begun
    with started(folder, TORCH + SLEEPS):
        assert importing(folder, range(1)) is False
        assert importing(folder, range(2)) is None
    package = folder.parent / "slow" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import torch.distributed\n")
    (package / "distributed.py").write_text(SLEEPS + "load_batch()\n")
    code = f"import sys\nsys.path.insert(0, {str(package.parent)!r})\nimport torch\n"
    with started(folder, code, rank=1):
        assert until(lambda: importing(folder, range(2)), 30)

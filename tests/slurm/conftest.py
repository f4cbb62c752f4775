"""One Slurm for all tests of this folder: each leaves it without jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Slurm, slurm


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """The cluster."""
    with slurm(tmp_path_factory.mktemp("slurm")) as up:
        yield up

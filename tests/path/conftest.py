"""What several tests of the whole path use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.path.farm import Farm, network


@pytest.fixture(scope="session")
def farm_network() -> Iterator[str]:
    """One network for all farms of a test process, which has one farm at a time."""
    with network() as name:
        yield name


@pytest.fixture
def farm(tmp_path: Path, farm_network: str) -> Iterator[Farm]:
    """A batch system that behaves, with nothing submitted."""
    made = Farm(tmp_path, farm_network)
    yield made
    made.close()

"""A real PostgreSQL: one server for each process of tests, one database for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import Postgres, one_primary


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A primary alone."""
    with one_primary() as made:
        yield made


@pytest.fixture
async def dsn(postgres: Postgres) -> str:
    """An empty database."""
    return postgres.dsn(await postgres.new_database())

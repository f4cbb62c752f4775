"""A real PostgreSQL: one server for each process of tests, one database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # asyncpg is no part of what the core's tests need
    from tests.support.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A primary alone."""
    from tests.support.postgres import one_primary

    with one_primary() as made:
        yield made


@pytest.fixture
async def dsn(postgres: Postgres) -> str:
    """An empty database."""
    return postgres.dsn(await postgres.new_database())

"""What a server that takes no connection says, and what an operator is told to do."""

from __future__ import annotations

import asyncpg
import pytest

from rendezvous.server.postgres_trouble import trouble_of

DSN = "postgresql://rdzv@db:5432/rdzv"


@pytest.mark.parametrize(
    ("error", "hint", "lasts"),
    [
        (asyncpg.CannotConnectNowError("x is starting up"), "if this lasts, see the log", False),
        (asyncpg.TooManyConnectionsError("x"), "raise max_connections", False),
        (asyncpg.InvalidCatalogNameError("x"), "createdb", True),
        (asyncpg.InvalidPasswordError("x"), "PGPASSFILE", True),
        (ConnectionRefusedError("x"), "that the server runs and listens there", False),
    ],
)
def test_what_to_do_fits_what_the_server_said(error: Exception, hint: str, lasts: bool) -> None:
    trouble = trouble_of(error, DSN)
    assert trouble.words == str(error)
    assert hint in trouble.hint
    assert trouble.lasts == lasts

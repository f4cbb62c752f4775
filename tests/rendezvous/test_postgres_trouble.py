"""What a server that takes no connection says, and what an operator is told to do."""

from __future__ import annotations

import asyncpg
import pytest

from rendezvous.registry.postgres_trouble import trouble_of, why_lost

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


def after(first: Exception, then: Exception) -> Exception:
    """What is raised while the first one is handled, as by a transaction that is rolled back."""
    then.__context__ = first
    return then


BUSY = "cannot switch to state 12; another operation (2) is in progress"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (asyncpg.ConnectionDoesNotExistError("x"), "it was closed while an answer was awaited"),
        (asyncpg.InterfaceError("x"), "it was closed while an answer was awaited"),
        (asyncpg.AdminShutdownError("bye"), "the server ended it: bye"),
        (ConnectionResetError(104, "reset by peer"), "the network failed: reset by peer"),
        (OSError(), "the network failed: OSError"),
        (
            asyncpg.InternalClientError(BUSY),
            "what was asked before has not come to its end there",
        ),
        (
            after(asyncpg.AdminShutdownError("bye"), asyncpg.InternalClientError(BUSY)),
            "the server ended it: bye",
        ),
    ],
)
def test_why_a_connection_is_lost_is_told_in_no_words_of_a_library(
    error: Exception, words: str
) -> None:
    assert why_lost(error) == words

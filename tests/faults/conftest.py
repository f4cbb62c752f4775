"""A real PostgreSQL, as the tests of journals have it."""

from tests.rendezvous.conftest import dsn, postgres

__all__ = ["dsn", "postgres"]

"""Why a connection to PostgreSQL could not be made: words, and what to do about it.

No text that is made here has any part of a password, whatever the DSN has where it belongs.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from rendezvous.frozen import frozen

try:
    import asyncpg as asyncpg  # and from here
except ImportError:  # an extra: `open` of the journal says how to install it
    asyncpg = None

CONNECT_SECONDS = 3.0
"""Of each host of a DSN: one that is off must not keep the next one from being asked."""
DSN_HINT = (
    "write it as postgresql://USER@HOST:5432/DATABASE, several hosts separated by commas; the "
    "password belongs in PGPASSFILE"
)
_LISTENS = "check the host and the port, and that the server runs and listens there"
_SPEAKS_TLS = f"{_LISTENS}, with ssl = on if sslmode asks for TLS"
_CA_HINT = (
    "sslrootcert=FILE in the URL, or PGSSLROOTCERT, must name the certificate of the authority "
    "that signed the server's; with verify-full, that one must have the host's name as the URL "
    "writes it"
)
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


@frozen
class Trouble:
    """One failure.

    Attributes:
        lasts: Time does not mend it.
    """

    words: str
    hint: str
    lasts: bool = False


def trouble_of(exc: Exception, dsn: str) -> Trouble:
    """What a failure to connect by this DSN means."""
    if isinstance(exc, ssl.SSLCertVerificationError):  # is a ValueError, too
        words = f"its certificate is not accepted: {exc.verify_message}"
        return Trouble(words, _CA_HINT, lasts=True)
    if isinstance(exc, OSError | ValueError) and (words := _of_files(dsn)):
        return Trouble(words, _CA_HINT, lasts=True)
    if isinstance(exc, ssl.SSLError):
        words, of_file = f"TLS fails: {exc.reason or exc}", exc.library in ("X509", "PEM")
        return Trouble(words, _CA_HINT if of_file else _SPEAKS_TLS, lasts=of_file)
    if isinstance(exc, asyncio.TimeoutError):
        return Trouble(f"no answer within {CONNECT_SECONDS:g} s", _LISTENS)
    if isinstance(exc, ValueError):
        return Trouble("its address, or an option in it, is not valid", DSN_HINT, lasts=True)
    said = str(exc) or type(exc).__name__
    for kinds, hint, lasts in (
        (
            asyncpg.InvalidAuthorizationSpecificationError,
            "check the user and the password (PGPASSFILE: mode 600), and pg_hba.conf there",
            True,
        ),
        (asyncpg.InvalidCatalogNameError, "create the database: createdb NAME", True),
        (asyncpg.TooManyConnectionsError, "raise max_connections on the server", False),
        (asyncpg.CannotConnectNowError, "if this lasts, see the log of the server", False),
    ):
        if isinstance(exc, kinds):
            return Trouble(said, hint, lasts)
    if isinstance(exc, asyncpg.TargetServerAttributeNotMatched):
        hint = "name all hosts in the address, separated by commas; one must be the primary"
        return Trouble("the server is a standby", hint)
    return Trouble(said, _SPEAKS_TLS if type(exc) is ConnectionError else _LISTENS)


_OF_A_LOSS = () if asyncpg is None else (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


def why_lost(exc: Exception) -> str:
    """Why a connection that was in use is lost: in words of the server's, never of a library's."""
    if isinstance(exc, asyncpg.InternalClientError) and isinstance(exc.__context__, _OF_A_LOSS):
        return why_lost(exc.__context__)  # what was tried on it afterwards hides that
    if isinstance(exc, asyncpg.PostgresConnectionError | asyncpg.InterfaceError):
        return "it was closed while an answer was awaited"
    if isinstance(exc, asyncpg.InternalClientError):
        return "what was asked before has not come to its end there"
    if isinstance(exc, asyncpg.PostgresError):
        return f"the server ended it: {exc}"
    return f"the network failed: {getattr(exc, 'strerror', None) or str(exc) or type(exc).__name__}"


def _of_files(dsn: str) -> str:
    """What is wrong with the files that TLS needs by this DSN; empty: nothing is."""
    try:
        query = parse_qs(urlsplit(dsn).query)
    except ValueError:
        return ""
    options = {
        name: query.get(name, [os.environ.get(f"PG{name.upper()}", "")])[-1] for name in _FILES
    }
    for name, path in options.items():
        if path and (why := _unreadable(path)):
            return f"the file of {name} cannot be read: {why}"
    mode = query.get("sslmode", [os.environ.get("PGSSLMODE", "")])[-1]
    default = Path("~/.postgresql/root.crt").expanduser()
    has_root = options["sslrootcert"] or os.path.exists(default)
    if mode in ("verify-ca", "verify-full") and not has_root:
        return f"sslmode={mode} verifies the server's certificate, and no sslrootcert is given"
    return ""


def _unreadable(path: str) -> str:
    try:
        Path(path).read_bytes()
    except (OSError, ValueError) as exc:
        return getattr(exc, "strerror", "") or "not a path"
    return ""


def words_of(troubles: Mapping[str, Trouble], shown: Mapping[str, str]) -> str:
    """All of them, by host; once where they are alike."""
    words = {host: one.words for host, one in troubles.items()}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return "; ".join(f"{shown[host]}: {said}" for host, said in words.items())


def hint_of(troubles: Iterable[Trouble]) -> str:
    """What to do about the first one that is not a mere silence."""
    hints = [one.hint for one in troubles]
    return next((hint for hint in hints if hint != _LISTENS), _LISTENS)

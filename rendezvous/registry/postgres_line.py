"""A connection to PostgreSQL that is made again once it was lost, and that cancels nothing.

asyncpg asks the server to cancel what a cancelled task waits for. A server that waits for a standby
answers that as if the standby had the commit: it acknowledges, with a mere warning. So what is
under way is never cancelled: it is waited for up to a limit, and then the connection is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from rendezvous.registry import postgres_trouble
from rendezvous.registry.commits import Commits
from rendezvous.registry.postgres_place import DEAD_SECONDS, NAME, Place
from rendezvous.registry.postgres_trouble import asyncpg
from rendezvous.registry.shared_journal import InDoubt
from rendezvous.wire.errors import Unavailable

T = TypeVar("T")
Work = Callable[[Any], Coroutine[Any, Any, T]]
"""What to do with an `asyncpg.Connection`."""

LIMIT_SECONDS = 10.0
"""Of each call: a standby that is away longer than that is waited for no more."""
_CLOSE_SECONDS = 1.0
_SESSION = {
    "client_min_messages": "warning",  # see SyncRepWaitForLSN
    "default_transaction_isolation": "read committed",  # who waits for a row reads it again
    "idle_in_transaction_session_timeout": "5000",  # ms: a stopped process holds no row for long
    "jit": "off",
    "lock_timeout": "8000",  # ms: sooner than the limit of a call, so that the server undoes it
    "statement_timeout": "0",  # it would acknowledge what no standby has
    "tcp_keepalives_count": str(DEAD_SECONDS),
    "tcp_keepalives_idle": "1",
    "tcp_keepalives_interval": "1",
    "tcp_user_timeout": str(DEAD_SECONDS * 1000),
}
_BEGIN = """
SELECT pg_backend_pid(), count(set_config(name, value, false))
FROM unnest($1::text[], $2::text[]) AS s (name, value)
"""
_PID = "SELECT pg_backend_pid()"
_LOOKS = 5
_REFUSALS = (
    ()
    if asyncpg is None
    else (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
)
FOREIGN_STATEMENT = (
    ()
    if asyncpg is None
    else (asyncpg.DuplicatePreparedStatementError, asyncpg.InvalidSQLStatementNameError)
)
"""What another connection has prepared in this one's session, or this one in another."""
_END = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND application_name = $2 AND wait_event = 'SyncRep'
"""
_GOES_ON = "rdzv connects again with the next call"


class Line:
    """One connection; what is asked for is done one after the other.

    Args:
        place: Where the database is.
        settings: Of the session, beside those that every one has.
        greet: What is done first on each new connection.
        limit_seconds: Of each call; that of all lines, if not given.
    """

    def __init__(
        self,
        place: Place,
        settings: Mapping[str, str] | None = None,
        *,
        greet: Work[None] | None = None,
        limit_seconds: float | None = None,
    ) -> None:
        self._place = place
        self._settings = {**_SESSION, **(settings or {})}
        self._greet = greet
        self._limit = limit_seconds
        self._connection: Any = None
        self._order = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pid = 0
        self._is_unsure = False
        self._is_closed = False

    async def run(self, work: Work[T], commits: Commits | None = None) -> T:
        """Do this; whoever is cancelled here leaves it to go on.

        Args:
            work: What to do.
            commits: Counts it as one of these; None: it commits nothing that has to last.

        Raises Unavailable where there is no connection, and nothing was done; InDoubt where it was
        lost meanwhile; an `asyncpg.PostgresError` where the server refused it, and undid all of it.
        """
        task = asyncio.create_task(self._in_order(work, commits))
        self._keep(task)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for what was asked for, up to the limit of one call; nothing is done afterwards."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LIMIT_SECONDS)
        self._is_closed = True
        if self._tasks and self._connection is not None:
            self._connection.terminate()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._hang_up()

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_look_at)

    async def _in_order(self, work: Work[T], commits: Commits | None) -> T:
        async with self._order:
            with contextlib.nullcontext() if commits is None else commits.one():
                return await self._limited(await self._connected(), work)

    async def _connected(self) -> Any:
        if self._is_closed:
            raise Unavailable(f"the journal {self._place.text} is closed")
        if self._connection is None or self._connection.is_closed():
            made = await self._place.connect()
            made.add_log_listener(self._heed)
            try:
                await self._limited(made, self._begin)
            except BaseException:
                made.terminate()
                raise
            self._connection = made
        return self._connection

    async def _begin(self, connection: Any) -> None:
        """Not with the connection: a pooler refuses settings there that it does not know, and what
        it says of the session's process is made up."""
        names, values = list(self._settings), list(self._settings.values())
        self._pid = (await connection.fetchrow(_BEGIN, names, values))[0]
        if self._greet is not None:
            await self._greet(connection)

    async def _limited(self, connection: Any, work: Work[T]) -> T:
        self._is_unsure = False
        task = asyncio.ensure_future(work(connection))
        task.add_done_callback(_look_at)
        limit = self._limit or LIMIT_SECONDS
        done, _ = await asyncio.wait({task}, timeout=limit)
        if not done:
            self._keep(asyncio.create_task(self._end(self._pid)))
            connection.terminate()
            raise self._lost(f"it did not answer within {limit:g} s")
        try:
            answer = task.result()
        except _REFUSALS as exc:
            if isinstance(exc, asyncpg.ReadOnlySQLTransactionError):
                connection.terminate()  # by the next call another host may be the primary
                raise Unavailable(
                    f"the journal {self._place.text} takes no changes: {exc}", hint=_GOES_ON
                ) from exc
            if connection.is_closed() or _ends(exc):
                connection.terminate()
                raise self._lost(postgres_trouble.why_lost(exc)) from exc
            raise
        if self._is_unsure:
            raise self._lost("the server was made to stop waiting for its standby")
        return answer

    async def _end(self, pid: int) -> None:
        """A session that waits for a standby does not notice that nobody waits for it any more:
        one for each call would stay, until the server takes no further ones. Its commit is made,
        and in doubt; the next one has it before itself in the log that the standby gets."""
        with contextlib.suppress(Unavailable):
            connection = await self._place.connect()
            asked = asyncio.ensure_future(connection.execute(_END, pid, NAME))
            asked.add_done_callback(_look_at)
            await asyncio.wait({asked}, timeout=_CLOSE_SECONDS)
            connection.terminate()

    def _lost(self, why: str) -> InDoubt:
        words = f"the connection to the database {self._place.text} was lost: {why}"
        return InDoubt(words, hint=_GOES_ON)

    def _heed(self, _: Any, message: Any) -> None:
        """Somebody cancelled the wait for the standby: what is acknowledged may be lost with the
        primary. The text is translated, the name of the function is not."""
        if message.server_source_function == "SyncRepWaitForLSN":
            self._is_unsure = True

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*_REFUSALS, asyncio.TimeoutError):
                await connection.close(timeout=_CLOSE_SECONDS)


async def shares_sessions(lines: Sequence[Line]) -> bool:
    """Whether one session answers several lines, or several sessions one: a pooler that is before
    the database gives them to transactions, and no lock, setting or statement lasts.

    Such a pooler gives the session that was free last; who else uses it may come between, but not
    each time. Raises as `Line.run`.
    """
    seen: list[set[int]] = [set() for _ in lines]
    try:
        for _ in range(_LOOKS):
            for line, pids in zip(lines, seen, strict=True):
                pids.add(await line.run(lambda one: one.fetchval(_PID)))
    except FOREIGN_STATEMENT:
        return True
    return len(set().union(*seen)) != len(lines)


def _ends(exc: Exception) -> bool:
    """Whether nobody can say what became of the statement."""
    return getattr(exc, "severity_en", None) in ("FATAL", "PANIC") or isinstance(
        exc,
        (
            asyncpg.PostgresConnectionError,
            asyncpg.OperatorInterventionError,
            asyncpg.InternalClientError,
            OSError,
        ),
    )


def _look_at(task: asyncio.Task[Any]) -> None:
    """Its error is nobody's, where whoever waited for it was cancelled."""
    if not task.cancelled():
        task.exception()

"""A connection to PostgreSQL that is made again: in which order, up to which limit, and what is
ended; by a server that is none, on a virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.registry.commits import Commits
from rendezvous.registry.postgres_line import LIMIT_SECONDS, Line, shares_sessions
from rendezvous.registry.postgres_trouble import asyncpg
from rendezvous.registry.shared_journal import InDoubt
from rendezvous.wire.errors import Unavailable
from tests.support.virtual_time import run_virtually


class Session:
    """What asyncpg calls a connection."""

    def __init__(self, pid: int, shown: int | None = None) -> None:
        self.pid, self.shown = pid, pid if shown is None else shown
        self.ended = ""
        self.executed: list[tuple[Any, ...]] = []
        self.listener: Callable[[Any, Any], None] = lambda *_: None
        self.fails: Exception | None = None

    def add_log_listener(self, listener: Callable[[Any, Any], None]) -> None:
        self.listener = listener

    def is_closed(self) -> bool:
        return bool(self.ended)

    def terminate(self) -> None:
        self.ended = self.ended or "terminated"

    async def close(self, timeout: float) -> None:
        assert timeout > 0
        self.ended = self.ended or "closed"

    async def fetchrow(self, _: str, names: list[str], values: list[str]) -> tuple[int, int]:
        assert len(names) == len(values)
        if self.fails is not None:
            raise self.fails
        return self.pid, len(names)

    async def fetchval(self, _: str) -> int:
        return self.shown

    async def execute(self, *of: Any) -> None:
        self.executed.append(of)

    def warn(self, function: str) -> None:
        self.listener(self, SimpleNamespace(server_source_function=function))


class Server:
    """Where a database is; each session has the next number."""

    text = "postgresql://db"

    def __init__(self, *shown: int) -> None:
        self.sessions: list[Session] = []
        self.shown = list(shown)
        self.fails: Exception | None = None
        self.is_away = False

    async def connect(self) -> Session:
        if self.is_away:
            raise Unavailable("nobody is there")
        shown = self.shown.pop(0) if self.shown else None
        self.sessions.append(made := Session(100 + len(self.sessions), shown))
        made.fails = self.fails
        return made

    @property
    def ended(self) -> list[str]:
        return [session.ended for session in self.sessions]


def virtually(course: Callable[[Server], Coroutine[Any, Any, None]], *shown: int) -> Server:
    """The server after a course of calls."""
    server = Server(*shown)
    run_virtually(course(server))
    return server


def line_to(server: Server, **options: Any) -> Line:
    return Line(server, **options)  # type: ignore[arg-type]


async def takes(seconds: float, answer: Any = "done") -> Any:
    await asyncio.sleep(seconds)
    return answer


def test_what_is_asked_for_is_done_one_after_the_other_on_one_connection() -> None:
    order: list[str] = []

    async def course(server: Server) -> None:
        line = line_to(server)

        async def work(name: str) -> str:
            order.append(f"{name} begins")
            await asyncio.sleep(2)
            order.append(f"{name} ends")
            return name

        calls = (line.run(lambda _, name=name: work(name)) for name in "abc")  # type: ignore[misc]
        assert await asyncio.gather(*calls) == ["a", "b", "c"]
        await line.close()

    server = virtually(course)
    assert order == [f"{name} {how}" for name in "abc" for how in ("begins", "ends")]
    assert server.ended == ["closed"]


def test_whoever_is_cancelled_leaves_it_to_go_on_and_the_next_one_waits_for_it() -> None:
    done: list[str] = []

    async def course(server: Server) -> None:
        line = line_to(server)

        async def work(name: str) -> None:
            await asyncio.sleep(3)
            done.append(name)

        first = asyncio.create_task(line.run(lambda _: work("first")))
        await asyncio.sleep(1)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        assert done == []
        await line.run(lambda _: work("second"))
        assert done == ["first", "second"]
        last = asyncio.create_task(line.run(lambda _: work("last")))
        await asyncio.sleep(1)
        last.cancel()
        await line.close()
        assert done == ["first", "second", "last"]

    assert virtually(course).ended == ["closed"]


@pytest.mark.parametrize("limit", [None, 3.0])
def test_what_takes_too_long_is_in_doubt_its_session_ended_and_the_next_call_has_another(
    limit: float | None,
) -> None:
    async def course(server: Server) -> None:
        line = line_to(server, limit_seconds=limit)
        most = limit or LIMIT_SECONDS
        began = asyncio.get_running_loop().time()
        for _ in range(2):
            with pytest.raises(InDoubt, match=f"did not answer within {most:g} s"):
                await line.run(lambda _: takes(most + 5))
            assert await line.run(lambda _: takes(most - 0.5)) == "done"
        assert asyncio.get_running_loop().time() - began == pytest.approx(4 * most - 1)
        await asyncio.sleep(30)
        await line.close()

    server = virtually(course)
    lost, ends, *_ = server.sessions
    assert (lost.ended, ends.ended) == ("terminated", "terminated")
    ended = [of[1] for session in server.sessions for of in session.executed]
    assert ended == [100, 102]  # each of the two that were lost, and no other
    assert lost.executed == []
    assert server.ended.count("closed") == 1


def test_a_server_that_does_not_wait_for_its_standby_leaves_one_commit_in_doubt() -> None:
    async def course(server: Server) -> None:
        line = line_to(server)

        async def work(session: Session, function: str) -> str:
            session.warn(function)
            return "done"

        with pytest.raises(InDoubt, match="stop waiting for its standby"):
            await line.run(lambda one: work(one, "SyncRepWaitForLSN"))
        assert await line.run(lambda one: work(one, "another")) == "done"
        await line.close()

    assert virtually(course).ended == ["closed"]


@pytest.mark.parametrize(
    ("error", "raised", "ended"),
    [
        (asyncpg.UniqueViolationError("it is there"), asyncpg.UniqueViolationError, ["closed"]),
        (asyncpg.ReadOnlySQLTransactionError("no"), Unavailable, ["terminated", "closed"]),
        (asyncpg.ConnectionDoesNotExistError("gone"), InDoubt, ["terminated", "closed"]),
        (asyncpg.AdminShutdownError("goes"), InDoubt, ["terminated", "closed"]),
        (OSError("reset"), InDoubt, ["terminated", "closed"]),
    ],
)
def test_what_an_error_means(error: Exception, raised: type[Exception], ended: list[str]) -> None:
    async def fails() -> None:
        raise error

    async def course(server: Server) -> None:
        line = line_to(server)
        with pytest.raises(raised):
            await line.run(lambda _: fails())
        assert await line.run(lambda _: takes(0)) == "done"
        await line.close()

    assert virtually(course).ended == ended


def test_a_session_that_cannot_begin_is_ended_and_the_next_one_is_greeted() -> None:
    greeted: list[int] = []

    async def greet(session: Session) -> None:
        greeted.append(session.pid)

    async def course(server: Server) -> None:
        line = line_to(server, greet=greet)
        server.fails = asyncpg.InvalidSQLStatementNameError("of another session")
        with pytest.raises(asyncpg.InvalidSQLStatementNameError):
            await line.run(lambda _: takes(0))
        server.fails = None
        for _ in range(2):
            await line.run(lambda _: takes(0))
        await line.close()

    assert virtually(course).ended == ["terminated", "closed"]
    assert greeted == [101]


def test_nothing_is_done_on_a_line_that_is_closed_and_what_hangs_is_ended() -> None:
    async def course(server: Server) -> None:
        line = line_to(server, limit_seconds=60.0)
        hangs = asyncio.create_task(line.run(lambda _: takes(200)))
        await asyncio.sleep(1)
        closing = asyncio.create_task(line.close())
        await asyncio.sleep(LIMIT_SECONDS - 1)
        assert server.ended == [""]
        await asyncio.sleep(2)
        assert server.ended == ["terminated"]
        with pytest.raises(Unavailable, match="is closed"):
            await line.run(lambda _: takes(0))
        with pytest.raises(InDoubt):
            await hangs
        await closing

    virtually(course)


@pytest.mark.parametrize(("shown", "shares"), [((1, 2), False), ((1, 1), True), ((), False)])
def test_whether_a_pooler_gives_one_session_to_several(
    shown: tuple[int, ...], shares: bool
) -> None:
    async def course(server: Server) -> None:
        lines = [line_to(server) for _ in range(2)]
        assert await shares_sessions(lines) is shares
        for line in lines:
            await line.close()

    assert virtually(course, *shown).ended == ["closed", "closed"]


def test_the_sentence_of_a_lost_connection_names_the_database_and_why() -> None:
    async def fails(_: Any) -> None:
        raise asyncpg.InternalClientError("cannot switch to state 12")

    async def course(server: Server) -> None:
        server.text = "of this registry"
        line = line_to(server)
        with pytest.raises(InDoubt) as lost:
            await line.run(fails)
        assert lost.value.message == (
            "the connection to the database of this registry was lost: what was asked before has "
            "not come to its end there"
        )
        await line.close()

    assert virtually(course).ended == ["terminated"]


def test_only_what_has_to_last_is_counted_and_a_late_answer_is_a_failure() -> None:
    async def course(server: Server) -> None:
        clock = asyncio.get_running_loop().time
        commits, line = Commits(clock), line_to(server)
        await line.run(lambda _: takes(5))
        assert (commits.seconds(), commits.has_failed) == (0, False)
        hangs = asyncio.create_task(line.run(lambda _: takes(200), commits))
        await asyncio.sleep(4)
        assert commits.seconds() == 4
        with pytest.raises(InDoubt):
            await hangs
        assert (commits.seconds(), commits.has_failed) == (LIMIT_SECONDS, True)
        await line.run(lambda _: takes(1), commits)
        assert (commits.seconds(), commits.has_failed) == (0, False)
        await line.close()

    virtually(course)

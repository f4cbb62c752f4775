"""Serving a view: what is sent and when, how it waits, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.errors import Fenced, Unavailable
from rendezvous.wire.log_view import ViewOrder, ViewPost, ViewReply
from tests.support.virtual_time import run_virtually
from worker.agent.actions import ServeView
from worker.agent.viewing import MOST_VIEWS
from worker.agent.views import BEAT_SECONDS, Views

GOES_ON = ViewReply(goes_on=True)
OVER = ViewReply(goes_on=False)


class Registry:
    """A registry, as far as it takes what nodes send."""

    def __init__(self, answer: Callable[[ViewPost], ViewReply]) -> None:
        self.posts: list[ViewPost] = []
        self.at: list[float] = []
        self._answer = answer

    async def ask(self, model: Any, method: str, path: str, post: ViewPost) -> ViewReply:
        assert (method, path) == ("POST", "/v1/runs/llama/nodes/1/views")
        self.posts.append(post)
        self.at.append(asyncio.get_running_loop().time())
        return self._answer(post)

    def pause(self) -> float:
        return 0.3

    @property
    def lines(self) -> list[str]:
        return [line for post in self.posts for part in post.parts for line in part.lines]


async def at_once(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


def serve(
    folder: Path,
    answer: Callable[[ViewPost], ViewReply],
    meanwhile: Callable[[Views], Any] | None = None,
    **asked: Any,
) -> Registry:
    """Serve one view of rank 2 until it is over."""
    registry = Registry(answer)
    environment: Any = SimpleNamespace(in_thread=at_once)
    join: Any = SimpleNamespace(run="llama", slot=1)
    action = ServeView(ViewOrder(view=7, rank=2, **asked), 1, (2,), (2, 3), 1, 0.004)

    async def work() -> None:
        views = Views(registry, join, environment, folder)  # type: ignore[arg-type]
        serving = asyncio.create_task(views.serve(action))
        if meanwhile is not None:
            await meanwhile(views)
        await serving
        views._served -= {*range(100, 200)}
        assert views._served == views._behind == set()

    run_virtually(work())
    return registry


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-2.log"


def test_what_is_there_is_sent_and_then_that_it_is_all(log: Path) -> None:
    log.write_text("one\ntwo\n")
    registry = serve(log.parent, lambda post: GOES_ON if not post.done else OVER)
    assert registry.lines == ["one", "two"]
    assert [(post.number, post.done, post.words) for post in registry.posts] == [
        (1, False, ""),
        (2, True, ""),
    ]
    assert registry.at[0] >= 0.004


def test_where_there_is_no_log_that_is_said(tmp_path: Path) -> None:
    (post,) = serve(tmp_path, lambda post: OVER).posts
    assert (post.done, post.words) == (True, "there is no log of rank 2 on this node")


def test_nothing_more_is_sent_once_nobody_looks(log: Path) -> None:
    log.write_text("x" * 1_000 + "\n" * 50_000)
    assert len(serve(log.parent, lambda post: OVER, lines=10_000).posts) == 1


def answers(*replies: ViewReply | Exception) -> Callable[[ViewPost], ViewReply]:
    left: Iterator[ViewReply | Exception] = iter(replies)

    def answer(post: ViewPost) -> ViewReply:
        reply = next(left, OVER)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return answer


def test_what_was_not_taken_is_sent_again(log: Path) -> None:
    log.write_text("one\n")
    full = ViewReply(goes_on=True, taken=False, wait=1.0)
    registry = serve(log.parent, answers(full, Unavailable("away"), full, GOES_ON, OVER))
    assert [post.number for post in registry.posts] == [1, 1, 1, 1, 2]
    assert registry.posts[0] == registry.posts[3]
    assert registry.at[3] - registry.at[0] == pytest.approx(2.3)


def test_it_is_sent_again_for_as_long_as_there_is_no_room(log: Path) -> None:
    """A reader may rest for half a minute; a registry that is silent counts anew each time."""
    log.write_text("one\n")
    full = ViewReply(goes_on=True, taken=False, wait=1.0)
    registry = serve(log.parent, answers(*[full] * 29, GOES_ON, OVER))
    assert [post.number for post in registry.posts] == [1] * 30 + [2]


@pytest.mark.parametrize(
    ("errors", "tries"), [([Fenced("a newer one")], 1), ([Unavailable("away")] * 9, 5)]
)
def test_a_registry_that_does_not_answer_is_not_asked_for_ever(
    log: Path, errors: list[Exception], tries: int
) -> None:
    log.write_text("one\n")
    assert len(serve(log.parent, answers(*errors)).posts) == tries


def test_it_waits_as_it_is_told(log: Path) -> None:
    log.write_text("x" * 15_000 + "\n" + ("y" * 15_000 + "\n") * 6)
    slow = ViewReply(goes_on=True, wait=3.0)
    registry = serve(log.parent, answers(slow, slow, slow, OVER), lines=100)
    assert [round(b - a) for a, b in zip(registry.at, registry.at[1:], strict=False)] == [3, 3, 3]
    assert len(registry.lines) == 7


def test_who_follows_says_now_and_then_that_it_is_there(log: Path) -> None:
    log.write_text("one\n")
    registry = serve(log.parent, answers(GOES_ON, GOES_ON, OVER), follow=True)
    assert [len(post.parts) for post in registry.posts] == [1, 0, 0]
    assert registry.at[2] - registry.at[1] == pytest.approx(BEAT_SECONDS, abs=0.5)


def test_what_comes_is_sent_soon(log: Path) -> None:
    log.write_text("one\n")

    async def meanwhile(_: Views) -> None:
        await asyncio.sleep(2.0)
        with log.open("a") as file:
            file.write("two\n")

    registry = serve(log.parent, answers(GOES_ON, OVER), meanwhile, follow=True)
    assert registry.lines == ["one", "two"]
    assert 2.0 <= registry.at[1] <= 2.3


def test_the_last_lines_are_sent_before_a_node_leaves(log: Path) -> None:
    """Also by who was told to wait for long: what does not fit is left out and counted."""
    log.write_text("one\n")
    moments: list[float] = []

    async def meanwhile(views: Views) -> None:
        await views.flush()  # nobody looks yet
        await asyncio.sleep(1.0)
        with log.open("a") as file:
            file.write("".join(f"{n:09}\n" for n in range(100_000)))
        await views.flush()
        moments.append(asyncio.get_running_loop().time())

    told = ViewReply(goes_on=True, wait=60.0)
    registry = serve(log.parent, answers(told, *[told] * 5), meanwhile, follow=True)
    skipped = sum(part.skipped for post in registry.posts for part in post.parts)
    assert registry.lines[-1] == "000099999"
    assert skipped + len(registry.lines) == 100_001
    assert moments[0] <= 2.1


def test_a_view_that_ends_while_the_last_lines_are_sent_holds_nobody_up(log: Path) -> None:
    log.write_text("one\n")
    moments: list[float] = []

    async def meanwhile(views: Views) -> None:
        await asyncio.sleep(1.0)
        began = asyncio.get_running_loop().time()
        with log.open("a") as file:
            file.write("two\n")
        await views.flush()
        moments.append(asyncio.get_running_loop().time() - began)

    serve(log.parent, answers(GOES_ON, OVER), meanwhile, follow=True)
    assert moments[0] < 0.5


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_views_are_served_at_once_and_no_more(log: Path, more: int) -> None:
    log.write_text("one\n")

    async def many(views: Views) -> None:
        views._served |= {*range(100, 99 + MOST_VIEWS + more)}

    registry = serve(log.parent, lambda post: OVER if post.done else GOES_ON, many)
    assert registry.lines == (["one"] if more == 0 else [])


def test_a_flush_waits_for_each_view_and_again_the_next_time(tmp_path: Path) -> None:
    found: list[tuple[float, bool]] = []

    async def work() -> None:
        environment: Any = SimpleNamespace(in_thread=at_once)
        views = Views(Registry(answers()), None, environment, tmp_path)  # type: ignore[arg-type]
        views._served = {7, 8}
        clock = asyncio.get_running_loop().time
        for caught in ((7, 8), (8, 7), (8, 8), (7,)):
            began = clock()
            flushing = asyncio.create_task(views.flush())
            for view in caught:
                await asyncio.sleep(0.25)
                assert views._hurry.is_set()
                views._catches_up(view)
            await flushing
            found.append((clock() - began, views._hurry.is_set()))

    run_virtually(work())
    assert found == [(0.5, False), (0.5, False), (1.0, False), (1.0, False)]

"""Parts of features on the page of a run: what fails is left out, and costs a line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.state.state_dir import StateDir
from launcher.ui import parts as module
from launcher.ui.asked import views_of
from launcher.ui.clerk import Keys
from launcher.ui.parts import READ_SECONDS, PageRun, Part, Parts, View
from launcher.ui.save import saved_of
from launcher.ui.viewed import Viewed
from rendezvous.feature import Feature, Lazy
from rendezvous.wire.errors import NotFound, Unavailable
from tests.launcher.command import launched
from tests.support.pages import Holds
from tests.support.virtual_time import forever, run_virtually

RUN = cast(PageRun, None)


class Good(Part):
    """Does all."""

    def __init__(self, run: PageRun) -> None:
        super().__init__(run)
        self.done: list[str] = []

    async def follow(self, client: Any) -> None:
        self.done.append(f"follow {client}")

    async def read(self) -> None:
        self.done.append("read")

    def since(self, after: int) -> object | None:
        return self.done if after == 0 else None

    def views(self) -> Mapping[str, View]:
        return {"good": self._good, "none": self._none}

    async def _good(self) -> str:
        return "well"

    async def _none(self) -> str:
        raise NotFound("there is none")


class Bad(Good):
    """Fails in one of them, which a test chooses."""

    where = ""

    def __init__(self, run: PageRun) -> None:
        super().__init__(run)
        self._fail("init")

    def _fail(self, where: str) -> None:
        if self.where == where:
            raise ValueError("odd")

    async def follow(self, client: Any) -> None:
        self._fail("follow")

    async def read(self) -> None:
        self._fail("read")

    def since(self, after: int) -> object | None:
        self._fail("since")
        return 7

    def views(self) -> Mapping[str, View]:
        self._fail("views")
        return {"bad": self._bad}

    async def _bad(self) -> str:
        self._fail("view")
        return "well"


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_classes", lambda: {"bad": Bad, "good": Good})


async def whole(parts: Parts) -> tuple[dict[str, Any], list[str]]:
    await asyncio.gather(*parts.follow(cast(Any, "registry")))
    await parts.read()
    found = parts.since(0)
    return found, sorted(parts.views())


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("where", ["", "init", "follow", "read", "since", "views", "view"])
async def test_a_part_that_fails_costs_a_line_and_is_left_out_from_then_on(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Bad, "where", where)
    parts = Parts(RUN)
    done = ["follow registry", "read"]
    stays = where in ("", "view", "views")
    assert await whole(parts) == (
        {"good": done} | ({"bad": 7} if stays else {}),
        [*(["bad"] if where in ("", "view") else []), "good", "none"],
    )
    if where == "view":
        with pytest.raises(Unavailable, match="feature 'bad' failed"):
            await parts.views()["bad"]()
    assert caplog.messages == ["feature 'bad' failed on the page"] * bool(where)
    assert await parts.views()["good"]() == "well"
    with pytest.raises(NotFound):
        await parts.views()["none"]()
    left = {"bad": 7} if where in ("", "view") else {}
    assert parts.since(0) == {"good": done} | left
    assert parts.since(1) == left
    assert len(caplog.messages) == bool(where)


def test_a_feature_that_cannot_be_imported_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    features = (
        Feature("none"),
        Feature("bad", page=Lazy("tests.ui.nowhere:Part")),
        Feature("good", page=Lazy(f"{__name__}:Good")),
    )
    monkeypatch.setattr(module, "declared", lambda: features)
    assert {name: one.__name__ for name, one in module._classes.__wrapped__().items()} == {
        "good": "Good"
    }
    assert caplog.messages == ["feature 'bad' failed on the page"]


@pytest.mark.usefixtures("both")
async def test_a_file_has_all_views_but_those_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bad, "where", "view")
    state = launched(tmp_path)
    viewed = Viewed(StateDir(tmp_path, state.run), Holds(Keys()))
    try:
        assert "bad" in views_of(viewed)
        saved = await saved_of(viewed)
    finally:
        await viewed.close()
    assert "bad" not in saved["views"]
    assert "good" in saved["views"]
    assert saved["state"]["parts"]["bad"] == 7


class Hangs(Good):
    """Never comes to the end of a read, and has no task for one."""

    async def read(self) -> None:
        await forever()

    def follow(self, client: Any) -> Any:
        raise ValueError("odd")


class Slow(Good):
    """Reads for long, and shows what it has until then."""

    async def read(self) -> None:
        for _ in range(5):
            await asyncio.sleep(READ_SECONDS - 1.0)
            self.change()
        self.done.append("read")


def test_a_part_that_hangs_is_left_out_and_one_that_reads_for_long_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    classes = {"hangs": Hangs, "slow": Slow, "good": Good}
    monkeypatch.setattr(module, "_classes", lambda: classes)

    async def work() -> None:
        clock = asyncio.get_running_loop().time
        parts = Parts(cast(PageRun, SimpleNamespace(change=lambda: 1)))
        reading = asyncio.create_task(parts.read())
        await asyncio.sleep(0.1)
        assert parts.since(0) == {"hangs": [], "slow": [], "good": []}
        await asyncio.sleep(READ_SECONDS)
        assert parts.since(0) == {"slow": [], "good": []}
        await reading
        assert clock() == pytest.approx(READ_SECONDS + 5 * (READ_SECONDS - 1.0))
        assert parts.since(0) == {"slow": ["read"], "good": ["read"]}

    run_virtually(work())
    assert caplog.messages == ["feature 'hangs' failed on the page"]


@pytest.mark.parametrize("news", [{1, object()}, object()])
async def test_a_part_is_left_out_that_does_not_begin_to_follow_or_whose_news_are_no_json(
    news: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_classes", lambda: {"hangs": Hangs, "bad": Bad, "good": Good})
    monkeypatch.setattr(Bad, "since", lambda self, after: news)
    parts = Parts(RUN)
    await asyncio.gather(*parts.follow(cast(Any, "registry")))
    assert parts.since(0) == {"good": ["follow registry"]}
    failed = [f"feature '{name}' failed on the page" for name in ("hangs", "bad")]
    assert caplog.messages == failed


async def test_a_part_without_anything_says_nothing() -> None:
    part = Part(RUN)
    await part.follow(cast(Any, None))
    await part.read()
    assert (part.since(0), part.views()) == (None, {})

"""One Chromium for all tests of a worker, and a fresh context for each.

What needs the page's packages is imported when a fixture is used: all tests know these fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.ui.seen import Seen
    from tests.ui.stub import Stub

Open = Callable[..., "Seen"]


def _scope(fixture_name: str, config: pytest.Config) -> Literal["session", "module"]:
    """While a browser lives, its thread has an event loop, in the way of other tests' own."""
    alone = str(config.getoption("markexpr")).startswith("browser")
    return "session" if alone else "module"


@pytest.fixture(scope=_scope)
def browser() -> Iterator[Browser]:
    """Debian's Chromium; Playwright's own is never fetched."""
    from playwright.sync_api import sync_playwright

    from tests.ui.seen import CHROMIUM_ARGUMENTS

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(**CHROMIUM_ARGUMENTS)
        yield made
        made.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Make contexts; they end with the test."""
    with ExitStack() as stack:

        def make(**options: Any) -> BrowserContext:
            made = browser.new_context(
                **{"viewport": {"width": 1280, "height": 800}, "locale": "en-US", **options}
            )
            stack.callback(made.close)
            made.set_default_timeout(10_000)
            return made

        yield make


@pytest.fixture
def opened(context: Callable[..., BrowserContext]) -> Iterator[Open]:
    """Open the page of a stub in a context of its own; whatever it does wrong fails the test."""
    from tests.ui.seen import watched
    from tests.ui.stub import TICKET, Stub, serving

    with ExitStack() as stack:
        seen: list[Seen] = []

        def open_(
            stub: Stub | None = None,
            view: str = "now",
            *,
            ticket: str = TICKET,
            clock: bool = False,
            **options: Any,
        ) -> Seen:
            stub = stack.enter_context(serving(stub or Stub()))
            made = watched(context(**options), stub)
            seen.append(made)
            if clock:
                made.page.clock.install()
            made.page.goto(f"{stub.address}#t={ticket}&view={view}")
            return made

        yield open_
        for one in seen:
            one.check()

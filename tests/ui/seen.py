"""A page that a browser shows, and what went wrong in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.missing import CHROMIUM
from tests.ui import runs
from tests.ui.stub import Stub

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

_OWN_PAGES = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Chromium loads them into each window, and so for each test: three quarters of a window's cost."""
_ASKS_OUTSIDE = (
    *("AimEnabled", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "MediaRouter"),
    *("NetworkTimeServiceQuerying", "OptimizationHints", "PreconnectToSearch"),
)
"""Playwright switches them off itself, in the list that ours replaces."""
CHROMIUM_ARGUMENTS: dict[str, Any] = {
    "executable_path": CHROMIUM,
    "args": [
        *("--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text"),
        f"--disable-features={','.join(_OWN_PAGES + _ASKS_OUTSIDE)},PaintHolding",
    ],
}
"""Root, which CI is, has no sandbox; letters are drawn the same on every screen."""


def _views() -> tuple[str, ...]:
    """In the order of their tabs."""
    found = ["now", "logs", "checks", "matrix", "epochs", "events", "environment"]
    for feature in runs.features().values():
        for view in feature.TEXTS:
            found.insert(min(found.index(one) for one in feature.BEFORE if one in found), view)
    return tuple(found)


VIEWS = _views()
_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`));
"""
_OF_A_REQUEST = re.compile(r"Failed to load resource|net::ERR_")


@dataclass
class Seen:
    """A page and its stub.

    Attributes:
        wrong: Errors of its script, what its console says, requests that leave its origin.
        address: Of the page, where it is not the stub's.
    """

    page: Page
    stub: Stub
    wrong: list[str] = field(default_factory=list)
    address: str = ""

    def view(self, name: str) -> Locator:
        """Go to a view by its tab; returns its place."""
        self.page.locator(f"#tab-{name}").click()
        found = self.page.locator(f".view-{name}")
        found.wait_for()
        return found

    def settled(self) -> None:
        """Wait until nothing is loading."""
        self.page.locator(".loading").first.wait_for(state="detached")
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
        )

    def tiles(self) -> dict[str, list[str]]:
        """What stands under each name of how it is going."""
        places = self.page.locator(".tiles > div")
        return {
            one.locator("dt").inner_text(): [
                text for text in one.locator("b, dd span").all_inner_texts() if text
            ]
            for one in places.all()
        }

    def asks(self, words: str, times: int = 1) -> None:
        """Wait until it has sent requests with these words in their address."""
        for _ in range(100):
            found = [path for _, path, _ in self.stub.asked if words in path]
            if len(found) >= times:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{len(found)} requests of {times} have {words}")

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        wide: int = self.page.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return wide

    def check(self) -> None:
        """Nothing is wrong with it so far."""
        assert self.wrong == []
        assert self.page.evaluate("() => window.violations") == []
        assert self.page.evaluate("() => window.executed ?? null") is None


def watched(context: BrowserContext, stub: Stub | None, address: str = "") -> Seen:
    """A page of this context, watched from before its first byte; of a stub, or at an address."""
    context.add_init_script(_VIOLATIONS)
    page = context.new_page()
    seen = Seen(page, stub or Stub(), address=address)
    page.on("pageerror", lambda error: seen.wrong.append(f"error: {error}"))

    def console(message: object) -> None:
        kind, text = getattr(message, "type", ""), getattr(message, "text", "")
        # That a request failed is the browser's own line: a test that refuses one sees it.
        if kind in ("error", "warning") and not _OF_A_REQUEST.search(text):
            seen.wrong.append(f"console: {text}")

    page.on("console", console)

    def request(made: object) -> None:
        url = getattr(made, "url", "")
        own = (seen.address or seen.stub.address, "data:", "file:", "blob:")
        if not url.startswith(own):
            seen.wrong.append(f"request: {url}")

    page.on("request", request)
    page.on("dialog", lambda dialog: seen.wrong.append(f"dialog: {dialog.message}"))
    return seen

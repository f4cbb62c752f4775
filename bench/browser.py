"""A real Chromium that shows the page, and tells when it has shown what."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
_LIMIT_MS = 60_000
_ASKED = 20
_NEW_TAB_SECONDS = 0.3

# Before the page's own script: notes when its stream begins, when its slots are there and drawn,
# and when each line with a mark has come into the document.
_WATCH = """
(() => {
  const seen = window.seen = { stream: 0, table: 0, drawn: 0, marks: {} };
  const real = window.fetch;
  window.fetch = async (...asked) => {
    const answer = await real(...asked);
    if (String(asked[0]).includes("/stream")) seen.stream ||= performance.now();
    return answer;
  };
  const look = () => {
    const slots = document.querySelectorAll(".view-now tbody tr").length;
    if (slots < ROWS || !document.querySelector(".view-now .sentence")?.textContent) return;
    seen.table = performance.now();
    requestAnimationFrame(() => setTimeout(() => { seen.drawn = performance.now(); }));
  };
  const find = (node, now) => {
    for (const [, mark] of (node.textContent ?? "").matchAll(/\\bmark (\\d+)/g)) {
      seen.marks[mark] ??= now;
    }
  };
  new MutationObserver((changes) => {
    const now = performance.now();
    if (!seen.table) look();
    for (const change of changes) {
      for (const node of change.addedNodes) find(node, now);
      if (change.type === "characterData") find(change.target, now);
    }
  }).observe(document, { childList: true, subtree: true, characterData: true });
})();
"""


def missing() -> str:
    """Why no browser can be measured here; empty: one can."""
    if not Path(CHROMIUM).is_file():
        return f"the page needs {CHROMIUM}: apt install chromium"
    return "" if importlib.util.find_spec("playwright") else "playwright is not installed"


class Shown:
    """The page of a run, in a window of its own."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def ready_ms(self) -> float:
        """From the navigation until the slots were drawn and the stream had begun."""
        self._wait("window.seen.drawn && window.seen.stream")
        seen: dict[str, float] = self._page.evaluate("window.seen")
        return max(seen["drawn"], seen["stream"])

    def _wait(self, for_: str) -> None:
        """Until something is true; `wait_for_function` is refused by the page's policy."""
        until = f"performance.now() + {_LIMIT_MS}"
        pause = "await new Promise((done) => setTimeout(done, 10))"
        loop = f"while (!({for_}) && performance.now() < until) {pause}"
        what = f"async () => {{ const until = {until}; {loop}; return Boolean({for_}); }}"
        assert self._page.evaluate(what), f"the page never came to: {for_}"

    def open(self, view: str, **more: object) -> None:
        """Show another view."""
        parts = "".join(f"&{name}={value}" for name, value in more.items())
        self._page.evaluate(f"location.hash = location.hash + '&view={view}{parts}'")
        self._wait(f"document.querySelector('.view-{view}')")

    def marks(self) -> dict[int, float]:
        """When each mark was seen first, by this process's clock, to half of a round trip."""
        found: list[tuple[float, float]] = []
        for _ in range(_ASKED):
            before = time.monotonic()
            its = float(self._page.evaluate("performance.now()")) / 1_000
            after = time.monotonic()
            found.append((after - before, (before + after) / 2 - its))
        _, offset = min(found)
        marks: dict[str, float] = self._page.evaluate("window.seen.marks")
        return {int(mark): at / 1_000 + offset for mark, at in marks.items()}

    def wait_for_mark(self, mark: int) -> None:
        """Until it was seen."""
        self._wait(f"window.seen.marks[{mark}]")

    def heap_bytes(self) -> int:
        """What its script holds, once what it no longer needs is gone."""
        session = self._page.context.new_cdp_session(self._page)
        session.send("HeapProfiler.collectGarbage")
        used: dict[str, Any] = session.send("Runtime.getHeapUsage")
        session.detach()
        return int(used["usedSize"])


class Chromium:
    """A browser that runs already, with one window."""

    def __init__(self, browser: Browser) -> None:
        # Each context has a window of its own, with which Chromium loads pages of its own: not
        # what somebody waits for who opens a link.
        self._context = browser.new_context(viewport={"width": 1280, "height": 800})
        self._first = self._context.new_cdp_session(self._context.new_page())

    @contextlib.contextmanager
    def shows(self, link: str, rows: int) -> Iterator[Shown]:
        """Open a link in a new tab, with nothing in the cache; `rows` of slots are waited for."""
        self._first.send("Network.clearBrowserCache")
        page = self._context.new_page()
        try:
            page.add_init_script(_WATCH.replace("ROWS", str(rows)))
            time.sleep(_NEW_TAB_SECONDS)
            page.goto(f"{link}&view=now", wait_until="commit")
            yield Shown(page)
        finally:
            page.close()


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """Debian's; Playwright's own is never fetched."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Chromium(made)
        made.close()

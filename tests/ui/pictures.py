"""Pictures of the page, the same on every machine.

    python -m tests.ui.pictures

takes them again. Text is in a font that comes with matplotlib, since machines have different ones,
and the run is over, so that no time in it counts on. Chromium draws the rest itself.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import matplotlib
from PIL import Image, ImageChops

from tests.ui.seen import CHROMIUM_ARGUMENTS, Seen, watched
from tests.ui.stub import TICKET, Stub, serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent / "pictures"
EVERYDAY = ("now-64-dark-1280", "now-4-light-390")
ALL = (
    *(
        f"now-{nodes}-{theme}-{width}"
        for nodes in (1, 4, 64, 1024)
        for theme in ("dark", "light")
        for width in (1280, 390)
    ),
    *("matrix-64-light-1280", "matrix-4-dark-390", "curves-4-dark-1280", "logs-4-light-390"),
)
HIGH = 800
COLOURS = 64
STRONG = 48
"""Of 255: what a pixel differs by at least that counts; less is the smoothing of an edge."""
TOLERATED = 0.01
"""So many of all pixels may differ: a line of text that another Chromium sets a pixel lower."""


def _font(file: str) -> str:
    data = (Path(matplotlib.get_data_path()) / "fonts" / "ttf" / file).read_bytes()
    return f"url(data:font/ttf;base64,{base64.b64encode(data).decode()})"


def _style() -> str:
    faces = "".join(
        f"@font-face {{ font-family: '{name}'; font-weight: {weight}; src: {_font(file)} }}"
        for name, weight, file in (
            ("Same", "400", "DejaVuSans.ttf"),
            ("Same", "600 700", "DejaVuSans-Bold.ttf"),
            ("Same mono", "400", "DejaVuSansMono.ttf"),
        )
    )
    return f"{faces} body {{ font-family: Same }} code, pre, .log {{ font-family: 'Same mono' }}"


def take(browser: Browser, name: str) -> Image.Image:
    """The picture of this name: view, nodes, theme and width."""
    view, nodes, theme, wide = name.split("-")
    dark_or_light: Literal["dark", "light"] = "dark" if theme == "dark" else "light"
    context = browser.new_context(
        viewport={"width": int(wide), "height": HIGH},
        color_scheme=dark_or_light,
        bypass_csp=True,
        timezone_id="UTC",
        locale="en-US",
    )
    try:
        with serving(Stub(int(nodes), "failed")) as stub:
            seen = watched(context, stub)
            seen.page.goto(f"{stub.address}#t={TICKET}&view={view}")
            seen.page.locator("[role=tabpanel]").wait_for()
            return _taken(seen, int(wide))
    finally:
        context.close()


def _taken(seen: Seen, width: int) -> Image.Image:
    page = seen.page
    page.add_style_tag(content=_style())
    page.evaluate("() => document.fonts.ready.then(() => undefined)")
    # What is drawn on a canvas is drawn again for another width.
    page.set_viewport_size({"width": width - 20, "height": HIGH})
    page.wait_for_timeout(200)
    page.set_viewport_size({"width": width, "height": HIGH})
    seen.settled()
    page.wait_for_timeout(400)
    found = Image.open(io.BytesIO(page.screenshot(animations="disabled", caret="hide")))
    return found.convert("RGB").quantize(COLOURS)


def differing(one: Image.Image, other: Image.Image) -> float:
    """Which part of their pixels differs strongly; all of them if the sizes differ."""
    if one.size != other.size:
        return 1.0
    bands = ImageChops.difference(one.convert("RGB"), other.convert("RGB")).split()
    most = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2])
    return sum(most.histogram()[STRONG:]) / (one.width * one.height)


def main() -> None:
    """Take all pictures again."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**CHROMIUM_ARGUMENTS)
        for name in ALL:
            take(browser, name).save(FOLDER / f"{name}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()

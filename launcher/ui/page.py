"""The page as it is served, and as one file: the modules of `page/` put together.

There is no build: a module becomes a function that is called once and returns what it exports, so
that its other names stay its own. Its comments, indentation and empty lines are for who reads its
file, and are not sent.
"""

from __future__ import annotations

import base64
import functools
import graphlib
import hashlib
import html
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.ui.shapes import Saved
from rendezvous.feature import declared
from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import HEADER, PROTOCOL, Speaker

_IMPORT = re.compile(
    r'^import \{ (\w+(?:, \w+)*) \} from "\.(?:/|\./\.\./launcher/ui/page/)(\w+)\.js";$',
    re.MULTILINE,
)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
_COMMENT = re.compile(
    r"""^ *(?://.*|/\*\*(?:[^*]|\*(?!/))*\*/)\n|(?<=[;,{}()>\]]) // [^"`\n]*$|^ +|^\n""",
    re.MULTILINE,
)
_ESCAPED = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}
_DOCS_PAGE = re.compile(r"/docs/([a-z][a-z0-9-]*\.md)$")
_FEATURE = "feature_"
_ROOT = Path(__file__).parents[2]
"""Of the packages and of `docs`, in a checkout as in an installation."""
_STYLE_FOR_READERS = re.compile(r"/\*.*?\*/\s*|;?\s*(})\s*|\s*([{;,])\s*|(?<=:)\s+", re.DOTALL)

SERVER = Speaker("the 'rdzv ui' that serves it", PROTOCOL, rdzv_version())
_PAGE = Speaker("this page", PROTOCOL, rdzv_version())
_REFERRER = '<meta name="referrer" content="no-referrer">\n'
_STYLE_LINK = '<link rel="stylesheet" href="app.css">\n'
_SCRIPT_LINK = '<script src="app.js" defer></script>\n'

_NOTHING_ELSE = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
_NO_MARKUP = "require-trusted-types-for 'script'; trusted-types 'none'"
SECURITY_POLICY = (
    f"{_NOTHING_ELSE}; script-src 'self'; style-src 'self'; connect-src 'self'; "
    f"frame-ancestors 'none'; {_NO_MARKUP}"
)
"""What a browser may do with the page: the value of its Content-Security-Policy. `data:` is for the
empty icon, without which the browser asks for one."""


@dataclass(frozen=True)
class Page:
    """What is served: `index` at the folder's own address, the others beside it."""

    index: bytes
    app_css: bytes
    app_js: bytes


@functools.cache
def load() -> Page:
    """Read the files of the page and put them together."""
    folder = Path(__file__).parent / "page"
    modules = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.js"))}
    vendor = folder / "vendor"
    script = (vendor / "uPlot.iife.min.js").read_text("utf-8") + bundled({**modules, **_scripts()})
    style = (vendor / "uPlot.min.css").read_text("utf-8")
    style += _STYLE_FOR_READERS.sub(r"\1\2", (folder / "app.css").read_text("utf-8"))
    return Page(
        index=_with_protocol((folder / "index.html").read_text("utf-8")).encode(),
        app_css=style.encode(),
        app_js=script.encode(),
    )


def _with_protocol(index: str) -> str:
    """The page with what it says in the header of its requests."""
    said = f'<meta name="{HEADER}" content="{html.escape(_PAGE.header())}">\n'
    return index.replace(_REFERRER, _REFERRER + said)


def docs_page(path: str) -> bytes | None:
    """Return the page of the documentation that a path names by its end; None: it names none."""
    found = _DOCS_PAGE.search(path)
    try:
        return (_ROOT / "docs" / found[1]).read_bytes() if found is not None else None
    except OSError:
        return None


def _scripts() -> dict[str, str]:
    """Those of features, by name."""
    folder = _ROOT / "features"
    return {
        f"{_FEATURE}{one.name}": (folder / one.name / one.script).read_text("utf-8")
        for one in declared()
        if one.script
    }


def bundled(modules: Mapping[str, str]) -> str:
    """Modules as one script, by name without `.js`; a module comes after those that it imports, and
    `run` after those of features, which keep their order.

    Raises:
        ValueError: A module has an import or export of a form that is not known here, or a template
            of several lines.
    """
    needs = {name: {found[1] for found in _IMPORT.findall(text)} for name, text in modules.items()}
    features = [name for name in needs if name.startswith(_FEATURE)]
    for before, name in itertools.pairwise([*features, *needs.keys() & {"run"}]):
        needs[name].add(before)
    order = graphlib.TopologicalSorter(needs).static_order()
    parts = [_as_function(name, modules[name]) for name in order]
    return '\n(() => {\n"use strict";\n' + "".join(parts) + "})();\n"


def _as_function(name: str, text: str) -> str:
    exports = ", ".join(_EXPORT.findall(text))
    text = _EXPORT.sub("", _IMPORT.sub(r"const {\1}=in_\2;", text))
    if left := _LEFT_OVER.search(text):
        raise ValueError(f"{name}.js: {left[0]!r} is an import or export of an unknown form")
    text = _COMMENT.sub("", text)
    if any(line.count("`") % 2 for line in text.splitlines()):
        raise ValueError(f"{name}.js: a template continues on another line")
    return f"const in_{name} = (() => {{\n{text}return {{{exports}}};\n}})();\n"


def saved_page(saved: Saved) -> bytes:
    """One file that shows a run without a server: with the same script and style, and all data."""
    page = load()
    script, style = page.app_js.decode(), page.app_css.decode()
    data = json.dumps(saved, allow_nan=False, separators=(",", ":")).translate(_ESCAPED)
    policy = (
        f"{_NOTHING_ELSE}; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        f"{_NO_MARKUP}"
    )
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    block = f'<script type="application/json" id="saved">{data}</script>\n'
    index = page.index.decode()
    index = index.replace('<meta charset="utf-8">\n', f'<meta charset="utf-8">\n{head}')
    index = index.replace(_STYLE_LINK, f"<style>{style}</style>\n").replace(_SCRIPT_LINK, "")
    return index.replace("</body>", f"{block}<script>{script}</script>\n</body>").encode()


def _digest(text: str) -> str:
    """As a policy names a script or style inside of the page."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

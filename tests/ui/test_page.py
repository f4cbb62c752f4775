"""What the page is put together from, without a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import tarfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.ui.page import SECURITY_POLICY, bundled, load, saved_page
from launcher.ui.shapes import Saved
from rendezvous.feature import declared
from tests.support.missing import give_up
from tests.test_packages import modules
from tests.ui import runs
from tests.ui.hostile import ROTATIONS, poisoned

FOLDER = modules()["launcher.ui.page"].parent / "page"
SOURCES = sorted(FOLDER.glob("*.js")) + [
    FOLDER.parents[2] / "features" / one.name / one.script for one in declared() if one.script
]
MOST_BYTES = 150_000
"""Of all that a browser loads, before it is compressed."""
VENDORED = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""Of uplot 1.6.32 as npm has it."""
FOR_FEATURES = ("span", "value")
"""Exports that features alone import, which may be deleted."""
MARKUP = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval("),
    *("new Function", 'setAttribute("style"', "setHTML", "createContextualFragment", "srcdoc"),
)
FOREIGN = re.compile(r"""(?:https?:)?//[\w.-]+\.\w+|["'`]/\w""")


class Parts(HTMLParser):
    """What is in a page: the tags with their attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.texts.append((self.tags[-1][1].get("type") or self.tags[-1][0], data))


# ---- the sources ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_module_makes_markup_of_text_or_names_another_host(path: Path) -> None:
    text = path.read_text("utf-8")
    assert [word for word in MARKUP if word in text] == []
    assert FOREIGN.findall(text) == []
    assert max(map(len, text.splitlines())) <= 160


def test_the_index_has_relative_addresses_and_no_style_or_script_of_its_own() -> None:
    page = Parts((FOLDER / "index.html").read_text("utf-8"))
    addresses = [
        value for _, found in page.tags for name, value in found.items() if name in ("href", "src")
    ]
    assert sorted(map(str, addresses)) == ["#", "#main", "app.css", "app.js", "data:,"]
    assert page.texts == []
    named = {name for _, found in page.tags for name in found}
    assert not {name for name in named if name == "style" or name.startswith("on")}


def test_what_a_browser_loads_is_small() -> None:
    page = load()
    assert len(page.index) + len(page.app_css) + len(page.app_js) < MOST_BYTES


def test_the_style_fetches_nothing() -> None:
    assert b"url(" not in load().app_css
    assert b"@import" not in load().app_css


@pytest.mark.parametrize("name", list(VENDORED))
def test_a_vendored_file_is_as_it_was_released(name: str) -> None:
    assert hashlib.sha256((FOLDER / "vendor" / name).read_bytes()).hexdigest() == VENDORED[name]
    assert {path.name for path in (FOLDER / "vendor").iterdir()} == set(VENDORED)


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_vendored_file_is_what_npm_has(tmp_path: Path) -> None:
    command = ["npm", "pack", "--silent", "uplot@1.6.32"]
    try:
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=100)
    except (OSError, subprocess.SubprocessError) as exc:
        give_up(f"npm brings no tarball: {exc}")
    with tarfile.open(tmp_path / "uplot-1.6.32.tgz") as tar:
        for name, digest in VENDORED.items():
            inside = "package/LICENSE" if name.endswith("LICENSE") else f"package/dist/{name}"
            file = tar.extractfile(inside)
            assert file is not None
            assert hashlib.sha256(file.read()).hexdigest() == digest


# ---- the bundle -----------------------------------------------------------------------------


def test_a_module_comes_after_those_that_it_imports_and_keeps_its_names() -> None:
    script = bundled(
        {
            "a": 'import { two, Three } from "./b.js";\n\nconst own = two(Three);\n',
            "b": "const own = 2;\nexport function two() {\n  return own;\n}\n"
            "export class Three {}\nexport async function* four() {}\nexport const five = 5;\n",
        }
    )
    assert script == (
        '\n(() => {\n"use strict";\n'
        "const in_b = (() => {\nconst own = 2;\nfunction two() {\nreturn own;\n}\n"
        "class Three {}\nasync function* four() {}\nconst five = 5;\n"
        "return {two, Three, four, five};\n})();\n"
        "const in_a = (() => {\nconst {two, Three}=in_b;\n"
        "const own = two(Three);\nreturn {};\n})();\n})();\n"
    )


def test_those_of_features_come_in_their_order_and_before_what_makes_the_tabs() -> None:
    features = {
        f"feature_{name}": 'import { all } from "../../launcher/ui/page/b.js";\n' for name in "zy"
    }
    script = bundled({"main": 'import { run } from "./run.js";\n', "run": "", "b": "", **features})
    assert re.findall(r"^const in_(\w+) =", script, re.M) == [
        *("b", "feature_z", "feature_y", "run", "main"),
    ]
    assert script.count("const {all}=in_b;") == 2


@pytest.mark.parametrize(
    "line", ['import x from "./b.js";', "export default 3;", 'import { a as b } from "./b.js";']
)
def test_a_line_that_would_be_lost_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="unknown form"):
        bundled({"a": f"{line}\n", "b": ""})


def test_comments_indentation_and_empty_lines_are_not_sent() -> None:
    text = (
        "// What it is.\n\n/** Of two\n * lines. */\nconst a = 1; // it's one\n"
        'if (a) {\n  // left out\n  a(`  / b / ${a}  `, "; // c"); // `d`\n}\n'
    )
    assert (
        '(() => {\nconst a = 1;\nif (a) {\na(`  / b / ${a}  `, "; // c"); // `d`\n}\n'
    ) in bundled({"a": text})
    with pytest.raises(ValueError, match="a template continues on another line"):
        bundled({"a": "const a = `\n  b`;\n"})


def test_every_name_that_is_imported_is_exported() -> None:
    exported = {
        path.stem: set(re.findall(r"^export .*?(?:function\*?|class|const) (\w+)", text, re.M))
        for path in SOURCES
        for text in [path.read_text("utf-8")]
    }
    for path in SOURCES:
        for names, module in re.findall(
            r'^import \{ (.+) \} from "(.+)";$', path.read_text("utf-8"), re.M
        ):
            assert (path.parent / module).resolve().parent == FOLDER, path.name
            assert set(names.split(", ")) <= exported[Path(module).stem], path.name
            for name in names.split(", "):
                assert len(re.findall(rf"\b{name}\b", path.read_text("utf-8"))) > 1, path.name
    taken = {
        name
        for path in SOURCES
        for names in re.findall(r"^import \{ (.+) \}", path.read_text("utf-8"), re.M)
        for name in names.split(", ")
    }
    assert {name for names in exported.values() for name in names} - taken <= {
        "Refused",
        "marks",
        *FOR_FEATURES,
    }


# ---- what is served and saved ---------------------------------------------------------------


def policy(text: str) -> dict[str, list[str]]:
    parts = [each.split() for each in text.split("; ")]
    return {name: values for name, *values in parts}


def test_the_policy_allows_this_origin_alone() -> None:
    found = policy(SECURITY_POLICY)
    assert found["default-src"] == found["frame-ancestors"] == found["form-action"] == ["'none'"]
    assert found["script-src"] == found["style-src"] == found["connect-src"] == ["'self'"]
    assert found["require-trusted-types-for"] == ["'script'"]
    assert found["trusted-types"] == ["'none'"]


def test_a_saved_page_allows_its_own_script_and_style_by_their_digest() -> None:
    page = Parts(saved_page(runs.saved(4)).decode())
    [content] = [
        str(found["content"]) for _, found in page.tags if found.get("http-equiv") is not None
    ]
    allowed = policy(content)
    for kind in ("script", "style"):
        [text] = ["".join(text for of, text in page.texts if of == kind)]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert allowed[f"{kind}-src"] == [f"'sha256-{digest}'"]
    assert "unsafe" not in content
    assert "connect-src" not in allowed
    addresses = {found.get("src") or found.get("href") for _, found in page.tags}
    assert addresses - {None} == {"#", "#main", "data:,"}


@pytest.mark.parametrize("rotation", range(ROTATIONS))
def test_hostile_data_leaves_its_block_in_no_way(rotation: int) -> None:
    saved = poisoned(runs.saved(2), rotation)
    whole = saved_page(cast(Saved, saved)).decode()
    plain = Parts(saved_page(runs.saved(2)).decode())
    page = Parts(whole)
    assert page.tags == plain.tags
    [data] = [text for kind, text in page.texts if kind == "application/json"]
    read: Any = json.loads(data)
    assert read == json.loads(json.dumps(saved))
    assert not set(data) & {"<", ">", "&", "\u2028", "\u2029"}


def test_no_script_or_style_would_end_its_block() -> None:
    page = load()
    for text in (page.app_js.decode(), page.app_css.decode()):
        assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE)
        assert "\r" not in text

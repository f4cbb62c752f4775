"""The tree keeps to `budget.toml`, which says what it may have at most."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

from launcher.cli import main
from launcher.options import SettingsOption
from rendezvous.compat import tomllib

ROOT = Path(__file__).parent.parent
PRODUCT = ("rendezvous", "worker", "launcher", "features", "rdzv")
LOOSE = 0.98
"""The share of its number below which a figure asks for a lower number."""

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """Count the lines with code: no blank lines, comments, docstrings, or imports."""
    lines = enumerate(map(str.strip, source.splitlines()), start=1)
    code = {number for number, line in lines if line and not line.startswith("#")}
    left_out = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr | ast.Constant):
            code.update(_lines_of(node))  # a blank line of a text is none of the source
        elif isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(_lines_of(node))
        elif isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node) is not None:
            left_out.update(_lines_of(node.body[0]))
    return len(code - left_out)


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _files(*folders: str, suffixes: tuple[str, ...]) -> Iterator[str]:
    """The text of each file, but for what other projects have written."""
    for path in sorted(path for name in folders for path in (ROOT / name).rglob("*")):
        if path.suffix in suffixes and "vendor" not in path.parts:
            yield path.read_text("utf-8", "replace")


def _lines(*folders: str, suffixes: tuple[str, ...]) -> int:
    return sum(text.count("\n") for text in _files(*folders, suffixes=suffixes))


def _launch_options() -> int:
    command = main.get_command(click.Context(main), "launch")
    assert command is not None
    return sum(isinstance(one, SettingsOption) and not one.hidden for one in command.params)


def _packages(declared: list[str]) -> int:
    """Count the packages that are installed on a current Python."""
    markers = (Requirement(one).marker for one in declared)
    return sum(marker is None or marker.evaluate({"python_version": "3.13"}) for marker in markers)


def measured() -> dict[str, int]:
    """Count what the budget limits, under its names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    docs = (path for path in (ROOT / "docs").rglob("*.md") if "internals" not in path.parts)
    return {
        "code": sum(map(code_lines, _files(*PRODUCT, suffixes=(".py",)))),
        "toml": _lines(*PRODUCT, suffixes=(".toml",)),
        "page": _lines(*PRODUCT, suffixes=(".js", ".css")),
        "tests": _lines("tests", suffixes=(".py",)),
        "records": _lines("tests", suffixes=(".txt",)) - _lines("tests/causes", suffixes=(".txt",)),
        "launch_options": _launch_options(),
        "docs_words": sum(len(path.read_text("utf-8").split()) for path in docs),
        "worker_packages": _packages(project["dependencies"]),
        "launcher_packages": _packages(project["optional-dependencies"]["launcher"]),
    }


def judged(budget: dict[str, int], found: dict[str, int]) -> list[str]:
    """Word what is over the budget, far below it, or counted on one side only."""
    words = [f"{name} is in one of both only" for name in sorted(budget.keys() ^ found.keys())]
    for name in budget.keys() & found.keys():
        figure, most = found[name], budget[name]
        if figure > most:
            words.append(f"{name}: {figure}, and the budget has {most}: what can go?")
        elif figure <= LOOSE * most:
            words.append(f"{name}: {figure}, and the budget has {most}: lower it to {figure}")
    return sorted(words)


@pytest.mark.skipif(not (ROOT / PRODUCT[0]).is_dir(), reason="of a checkout, not of a wheel")
def test_the_tree_keeps_to_its_budget() -> None:
    budget = tomllib.loads((ROOT / "budget.toml").read_text("utf-8"))
    assert judged(budget, measured()) == []


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (1000, []),
        (981, []),
        (1001, ["x: 1001, and the budget has 1000: what can go?"]),
        (980, ["x: 980, and the budget has 1000: lower it to 980"]),
    ],
)
def test_a_figure_may_be_at_most_its_number_and_not_far_below(
    figure: int, words: list[str]
) -> None:
    assert judged({"x": 1000}, {"x": figure}) == words

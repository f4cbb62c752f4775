"""No file, class, function or constructor of the product grows out of sight."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.sources import nodes, tree_of
from tests.test_packages import PACKAGES, imports, modules

FILE_LINES = 450
CLASS_LINES = 300
FUNCTION_LINES = 60
PARAMETERS = 6
"""Of an `__init__`, besides self."""

STAND_ALONE = {
    "worker.programs.bandwidth": "one file: torchrun starts it on the user's interpreter, where "
    "rdzv is not installed",
}
"""May be longer than a file may, and why; whatever is in them keeps to the other bounds."""


def too_large(source: str) -> list[str]:
    """What of a module is over a bound, in words."""
    return [*_whole(source), *_parts(ast.parse(source))]


def _whole(source: str) -> list[str]:
    lines = len(source.splitlines())
    return [f"{lines} lines"] if lines > FILE_LINES else []


def _parts(tree: ast.Module) -> Iterator[str]:
    for node in nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _over(node, CLASS_LINES)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _over(node, FUNCTION_LINES)
            if node.name == "__init__" and (count := _parameters(node.args)) > PARAMETERS:
                yield f"__init__ in line {node.lineno}: {count} parameters"


def _over(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, most: int) -> Iterator[str]:
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    if lines > most:
        yield f"{node.name}: {lines} lines"


def _parameters(args: ast.arguments) -> int:
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return len(named) + (args.vararg is not None) + (args.kwarg is not None) - 1


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1\n" * 450, []),
        ("x = 1\n" * 451, ["451 lines"]),
        ("class A:\n" + "    x = 1\n" * 299, []),
        ("class A:\n" + "    x = 1\n" * 300, ["A: 301 lines"]),
        ("def f():\n" + "    x = 1\n" * 59, []),
        ("def f():\n" + "    x = 1\n" * 60, ["f: 61 lines"]),
        ("class A:\n  async def f():\n" + "    x = 1\n" * 60, ["f: 61 lines"]),
        ("def __init__(self, a, /, b, *, c, d, e, f): ...", []),
        ("def __init__(self, a, b, c, *d, e, f, **g): ...", ["__init__ in line 1: 7 parameters"]),
        ("def f(a, b, c, d, e, f, g, h): ...", []),
    ],
)
def test_what_is_over_a_bound_is_found(source: str, found: list[str]) -> None:
    assert too_large(source) == found


def test_no_part_of_the_product_is_too_large() -> None:
    found = {
        name: [
            *([] if name in STAND_ALONE else _whole(path.read_text("utf-8"))),
            *_parts(tree_of(path)),
        ]
        for name, path in modules().items()
    }
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("name", list(STAND_ALONE))
def test_a_program_that_may_be_longer_is_longer_and_stands_alone(name: str) -> None:
    assert too_large(modules()[name].read_text("utf-8"))
    assert not [module for module, _ in imports(name) if module.split(".")[0] in PACKAGES]

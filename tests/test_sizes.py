"""No file, class, function or constructor of the product grows out of sight."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from rendezvous.compat import tomllib
from tests.support.sources import nodes, tree_of
from tests.test_packages import PACKAGES, ROOT, imports, modules

FILE_LINES = 450
CLASS_LINES = 300
FUNCTION_LINES = 60
OF_THE_PURE = 2
"""A pure machine may be twice as long, file and class: nothing happens beside it."""
PARAMETERS = 6
"""Of an `__init__`, besides self."""

STAND_ALONE = {
    "worker.programs.bandwidth": "one file: torchrun starts it on the user's interpreter, where "
    "rdzv is not installed",
}
"""May be longer than a file may, and why; whatever is in them keeps to the other bounds."""


def too_large(source: str, times: int = 1) -> list[str]:
    """What of a module is over a bound, in words."""
    return [*_whole(source, times), *_parts(ast.parse(source), times)]


def pure_modules() -> set[str]:
    """Name the modules that are pure, by the import contract on them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    sources = next(
        one["source_modules"] for one in contracts["contracts"] if one["name"].startswith("pure ")
    )
    return {name for name in modules() if any(f"{name}.".startswith(f"{of}.") for of in sources)}


def _whole(source: str, times: int) -> list[str]:
    lines = len(source.splitlines())
    return [f"{lines} lines"] if lines > times * FILE_LINES else []


def _parts(tree: ast.Module, times: int) -> Iterator[str]:
    for node in nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _over(node, times * CLASS_LINES)
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
    found, pure = dict[str, list[str]](), pure_modules()
    for name, path in modules().items():
        times = OF_THE_PURE if name in pure else 1
        whole = [] if name in STAND_ALONE else _whole(path.read_text("utf-8"), times)
        found[name] = [*whole, *_parts(tree_of(path), times)]
    assert {name: words for name, words in found.items() if words} == {}


def test_a_pure_machine_may_be_twice_as_long() -> None:
    assert {"rendezvous.run.running", "worker.agent.state"} <= pure_modules()
    assert not {"launcher.launch.launch", "worker.agent.shell"} & pure_modules()
    assert too_large("x = 1\n" * 900, OF_THE_PURE) == []
    assert too_large("x = 1\n" * 901, OF_THE_PURE) == ["901 lines"]
    assert too_large("class A:\n" + "    x = 1\n" * 600, OF_THE_PURE) == ["A: 601 lines"]


@pytest.mark.parametrize("name", list(STAND_ALONE))
def test_a_program_that_may_be_longer_is_longer_and_stands_alone(name: str) -> None:
    assert too_large(modules()[name].read_text("utf-8"))
    assert not [module for module, _ in imports(name) if module.split(".")[0] in PACKAGES]

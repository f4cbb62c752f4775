"""What the packages may import and what importing them may do, beyond the import contracts."""

from __future__ import annotations

import ast
import graphlib
import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rendezvous.compat import tomllib
from tests.support.sources import nodes, tree_of

ROOT = Path(__file__).parent.parent
PACKAGES = ("rendezvous", "worker", "launcher", "features")
IMPURE_BUILTINS = {"open", "input", "print", "exec", "eval", "__import__"}
OF_THE_LAUNCHER = {
    "cryptography",
    "fastapi",
    "pygments",
    "rich",
    "starlette",
    "torch",
    "uvicorn",
    "uvloop",
    "yaml",
}

# In a fresh interpreter: which modules an import loads, and what else it does.
LOAD = """
import importlib, json, logging, os, signal, sys, threading
files = set(os.listdir("/proc/self/fd"))
signals = [signal.getsignal(n) for n in signal.valid_signals()]
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps({
    "modules": sorted(sys.modules),
    "handlers": len(logging.getLogger().handlers),
    "level": logging.getLogger().level,
    "threads": threading.active_count(),
    "files": sorted(set(os.listdir("/proc/self/fd")) - files),
    "signals": signals == [signal.getsignal(n) for n in signal.valid_signals()],
}))
"""


@cache
def modules() -> dict[str, Path]:
    """Every module of ours, by its name."""
    found = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return tree_of(modules()[name])


@cache
def imports(name: str) -> list[tuple[str, str]]:
    """What a module imports, anywhere in it: module and name, the name empty for a whole module."""
    return list(imported_in(nodes(tree(name))))


def imported_in(found: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in found:
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, f"a relative import of {module}"
                yield from ((module or "", alias.name) for alias in names)
            case ast.Call(
                func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module, ""


@cache
def project() -> dict[str, Any]:
    """The tables of pyproject.toml."""
    tables: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return tables


def settings() -> dict[str, Any]:
    """The tools' tables of pyproject.toml."""
    tables: dict[str, Any] = project()["tool"]
    return tables


@cache
def called_pure() -> list[str]:
    """The modules that the import contracts call pure."""
    contracts = settings()["importlinter"]["contracts"]
    [named] = [c["source_modules"] for c in contracts if c["name"].startswith("pure modules")]
    return list(named)


@cache
def pure_modules() -> list[str]:
    """These, and those inside of them."""
    return [m for m in modules() if any(m == n or m.startswith(f"{n}.") for n in called_pure())]


def load(*names: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOAD, *names], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    found: dict[str, object] = json.loads(done.stdout)
    return found


# ---- pure modules -------------------------------------------------------------------------------


def test_the_branches_of_the_pure_modules_are_counted() -> None:
    counted = [name.removesuffix("/*.py") for name in settings()["coverage"]["run"]["include"]]
    assert [name.removesuffix(".py").replace("/", ".") for name in counted] == called_pure()


def test_a_pure_module_calls_nothing_that_reads_or_writes() -> None:
    called = {
        (name, node.func.id)
        for name in pure_modules()
        for node in nodes(tree(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert {"rendezvous.run.protocol", "launcher.plan.template.yaml_form"} <= set(pure_modules())
    assert [found for found in called if found[1] in IMPURE_BUILTINS] == []


def test_no_file_is_looked_for_in_a_way_that_raises_behind_a_closed_folder() -> None:
    """Before Python 3.14 Path.exists() and its like raise PermissionError there; os.path's do not.

    A traceback from such a look at what may be there ended launches that were over and well.
    """
    found = [
        f"{name}:{node.lineno} .{node.func.attr}()"
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in ("exists", "is_dir", "is_file", "is_symlink", "is_mount", "is_socket")
        if not node.args and name != "launcher.cli.completion"  # of os.scandir, which has looked
    ]
    assert found == []


# ---- what an import loads and does --------------------------------------------------------------


@pytest.mark.nightly  # each push sees nearly the same in tests/test_starts.py
@pytest.mark.parametrize("name", ["worker.agent", "launcher.cli"])
def test_a_workers_start_loads_none_of_the_launchers_packages(name: str) -> None:
    found = load("tests", name)["modules"]
    assert isinstance(found, list)
    assert name in found
    assert not OF_THE_LAUNCHER & set(found)


def test_importing_does_nothing_else() -> None:
    names = [name for name in modules() if not name.endswith("__main__")]
    found = load("tests", *names)
    assert {key: found[key] for key in found if key != "modules"} == {
        "handlers": 0,
        "level": 30,
        "threads": 1,
        "files": [],
        "signals": True,
    }


def test_the_types_of_every_package_are_there_for_others() -> None:
    for package in PACKAGES:
        assert (modules()[package].parent / "py.typed").is_file()


@pytest.mark.parametrize("name", PACKAGES)
def test_wheels_images_and_digests_of_an_installation_have_every_package(name: str) -> None:
    wheel = settings()["hatch"]["build"]["targets"]["wheel"]
    assert name in wheel["only-include"]
    assert wheel["sources"][name] == f"rdzv/_app/{name}"
    assert f"!{name}" in (ROOT / ".dockerignore").read_text().split()
    script = (ROOT / "specs" / "install.sh").read_text().splitlines()
    found = next(line for line in script if "$(find" in line)
    assert name in found.split()


def test_what_a_users_process_may_import_needs_the_standard_library_only() -> None:
    found = load("rdzv", "rdzv.metrics", "rdzv.__main__")["modules"]
    assert isinstance(found, list)
    others = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
    own = {"rdzv", "__main__"}
    assert {name for name in others - own if not name.startswith("_")} == set(), others


# ---- what is declared ---------------------------------------------------------------------------

OF_RUN_TIME = ("launcher", "postgres", "gpu", "plot")
ELSEWHERE = {
    # The interpreter of a user's program has these.
    *("sitecustomize", "torch"),
    # Tests run what imports these by interpreters of other environments.
    *("azure", "kubernetes_validate", "lightning", "mpi4py", "ray", "seen"),
}
"""Packages that our own process never imports."""


def declared(*extras: str) -> set[str]:
    """The distributions of the core, and of these extras."""
    optional = project()["project"]["optional-dependencies"]
    lines = [
        *project()["project"]["dependencies"],
        *(x for extra in extras for x in optional[extra]),
    ]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def needed(found: Iterable[tuple[str, str]]) -> set[str]:
    """The distributions that these imports need."""
    tops = {module.partition(".")[0] for module, _ in found}
    others = (
        tops
        - sys.stdlib_module_names
        - {*PACKAGES, "rdzv", "rdzv_command", "bench", "tests"}
        - ELSEWHERE
    )
    installed = packages_distributions()
    return {canonicalize_name(installed.get(name, [name])[0]) for name in others}


def imported_below(folder: str) -> Iterator[tuple[str, str]]:
    """By files that no other test reads as trees, so that none is kept."""
    for path in (ROOT / folder).rglob("*.py"):
        yield from imported_in(ast.walk(tree_of.__wrapped__(path)))


def reached(*names: str) -> set[str]:
    """The modules that begin with these names, and what they may ever import of ours."""
    found, new = set[str](), {name for name in modules() if name.startswith(names)}
    while new:
        found |= new
        beside = {other for name in new for other in (*_imported(name), name.rpartition(".")[0])}
        new = (beside & modules().keys()) - found
    return found


def test_each_package_that_is_imported_is_declared_and_no_other() -> None:
    ours = [each for name in modules() for each in imports(name)]
    assert needed([*ours, *imported_below("rdzv")]) == declared(*OF_RUN_TIME)


def test_a_node_needs_the_packages_of_the_core_alone() -> None:
    names = reached("worker.", "rendezvous.talk.client")
    assert "rendezvous.talk.http_network" in names
    found = needed(each for name in names for each in imports(name))
    # A node that knows the registry's public key alone may have to be the launcher itself.
    assert found - declared("gpu") == {"cryptography"}
    assert declared() - found == {"click"}  # its command line is the launcher's


@pytest.mark.parametrize(
    ("folder", "extras"), [("bench", ("bench",)), ("tests", ("demo", "fuzz", "test", "test-all"))]
)
def test_a_checkout_needs_what_its_extras_declare(folder: str, extras: tuple[str, ...]) -> None:
    assert needed(imported_below(folder)) - declared("launcher", *extras) == set()


# ---- circles ------------------------------------------------------------------------------------


def _imported(name: str) -> Iterator[str]:
    """The modules of ours that a module imports, anywhere and for whatever purpose."""
    for module, member in imports(name):
        found = [one for one in (f"{module}.{member}", module) if one in modules()]
        yield from (one for one in found[:1] if one != name)


def test_no_modules_import_each_other_in_a_circle() -> None:
    order = graphlib.TopologicalSorter({name: set(_imported(name)) for name in modules()})
    order.prepare()  # raises CycleError, which names the circle


def test_the_core_imports_no_feature_by_name() -> None:
    """Also not as the import contracts cannot see, by a string."""
    core = [name for name in modules() if not name.startswith("features")]
    named = [(n, m) for n in core for m, _ in imports(n) if m.partition(".")[0] == "features"]
    assert named == []


# ---- what is public -----------------------------------------------------------------------------


def test_no_module_takes_what_another_keeps_to_itself() -> None:
    taken = {
        (name, f"{module}.{word}")
        for name in modules()
        for module, word in imports(name)
        if module.split(".")[0] in PACKAGES
    }
    assert [found for found in taken if "._" in found[1]] == []


WITH_ALL = [name for name, path in modules().items() if "\n__all__ = " in path.read_text("utf-8")]


@pytest.mark.parametrize("name", WITH_ALL)
def test_what_a_package_lists_is_what_the_others_take_from_it(name: str) -> None:
    module: ModuleType = importlib.import_module(name)
    listed = set(module.__all__)
    assert not {word for word in listed if not hasattr(module, word)}
    for other in modules():
        if other != name and not other.startswith(f"{name}."):
            assert {word for source, word in imports(other) if source == name} <= listed, other
            # Its inside is not reached past it.
            assert not {source for source, _ in imports(other) if source.startswith(f"{name}.")}

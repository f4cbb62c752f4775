"""What `rendezvous/serving/uvicorn_server.py` uses of uvicorn's inside: each name, and no other.

None of it is documented, so that any version of uvicorn may lack it: pyproject.toml states the
range in which all of it is there and means what it means here.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from uvicorn.lifespan.on import LifespanOn
from uvicorn.server import ServerState

from rendezvous.serving import http11, uvicorn_server

FILE = Path(uvicorn_server.__file__)
SERVER = FILE.parent
PROTOCOL = Path(http11.__file__)

_SERVER = """
    config handle_exit lifespan main_loop on_tick server_state servers shutdown started startup
"""

USED: dict[type, tuple[Path, str, set[str]]] = {
    ServerState: (PROTOCOL, "_shared", {"connections", "default_headers", "tasks"}),
    uvicorn.Server: (FILE, "self", {*_SERVER.split()}),
    LifespanOn: (FILE, "lifespan", {"should_exit", "shutdown", "startup"}),
}
"""By class: the file, the last name of what has its attributes there, and those that are used."""


def attributes(tree: ast.AST) -> set[tuple[str, str]]:
    """Every `x.name` in some code: what stands last before the dot, and the name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            value = node.value
            if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "super":
                found |= {("self", node.attr)} if node.attr != "__init__" else set()
            elif isinstance(value, ast.Name | ast.Attribute):
                found.add((getattr(value, "id", "") or getattr(value, "attr", ""), node.attr))
    return found


def defined(kind: type) -> set[str]:
    """The attributes of a class of uvicorn: of itself, and those that its methods set."""
    found = set(dir(kind)) | set(getattr(kind, "__annotations__", {}))
    for base in kind.__mro__[:-1]:
        if base.__module__.split(".")[0] == "uvicorn":
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            found |= {name for of, name in attributes(tree) if of == "self"}
    return found


def used(kind: type, file: Path, holder: str) -> set[str]:
    """Which attributes of a class our code uses or overrides."""
    found = {name for of, name in attributes(ast.parse(file.read_text("utf-8"))) if of == holder}
    if kind is uvicorn.Server:
        found |= set(vars(uvicorn_server.GuardedServer))
    return {name for name in found & defined(kind) if not name.startswith("__")}


@pytest.mark.parametrize("kind", list(USED), ids=lambda kind: kind.__name__)
def test_what_is_used_is_listed_and_there(kind: type) -> None:
    file, holder, listed = USED[kind]
    missing = sorted(listed - defined(kind))
    assert not missing, (
        f"{kind.__name__} has no {', '.join(missing)} in uvicorn {uvicorn.__version__}: adapt "
        "uvicorn_server.py, or bound the version in pyproject.toml"
    )
    found = used(kind, file, holder)
    assert found == listed, "list it in USED, and try every version that pyproject.toml allows"


def imported() -> Iterator[tuple[str, str]]:
    """Each name that a module of the server imports, with the module's."""
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                yield from ((path.name, start + alias.name) for alias in node.names)


def test_only_one_module_imports_uvicorn_and_none_a_private_name() -> None:
    found = {(path, name) for path, name in imported() if name.split(".")[0] in FOREIGN}
    assert {path for path, name in found if name.split(".")[0] == "uvicorn"} == {FILE.name}
    assert [name for _, name in found if "._" in name] == []


FOREIGN = ("uvicorn", "starlette", "fastapi")

"""What `rendezvous/server/http11.py` uses of uvicorn's and h11's inside: each name, and no other.

None of it is documented, so that any version of uvicorn may lack it: pyproject.toml states the
range in which all of it is there and means what it means here.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path

import h11
import pytest
import uvicorn
from uvicorn.lifespan.on import LifespanOn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from rendezvous.server import http11

FILE = Path(http11.__file__)
SERVER = FILE.parent

_PROTOCOL = """
    _unset_keepalive_if_required app app_state client conn connection_lost connection_made
    connections cycle data_received flow handle_events loop scheme send_400_response server_state
    shutdown timeout_keep_alive timeout_keep_alive_handler timeout_keep_alive_task transport
"""
_CYCLE = "disconnected keep_alive message_event on_response response_complete response_started"
_SERVER = """
    config handle_exit lifespan main_loop on_tick server_state servers shutdown started startup
"""
_CONNECTION = "next_event our_state receive_data send_failed their_state trailing_data"

USED: dict[type, tuple[str, set[str]]] = {
    H11Protocol: ("self", {*_PROTOCOL.split()}),
    RequestResponseCycle: ("cycle", {*_CYCLE.split()}),
    FlowControl: ("flow", {"drain", "write_paused"}),
    ServerState: ("server_state", {"connections", "default_headers", "tasks"}),
    h11.Connection: ("conn", {*_CONNECTION.split()}),
    uvicorn.Server: ("self", {*_SERVER.split()}),
    LifespanOn: ("lifespan", {"should_exit", "shutdown", "startup", "state"}),
}
"""By class: the last name of what has its attributes in our code, and which of them are used."""

OURS: dict[str, type] = {
    "GuardedProtocol": H11Protocol,
    "GuardedServer": uvicorn.Server,
    "_StrictConnection": h11.Connection,
}
"""Our classes, and what each of them extends."""


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
    """The attributes of a class of uvicorn or h11: of itself, and those that its methods set."""
    found = set(dir(kind)) | set(getattr(kind, "__annotations__", {}))
    for base in kind.__mro__[:-1]:
        if base.__module__.split(".")[0] in ("uvicorn", "h11"):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            found |= {name for of, name in attributes(tree) if of == "self"}
    return found


def class_of(name: str) -> ast.ClassDef:
    """One of our classes, as it is written."""
    tree = ast.parse(FILE.read_text("utf-8"))
    return next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)


def used(kind: type, holder: str) -> set[str]:
    """Which attributes of a class our code uses or overrides."""
    classes = [name for name, base in OURS.items() if base is kind]
    whole = ast.parse(FILE.read_text("utf-8"))
    places = [class_of(name) for name in classes] if holder == "self" else [whole]
    found = {name for place in places for of, name in attributes(place) if of == holder}
    found |= {name for ours in classes for name in vars(getattr(http11, ours))}
    return {name for name in found & defined(kind) if not name.startswith("__")}


@pytest.mark.parametrize("kind", list(USED), ids=lambda kind: kind.__name__)
def test_what_is_used_is_listed_and_there(kind: type) -> None:
    holder, listed = USED[kind]
    missing = sorted(listed - defined(kind))
    assert not missing, (
        f"{kind.__name__} has no {', '.join(missing)} in uvicorn {uvicorn.__version__}: adapt "
        "http11.py, or bound the version in pyproject.toml"
    )
    found = used(kind, holder)
    assert found == listed, "list it in USED, and try every version that pyproject.toml allows"


def imported() -> Iterator[tuple[str, str]]:
    """Each name that a module of the server imports, with the module's."""
    for path in SERVER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                yield from ((path.name, start + alias.name) for alias in node.names)


def test_only_one_module_imports_uvicorn_or_h11_and_none_a_private_name() -> None:
    found = {(path, name) for path, name in imported() if name.split(".")[0] in FOREIGN}
    assert {path for path, name in found if name.split(".")[0] in FOREIGN[:2]} == {FILE.name}
    assert [name for _, name in found if "._" in name] == []


FOREIGN = ("uvicorn", "h11", "starlette", "fastapi")

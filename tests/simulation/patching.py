"""Bugs as patches of a line of the product, planted in the running code for as long as a context.

The module's source is read, patched and compiled, and executed beside the real one. Functions and
methods whose code differs then take the patched one over, and numbers and texts of the module too,
wherever they were imported to. Nobody has to import anything again.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("rendezvous", "worker", "launcher")
_INNER = ("__func__", "__wrapped__", "func", "fget", "fset", "fdel")


@dataclass(frozen=True)
class Edit:
    """Some text of a file, which occurs in it once, and what stands there instead."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Bug:
    """One planted bug: its name says what is wrong."""

    name: str
    edits: tuple[Edit, ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as undo:
            for file in dict.fromkeys(edit.file for edit in self.edits):
                plant(file, [edit for edit in self.edits if edit.file == file], undo)
            yield


def patched(file: str, edits: list[Edit]) -> str:
    """The source of a file with some edits; raises ValueError when one does not fit it."""
    text = (_ROOT / file).read_text()
    for edit in edits:
        if (count := text.count(edit.old)) != 1:
            raise ValueError(f"{file} has {count} times, not once: {edit.old!r}")
        text = text.replace(edit.old, edit.new)
    return text


def plant(file: str, edits: list[Edit], undo: ExitStack) -> None:
    """Patch a module that is loaded; `undo` takes everything back."""
    name = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    module = importlib.import_module(name)
    false = {"__name__": module.__name__, "__file__": module.__file__}
    exec(compile(patched(file, edits), str(module.__file__), "exec"), false)
    changed, after = _change_constants(module, false, undo), _functions(false, name)
    for path, function in _functions(vars(module), name).items():
        if path in after:
            changed |= _change_function(function, after[path], undo)
    if not changed:
        raise ValueError(f"{file}: the patch changes no function and no plain constant")


def _functions(namespace: dict[str, Any], module: str) -> dict[str, FunctionType]:
    """The functions and methods that a module defines, by where they are found."""
    found: dict[str, FunctionType] = {}

    def look(path: str, value: Any) -> None:
        if isinstance(value, FunctionType):
            if value.__module__ == module:
                found[path] = value
            value = getattr(value, "__wrapped__", None)
        elif inspect.isclass(value):
            if value.__module__ == module and path.count(".") < 4:
                for name, inner in list(vars(value).items()):
                    look(f"{path}.{name}", inner)
            return
        for attribute in _INNER:
            inner = inspect.getattr_static(value, attribute, None)
            if isinstance(inner, FunctionType) or hasattr(type(inner), "__get__"):
                inner = getattr(value, attribute, None)
            if isinstance(inner, FunctionType):
                look(f"{path}.{attribute}", inner)

    for name, value in list(namespace.items()):
        look(name, value)
    return found


def _change_function(real: FunctionType, false: FunctionType, undo: ExitStack) -> bool:
    changed = _text_of(real.__code__) != _text_of(false.__code__)
    if changed:
        _set(real, "__code__", false.__code__, undo)
    return changed


def _text_of(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(
        _text_of(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_name, code.co_code, constants, names


def _change_constants(module: ModuleType, false: dict[str, Any], undo: ExitStack) -> bool:
    real = vars(module)
    names = [n for n in real if n in false and _differ(real[n], false[n]) and n != "__doc__"]
    for name in names:
        value = real[name]
        for other in [m for key, m in sys.modules.items() if key.split(".")[0] in _PACKAGES]:
            if vars(other).get(name, undo) is value:
                _set(other, name, false[name], undo)
    return bool(names)


def _differ(real: Any, false: Any) -> bool:
    """Whether two numbers or texts are different; of others nothing is said."""
    plain = isinstance(real, int | float | str) and isinstance(false, int | float | str)
    return plain and real != false


def _set(owner: Any, name: str, value: Any, undo: ExitStack) -> None:
    before: Any = getattr(owner, name)
    restore: Callable[..., None] = setattr
    undo.callback(restore, owner, name, before)
    setattr(owner, name, value)

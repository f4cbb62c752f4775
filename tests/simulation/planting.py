"""Bugs to be planted: functions, methods and constants of the product, replaced by name.

A name is `module:name`, and `module:Class.name` of a method or a property. What is planted stands
in the code object of the function itself, so that whoever has imported it, keeps it in a table or
has bound it calls the replacement; after the context all is as before. Whatever a name does not
find raises ValueError: a rename in the product shows at once.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from types import CodeType, FunctionType, ModuleType
from typing import Any, Protocol

from pydantic import BaseModel

_PACKAGES = ("rendezvous", "worker", "launcher", "features", "tests")
_INNER = {staticmethod: "__func__", classmethod: "__func__", property: "fget"}

Function = Callable[..., Any]


class Part(Protocol):
    """One change of the product."""

    def plant(self, undo: ExitStack) -> None:
        """Make it; `undo` takes it back."""

    def check(self) -> None:
        """Raise ValueError or TypeError unless it fits the product as it stands."""


class Bug:
    """A planted bug: its name says what is wrong."""

    def __init__(self, name: str, *parts: Part) -> None:
        self.name = name
        self.parts = parts

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as undo:
            for part in self.parts:
                part.plant(undo)
            yield

    def check(self) -> None:
        """Raise ValueError or TypeError unless it fits the product as it stands."""
        if not self.parts:
            raise ValueError(f"{self.name} changes nothing")
        for part in self.parts:
            part.check()


def by_name(*bugs: Bug) -> dict[str, Bug]:
    """These bugs; raises ValueError where two have one name."""
    found = {bug.name: bug for bug in bugs}
    if len(found) < len(bugs):
        raise ValueError("two bugs have one name")
    return found


# --- changes --------------------------------------------------------------------------------------


def replace(name: str, function: Function, *, within: str = "") -> Part:
    """Call this function instead. Like every change, where `within` names a function, only while
    that one runs."""
    return _within(within, _Function(name, lambda _real: function))


def wrap(name: str, function: Function, *, within: str = "") -> Part:
    """Call this function instead, with the real one before the other arguments."""
    return _within(within, _Function(name, lambda real: functools.partial(function, real)))


def given(name: str, *, within: str = "", **values: Any) -> Part:
    """Call it with these arguments, whatever the caller says."""

    def make(real: FunctionType) -> Function:
        signature = signature_of(real)
        if unknown := values.keys() - signature.parameters.keys():
            raise ValueError(f"{name} has no argument {', '.join(unknown)}")

        def call(*args: Any, **more: Any) -> Any:
            bound = signature.bind(*args, **more)
            bound.arguments |= values
            return real(*bound.args, **bound.kwargs)

        return call

    return _within(within, _Function(name, make))


def constant(name: str, value: Any) -> Part:
    """Give a constant of a module this value, also where it was imported to."""
    return _Constant(name, value)


# --- what replacements are made of ----------------------------------------------------------------


def always(value: Any) -> Function:
    """A function that returns this, whatever it is given."""
    return lambda *_args, **_more: value


nothing = always(None)


async def nothing_awaited(*_args: Any, **_more: Any) -> None:
    """Nothing, of what is awaited."""


def put(whole: Any, **values: Any) -> Any:
    """Set attributes; returns what has them."""
    for name, value in values.items():
        getattr(whole, name)  # which it has
        setattr(whole, name, value)
    return whole


def but(value: Any, **changes: Any) -> Any:
    """A model or a frozen value as it is, but for these fields."""
    if not isinstance(value, BaseModel):
        return with_changes(value, **changes)
    if unknown := changes.keys() - type(value).model_fields.keys():
        raise ValueError(f"{type(value).__name__} has no {', '.join(unknown)}")
    return value.model_copy(update=changes)


def first(*values: Any) -> Any:
    """The first one: what was done first counts, and what was done next has its effects."""
    return values[0]


def last(*values: Any) -> Any:
    """The last one, after the effects of those before."""
    return values[-1]


def awaited(change: Function) -> Function:
    """For `wrap` of what is awaited: what comes of it is what this function makes of it, which is
    given that before the other arguments."""

    async def call(real: Function, *args: Any, **more: Any) -> Any:
        return change(await real(*args, **more), *args, **more)

    return call


def while_set(whole_of: Function, **values: Any) -> Function:
    """For `wrap`: call it while what is found in its arguments has other values. A value that is a
    function is called with the arguments; where nothing is found, nothing is set."""

    def call(real: Function, *args: Any, **more: Any) -> Any:
        whole = whole_of(*args)
        if not whole:
            return real(*args, **more)
        before = {name: getattr(whole, name) for name in values}
        put(whole, **{name: v(*args) if callable(v) else v for name, v in values.items()})
        try:
            return real(*args, **more)
        finally:
            put(whole, **before)

    return call


# --- how they are made ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    name: str
    make: Callable[[FunctionType], Function]

    def plant(self, undo: ExitStack) -> None:
        target = function_at(self.name, undo)
        signature_of(target)  # while it is its own
        call = _by_place(self.make(_copy(target)), signature_of(target))
        _set(target, "__code__", _leading_to(call, target.__code__), undo)

    def check(self) -> None:
        with ExitStack() as undo:
            target = function_at(self.name, undo)
            called = inspect.signature(self.make(_copy(target)))
            for least in (False, True):
                places, names = _arguments(signature_of(target), least=least)
                called.bind(*places, **names)


@dataclass(frozen=True)
class _Constant:
    name: str
    value: Any

    def plant(self, undo: ExitStack) -> None:
        module, _, name = self.name.partition(":")
        real = getattr(_module(module), name, undo)
        if real is undo:
            raise ValueError(f"there is no {self.name}")
        if real == self.value:
            raise ValueError(f"{self.name} is {real!r} anyway")
        for known, other in list(sys.modules.items()):
            if known.split(".")[0] in _PACKAGES and vars(other).get(name, undo) is real:
                _set(other, name, self.value, undo)

    def check(self) -> None:
        with ExitStack() as undo:
            self.plant(undo)


@dataclass(frozen=True)
class _Within:
    """A change that holds only while a function runs; `under_way` says that it does."""

    outer: str
    part: _Function
    under_way: list[bool] = field(default_factory=list)

    def plant(self, undo: ExitStack) -> None:
        if inspect.iscoroutinefunction(function_at(self.outer, undo)):
            raise ValueError(f"{self.outer} is not alone while it runs")
        wrap(self.outer, self._run).plant(undo)

    def _run(self, real: Function, *args: Any, **more: Any) -> Any:
        with ExitStack() as undo:
            if not self.under_way:
                self.part.plant(undo)
            self.under_way.append(True)
            undo.callback(self.under_way.pop)
            return real(*args, **more)

    def check(self) -> None:
        self.part.check()
        with ExitStack() as undo:
            called = _names(function_at(self.outer, undo).__code__)
            if called.isdisjoint(self.part.name.partition(":")[2].split(".")[-2:]):
                raise ValueError(f"{self.outer} does not call {self.part.name}")
            self.plant(undo)


def _within(outer: str, part: _Function) -> Part:
    return _Within(outer, part) if outer else part


def _names(code: CodeType) -> set[str]:
    """What a function, with those in it, takes from modules and objects."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def function_at(name: str, undo: ExitStack) -> FunctionType:
    """The function of this name, itself; what it has cached is forgotten, now and at the end."""
    module, _, path = name.partition(":")
    found: Any = _module(module)
    for part in path.split("."):
        found = inspect.getattr_static(found, part, None)
        if found is None:
            raise ValueError(f"there is no {name}")
    if isinstance(found, functools.cached_property):
        found = found.func
    elif type(found) in _INNER:
        found = getattr(found, _INNER[type(found)])
    elif hasattr(found, "cache_clear"):
        found.cache_clear()
        undo.callback(found.cache_clear)
        found = found.__wrapped__
    if not isinstance(found, FunctionType) or found.__module__.split(".")[0] not in _PACKAGES:
        raise ValueError(f"{name} is no function of the product")
    return found


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise ValueError(f"there is no module {name}") from exc


@functools.cache
def signature_of(function: FunctionType) -> inspect.Signature:
    """How it is called, also while something is planted in it."""
    return inspect.signature(function)


def _arguments(signature: inspect.Signature, *, least: bool) -> tuple[list[None], dict[str, None]]:
    """A call with all arguments that there are, or those that there have to be."""
    places: list[None] = []
    names: dict[str, None] = {}
    for one in signature.parameters.values():
        if least and one.default is not one.empty:
            continue
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD):
            places.append(None)
        elif one.kind is one.KEYWORD_ONLY:
            names[one.name] = None
    return places, names


def _by_place(function: Function, signature: inspect.Signature) -> Function:
    """Call it by place where a caller names what has a place: replacements may use other names."""
    named = [
        one.name for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD
    ]

    def call(*args: Any, **more: Any) -> Any:
        for name in named[len(args) :] if more else ():
            if name not in more:
                break
            args += (more.pop(name),)
        return function(*args, **more)

    return call


def _copy(function: FunctionType) -> FunctionType:
    """The function as it is now."""
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__signature__ = signature_of(function)  # type: ignore[attr-defined]
    return made


def _leading_to(function: Function, before: CodeType) -> CodeType:
    """Code that calls a function, for one with that code before."""

    def call(*args: Any, **more: Any) -> Any:
        instead: Any = "the function"
        return instead(*args, **more)

    code = call.__code__
    constants = tuple(function if one == "the function" else one for one in code.co_consts)
    return code.replace(co_consts=constants, co_freevars=before.co_freevars)


def _set(owner: Any, name: str, value: Any, undo: ExitStack) -> None:
    restore: Callable[..., None] = setattr
    undo.callback(restore, owner, name, getattr(owner, name))
    setattr(owner, name, value)

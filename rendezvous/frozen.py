"""Frozen values whose classes cost little: the words in which the machines speak."""

from __future__ import annotations

import sys
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar

if sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:
    from typing_extensions import dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """As `dataclass(frozen=True, slots=True)`.

    That compiles six methods for each class, one after the other before Python 3.13: 0.7 ms, and
    the machines of a node and of a launch have more than a hundred such classes. Here only
    `__init__` is compiled; the others are shared, and slower: what the registry makes, compares or
    hashes by the thousand keeps `dataclass`.
    """
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    for name, method in _SHARED.items():
        if name not in vars(cls):
            setattr(made, name, method)
    return made


def _values(value: Any) -> tuple[Any, ...]:
    return tuple([getattr(value, name) for name in value.__match_args__])


def _equals(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _text(self: Any) -> str:
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _set_once(self: Any, name: str, value: object) -> None:
    """What `__init__` sets is not set yet."""
    if hasattr(self, name):
        raise FrozenInstanceError(f"cannot assign to field '{name}'")
    object.__setattr__(self, name, value)


def _keep(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field '{name}'")


_SHARED = {
    "__eq__": _equals,
    "__hash__": _hash,
    "__repr__": _text,
    "__setattr__": _set_once,
    "__delattr__": _keep,
}

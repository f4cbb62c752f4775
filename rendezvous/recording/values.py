"""The values that machines hear, as JSON and back; and what they do, in a few words.

What is read back is led by the type hints of the classes. An error comes back as its class with its
attributes; one that is not rdzv's own only as its words.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic_core import to_json

from rendezvous.talk.join_string import without_secrets
from rendezvous.wire.errors import RdzvError, with_children

Hide = Callable[[str], str]

_SCALARS: dict[type, Any] = {bool: bool, int: int, float: int | float, str: str}


class Unforeseen(Exception):
    """An error that nobody expected, as it was shown when it came."""

    def __init__(self, shown: str) -> None:
        super().__init__(shown)
        self.shown = shown

    def __repr__(self) -> str:
        return self.shown


def leaves(union: Any) -> tuple[type, ...]:
    """The classes of a union, and those made of them (of a class with slots there may be the one
    that it was made from as well, which nobody can name)."""
    below: list[type] = [one for kind in get_args(union) for one in (kind, *kind.__subclasses__())]
    homes = {one: vars(sys.modules[one.__module__]) for one in below}
    return tuple(one for one in below if homes[one].get(one.__name__) is one)


def plain(value: Any, hide: Hide) -> Any:
    """What JSON can hold of it; `hide` takes out of a text what must not be written down."""
    match value:
        case Enum() if not isinstance(value, str | int):
            return value.name
        case None | bool() | int() | float():
            return value
        case str():
            return hide(value)
        case _ if _is_message(type(value)):  # its patterns refuse another word for a hidden one
            return json.loads(without_secrets(_message(value).decode()))
        case RdzvError():
            return {"error": type(value).__name__, **plain(vars(value), hide)}
        case BaseException():
            return {"error": None, "shown": hide(repr(value))}
        case Mapping():
            return {key: plain(one, hide) for key, one in value.items()}
        case AbstractSet():
            return sorted(plain(one, hide) for one in value)
        case list() | tuple():
            return [plain(one, hide) for one in value]
        case _ if is_dataclass(value):
            return {one.name: plain(getattr(value, one.name), hide) for one in fields(value)}
    return hide(str(value))  # a path in a sentence


def _message(value: Any) -> bytes:
    """As JSON; of a model what it was given, so that what is read back has been given the same."""
    if isinstance(value, BaseModel):
        return value.model_dump_json(exclude_unset=True).encode()
    return to_json(value)


def made(hint: Any, value: Any) -> Any:
    """The inverse of `plain`, for a value of this type. Raises TypeError, ValueError, KeyError."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [one for one in args if one is not type(None)]
        return made(kinds[0], value) if value is not None and len(kinds) == 1 else value
    if origin is tuple and args[-1] is not ...:
        return tuple(made(kind, one) for kind, one in zip(args, value, strict=True))
    if origin in (tuple, list, frozenset):
        return origin(made(args[0], one) for one in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: made(args[1], one) for key, one in value.items()}
    return _made_of(hint, value) if isinstance(hint, type) else value


def _made_of(kind: type, value: Any) -> Any:
    if issubclass(kind, Enum):
        return kind(value) if issubclass(kind, str | int) else kind[value]
    if _is_message(kind):
        return TypeAdapter(kind).validate_json(json.dumps(value))
    if issubclass(kind, BaseException):
        return _error(**value)
    if is_dataclass(kind):
        hints = hints_of(kind)
        return kind(**{name: made(hints[name], one) for name, one in value.items()})
    if kind in _SCALARS and not isinstance(value, _SCALARS[kind]):
        raise TypeError(f"{value!r} is not of the type {kind.__name__}")
    return value


def _is_message(kind: type) -> bool:
    """Whether Pydantic knows how it is written."""
    return issubclass(kind, BaseModel) or is_pydantic_dataclass(kind)


def _error(error: str | None, **values: Any) -> Exception:
    if error is None:
        return Unforeseen(**values)
    kinds = {kind.__name__: kind for kind in with_children(RdzvError)}
    found = kinds[error](values["message"])
    vars(found).update(values)
    return found


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    """The types of a class's fields, by name."""
    return get_type_hints(kind)


def words(value: Any) -> str:
    """What it is in a few words: its class, its numbers and names, and no text that came from
    elsewhere, so that a replay finds the same words although texts were hidden.

    What a model was not given is not shown: a field that is newer than a recording changes nothing
    of what the recording holds.
    """
    shown = list(_shown(value))
    return f"{type(value).__name__}({', '.join(shown)})" if shown else type(value).__name__


def _shown(value: Any) -> Iterator[str]:
    is_model = isinstance(value, BaseModel)
    for name, default in _fields_given(value):
        match getattr(value, name):
            case None | False:
                continue
            case BaseModel() as one if one == default:
                continue
            case float() if is_model:  # most are only passed on
                continue
            case Enum() as one:
                yield f"{name}={one.value if isinstance(one, str | int) else one.name}"
            case bool() | int() | float() as one:
                yield f"{one}" if name in ("number", "id") else f"{name}={one}"
            case BaseModel() as one:
                yield words(one)
            case BaseException() as one:
                yield type(one).__name__ if isinstance(one, RdzvError) else "Exception"
            case one if is_dataclass(one):
                yield words(one)


def _fields_given(value: Any) -> list[tuple[str, Any]]:
    """The fields that a model was given, or all of another value; each with its default."""
    if isinstance(value, BaseModel):
        names = type(value).model_fields
        return [(name, None) for name in names if name in value.model_fields_set]
    return [(one.name, one.default) for one in fields(value)]

"""What a node makes of many situations, written down: a line each, without what is usual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.courses import one_line, said, values_of


class Told:
    """A course of situations, each with all that comes of it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def of(self, what: str, *found: object, **named: object) -> Told:
        """Of this situation (*): what was found, and values by name (-)."""
        self.lines.append(f"* {what}")
        self.lines += [f"- {shown(each)}" for each in found]
        self.lines += [f"- {name}: {shown(each)}" for name, each in named.items()]
        return self

    def refused(self, error: Exception) -> Told:
        """The words of what was raised (!), with the hint."""
        hint = getattr(error, "hint", "")
        message = getattr(error, "message", str(error))
        self.lines.append(
            one_line(f"! {type(error).__name__} {message}" + f" [{hint}]" * bool(hint))
        )
        return self


def shown(value: object) -> str:
    """In one line; of a record what is set, by name."""
    return _shown(values_of(value))


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = {
            name: _shown(each) if isinstance(each, (dict, list)) else each
            for name, each in value.items()
        }
        return one_line(said(inner))
    if isinstance(value, list):
        return one_line("[" + " | ".join(map(_shown, value)) + "]")
    return one_line(value)

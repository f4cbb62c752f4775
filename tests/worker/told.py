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
    return _shown(values_of(_ordered(value)))


def _ordered(value: object) -> object:
    """Sets in an order."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, dict):
        return {name: _ordered(each) for name, each in value.items()}
    return value


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


class Instead:
    """In place of a module: calls that are told (@), with what comes of each.

    Args:
        told: Where they are told.
        module: What has all that is not replaced.
        calls: By name, what comes of a call: a value, an error, or a function of its arguments.
    """

    def __init__(self, told: Told, module: Any, **calls: Any) -> None:
        self._told, self._module, self._calls = told, module, calls

    def __getattr__(self, name: str) -> Any:
        if name not in self._calls:
            return getattr(self._module, name)
        answer = self._calls[name]

        def call(*given: Any, **named: Any) -> Any:
            try:
                found = answer(*given, **named) if callable(answer) else answer
            except Exception as exc:  # noqa: BLE001 (it is raised again)
                found = exc
            words = [*map(repr, given), *(f"{key}={value!r}" for key, value in named.items())]
            error = f" {found}" if isinstance(found, Exception) else ""
            self._told.lines.append(f"@ {name}({', '.join(words)}){error}")
            if isinstance(found, Exception):
                raise found
            return found

        return call

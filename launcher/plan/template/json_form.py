"""Filling a JSON template: its strings are filled and the text is written again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from launcher.plan.template.placeholder import PLACEHOLDER, Value, Variables, line_at, one_line
from rendezvous.wire.errors import TemplateError

_STRING = r'"(?:[^"\\]|\\.)*"'
_STRING_OR_BARE = re.compile(f"{_STRING}|{PLACEHOLDER.pattern}")

# Unicode keeps this character for a program's own use. A placeholder without quotes becomes a
# string of the same length between two of them, so that the parser's columns stay right.
_BARE = "\ufdd0"


@dataclass(frozen=True)
class _Object:
    """A JSON object before its keys are known to be different."""

    pairs: list[tuple[str, Any]]


def render_json(text: str, variables: Variables) -> str:
    """Fill a JSON template.

    Raises:
        TemplateError: See `launcher.plan.template.render`; also for a key twice in one object.
    """
    quoted = _STRING_OR_BARE.sub(_quote_bare, text)
    try:
        tree = json.loads(quoted, object_pairs_hook=_Object, parse_constant=_no_constant)
        strings = re.finditer(_STRING, quoted)
        filler = _Filler(variables, (line_at(quoted, found.start()) for found in strings))
        return json.dumps(filler.value(tree), indent=2, allow_nan=False) + "\n"
    except json.JSONDecodeError as exc:
        raise _broken(f"{variables.source}:{exc.lineno}:{exc.colno}", exc.msg) from exc
    except (ValueError, RecursionError) as exc:
        raise _broken(variables.source, str(exc)) from exc


def _quote_bare(token: re.Match[str]) -> str:
    return f'"{_BARE}{token["name"]}{_BARE}"' if token["name"] else token[0]


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _broken(where: str, said: str) -> TemplateError:
    return TemplateError(
        f"{where}: the template is not JSON: {said}",
        hint="a template must be valid JSON before values are filled in",
    )


class _Filler:
    """Walks the parsed tree in the order of the text, and takes the line of each string."""

    def __init__(self, variables: Variables, lines: Iterator[int]) -> None:
        self._variables = variables
        self._lines = lines

    def value(self, node: Any) -> Any:
        match node:
            case str():
                scalar = self._scalar(node)
                return one_line(scalar) if isinstance(scalar, list) else scalar
            case _Object(pairs):
                return self._object(pairs)
            case list():
                return [part for item in node for part in self._items(item)]
            case _:
                return node

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        filled: dict[str, Any] = {}
        for written, node in pairs:
            _, text, line = self._string(written)
            key = self._fill(text, line)
            if key in filled:
                # As it is written: what is filled in may be a secret.
                raise self._variables.error(line, f"the key {text!r} appears twice in one object")
            filled[key] = self.value(node)
        return filled

    def _items(self, node: Any) -> list[Any]:
        if not isinstance(node, str):
            return [self.value(node)]
        scalar = self._scalar(node)
        return list(scalar) if isinstance(scalar, list) else [scalar]

    def _scalar(self, written: str) -> Value:
        bare, text, line = self._string(written)
        exact = self._variables.exact(text, line)
        if isinstance(exact, list) or (bare and isinstance(exact, int)):
            return exact
        return self._fill(text, line)

    def _string(self, written: str) -> tuple[bool, str, int]:
        bare = written.startswith(_BARE)
        return bare, f"<<{written.strip(_BARE)}>>" if bare else written, next(self._lines)

    def _fill(self, text: str, line: int) -> str:
        return self._variables.fill(text, lambda _: line)

"""Reads the text of a run file, TOML or YAML, and finds the line of each key. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from rendezvous.compat import tomllib
from rendezvous.frozen import frozen

if TYPE_CHECKING:
    import yaml


class BadText(ValueError):
    """The text is no TOML, or no YAML, that a run file can be; says where and why."""


class WrittenInt(int):
    """A whole number, and how it was written: 007 is the text of a variable, too."""

    text: str


class WrittenFloat(float):
    """A number, and how it was written: 1.10 is a version, too."""

    text: str


@frozen
class FileText:
    """The values of a run file, and where they stand.

    Attributes:
        values: By key; tables are mappings.
        lines: The line of each key, from 1, by the path of keys to it.
    """

    values: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    toml: str = ""

    def line(self, *keys: str) -> int:
        """The line of a key."""
        return self.lines[keys] if self.lines else _toml_line(self.toml, keys)


def as_written(value: object) -> str | None:
    """The text of a value that stands for one: a text, or a number; None: of another kind."""
    if isinstance(value, (WrittenInt, WrittenFloat)):
        return value.text
    is_text = isinstance(value, (str, int)) and not isinstance(value, bool)
    return str(value) if is_text else None


def read_toml(text: str) -> FileText:
    """Read TOML; raises BadText."""
    try:
        return FileText(tomllib.loads(text, parse_float=_float), toml=text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        why = "it is nested too deeply" if isinstance(exc, RecursionError) else exc
        raise BadText(f"not a valid TOML file: {why}") from exc


def _float(text: str) -> WrittenFloat:
    value = WrittenFloat(text.replace("_", ""))
    value.text = text
    return value


def _toml_line(text: str, keys: Sequence[str]) -> int:
    """The line of a key: the first one without which the lines before it do not have the key.

    A value of several lines is no TOML until its last one: the lines before it count.
    """
    lines, before = text.splitlines(), 0
    for count in range(len(lines)):
        try:
            found: Any = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            break
        before = count
    return before + 1


def read_yaml(text: str) -> FileText:
    """Read YAML, in which only true and false are truths, as YAML 1.2 has it; raises BadText."""
    try:
        import yaml
    except ModuleNotFoundError:  # where only a worker's packages are
        raise BadText(
            "a YAML file, which needs the package PyYAML: install it here, or write TOML"
        ) from None
    lines: dict[tuple[str, ...], int] = {}
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        values = _of_node(root, (), lines) if root is not None else {}
    except yaml.MarkedYAMLError as exc:
        where = f" (at line {exc.problem_mark.line + 1})" if exc.problem_mark else ""
        raise BadText(f"not a valid YAML file: {exc.problem}{where}") from exc
    except (yaml.YAMLError, RecursionError) as exc:
        why = "it is nested too deeply" if isinstance(exc, RecursionError) else exc
        raise BadText(f"not a valid YAML file: {why}") from exc
    if not isinstance(values, dict):
        raise BadText("not a file of options: it has no keys")
    return FileText(values, lines or {(): 1})


def _of_node(node: yaml.Node, path: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> Any:
    import yaml

    if isinstance(node, yaml.ScalarNode):
        return node.value if node.style else _of_plain(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_of_node(one, path, lines) for one in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise BadText(f"not a file of options: the key in line {line} is not a text")
        if key.value in found:
            raise BadText(f"not a valid YAML file: '{key.value}' is given twice (at line {line})")
        place = (*path, key.value)
        lines[place] = line
        found[key.value] = _of_node(value, place, lines)
    return found


def _of_plain(text: str) -> object:
    """The value of a scalar without quotes, by the core schema of YAML 1.2, without its octals."""
    if text in ("true", "false"):
        return text == "true"
    if text in ("", "~", "null"):
        return None
    if _INT.fullmatch(text):
        whole = WrittenInt(text)
        whole.text = text
        return whole
    return _float(text) if _FLOAT.fullmatch(text) else text


_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?")

"""Advises what to write in place of what a run file cannot hold. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from rendezvous.wire.words import did_you_mean

Kind = Literal["list", "truth", "text"]
"""The values that an option takes which is no number."""


def for_table(key: str, value: object, options: Mapping[str, str]) -> str:
    """The advice for a table that holds options; empty for what is none.

    Args:
        key: The table's name.
        value: What the file has there.
        options: The name in a file of each option, by that name and by its variables.
    """
    found = _first_option(_table(value) or {}, options)
    if found is None:
        return ""
    where = ".".join([key, *found[0]])
    return f"no option is in a table: write '{found[1]}' at the top, without [{where}]"


def for_unknown(key: str, value: object, options: Mapping[str, str]) -> str:
    """The advice for a key that is no option; its arguments are those of `for_table`."""
    name = key.replace("-", "_").lstrip("_")
    if key in options:
        return f"write '{options[key]}', which is the name of that option"
    if isinstance(value, bool) and name.startswith("no_") and name[3:] in options:
        return f"write '{name[3:]} = {json.dumps(not value)}'"
    return did_you_mean(name, set(options.values())) or "--help-all lists the options"


def for_value(key: str, value: object, metavar: str | None, kind: Kind) -> str:
    """What is wrong with the value of an option that is no number, and what to write."""
    one = f'"{metavar or "VALUE"}"'
    example = {"list": f"[{one}]", "truth": "true", "text": one}[kind]
    truth = _TRUTHS.get(str(value).lower()) if kind == "truth" else None
    if _table(value) is not None:
        return f"cannot be a table: write one line, such as {key} = {example}"
    if kind == "list" and isinstance(value, str):
        return f"cannot be {value!r}: write a list, {[value]}"
    if kind == "text" and isinstance(value, list) and value:
        return f'cannot be a list: write one text, "{",".join(map(str, value))}"'
    return f"cannot be {value!r}" + (f": write {truth}" if truth else "")


_TRUTHS = dict.fromkeys(("yes", "on", "1", "true"), "true")
_TRUTHS |= dict.fromkeys(("no", "off", "0", "false"), "false")


def _table(value: object) -> Mapping[str, object] | None:
    """The table that a value is, or the first one of a list of tables."""
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, dict) else None


def _first_option(
    table: Mapping[str, object], options: Mapping[str, str]
) -> tuple[list[str], str] | None:
    """The first option in a table, as the line to write, and the tables around it."""
    for key, value in table.items():
        name = options.get(key.replace("-", "_"))
        inner = _table(value)
        if inner is None and name is not None:
            return [], f"{name} = {json.dumps(value, default=str)}"
        if inner is not None and (found := _first_option(inner, options)) is not None:
            return [key, *found[0]], found[1]
    return None

"""Describe the options that come from the fields of a settings model. Pure."""

from __future__ import annotations

import re
import types
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo


def variables_of(name: str, field: FieldInfo) -> list[str]:
    """The environment variables of a field, first one first."""
    own = "RDZV_" + name.removeprefix("rdzv_").upper()
    return [own, *extra_of(field).get("env", [])]


def flag_of(name: str, field: FieldInfo) -> str:
    """The long flag of a field."""
    return str(extra_of(field).get("flag", "--" + name.replace("_", "-")))


def extra_of(field: FieldInfo) -> dict[str, Any]:
    """The field's own words for its option; see `worker.settings.option`."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def without_none(annotation: Any) -> Any:
    """The kind of an option that may be left out."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next(arg for arg in get_args(annotation) if arg is not type(None))
    return annotation


def number_kind(kind: Any) -> type | None:
    """int or float, of an annotation that is one with bounds; None: something else."""
    while get_args(kind) and not isinstance(kind, type):
        kind = get_args(kind)[0]
    return kind if kind in (int, float) else None


def number_text(kind: type, metavar: str | None, default: object) -> str:
    """The values of a number's option, with an example: its default, where that says something."""
    unit = "a whole number" if kind is int else "a number"
    unit += " of seconds" if metavar == "SECONDS" else ""
    is_number = isinstance(default, (int, float)) and bool(default)
    return f"{unit}, such as {default:g}" if is_number else unit


def number_instead(value: object, metavar: str | None) -> str:
    """Advise the seconds to write for a time with its unit, and the number that 1.0 is."""
    if _WHOLE.fullmatch(str(value)):
        return f": write {int(float(str(value)))}"
    found = _WITH_UNIT.fullmatch(str(value)) if metavar == "SECONDS" else None
    return f": write {int(found[1]) * _UNITS[found[2]]}" if found else ""


_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_WHOLE = re.compile(r"[0-9]{1,6}\.0+", re.ASCII)
_WITH_UNIT = re.compile(r"([0-9]{1,6}) ?([smhd])(?:ec|in)?", re.ASCII)

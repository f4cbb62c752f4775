"""Describes run files to editors, as a JSON schema. Pure."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from launcher.run_file.fields import extra_of, flag_of
from launcher.settings import LaunchSettings

_TEXT = {"type": ["string", "number"]}
_WORD = {"type": ["string", "integer"]}
_WORDS = ("type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OWN: dict[str, Any] = {
    "command": {
        "description": "COMMAND: its words, or one text that is split as a shell splits it.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT, "minItems": 1}],
    },
    "name": {"description": "The name of the run: --rdzv-id.", "type": "string"},
    "env": {
        "description": "Variables of every node's program. {secret = true}: the value is taken "
        "from where you launch, and no file holds it.",
        "type": "object",
        "additionalProperties": {
            "anyOf": [
                _TEXT,
                {
                    "type": "object",
                    "properties": {"secret": {"const": True}},
                    "required": ["secret"],
                    "additionalProperties": False,
                },
            ]
        },
    },
}


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a run file."""
    found = LaunchSettings.model_json_schema()["properties"]
    options = {
        flag_of(name, field)[2:]: {"description": field.description, **_kind(field, found[name])}
        for name, field in LaunchSettings.model_fields.items()
        if not extra_of(field).get("hidden") and name != "env"
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Run file of rdzv",
        "type": "object",
        "properties": _OWN | options,
        "additionalProperties": False,
    }


def _kind(field: FieldInfo, found: dict[str, Any]) -> dict[str, Any]:
    """The values that an option takes in a file, of those that its field takes."""
    found = next((one for one in found.get("anyOf", ()) if one.get("type") != "null"), found)
    words = {key: found[key] for key in _WORDS if key in found}
    if words["type"] == "array":
        items = found["items"]
        return {"type": "array", "items": items if "enum" in items else _WORD}
    if "enum" in words:
        unlisted = extra_of(field).get("unlisted", ())
        words["enum"] = [one for one in words["enum"] if one not in unlisted]
    if extra_of(field).get("bare"):
        return {"anyOf": [words, {"type": "boolean"}]}
    return words if words["type"] != "string" or "enum" in words else dict(_WORD)

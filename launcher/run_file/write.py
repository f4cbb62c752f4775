"""Writes a launch as a run file, in TOML: for a dry run, and for the run's folder. Pure."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Mapping, Sequence

from launcher.run_file.fields import extra_of, flag_of
from launcher.run_file.values import HERE
from launcher.settings import LaunchSettings

_ELSEWHERE = frozenset(
    [
        *("dry_run", "env", "env_file", "json_events", "master_addr", "node_rank", "pass_env"),
        *("rdzv_id", "secret_env"),
    ]
)
"""Options of this call alone, and those that the file has in other words."""


def run_file_text(
    settings: LaunchSettings,
    command: Sequence[str],
    env: Mapping[str, str],
    secrets: Collection[str],
    passed: Collection[str] = (),
    *,
    folder: str,
) -> str:
    """The text of a run file.

    Args:
        settings: As they were given; what is a default is left out.
        command: COMMAND; empty where the run has one of its own (`rdzv bench`).
        env: The variables that every node gets, but for secrets.
        secrets: The names of those that are secrets: their values are in no file.
        passed: The names of further ones, which are to be set where it is launched.
        folder: Where relative paths of the launcher's machine start.
    """
    lines = [f"name = {toml(settings.rdzv_id)}"] if settings.rdzv_id else []
    if command:
        lines.append(f"command = {toml(command)}")
    for name, field in type(settings).model_fields.items():
        if name in settings.model_fields_set - _ELSEWHERE and not extra_of(field).get("hidden"):
            value = getattr(settings, name)
            if value is not None:
                value = _absolute(value, folder) if name in HERE else _as_number(value)
                lines.append(f"{flag_of(name, field)[2:]} = {toml(value)}")
    if passed:
        lines.append(f"pass-env = {toml(sorted(passed))}")
    variables = [f"{_key(name)} = {toml(value)}" for name, value in sorted(env.items())]
    variables += [f"{_key(name)} = {{secret = true}}" for name in sorted(secrets)]
    if variables:
        lines += ["", "[env]", *variables]
    return "".join(f"{line}\n" for line in lines)


def toml(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(int(value)) if value == int(value) else repr(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _absolute(value: object, folder: str) -> object:
    if isinstance(value, list):
        return [_absolute(one, folder) for one in value]
    return posixpath.join(folder, str(value))


def _as_number(value: object) -> object:
    """The number that a text is: `nnodes` may be 4, and 2:4."""
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal()
    return int(str(value)) if is_number and str(int(str(value))) == value else value


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").isalnum() else toml(name)

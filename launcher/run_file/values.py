"""Turns the text of a run file into options, COMMAND and environment. Pure.

What a run file cannot hold is refused with advice: what to write instead.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal, NoReturn, get_origin

from pydantic.fields import FieldInfo

from launcher.run_file.fields import (
    extra_of,
    flag_of,
    number_instead,
    number_kind,
    number_text,
    variables_of,
    without_none,
)
from launcher.run_file.text import BadText, FileText, as_written, read_toml, read_yaml
from rendezvous.frozen import frozen
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import did_you_mean
from worker.options import Settings

YAML = (".yaml", ".yml")
"""The endings of a run file that is YAML; any other one is TOML."""
HERE = frozenset(
    ["cwd", "env_file", "hostfile", "plot", "save", "scheduler_profile", "state_dir", "worker_spec"]
)
"""The options with a path of the launcher's machine: in a file it starts at the file's folder."""
_NAME = "rdzv_id"
_LISTS = ("env", "env_file", "pass_env", "secret_env")
_OPERATORS = frozenset("();<>|&")
_TRUTHS = dict.fromkeys(("yes", "on", "1", "true"), "true")
_TRUTHS |= dict.fromkeys(("no", "off", "0", "false"), "false")

Kind = Literal["list", "truth", "text"]
"""The values that an option takes which is no number."""


@frozen
class RunFile:
    """A run file that was read.

    Attributes:
        options: The values of options, by the names of their fields, but for `lists`.
        command: COMMAND, where the file has one.
        lists: Those of variables, to which flags add: `env` has NAME=VALUE of each with a value,
            `secret_env` the names of secrets, which have none in the file.
    """

    options: Mapping[str, Any]
    command: tuple[str, ...] = ()
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_run_file(
    model: type[Settings],
    path: str,
    text: str,
    *,
    place: Callable[[str], str] = str,
    has_command: bool = True,
) -> RunFile:
    """Read a run file.

    Args:
        model: The settings that it may hold.
        path: Where it is: for its format, and for errors.
        text: What it holds.
        place: Makes a path that starts at the file's folder absolute.
        has_command: Whether it may hold COMMAND, and the name of a run.

    Raises:
        UsageError: A key or a value that it cannot have; names its line and what to write.
    """
    try:
        found = read_yaml(text) if path.lower().endswith(YAML) else read_toml(text)
    except BadText as exc:
        raise UsageError(f"{path} is {exc}") from exc
    return _Reader(model, path, found, place, has_command=has_command).read()


class _Reader:
    """Reads the keys of one file, which its errors name."""

    def __init__(
        self,
        model: type[Settings],
        path: str,
        text: FileText,
        place: Callable[[str], str],
        *,
        has_command: bool,
    ) -> None:
        self._model = model
        self._path = path
        self._text = text
        self._place = place
        self._has_command = has_command
        fields = model.model_fields.items()
        keys = {name: flag_of(name, field)[2:].replace("-", "_") for name, field in fields}
        self._fields = {key: name for name, key in keys.items()}
        self._words = {w: keys[name] for name, field in fields for w in variables_of(name, field)}
        self._words |= {key: key for key in keys.values()}
        if has_command:
            self._words |= {"command": "command"}
        if _NAME in model.model_fields:
            self._fields["name"] = _NAME
            self._words |= {"name": "name"}

    def read(self) -> RunFile:
        options: dict[str, Any] = {}
        command: tuple[str, ...] = ()
        env: list[str] = []
        secrets: list[str] = []
        for key, value in self._text.values.items():
            if key == "command" and self._has_command:
                command = self._command(value)
            elif key == "env" and "env" in self._fields and isinstance(value, dict):
                env, secrets = self._env(value)
            else:
                name = self._field(key, value)
                if name in options:
                    self._refuse(f"'{key}' gives an option again", "keep one of the two", key)
                options[name] = self._value(key, name, value)
        lists = {name: tuple(options.pop(name, ())) for name in _LISTS if name in self._fields}
        lists |= {"env": (*lists.get("env", ()), *env)} if env else {}
        lists |= {"secret_env": (*lists.get("secret_env", ()), *secrets)} if secrets else {}
        return RunFile(options, command, {name: one for name, one in lists.items() if one})

    def _field(self, key: str, value: object) -> str:
        """The field of a key, which is not that of a table with options."""
        if advice := for_table(key, value, self._words):
            self._refuse(f"there is a table [{key}]", advice, key)
        name = self._fields.get(key.replace("-", "_"))
        if name is None:
            advice = for_unknown(key, value, self._words)
            self._refuse(f"there is no option '{key}'", advice, key)
        return name

    def _value(self, key: str, name: str, value: Any) -> Any:
        if value is None:
            self._refuse(f"'{key}' has no value", f"write one, or remove the line of '{key}'", key)
        found = self._model.model_fields[name]
        kind = without_none(found.annotation)
        bare = "bare" in extra_of(found)
        if not (isinstance(value, (bool, str)) if bare else _fits(value, kind)):
            advice = f"{key}: {found.description}"
            self._refuse(f"'{key}' {_why_not_fitting(key, value, found)}", advice, key)
        if name in HERE:
            many = isinstance(value, list)
            paths = [self._place(str(as_written(one))) for one in (value if many else [value])]
            return paths if many else paths[0]
        if isinstance(value, list):
            return [as_written(one) for one in value]
        is_text = number_kind(kind) is None and not isinstance(value, bool)
        return as_written(value) if is_text else value

    def _command(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            return self._split(value)
        words = [as_written(word) for word in value] if isinstance(value, list) else []
        if not words or None in words:
            self._refuse(
                f"'command' cannot be {value!r}",
                'write its words as a list, ["train.py", "--epochs", "3"], or one text',
                "command",
            )
        return tuple(str(word) for word in words)

    def _split(self, line: str) -> tuple[str, ...]:
        """The words of a line, as a shell splits it; one that only a shell could run is refused."""
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words, pieces = shlex.split(line), [*lexer]
        except ValueError as exc:
            self._refuse(
                f"'command' cannot be split as a shell does: {exc}",
                "write its words as a list, in which no character has a meaning",
                "command",
            )
        if operators := [piece for piece in pieces if piece and _OPERATORS.issuperset(piece)]:
            self._refuse(
                f"'command' has {operators[0]!r}, which is a shell's, and no shell runs it",
                f'write framework = "command" and command = ["sh", "-c", {_quoted(line)}]; where '
                f"{operators[0]!r} is a part of a word, write the words as a list",
                "command",
            )
        if not words:
            self._refuse("'command' is empty", 'write "train.py --epochs 3"', "command")
        return tuple(words)

    def _env(self, table: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """The variables with values, and the names of the secrets."""
        env, secrets = [], []
        for name, value in table.items():
            text = as_written(value)
            if not name or "=" in name:
                words = f"[env] {name!r} is not a name of a variable"
                self._refuse(words, 'write NAME = "VALUE"', "env", name)
            if value == {"secret": True}:
                secrets.append(name)
            elif text is None:
                self._refuse(*_wrong_variable(name, value), "env", name)
            else:
                env.append(f"{name}={text}")
        return env, secrets

    def _refuse(self, message: str, hint: str, *keys: str) -> NoReturn:
        raise UsageError(f"{self._path}, line {self._text.line(*keys)}: {message}", hint=hint)


def _wrong_variable(name: str, value: object) -> tuple[str, str]:
    """The refusal of a value in [env], and what to write."""
    secret = f"{name} = {{secret = true}}"
    if value is None:
        words = f"[env] {name} has no value"
        return words, f'write {name}: "" for an empty one, or {name}: {{secret: true}}'
    if isinstance(value, dict) and value.get("secret") is True:
        words = f"[env] {name} is a secret and has more than that"
        return words, f"write {secret}, and set {name} where you launch: no file holds its value"
    if isinstance(value, bool):
        written = str(value).lower()
        words = f"[env] {name} cannot be {written}: a variable is a text"
        return words, f'write "{written}" or "{int(value)}", in quotes'
    kind = {"list": "list", "dict": "table"}.get(type(value).__name__, "date or a time")
    words = f"[env] {name} cannot be a {kind}"  # and not shown: it may be a secret
    return words, f'write {name} = "VALUE", or {secret} for one that is set where you launch'


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of the kind; a text may be written as a number (nnodes = 4)."""
    if get_origin(kind) is list:
        return isinstance(value, list) and all(_fits(item, str) for item in value)
    if kind is bool:
        return isinstance(value, bool)
    takes: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float)}
    fitting = takes.get(number_kind(kind), (str, int))
    return isinstance(value, fitting) and not isinstance(value, bool)


def _why_not_fitting(key: str, value: object, field: FieldInfo) -> str:
    """What is wrong with a value."""
    annotation, metavar = without_none(field.annotation), extra_of(field).get("metavar")
    kind = number_kind(annotation)
    if kind is None or annotation is bool:
        of: Kind = "truth" if annotation is bool else "text"
        return for_value(key, value, metavar, "list" if get_origin(annotation) is list else of)
    takes = number_text(kind, metavar, field.default)
    return f"takes {takes}; {value!r} is not one{number_instead(value, metavar)}"


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

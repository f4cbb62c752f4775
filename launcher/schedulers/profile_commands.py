"""What a profile's spec and command lines are for a worker run: filled in, nothing is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml

from launcher.plan.plan import Submission, WorkerRun
from launcher.plan.template import (
    PLACEHOLDER,
    Form,
    Value,
    Variables,
    form_of,
    one_line,
    placeholders,
    render,
)
from launcher.schedulers.command import Said
from launcher.schedulers.profile_file import Profile
from rendezvous.wire.errors import TemplateError, UsageError

_MOST_ID = 253
_WAYS = {"HOST": "--hostlist, --hostfile or --set HOST=..."}
_STR = "tag:yaml.org,2002:str"


class ProfileCommands:
    """Fills in a profile.

    Args:
        name: The profile's file name, without `.toml`.
        profile: The profile.
        folder: Where files are written that a submission needs.
    """

    def __init__(self, name: str, profile: Profile, folder: Path) -> None:
        self.name = name
        self.profile = profile
        self._folder = folder.absolute()  # the commands may run elsewhere (cwd)

    def render(self, run: Submission, join: str) -> str:
        """The rendered spec alone. Raises TemplateError or UsageError."""
        self._check_needed(run)
        variables = self._variables(run)
        if self.profile.channel == "spec":
            variables["RDZV_JOIN"] = join
        else:
            del variables["RDZV_JOIN"]
        form = form_of(run.source)
        text = render(run.template, variables, source=run.source, form=form)
        mentioned = dict(placeholders(run.template, source=run.source, form=form))
        paths = {"RDZV_JOIN": self.profile.secret_path, "NAME": self.profile.name_path}
        for name, path in paths.items():
            if path is not None and name not in mentioned:
                text = _insert_value(text, form, path.split("."), str(variables[name]), run.source)
        return text

    def _check_commands(self, run: WorkerRun) -> None:
        """A variable that is missing in a later command is better known before the first one."""
        profile = self.profile
        more: dict[str, Value] = {"ID": "id", "GRACE": 0, "LINES": 0}
        for where in ("find", "describe", "cancel", "clear", "logs"):
            if (table := getattr(profile, where)) is not None:
                self._argv(where, table.argv, run, more)
        if profile.logs is not None and profile.logs.follow is not None:
            self._argv("logs.follow", profile.logs.follow, run, more)
        self._argv("hints", [profile.hint, *profile.hints.values()], run)

    @property
    def _stdin_source(self) -> str | None:
        return "join" if self.profile.channel == "stdin" else self.profile.submit.stdin

    def _check_needed(self, run: Submission) -> None:
        """Refuse to do without the profile's `needs`, but for those that a user's own spec does."""
        text = run.template + self.profile.model_dump_json(exclude={"needs"})
        needed = [name for name in self.profile.needs if f"<<{name}>>" in text]
        missing = [name for name in needed if name not in run.variables]
        if missing:
            ways = [_WAYS.get(name, f"--set {name}=...") for name in missing]
            raise UsageError(
                f"the scheduler '{self.name}' needs {' and '.join(missing)}",
                hint=f"add {' and '.join(ways)}",
            )

    def _variables(self, run: WorkerRun) -> dict[str, Value]:
        """Those of the worker run over the profile's own, which `--set` writes as shell words."""
        values: dict[str, Value] = self.profile.variables | run.variables
        for name, default in self.profile.variables.items():
            given = values[name]
            if isinstance(default, list) and isinstance(given, str):
                values[name] = _words(name, given)
        for name in self.profile.paths:
            if isinstance(path := values.get(name), str):
                values[name] = _from_here(path, run)
        if self.profile.channel == "file":
            values["JOIN_FILE"] = str(self._path(run, "JOIN_FILE"))
        return values

    def _argv(
        self,
        where: str,
        words: Sequence[str],
        run: WorkerRun,
        more: Mapping[str, Value] | None = None,
    ) -> list[str]:
        """A command line; a word that is one list variable alone gives all its items."""
        values = self._variables(run) | {"SPEC": str(self._path(run, "SPEC"))} | dict(more or {})
        del values["RDZV_JOIN"]
        known = Variables(values, f"profile '{self.name}', {where}, word")
        filled = [_filled(known, word, number) for number, word in enumerate(words, 1)]
        return [word for part in filled for word in part]

    def _path(self, run: WorkerRun, kind: Literal["SPEC", "JOIN_FILE"]) -> Path:
        """Where the rendered spec, or the join string, is written: named after the run alone."""
        spec = Path(self.profile.spec.removesuffix(".tpl"))
        suffix = ".join" if kind == "JOIN_FILE" else spec.suffix
        return self._folder / f"{run.name}{suffix}"

    def _files(self, run: WorkerRun, text: str, join: str) -> dict[Path, str]:
        """The files that a submission needs."""
        files = {}
        if any("<<SPEC>>" in word for word in self.profile.submit.argv):
            files[self._path(run, "SPEC")] = text
        if self.profile.channel == "file":
            files[self._path(run, "JOIN_FILE")] = join
        return files

    def _hint(self, said: Said, run: WorkerRun) -> str:
        """What the profile says to such words; empty where it says nothing."""
        for words, hint in self.profile.hints.items():
            if accounts(words, said, run):
                return self._filled_in(hint, run)
        return ""

    def _filled_in(self, hint: str, run: WorkerRun) -> str:
        known = Variables(self._variables(run), f"profile '{self.name}', hint")
        return known.fill(hint, lambda _: 1)


def _filled(known: Variables, word: str, number: int) -> list[str]:
    exact = known.exact(word, number)
    return exact if isinstance(exact, list) else [known.fill(word, lambda _: number)]


def _from_here(path: str, run: WorkerRun) -> str:
    """A path as the launcher's working folder sees it: the scheduler's command goes by another one.

    What begins with a scheme (`azureml:`, `git+ssh:`) is no path of this machine.
    """
    here = str(run.variables.get("CWD", ""))
    return path if re.match(r"[A-Za-z][\w+.-]+:", path) else os.path.normpath(Path(here, path))


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as exc:
        raise UsageError(f"--set {name}: {exc}", hint="quote the words as for a shell") from exc


def regex_of(
    pattern: str, run: WorkerRun, more: Mapping[str, Value] | None = None
) -> re.Pattern[str]:
    """A pattern of the profile; variables in it are taken literally."""
    values = run.variables | dict(more or {})

    def literal(spot: re.Match[str]) -> str:
        return re.escape(one_line(values.get(spot["name"], spot[0])))

    return re.compile(PLACEHOLDER.sub(literal, pattern), re.MULTILINE)


def says(
    pattern: str | None, said: Said, run: WorkerRun, more: Mapping[str, Value] | None = None
) -> bool:
    """Whether a command has said what a pattern of the profile stands for."""
    return pattern is not None and regex_of(pattern, run, more).search(said.everything) is not None


def accounts(pattern: str | None, said: Said, run: WorkerRun) -> bool:
    """Whether what it has said, and how it ended, is what a pattern of the profile stands for."""
    return pattern is not None and regex_of(pattern, run).search(said.account) is not None


def ids_in(pattern: str, out: str, run: WorkerRun) -> list[str]:
    """The ids in an output; what could pass for an option, or is no word, is none."""
    found = [match.group(1) or "" for match in regex_of(pattern, run).finditer(out)]
    return [
        word
        for word in found
        if word and word.isprintable() and not word.startswith("-") and len(word) <= _MOST_ID
    ]


def _insert_value(text: str, form: Form, keys: list[str], value: str, source: str) -> str:
    """The rendered spec with the value at a path that its template does not mention."""
    if form is Form.YAML:
        return _insert_in_yaml(text, keys, value, source)
    if form is Form.JSON:
        tree = json.loads(text)
        _set_in_json(tree, keys, value, source)
        return json.dumps(tree, indent=2) + "\n"
    raise TemplateError(
        f"{source}: {'.'.join(keys)} cannot be set, since it is neither YAML nor JSON",
        hint="use <<RDZV_JOIN>> and <<NAME>> in the template",
    )


def _set_in_json(tree: Any, keys: list[str], value: str, source: str) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {}) if isinstance(tree, dict) else None
    if not isinstance(tree, dict):
        raise _no_mapping(keys, source)
    tree[keys[-1]] = value


def _no_mapping(keys: list[str], source: str) -> TemplateError:
    return TemplateError(f"{source}: {'.'.join(keys)} cannot be set: its parent is not a mapping")


def _insert_in_yaml(text: str, keys: list[str], value: str, source: str) -> str:
    """On the node graph: what is not ours stays as it is written."""
    roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    leaf: yaml.Node = yaml.ScalarNode(_STR, value, style='"')
    if not roots or not _set_in_yaml(roots[0], keys, leaf):
        raise _no_mapping(keys, source)
    return yaml.serialize_all(roots, Dumper=yaml.SafeDumper, width=sys.maxsize, allow_unicode=True)


def _set_in_yaml(node: yaml.Node, keys: list[str], leaf: yaml.Node) -> bool:
    if not isinstance(node, yaml.MappingNode):
        return False
    key, rest = keys[0], keys[1:]
    found = next((value for name, value in node.value if name.value == key), None)
    if found is None or not rest:
        found = yaml.MappingNode("tag:yaml.org,2002:map", []) if rest else leaf
        node.value = [pair for pair in node.value if pair[0].value != key]
        node.value.append((yaml.ScalarNode(_STR, key), found))
    return _set_in_yaml(found, rest, leaf) if rest else True

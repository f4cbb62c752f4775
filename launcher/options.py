"""Command-line options from a settings model: flag, environment, file, default, in that order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import click
from click.shell_completion import CompletionItem
from pydantic import ValidationError
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
from launcher.run_file.values import read_run_file
from launcher.settings import LaunchSettings, ServeSettings
from rendezvous.secret_variables import SECRET_VARIABLES
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import did_you_mean
from worker.options import RUN, Settings, Sources
from worker.settings import NodeSettings, WorkerSettings

Model = TypeVar("Model", bound=Settings)
Command = TypeVar("Command", bound=Callable[..., Any])
Completion = Callable[[click.Context, click.Parameter, str], "list[str] | list[CompletionItem]"]
FindFile = Callable[[click.Context, str], Path]
_FILE = f"{__name__}.file"


class SettingsOption(click.Option):
    """An option that knows its heading in a help text, and whether the short one shows it."""

    def __init__(self, *args: Any, group: str, basic: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group
        self.basic = basic


def options_from(
    model: type[Settings],
    complete: Mapping[str, Completion] | None = None,
    find: FindFile | None = None,
) -> Callable[[Command], Command]:
    """A decorator that gives a click command one option for each field of the model, and `--file`.

    Args:
        model: The settings.
        complete: What completes the values of a field in a shell.
        find: Finds the run file that a word names which is no file; raises UsageError.
    """

    def decorate(function: Command) -> Command:
        for name, field in reversed(model.model_fields.items()):
            function = _option(name, field, (complete or {}).get(name))(function)
        has_command = issubclass(model, NodeSettings)
        what = "Options and COMMAND" if has_command else "Options"
        what += " in a file, TOML or YAML"
        if find is not None:
            what = "All of a run in a file, TOML or YAML; or a former RUN again"
        return click.option(
            "-f",
            "--file",
            cls=SettingsOption,
            group=RUN,
            basic=find is not None,
            envvar="RDZV_FILE",
            is_eager=True,
            expose_value=False,
            callback=_load_file(model, find, has_command=has_command),
            shell_complete=(complete or {}).get("file"),
            metavar="FILE|RUN" if find else "FILE",
            help=f"{what}. See 'rdzv docs run-file'.",
        )(function)

    return decorate


class NotANumber(click.BadParameter):
    """What was given for an option is no number, or not one that it takes."""


class _InWords:
    """A number type whose refusals are plain English; in front of click's own."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click.ParamType."""
        try:
            number = super().convert(value, param, ctx)  # type: ignore[misc]
        except click.BadParameter as exc:
            name = _as_given(param, ctx) if param else "the value"
            raise NotANumber(f"{name} {self._why_not(value, param)}", ctx, param) from exc
        if isinstance(self, click.FloatRange) and not math.isfinite(number):
            name = _as_given(param, ctx) if param else "the value"
            raise NotANumber(f"{name} cannot be {value}: it must be a finite number", ctx, param)
        return number

    def _why_not(self, value: Any, param: click.Parameter | None) -> str:
        kind = int if isinstance(self, click.types.IntParamType) else float
        least, most = getattr(self, "min", None), getattr(self, "max", None)
        try:
            number = kind(value)
        except ValueError:
            metavar, default = (param.metavar, param.default) if param else (None, None)
            takes = number_text(kind, metavar, default)
            return f"takes {takes}; {value!r} is not one{number_instead(value, metavar)}"
        is_low = least is not None and number < least
        bound = f"at least {least:.10g}" if is_low else f"at most {most:.10g}"
        return f"cannot be {value}: it must be {bound}"


class WholeNumber(_InWords, click.types.IntParamType):
    """The value of an option that is a whole number."""


class WholeNumberFrom(_InWords, click.IntRange):
    """The same, with a least one, and perhaps a greatest."""


class Number(_InWords, click.types.FloatParamType):
    """The value of an option that is a number."""


class NumberFrom(_InWords, click.FloatRange):
    """The same, with a least one."""


def _as_given(param: click.Parameter, ctx: click.Context | None) -> str:
    """The flag of an option, or the variable from which its value is."""
    source = ctx.get_parameter_source(param.name) if ctx and param.name else None
    if source is click.core.ParameterSource.ENVIRONMENT:
        names = [param.envvar] if isinstance(param.envvar, str) else param.envvar or ()
        return next((name for name in names if os.environ.get(name)), param.opts[-1])
    if isinstance(param, click.Argument):
        return param.human_readable_name
    return param.opts[-1] if param.opts[-1].startswith("--") else param.opts[0]


_OUT_OF_RANGE = {
    "greater_than_equal": "it must be at least {ge:.10g}",
    "greater_than": "it must be more than {gt:.10g}",
    "less_than_equal": "it must be at most {le:.10g}",
    "less_than": "it must be less than {lt:.10g}",
    "finite_number": "it must be a finite number",
}
"""What is wrong with a number, by pydantic's type of error."""


def read(model: type[Model], values: dict[str, Any]) -> Model:
    """The settings, or UsageError with the option's name and what it takes."""
    given = {n: v for n, v in values.items() if n in model.model_fields and not _is_default(n)}
    given = {n: list(v) if isinstance(v, tuple) else v for n, v in given.items()}
    named = _add_those_of_file(model, given)
    try:
        settings = model.model_validate(given)
    except ValidationError as exc:
        first = exc.errors()[0]
        name = str(first["loc"][0])
        flag = flag_of(name, model.model_fields[name])
        given_by = given_as(model, name)
        plain, why = _OUT_OF_RANGE.get(first["type"]), first["msg"].removeprefix("Value error, ")
        raise UsageError(
            f"{given_by} cannot be {_as_written(first['input'])!r}: "
            f"{plain.format(**first.get('ctx', {})) if plain else why}",
            hint=f"{flag}: {model.model_fields[name].description}",
        ) from exc
    flags = {name: flag_of(name, field) for name, field in model.model_fields.items()}
    where = {name: given_as(model, name) for name in sources(model)}
    where = {name: source for name, source in where.items() if source != flags[name]} | named
    return with_sources(settings, where) if where else settings


def with_sources(settings: Model, found: Mapping[str, str]) -> Model:
    """The same settings, of which it is known where they were given."""
    copy = settings.model_copy()
    copy._sources = Sources(settings._sources, **found)
    return copy


def _is_default(name: str) -> bool:
    """Whether nobody has given the option: the model has the same default, and then can tell."""
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source(name) if context else None
    return source is click.core.ParameterSource.DEFAULT


def sources(model: type[Settings]) -> dict[str, str]:
    """Map the options of the running command to what gave them: flag, variable, or --file."""
    found: dict[str, str] = {}
    if (context := click.get_current_context(silent=True)) is None:
        return found
    for name, field in model.model_fields.items():
        match context.get_parameter_source(name):
            case click.core.ParameterSource.COMMANDLINE:
                found[name] = flag_of(name, field)
            case click.core.ParameterSource.ENVIRONMENT:
                found[name] = next(n for n in variables_of(name, field) if os.environ.get(n))
            case click.core.ParameterSource.DEFAULT_MAP:
                found[name] = "--file"
    return found


def given_as(model: type[Settings], name: str) -> str:
    """Name what gave an option of the running command: its flag, a variable, or a file."""
    flag = flag_of(name, model.model_fields[name])
    source = sources(model).get(name, flag)
    if source != "--file":
        return source
    context = click.get_current_context()
    return f"{flag} (in {context.meta[_FILE][0]})"


def misspelt_variables(environ: Mapping[str, str]) -> list[str]:
    """The variables that are none of rdzv's and look like one, each in a sentence."""
    models = (LaunchSettings, WorkerSettings, ServeSettings)
    options = [field for model in models for field in model.model_fields.items()]
    known = {name for field in options for name in variables_of(*field)}
    known |= {*SECRET_VARIABLES, *_SET_FOR_PROGRAMS, "RDZV_FILE"}
    words = {name.removeprefix("RDZV_"): name for name in known if name.startswith("RDZV_")}
    return [
        f"{name} is set, and rdzv reads no such variable; {close}"
        for name in environ
        if name.startswith("RDZV_") and name not in known
        if (close := did_you_mean(name.removeprefix("RDZV_"), words, "RDZV_{}", least=_ALIKE))
    ] + ["RDZV_CONFIG is set, and rdzv reads RDZV_FILE in its place"] * ("RDZV_CONFIG" in environ)


_SET_FOR_PROGRAMS = ("RDZV_REPLACEMENTS", "RDZV_RESTARTS", "RDZV_VENV")
"""Variables of rdzv, and of its worker specs, that look like those of an option."""
_ALIKE = 0.85


def _option(
    name: str, field: FieldInfo, complete: Completion | None
) -> Callable[[Command], Command]:
    extra, flag = extra_of(field), flag_of(name, field)
    kind = without_none(field.annotation)
    keywords: dict[str, Any] = {
        "cls": SettingsOption,
        "group": extra["group"],
        "basic": extra["basic"],
        "shell_complete": complete,
        "envvar": variables_of(name, field),
        "show_envvar": True,
        "help": field.description,
        "default": _as_written(field.get_default(call_default_factory=True)),
        "show_default": field.default not in (None, [], "") and field.default is not False,
        "hidden": extra.get("hidden", False),
        "metavar": extra.get("metavar"),
    }
    if kind is bool:
        negative = "" if extra.get("flag") else f"/--no-{name.replace('_', '-')}"
        short = [extra["short"]] if "short" in extra else []
        return click.option(f"{flag}{negative}", *short, name, is_flag=True, **keywords)
    if get_origin(kind) is list:
        return click.option(flag, name, multiple=True, **keywords)
    if bare := extra.get("bare"):
        keywords |= {"is_flag": False, "flag_value": bare}
        return click.option(flag, name, type=OrBare(get_args(kind), bare), **keywords)
    kind = _click_type(kind, extra.get("unlisted", ()))
    return click.option(flag, name, type=kind, **keywords)


def _as_written(default: Any) -> Any:
    """10, and not 10.0."""
    return int(default) if isinstance(default, float) and default.is_integer() else default


def _click_type(kind: Any, unlisted: Sequence[str]) -> Any:
    if get_origin(kind) is Literal:
        return _Choice(get_args(kind), unlisted)
    if kind is Path:
        return click.Path(path_type=Path)
    number = number_kind(kind)
    return str if number is None else {int: WholeNumber(), float: Number()}[number]


class _Choice(click.Choice[str]):
    """A choice that says which word was probably meant.

    Args:
        choices: All that it takes.
        unlisted: Those of them that no person gives, and that no list shows.
    """

    def __init__(self, choices: Sequence[str], unlisted: Sequence[str] = ()) -> None:
        super().__init__(choices)
        self.listed = [choice for choice in choices if choice not in unlisted]

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """See the base class."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as exc:
            message = f"{value!r} is not one of {', '.join(map(repr, self.listed))}"
            listed = click.BadParameter(message, ctx, param, exc.param_hint)
            raise Unknown(listed, str(value), self.listed) from exc

    def to_info_dict(self) -> Any:
        """See the base class."""
        return {**super().to_info_dict(), "choices": self.listed}


class OrBare(_Choice):
    """A choice that may be left out, and taken back with 'off'; a variable may be 1 or 0.

    Args:
        choices: All that it takes.
        bare: The one that is meant where none is written.
    """

    def __init__(self, choices: Sequence[str], bare: str) -> None:
        super().__init__(choices)
        self.bare = bare
        self.values = (bare, *(choice for choice in choices if choice != bare), "off")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See the base class."""
        match _TRUTHS.get(str(value).lower()):
            case None:
                return super().convert(value, param, ctx)
            case truth:
                return self.bare if truth else None


_TRUTHS = dict.fromkeys(("1", "true", "yes", "on", "t", "y"), True)
_TRUTHS |= dict.fromkeys(("0", "false", "no", "off", "f", "n"), False)


class Unknown(click.BadParameter):
    """A value that is none of those known."""

    def __init__(self, exc: click.BadParameter, value: str, known: Iterable[str]) -> None:
        super().__init__(exc.message, exc.ctx, exc.param, exc.param_hint)
        self.close = did_you_mean(value, known)


def _load_file(
    model: type[Settings], find: FindFile | None, *, has_command: bool
) -> Callable[[click.Context, click.Parameter, Any], None]:
    def load(context: click.Context, _: click.Parameter, word: str | None) -> None:
        if not word or context.resilient_parsing:
            return
        is_file = os.path.exists(word) and not os.path.isdir(word)  # of a run's output, perhaps
        path = Path(word) if find is None or is_file else find(context, word)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else exc
            raise UsageError(f"the run file {path} cannot be read: {why}") from exc
        place = partial(_placed, path.absolute().parent)
        file = read_run_file(model, str(path), text, place=place, has_command=has_command)
        values = dict(file.options)
        if file.command and any(one.name == "command" for one in context.command.params):
            values["command"] = list(file.command)
        context.default_map = {**(context.default_map or {}), **values}
        context.meta[_FILE] = path, file

    return load


def _placed(folder: Path, word: str) -> str:
    """A path that starts at this folder; raises UsageError for the home of an unknown user."""
    try:
        return os.path.normpath(folder / Path(word).expanduser())
    except RuntimeError as exc:
        raise UsageError(
            f"the path {word} is in the home of a user that is not known here"
        ) from exc


def _add_those_of_file(model: type[Settings], given: dict[str, Any]) -> dict[str, str]:
    """Add what a run file says of variables, and drop what excludes something nearer.

    Flags and variables add to these lists of the file, and win name by name: a secret of the file
    stays one.

    Returns:
        What gave each variable of [env], by `env.NAME`.
    """
    context = click.get_current_context(silent=True)
    if context is None or _FILE not in context.meta:
        return {}
    for pair in _EXCLUSIVE:
        of_file = [name for name in pair if sources(model).get(name) == "--file"]
        if len(of_file) == 1 and all(name in given for name in pair):
            del given[of_file[0]]
    path, file = context.meta[_FILE]
    nearer = {text.partition("=")[0] for text in given.get("env", ())}
    for name, values in file.lists.items():
        given[name] = [*values, *given.get(name, ())]
    names = [text.partition("=")[0] for text in file.lists.get("env", ())]
    names += file.lists.get("secret_env", ())
    return {f"env.{name}": f"[env] of {path}:" for name in names if name not in nearer}


_EXCLUSIVE = (("hostlist", "hostfile"), ("scheduler", "scheduler_profile"))


# The launcher has read these, and its nodes get them as options. Left in their environment they
# would count again: over an option that the launcher's command line had set back to its default,
# with a file that holds no worker's options, with one rank for all.
_READ_BY_LAUNCHER = frozenset(
    [
        *("RDZV_FILE", "RDZV_ENV", "RDZV_ENV_FILE", "RDZV_SECRET_ENV"),
        "NODE_RANK",
        *(variables_of(name, field)[0] for name, field in WorkerSettings.model_fields.items()),
    ]
)


def outside_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without the launcher's secrets and options.

    Some commands hand all their environment on to what they start (`sbatch`, for one).
    """
    unwanted = _READ_BY_LAUNCHER.union(SECRET_VARIABLES)
    return {name: value for name, value in environ.items() if name not in unwanted}

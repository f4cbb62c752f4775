"""What a caller of `rdzv` gives: keywords that are known, and options as words of a command line.

Standard library only.
"""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rdzv.command import RdzvError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

FLAGS = {
    *(
        "allow_exec",
        "any_command",
        "json",
        "local_node",
        "prefix",
        "raw_output",
    ),
    *("require_rdma", "strict", "tf_chief", "ui", "ui_actions", "ui_behind_ingress", "verbose"),
}
"""The options of `rdzv launch` that take no value."""
USAGE = 64
_ALIKE = 0.6


def named_arguments(otherwise: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function name the nearest of its keywords where it is given one that it has not.

    Args:
        otherwise: What to do where none is near; empty: the keywords are listed.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for word in kwargs:
                if word not in known:
                    near = get_close_matches(word, known, 1, _ALIKE)
                    advice = f"did you mean {near[0]!r}?" if near else otherwise
                    raise TypeError(
                        f"{function.__name__}() has no keyword {word!r}; "
                        f"{advice or 'it takes ' + ', '.join(known)}"
                    )
            return function(*args, **kwargs)

        return checked

    return decorate


def more_words(options: Mapping[str, object] | Sequence[str]) -> Sequence[str]:
    """All other options; raises TypeError for one string, whose letters would be options."""
    if isinstance(options, str):
        raise TypeError("options are a mapping or a list of words, not one string")
    return option_words(options) if isinstance(options, Mapping) else options


def option_words(options: Mapping[str, object]) -> list[str]:
    """Options as words of a command line; raises TypeError for True and False of one with a value.

    Without its value it would take the next word for it.
    """
    words = []
    for name, value in options.items():
        flag = "--" + name.strip("-").replace("_", "-")
        if isinstance(value, bool):
            if flag == "--dry-run":
                words.append(flag if value else f"{flag}=off")
                continue
            if flag[2:].replace("-", "_") not in FLAGS:
                raise TypeError(f"{name} cannot be {value}: {flag} takes a value")
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, Mapping):
            words += [f"{flag}={key}={each}" for key, each in value.items()]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            words += [f"{flag}={each}" for each in value]
        elif value is not None:
            words.append(f"{flag}={value}")
    return words


def joined(value: object) -> object:
    """A list as one word, with commas."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return value


def split_command(command: str) -> list[str]:
    """A command line as words; raises RdzvError for one that a shell would not take."""
    try:
        return shlex.split(command)
    except ValueError as exc:
        raise RdzvError(
            f"the command {command!r} cannot be split as a shell does: {exc}",
            "give it as a list of words",
            USAGE,
        ) from exc

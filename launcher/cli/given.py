"""A command line as it was typed: rdzv's options, then COMMAND; and the line that works. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from rendezvous.frozen import frozen
from rendezvous.talk.secret_words import is_secret
from worker.contracts.advice import Line

_MOST_CHARACTERS = 3_000
_SEPARATOR = "--"


@frozen
class KnownFlag:
    """A flag of the command.

    Attributes:
        option: Its option.
        has_value: Whether it takes a value.
        repeatable: Whether it may be repeated.
        values: The values of a flag that may stand without one; the first one is then meant, and
            no other word behind the flag is its value.
    """

    option: str
    has_value: bool
    repeatable: bool = False
    values: tuple[str, ...] = ()


@frozen
class Option:
    """An option as it was typed: its name, its words, and whether several may be given."""

    name: str
    words: tuple[str, ...]
    repeatable: bool = False


@frozen
class GivenLine:
    """A command line that was typed.

    Attributes:
        path: The command (`rdzv launch`).
        options: The options in front of COMMAND.
        command: COMMAND.
        separated: Whether `--` is in front of COMMAND.
        needed: Options without which no line works, where nothing gives them yet.
    """

    path: str
    options: tuple[Option, ...]
    command: tuple[str, ...]
    separated: bool
    needed: tuple[Option, ...] = ()

    def line(self, command: Sequence[str], more: Sequence[Option] = ()) -> str:
        """The same command line with another COMMAND, quoted for a shell.

        Args:
            command: The other COMMAND.
            more: Options that come beside those that were given, or in their place.
        """
        replaced = {option.name for option in more if not option.repeatable}
        given = [option for option in self.options if option.name not in replaced]
        given += [option for option in self.needed if option.name not in replaced]
        words = [word for option in (*given, *more) for word in _shown(option)]
        return shlex.join([*self.path.split(), *words, _SEPARATOR, *command])

    def write(self, line: Line, known: Mapping[str, KnownFlag]) -> str:
        """A line of advice with all that was given, in place of what it replaces.

        A line that no terminal shows whole is written as everyone may see it.
        """
        command = line.command or self.command
        whole = line.before + self.line(command, split_options(line.options, known))
        return whole if len(whole) <= _MOST_CHARACTERS else line.text()


def read_line(
    path: str,
    words: Sequence[str],
    command: Sequence[str],
    known: Mapping[str, KnownFlag],
    needed: tuple[Option, ...] = (),
) -> GivenLine:
    """Read what was typed.

    Args:
        path: The command.
        words: All words behind it.
        command: Those at their end that are COMMAND.
        known: The flags of the command, in their one written form.
        needed: See `GivenLine`.
    """
    count = len(words) - len(command)
    separated = count > 0 and words[count - 1] == _SEPARATOR
    options = split_options(words[: count - separated], known)
    return GivenLine(path, options, tuple(command), separated, needed)


def split_options(words: Sequence[str], known: Mapping[str, KnownFlag]) -> tuple[Option, ...]:
    """Options one by one, with their values."""
    found = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        flag, taken = _flag_of(word, known), [word]
        takes = flag is not None and flag.has_value and "=" not in word
        if takes and flag and (not flag.values or set(rest[:1]) & set(flag.values)):
            taken += rest[:1]
            del rest[:1]
        found.append(
            Option(flag.option if flag else word, tuple(taken), bool(flag and flag.repeatable))
        )
    return tuple(found)


def spelled_out(words: Sequence[str], known: Mapping[str, KnownFlag]) -> list[str]:
    """The same command line, in which each value that may be left out is one word with its flag.

    The words from COMMAND's first one on stay as they are.
    """
    found: list[str] = []
    count = 0
    for option in split_options(words, known):
        first, flag = option.words[0], _flag_of(option.words[0], known)
        if first == _SEPARATOR or not first.startswith("-"):
            break
        count += len(option.words)
        if flag is None or not flag.values or "=" in first:
            found += option.words
        else:
            found.append(f"{first}={[*option.words[1:], flag.values[0]][0]}")
    return [*found, *words[count:]]


def misplaced(
    given: GivenLine, known: Mapping[str, KnownFlag]
) -> tuple[tuple[Option, ...], list[str]]:
    """The options of rdzv that are behind COMMAND's first word, and COMMAND without them.

    There are none where `--` says that all is COMMAND's; a `--` inside COMMAND ends them.
    """
    if given.separated:
        return (), list(given.command)
    end = given.command.index(_SEPARATOR) if _SEPARATOR in given.command else len(given.command)
    found: list[Option] = []
    kept = list(given.command[:1])
    for option in split_options(given.command[1:end], _long(known)):
        if _flag_of(option.words[0], _long(known)) is None:
            kept += option.words
        else:
            found.append(option)
    return tuple(found), [*kept, *given.command[end:]]


def leading(
    given: GivenLine, known: Mapping[str, KnownFlag]
) -> tuple[tuple[Option, ...], list[str]]:
    """The options of rdzv with which a COMMAND behind `--` begins, and the rest of COMMAND."""
    found: list[Option] = []
    if given.separated:
        for option in split_options(given.command, _long(known)):
            if _flag_of(option.words[0], _long(known)) is None:
                break
            found.append(option)
    return tuple(found), list(given.command[sum(len(option.words) for option in found) :])


def _shown(option: Option) -> tuple[str, ...]:
    """The words of an option, without the value of a secret: it is set where the line is typed."""
    if option.name != "--env":
        return option.words
    given = option.words[-1].removeprefix("--env=")
    name = given.partition("=")[0]
    return ("--env", name) if is_secret(name) else option.words


def _long(known: Mapping[str, KnownFlag]) -> dict[str, KnownFlag]:
    """The long flags: a short one behind COMMAND is COMMAND's."""
    return {flag: one for flag, one in known.items() if flag.startswith("--")}


def written(flag: str) -> str:
    """A flag in its one written form: with dashes, as `--nproc_per_node` is `--nproc-per-node`."""
    name, has_value, value = flag.partition("=")
    return name.replace("_", "-") + has_value + value


def _flag_of(word: str, known: Mapping[str, KnownFlag]) -> KnownFlag | None:
    return known.get(written(word).partition("=")[0]) if word.startswith("-") else None

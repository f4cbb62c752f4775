"""A command line that starts Python: its flags, and what it runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rendezvous.frozen import frozen

_WITH_VALUE, _ABOUT_PYTHON = "WX", "hV?"


@frozen
class PythonCall:
    """Flags and target of a call of an interpreter.

    Attributes:
        kind: `script` (also `-`), `module` (-m), `code` (-c), `none` where it has only flags, and
            `other` where it tells something about itself.
        flags: Its own flags, with their values, without -m and -c.
        target: The script, module or code, and the arguments of that.
    """

    kind: Literal["script", "module", "code", "none", "other"]
    flags: tuple[str, ...]
    target: tuple[str, ...] = ()


def read_python(words: Sequence[str]) -> PythonCall:
    """Read what follows an interpreter's name; flags may be glued together (`-um package`)."""
    flags: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word.startswith("--") or set(_ABOUT_PYTHON) & set(_letters(word)):
            return PythonCall("other", (*flags, word), tuple(rest))
        letters = _letters(word)
        glued = word[len(letters) + 1 :]
        if letters[-1:] in ("m", "c"):
            flags += [f"-{letters[:-1]}"] if letters[:-1] else []
            target = ([glued] if glued else []) + rest
            kind: Literal["module", "code"] = "module" if letters[-1] == "m" else "code"
            return PythonCall(kind, tuple(flags), tuple(target))
        flags.append(word)
        if letters[-1:] and letters[-1] in _WITH_VALUE and not glued:
            flags += rest[:1]
            del rest[:1]
    return PythonCall("script" if rest else "none", tuple(flags), tuple(rest))


def _letters(word: str) -> str:
    """The flags of one word, up to the first that takes what follows it."""
    found = ""
    for letter in word[1:]:
        found += letter
        if letter in ("m", "c", *_WITH_VALUE):
            break
    return found

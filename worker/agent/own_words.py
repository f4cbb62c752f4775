"""A word of this node's COMMAND as its own output may show it. Pure.

Words may hold secrets: the value of what is named like one is left out, and what looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rendezvous.talk.join_string import without_secrets
from rendezvous.wire.node import MOST_COMMAND_WORDS
from rendezvous.wire.words import printable

_HIDDEN = "(hidden)"
_LONGEST = 200
_NAMES = {
    *("secret", "secrets", "token", "password", "passwd", "passphrase", "pwd", "credential"),
    *("credentials", "auth", "authorization", "apikey", "key"),
}
_ASSIGNED = re.compile(r"-*([A-Za-z][\w.-]*)[=:](.*)", re.DOTALL)
_INNER = re.compile(r"([A-Za-z][\w.-]*)=([^\s;&|'\"]+)")
_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)")
_URL = re.compile(r"(\w+://[^/@\s:]*):[^/@\s]+@")
_LOOKS_SECRET = re.compile(
    r"\b(?:sk|hf|ghp|gho|github_pat|glpat|xox[abp])[-_]\w{8,}|\beyJ[\w.-]{16,}"
)


def own_word(command: Sequence[str], number: int) -> str:
    """Say what a word of COMMAND is here.

    Args:
        command: This node's.
        number: Which, from 1; behind `MOST_COMMAND_WORDS`: all that follow.
    """
    if number > MOST_COMMAND_WORDS:
        return f"COMMAND has {len(command)} words here, and differs behind word {number - 1}"
    if number > len(command):
        return f"COMMAND has {len(command)} words here, and no word {number}"
    return f"word {number} of {len(command)} of COMMAND is {shown_word(command, number - 1)} here"


def shown_word(command: Sequence[str], index: int) -> str:
    """One word, quoted and without what may be a secret."""
    word = command[index]
    assigned = _ASSIGNED.fullmatch(word)
    before = _FLAG.fullmatch(command[index - 1]) if index else None
    if before and not word.startswith("-") and _is_secret(before[1]):
        return _HIDDEN
    if assigned and _is_secret(assigned[1]):
        word = word[: assigned.start(2)] + _HIDDEN
    word = _INNER.sub(_without_value, word)
    word = _URL.sub(rf"\1:{_HIDDEN}@", without_secrets(word))
    return repr(printable(_LOOKS_SECRET.sub(_HIDDEN, word), _LONGEST))


def _without_value(found: re.Match[str]) -> str:
    return f"{found[1]}={_HIDDEN}" if _is_secret(found[1]) else found[0]


def _is_secret(name: str) -> bool:
    return bool(_NAMES & set(re.split(r"[-_.]", name.lower())))

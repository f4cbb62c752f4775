"""A word of this node's COMMAND as its own output may show it. Pure.

Words may hold secrets: the value of what is named like one is left out, and what looks like one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rendezvous.talk.secret_words import HIDDEN, is_secret, text_without_secrets
from rendezvous.wire.node import MOST_COMMAND_WORDS
from rendezvous.wire.words import printable

_LONGEST = 200
_ASSIGNED = re.compile(r"-*([A-Za-z][\w.-]*)[=:](.*)", re.DOTALL)
_FLAG = re.compile(r"--?([A-Za-z][\w.-]*)")


def own_word(command: Sequence[str], number: int) -> str:
    """Say what a word of COMMAND is here.

    Args:
        command: This node's.
        number: Which, from 1; behind `MOST_COMMAND_WORDS`: all that follow.
    """
    if number > MOST_COMMAND_WORDS:
        return f"COMMAND has {len(command)} words here and differs after word {number - 1}"
    if number > len(command):
        return f"COMMAND has {len(command)} words here, so it has no word {number}"
    return f"word {number} of {len(command)} of COMMAND is {shown_word(command, number - 1)} here"


def shown_word(command: Sequence[str], index: int) -> str:
    """One word, quoted and without what may be a secret."""
    word = command[index]
    assigned = _ASSIGNED.fullmatch(word)
    before = _FLAG.fullmatch(command[index - 1]) if index else None
    if before and not word.startswith("-") and is_secret(before[1]):
        return HIDDEN
    if assigned and is_secret(assigned[1]):
        word = word[: assigned.start(2)] + HIDDEN
    return repr(printable(text_without_secrets(word), _LONGEST))

"""Strings that a peer may send to do harm, and data that has one in every text."""

from __future__ import annotations

import itertools
from typing import Any

ROTATIONS = 8
STRINGS = (
    "</script><script>window.executed = 'script'</script>",
    "<img src=x onerror=\"window.executed = 'img'\">",
    "\u202egnihtemos \u2066sdrawkcab\u2069 \u200f\u061c",
    "nul \0 bell \a escape \x1b[31mred\x1b[0m \x9b0m",
    "W" * 10_000,
    "\"'><svg onload=\"window.executed = 'svg'\"><!-- ]]> --!> {{7*7}} ${7*7}",
    "javascript:window.executed='link' \u2028 \u2029 &lt;b&gt; &amp;",
    "__proto__\ud83d\ude80\ufeff\u0000constructor%00%3Cscript%3E\r\n\r\nSet-Cookie: a=b",
)
assert len(STRINGS) == ROTATIONS

UNSEEN = {chr(n) for n in (*range(9), *range(11, 32), *range(0x7F, 0xA0))} - {"\r"} | set(
    "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
"""What no text of the page may have in it."""

_KEPT = {"cells", "rtts"}
"""Bytes in base64, and no text."""


def poisoned(found: Any, rotation: int = 0) -> Any:
    """The same data with a hostile string as each text, and as each name that a peer chooses."""
    strings = itertools.cycle(STRINGS[rotation:] + STRINGS[:rotation])
    return _poisoned(found, strings)


def _poisoned(found: Any, strings: Any) -> Any:
    if isinstance(found, str):
        return next(strings)
    if isinstance(found, list):
        return [_poisoned(each, strings) for each in found]
    if isinstance(found, dict):
        return {
            name: each if name in _KEPT else _named(name, each, strings)
            for name, each in found.items()
        }
    return found


def _named(name: str, found: Any, strings: Any) -> Any:
    if name in ("values", "curves") and isinstance(found, dict):
        return {next(strings): _poisoned(each, strings) for each in found.values()}
    return _poisoned(found, strings)

"""Says in plain words what is wrong with a file of keys: a profile, or a local spec. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pydantic import ValidationError

from rendezvous.wire.words import did_you_mean

Place = tuple[int | str, ...]

_UNKNOWN: Final = "extra_forbidden"
_WORDS: Final = {
    _UNKNOWN: "unknown key",
    "missing": "this key is missing",
    "list_type": "must be a list",
    "string_type": "must be text",
    "dict_type": "must be a table",
    "model_type": "must be a table of keys",
}


def wrong_key(error: ValidationError, keys: Callable[[Place], Iterable[str]]) -> tuple[str, str]:
    """The first thing to mend, and the key that was meant; both may be empty.

    A key that is unknown comes before one that is missing: it is why.

    Args:
        error: What the model refuses.
        keys: All that may stand where a key stands.
    """
    found = error.errors(include_input=False)
    first = found[0]
    if first["type"] == "missing":
        first = next((one for one in found if one["type"] == _UNKNOWN), first)
    place = first["loc"]
    why = _WORDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    close = ""
    if first["type"] == _UNKNOWN:
        close = did_you_mean(str(place[-1]), keys(place))
    where = ".".join(map(str, place))
    return f"{where}: {why}" if where else why, close

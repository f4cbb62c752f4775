"""Messages that are nearly right: JSON with one part of it replaced by something odd."""

from __future__ import annotations

import json
import random
from typing import Any

CANARY = "canary-7f3a91"

_ODD: list[Any] = [
    None, True, 0, -1, 2**31, 2**63, 10**400, 1.5, 1e308, float("inf"), float("nan"), "", "0",
    CANARY, "\ud800", "\x00", "a\nb", "\u2028", "::1", "::ffff:10.0.0.1", "10.0.0.256", "127.0.0.1",
    "localhost", "-a", "٣", [], [[]], {}, {"kind": "ack"}, [CANARY] * 70, "9" * 5_000,
]  # fmt: skip


def mangled(dice: random.Random, value: Any) -> Any:
    """The value with one part of it replaced by something odd, or left out."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(list(value))
        changed = dict(value)
        if dice.random() < 0.1:
            del changed[key]
        else:
            changed[key] = mangled(dice, value[key])
        return changed
    if isinstance(value, list) and value and dice.random() < 0.7:
        at = dice.randrange(len(value))
        return [*value[:at], mangled(dice, value[at]), *value[at + 1 :]]
    return dice.choice(_ODD)


def mangled_text(dice: random.Random, data: bytes) -> bytes:
    """The same of JSON lines, in one line; what is no JSON stays."""
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return data
    lines[at] = json.dumps(mangled(dice, value)).encode()
    return b"\n".join(lines)

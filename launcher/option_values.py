"""Values of options that are refused, each with the reason. Pure."""

from __future__ import annotations

from rendezvous.wire.checks import CHECK_IDS
from rendezvous.wire.words import did_you_mean, read_bytes

LEAST_VERIFY_SECONDS = 30.0
"""A round of probes takes up to 20 s where peers are silent; who has not reported is blamed."""


def outlast_a_round(seconds: float) -> float:
    """A time in which a round of probes ends; raises ValueError."""
    if seconds < LEAST_VERIFY_SECONDS:
        raise ValueError(
            f"below {LEAST_VERIFY_SECONDS:g} s healthy nodes would be blamed: they need up to 20 "
            "s to report that their peers are silent"
        )
    return seconds


def known_check(word: str) -> str:
    """A check that can be skipped; raises ValueError with those that are nearest."""
    if word not in CHECK_IDS:
        close = did_you_mean(word, CHECK_IDS, "{}") or "'rdzv docs checks' lists them"
        raise ValueError(f"there is no such check; {close}")
    return word


def check_bytes(text: str) -> str:
    """Sizes to measure; raises ValueError."""
    if not all(map(read_bytes, text.split(","))):
        raise ValueError("a size of 0 bytes measures nothing")
    return text

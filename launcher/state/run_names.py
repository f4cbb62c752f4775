"""Which run a person means who has not written its whole ID. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LEAST_OF_LAUNCH = 4
_SEAM = re.compile(r"[-._]")


def runs_meant(word: str, known: Mapping[str, str], *, whole: bool) -> list[str]:
    """The runs whose ID begins or ends so, or whose launch it names; a whole ID is its run alone.

    Args:
        word: What was written.
        known: The launch id of each run that was launched here.
        whole: Whether a part of an ID has to end at a seam of it, so that `llama-7` is not
            `llama-7b`: for what changes a run.
    """
    if word in known or not word:
        return [word][: word in known]
    return [
        run
        for run, launch_id in known.items()
        if _is_part(word, run, whole=whole) or _is_launch(word, launch_id)
    ]


def _is_part(word: str, run: str, *, whole: bool) -> bool:
    left = run.removesuffix(word) if run.endswith(word) else run.removeprefix(word)
    if left == run:
        return False
    seam = left[-1] if run.endswith(word) else left[0]
    return not whole or bool(_SEAM.match(seam))


def _is_launch(word: str, launch_id: str) -> bool:
    """Return whether a word is a launch id, its beginning, or a name that a worker run has."""
    if not launch_id:
        return False
    is_beginning = len(word) >= _LEAST_OF_LAUNCH and launch_id.startswith(word)
    return is_beginning or launch_id in _SEAM.split(word)

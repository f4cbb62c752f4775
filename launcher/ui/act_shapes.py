"""The JSON that answers what a person asks of a run on its page. Pure; see `launcher.ui.shapes`."""

from __future__ import annotations

from typing import TypedDict


class Done(TypedDict):
    """What has come of an act."""

    words: str

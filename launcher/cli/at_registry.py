"""Commands on runs of a standing registry that were launched on another machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from launcher.cli.process import secret_text
from rendezvous.talk.join_string import RegistryString
from rendezvous.wire.errors import UsageError

URL = click.option(
    "--url",
    metavar="URL",
    help="Ask the registry of RDZV_REGISTRY at this address, and no files of this machine.",
)


def at_registry(
    root: Callable[[], Path], run: str | None, url: str | None
) -> RegistryString | None:
    """The standing registry to ask; None where the run, or what is listed, is this machine's.

    Raises UsageError.
    """
    text = secret_text("RDZV_REGISTRY")
    if url is None:
        if text is None or run is None or _is_known(root(), run):
            return None
        return RegistryString.parse(text)
    if text is None:
        raise UsageError(
            "--url needs RDZV_REGISTRY: without a credential a registry shows nothing",
            hint="set RDZV_REGISTRY_FILE to the file with your team's credential",
        )
    from launcher.run.elsewhere import place_at

    found = RegistryString.parse(text)
    return RegistryString(place_at(found.place, url), found.credential)


def _is_known(root: Path, word: str) -> bool:
    """Tell whether a person may mean a run that was launched here."""
    from launcher.state.find_run import full_id

    return os.path.exists(root / full_id(root, word, whole=False) / "launch.json")

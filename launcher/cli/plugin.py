"""`rdzv plugin-path`: where a torchrun of another Python finds rdzv's rendezvous."""

from __future__ import annotations

import os
from pathlib import Path

import click

from rendezvous.wire.errors import UsageError

_APP = Path(__file__).parents[2]
_NAME = "on_pythonpath"
_PLACES = (_APP / "rdzv" / _NAME, _APP.parent / _NAME)
"""In a checkout, and in an installed wheel."""


@click.command()
def plugin_path() -> None:
    """Print a folder for PYTHONPATH, for a torchrun whose Python has no rdzv.

    torch then knows '--rdzv-backend=rdzv'. See 'rdzv docs torchrun'.

    \b
    Example:
      export RDZV_PYTHON=/opt/rdzv/bin/python PYTHONPATH=$(rdzv plugin-path)
    """
    folder = next((place for place in _PLACES if os.path.isdir(place)), None)
    if folder is None:
        raise UsageError(f"this installation has no plug-in in {_PLACES[-1]}")
    click.echo(folder)

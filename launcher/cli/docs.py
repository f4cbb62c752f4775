"""The pages of rdzv's documentation, which an installation brings along."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from launcher.cli.completion import starting
from launcher.terminal import fold, width_of
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import did_you_mean

FOLDER = Path(__file__).parents[2] / "docs"
"""Beside the packages, in a checkout as in an installation."""


def pages(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete a page."""
    return starting([*_pages()], incomplete)


def _pages() -> dict[str, Path]:
    """Find each page by its name; those in `internals` come last."""
    found = sorted(FOLDER.glob("*.md")) + sorted(FOLDER.glob("internals/*.md"))
    return {path.stem: path for path in found}


@click.command()
@click.argument("page", required=False, shell_complete=pages)
def docs(page: str | None) -> None:
    """Show a page of the documentation, or list the pages.

    \b
    Examples:
      rdzv docs
      rdzv docs checks
    """
    known = _pages()
    if not known:
        raise UsageError(f"this installation has no documentation in {FOLDER}")
    from launcher.show.pages import page_lines

    width = width_of(sys.stdout)
    if page is None:
        for name, path in known.items():
            title = path.read_text(encoding="utf-8").partition("\n")[0]
            for line in fold(f"{name:20} {title.lstrip('# ')}", width, 21):
                click.echo(line)
        return
    if page not in known:
        hint = did_you_mean(page, known) or "'rdzv docs' lists the pages"
        raise UsageError(f"there is no page '{page}'", hint=hint)
    for line in page_lines(known[page].read_text(encoding="utf-8"), width):
        click.echo(line)

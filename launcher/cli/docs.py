"""The pages of rdzv's documentation, which an installation brings along."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from launcher.cli.completion import starting
from launcher.terminal import fold, width_of
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import did_you_mean

FOLDER = Path(__file__).parents[2] / "docs"
"""Beside the packages, in a checkout as in an installation."""
_MOST_FOUND = 6


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
    """Show a page of the documentation, or list all pages, or those that mention a word.

    \b
    Examples:
      rdzv docs
      rdzv docs checks
      rdzv docs nomad
    """
    known = _pages()
    if not known:
        raise UsageError(f"this installation has no documentation in {FOLDER}")
    from launcher.show.pages import page_lines

    width = width_of(sys.stdout)
    if page in known:
        for line in page_lines(known[page].read_text(encoding="utf-8"), width):
            click.echo(line)
        return
    texts = {name: path.read_text(encoding="utf-8") for name, path in known.items()}
    shown = [*known] if page is None else _about(page, texts)
    if not shown:
        hint = did_you_mean(page or "", known) or "'rdzv docs' lists the pages"
        raise UsageError(f"there is no page '{page}', and none that mentions it", hint=hint)
    if page is not None:
        near = did_you_mean(page, known, least=0.8)
        click.echo(f"There is no page '{page}'{f': {near}' if near else '.'} It is mentioned in:")
    for name in shown:
        title = texts[name].partition("\n")[0].lstrip("# ")
        for line in fold(f"{name:20} {title}", width, 21):
            click.echo(line)


def _about(word: str, texts: Mapping[str, str]) -> list[str]:
    """Find the pages that have most of a word's parts, those first that have them most often."""
    parts = re.findall(r"\w+", word.lower())
    counts = {
        name: [len(re.findall(rf"\b{part}", text.lower())) for part in parts]
        for name, text in texts.items()
    }
    most = max((sum(map(bool, count)) for count in counts.values()), default=0)
    found = [name for name, count in counts.items() if 0 < most == sum(map(bool, count))]
    return sorted(found, key=lambda name: -sum(counts[name]))[:_MOST_FOUND]

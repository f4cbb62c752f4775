"""`rdzv status RUN`: how a run that was launched here stands, or how it ended."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from launcher.show.former import former_lines, former_values
from launcher.show.last_line import last_line
from launcher.show.run_list import FACTS_AT, facts, row_of
from launcher.show.slot_table import draw
from launcher.state.find_run import find_run, registry_of
from launcher.state.state_dir import StateDir
from launcher.terminal import fold_lines, show, width_of
from rendezvous.feature import declared
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.run import RunStatus
from rendezvous.wire.words import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Shown", "StatusPart", "live_parts", "print_status", "show_status"]
# What else the view of a feature is made of:
__all__ += ["RegistryClient", "StateDir", "find_run", "registry_of"]
__all__ += ["fold_lines", "show", "width_of"]

_WORDS_AT = len("rdzv: ")
_REFUSED_AT = len("refused: ")


@dataclass(frozen=True)
class Shown:
    """What a feature adds to the status of a run in progress.

    Attributes:
        values: To the JSON document.
        draw: Draws what stands below the slots; None: nothing does.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    draw: Callable[[], RenderableType] | None = None


class StatusPart(Protocol):
    """What `Feature.status` makes."""

    async def live(self, client: RegistryClient, status: RunStatus) -> Shown:
        """What is shown of a run in progress."""

    def ended(self, state: StateDir) -> Sequence[str]:
        """Lines below the facts of a run that has ended, each a name of 9 columns and words."""


async def show_status(root: Path, run: str, *, as_json: bool) -> int:
    """Print all that is known of one run."""
    state = find_run(root, run)
    result, is_over = state.result(), not state.is_held()
    if result is not None and is_over:
        row = await row_of(state, state.record())
        if as_json:
            shown = asdict(row) | result.model_dump(mode="json") | former_values(state)
            click.echo(json.dumps(shown, indent=1))
            return 0
        width = width_of(sys.stdout)
        lines = [*facts(row), f"files    {state.path}"]
        lines += _ended_lines(state)
        click.echo(fold_lines("\n".join(lines), width, FACTS_AT))
        words = last_line(run, result, state, whole=True, width=width)
        click.echo(fold_lines(words, width, _WORDS_AT))
        _echo_former(state)
        return 0
    async with registry_of(state) as client:
        status = await _ask(client, state)
        parts = await live_parts(client, status)
    print_status(status, parts, former_values(state), as_json=as_json)
    if not as_json:
        _echo_former(state)
    return 0


async def live_parts(client: RegistryClient, status: RunStatus) -> dict[str, Shown]:
    """What the features add to the status of a run in progress, by feature."""
    found = {}
    for name, part in _parts():
        with _for_itself(name):
            found[name] = await part.live(client, status)
    return found


def _ended_lines(state: StateDir) -> Iterator[str]:
    for name, part in _parts():
        with _for_itself(name):
            yield from part.ended(state)


def _parts() -> Iterator[tuple[str, StatusPart]]:
    for feature in declared():
        if feature.status is not None:
            with _for_itself(feature.name):
                yield feature.name, feature.status.load()()


@contextlib.contextmanager
def _for_itself(name: str) -> Iterator[None]:
    """A feature that fails costs a line, and not the status."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001 (a fault of the feature's own)
        click.echo(f"rdzv: {name} cannot be shown: {exc!r}", err=True)


def print_status(
    status: RunStatus, parts: Mapping[str, Shown], more: Mapping[str, Any], *, as_json: bool
) -> None:
    """Print how a run that lives stands; as JSON with `more` of it."""
    from rich.console import Console, Group

    if as_json:
        values = status.model_dump(mode="json")
        for name, part in parts.items():
            with _for_itself(name):
                values |= json.loads(json.dumps({**part.values} | values))
        click.echo(json.dumps(values | dict(more), indent=1))
        return
    Console(file=sys.stdout, highlight=False).print(draw(status))
    for ask in status.refused:
        words = f"refused: {ask.words}, last {ask.last_seconds:.0f} s ago"
        click.echo(fold_lines(printable(words, 700), width_of(sys.stdout), _REFUSED_AT))
    for name, part in parts.items():
        with _for_itself(name):
            if part.draw is not None:
                show(Group("", part.draw()))


def _echo_former(state: StateDir) -> None:
    """How the launches before this one ended, below it."""
    for line in former_lines(state):
        click.echo(fold_lines(line, width_of(sys.stdout), FACTS_AT))


async def _ask(client: RegistryClient, state: StateDir) -> RunStatus:
    try:
        return await client.status(state.run)
    except Unavailable as exc:
        held = "its launcher runs" if state.is_held() else "its launcher has ended"
        raise Unavailable(
            f"the registry of run '{state.run}' does not answer, and {held}: {exc.message}",
            hint=f"to see what happened: rdzv replay {state.journal}",
        ) from exc

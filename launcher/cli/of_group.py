"""Commands that each node of a symmetric start runs: what one refuses, the others are told."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from launcher.cli.process import AT_WORK, say, secret_text
from launcher.cli.with_command import WithCommand
from launcher.options import NotANumber, sources
from launcher.run_file.fields import variables_of
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import Unauthorized, UsageError
from rendezvous.wire.run import DEFAULT_PORT

if TYPE_CHECKING:
    from launcher.symmetric.claim import Value

_TOKEN = f"{__name__}.token"
_NO_SLOT = "the run has no slot for {number} where {size}"


class OfGroup(WithCommand):
    """A command of a symmetric start; without a group token it is an ordinary one.

    A wrong option, or a COMMAND that cannot be started, would end this node alone: the others would
    wait for it, or for the registry, until the join time-out.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """See the base class."""
        with _others_told(None):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """See the base class."""
        with _others_told(ctx):
            return super().invoke(ctx)


def group_token() -> str | None:
    """The group token, if there is one; a file that holds it can be read once, so it is kept."""
    token = secret_text("RDZV_TOKEN")
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_TOKEN] = token
    return token


@contextlib.contextmanager
def _others_told(ctx: click.Context | None) -> Iterator[None]:
    """Tell the other nodes of an error of this one's own, unless its work has begun."""
    try:
        yield
    except Unauthorized:
        if ctx is not None and AT_WORK in ctx.meta:
            _tell(ctx, UsageError(_NO_SLOT), has_slot=False)
        raise
    except (UsageError, click.UsageError) as exc:
        error = exc if isinstance(exc, UsageError) else UsageError(_words(exc))
        if ctx is None or not (AT_WORK in ctx.meta or ctx.params.get("dry_run")):
            _tell(ctx, error)
        raise


def _words(error: click.UsageError) -> str:
    return error.message if isinstance(error, NotANumber) else error.format_message()


def _tell(ctx: click.Context | None, error: UsageError, *, has_slot: bool = True) -> None:
    token = None
    with contextlib.suppress(UsageError):
        token = group_token() if ctx is None else ctx.meta.get(_TOKEN) or group_token()
    if token is None or os.environ.get("RDZV_REGISTRY") or os.environ.get("RDZV_REGISTRY_FILE"):
        return  # at a standing registry, whoever makes the run is not known here
    from launcher.run.group_refusal import tell_group
    from launcher.symmetric.claim import FIELDS

    given = _given(ctx)
    extra = sum(int(given[name].text) for name in ("spares", "standby") if _is_number(given, name))
    port = int(given["port"].text) if _is_number(given, "port") else DEFAULT_PORT
    values = {name: value for name, value in given.items() if name in FIELDS}
    where = error, os.environ, values, token
    tell_group(*where, port=port, extra=extra, has_slot=has_slot, say=say)


def _given(ctx: click.Context | None) -> dict[str, Value]:
    """Collect what was given, each with its source; without a context, from the environment."""
    from launcher.symmetric.claim import FIELDS, Value

    names = (*FIELDS, "spares", "standby", "port")
    if ctx is not None:
        found = sources(LaunchSettings)
        return {name: Value(str(ctx.params[name]), found[name]) for name in names if name in found}
    given = {}
    for name in names:
        for variable in variables_of(name, LaunchSettings.model_fields[name]):
            if (text := os.environ.get(variable)) and name not in given:
                given[name] = Value(text, variable)
    return given


def _is_number(given: dict[str, Value], name: str) -> bool:
    return name in given and given[name].text.isascii() and given[name].text.isdigit()

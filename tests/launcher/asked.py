"""What a person asks of a run, as it is printed: of a registry that is written down, on a virtual
clock."""

from __future__ import annotations

import contextlib
import io
import json
import math
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from rendezvous.wire.errors import RdzvError
from tests.support.virtual_time import run_virtually


class Asking:
    """Somebody who asks; `lines` has each question, and what was answered on which stream."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lines: list[str] = []

    def asks(self, what: str, work: Coroutine[Any, Any, Any] | Callable[[], Any]) -> Any:
        """Ask this, on a clock that jumps; a refusal is an answer as well."""
        self.lines.append(f"* {what}")
        out, err, found = io.StringIO(), io.StringIO(), None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                found = work() if callable(work) else run_virtually(work)
            except RdzvError as exc:
                self.tell("!", f"{type(exc).__name__} {exc.message} [{exc.hint}]")
        self.tell("|", out.getvalue())
        self.tell("err", err.getvalue())
        if found not in (None, 0):
            self.tell("=", str(found))
        return found

    def tell(self, mark: str, text: str) -> None:
        """Tell a text, line by line."""
        shown = text.replace(str(self.root), "/state")
        with contextlib.suppress(ValueError, TypeError):
            found = json.loads(shown)
            if isinstance(found, dict) and "message" in found and "retryable" in found:
                shown = f"JSON {found['code']}: {found['message']} [{found['hint']}]"
                shown += " retryable" * found["retryable"]
            else:
                rows = found.items() if isinstance(found, dict) else enumerate(found)
                shown = "\n".join(f"JSON {key}: {json.dumps(one)}" for key, one in rows if one)
        self.lines += [f"{mark} {line}".rstrip() for line in shown.splitlines()]


@contextlib.contextmanager
def asking() -> Iterator[tuple[Asking, pytest.MonkeyPatch]]:
    """One with a folder of runs of its own."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        yield Asking(Path(folder)), patch


class Holder(Protocol):
    """A course's ground: it holds runs, as their launchers do."""

    def release(self) -> None:
        """Let them go."""


H = TypeVar("H", bound=Holder)


def driven(
    make: Callable[[Asking, pytest.MonkeyPatch], H], drive: Callable[[H], object]
) -> Callable[[], Asking]:
    """Give a course that is driven along in a folder of its own."""

    def course() -> Asking:
        with asking() as (asker, patch):
            made = make(asker, patch)
            try:
                drive(made)
            finally:
                made.release()
        return asker

    return course


class Figure:
    """In the place of one of matplotlib's, or of what it gives: each call of it is a line."""

    def __init__(self, lines: list[str], name: str) -> None:
        self._lines, self._name = lines, name

    def __repr__(self) -> str:
        return self._name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Figure(self._lines, f"{self._name}.{name}")

    def __call__(self, *args: Any, **named: Any) -> Any:
        words = [_short(one) for one in args]
        words += [f"{key}={_short(one)}" for key, one in named.items()]
        self._lines.append(f"{self._name}({', '.join(words)})".replace("\n", "\\n"))
        if self._name.endswith(".subplots") and args:
            lines, columns = args
            return [
                [Figure(self._lines, f"axes[{line}][{column}]") for column in range(columns)]
                for line in range(lines)
            ]
        return Figure(self._lines, "axes" if self._name.endswith("subplots") else self._name)


def _short(value: Any) -> str:
    if isinstance(value, float) and not math.isnan(value):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_short, value))}]"
    return repr(value)

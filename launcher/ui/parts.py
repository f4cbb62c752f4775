"""Parts of features on the page of a run: the form of `Feature.page`, and all parts of one run.

A part that fails costs a line in the log, and is left out from then on.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import anyio
from pydantic_core import to_json

from launcher.ui.shapes import Head, State
from rendezvous.feature import declared
from rendezvous.prometheus import Family
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import RdzvError, Unavailable

if TYPE_CHECKING:
    from launcher.state.state_dir import StateDir

__all__ = ["Act", "Answer", "PageRun", "Part", "Parts", "Sample", "Series", "View", "series"]
# What else the page of a feature is made of:
__all__ += ["Family", "RegistryClient", "State"]

logger = logging.getLogger(__name__)

READ_SECONDS = 30.0

Answer = TypeVar("Answer")
Sample = tuple[tuple[str, ...], float]
"""The values of a series' labels, and its value."""
Series = tuple[Family, Callable[[State], Iterable[Sample]]]
View = Callable[[], Awaitable[object]]
Act = Callable[[RegistryClient], Awaitable[object]]
_Ask = Callable[..., Awaitable[object]]


class PageRun(Protocol):
    """The run that is viewed, as a part knows it."""

    @property
    def state_dir(self) -> StateDir:
        """Its folder."""

    @property
    def head(self) -> Head:
        """Its state."""

    def change(self) -> int:
        """Number a change that the part makes before it next awaits; viewers are sent it."""

    async def ask(self, ask: Callable[[RegistryClient], Awaitable[Answer]]) -> Answer | None:
        """Answer of its registry while its launch lives; None: read what is kept in the folder."""


class Part:
    """A feature's part of the page of one run: override what the feature needs.

    Args:
        run: The run.
    """

    series: ClassVar[Sequence[Series]] = ()
    """For Prometheus, of each run."""
    series_by_rank: ClassVar[Sequence[Series]] = ()
    reading: anyio.CancelScope | None = None

    def __init__(self, run: PageRun) -> None:
        self.run = run

    def change(self) -> int:
        """Number a change: see `PageRun`. A `read` that makes one may go on for as long again."""
        if self.reading is not None:
            self.reading.deadline = anyio.current_time() + READ_SECONDS
        return self.run.change()

    async def follow(self, client: RegistryClient) -> None:
        """Read the run's registry, which may not answer for a while; cancelled with the launch."""

    async def read(self) -> None:
        """Read what is new in the run's folder; called each second, and again after its end.

        It is broken off, and the part left out, after 30 s in which it has made no change.
        """

    def since(self, after: int) -> object | None:
        """JSON for a viewer that has all changes up to this number; None: nothing is newer."""
        return None

    def views(self) -> Mapping[str, View]:
        """Answers to `ui-api/runs/RUN/NAME`, by name; `--save` keeps all of them."""
        return {}

    def acts(self) -> Mapping[str, Act]:
        """Acts of a page that may act, by name; each is given a client with the look credential."""
        return {}


class Parts:
    """All parts of one run.

    Args:
        run: The run.
    """

    def __init__(self, run: PageRun) -> None:
        self._parts: dict[str, Part] = {}
        for name, made in _classes().items():
            with _guarded(name):
                self._parts[name] = made(run)

    def follow(self, client: RegistryClient) -> list[Coroutine[Any, Any, None]]:
        """Tasks that read the registry."""
        return [self._safely(name, part.follow, client) for name, part in self._parts.items()]

    async def read(self) -> None:
        """Read what is new in the run's folder."""
        for name, part in [*self._parts.items()]:
            with _guarded(name, self._parts), anyio.fail_after(READ_SECONDS) as part.reading:
                await part.read()

    def since(self, after: int) -> dict[str, Any]:
        """Changes after a number, by feature."""
        found = {}
        for name, part in [*self._parts.items()]:
            with _guarded(name, self._parts):
                if (news := part.since(after)) is not None:
                    to_json(news)  # it may raise, and not for the whole page
                    found[name] = news
        return found

    def views(self) -> dict[str, View]:
        """Views of all parts, by name; each raises RdzvError."""
        return self._named(lambda part: part.views())

    def acts(self) -> dict[str, Act]:
        """Acts of all parts, by name; each raises RdzvError."""
        return self._named(lambda part: part.acts())

    def _named(self, of: Callable[[Part], Mapping[str, _Ask]]) -> dict[str, _Ask]:
        found: dict[str, _Ask] = {}
        for name, part in [*self._parts.items()]:
            with _guarded(name, self._parts):
                for one, ask in of(part).items():
                    found[one] = functools.partial(_answer, name, ask)
        return found

    async def _safely(self, name: str, work: _Ask, given: object) -> None:
        with _guarded(name, self._parts):
            await work(given)


def series(*, by_rank: bool = False) -> Iterator[Series]:
    """Series of all parts; those of each rank with `by_rank`."""
    for name, part in _classes().items():
        for family, samples in part.series_by_rank if by_rank else part.series:
            yield family, functools.partial(_samples, name, samples)


@functools.cache
def _classes() -> dict[str, type[Part]]:
    found = {}
    for feature in declared():
        if feature.page is not None:
            with _guarded(feature.name):
                found[feature.name] = feature.page.load()
    return found


async def _answer(name: str, ask: _Ask, *given: object) -> object:
    try:
        return await ask(*given)
    except RdzvError:
        raise
    except Exception as exc:
        _log(name, exc)
        raise Unavailable(f"feature '{name}' failed, as the log of this page says") from exc


def _samples(
    name: str, samples: Callable[[State], Iterable[Sample]], state: State
) -> Sequence[Sample]:
    with _guarded(name):
        return [*samples(state)]
    return ()


@contextlib.contextmanager
def _guarded(name: str, parts: dict[str, Part] | None = None) -> Iterator[None]:
    """Leave a part out that fails."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001 (a feature's)
        _log(name, exc)
        if parts is not None:
            parts.pop(name, None)


def _log(name: str, exc: Exception) -> None:
    logger.error("feature '%s' failed on the page", name, exc_info=exc)

"""What a registry measures of itself: how long it takes for what, since its process started.

`rendezvous.registry.prometheus` writes it. What each request of each node passes is a look at a
clock and a place in a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from rendezvous.prometheus import Histogram
from rendezvous.registry.live_run import LiveRun
from rendezvous.wire.run import Phase

ANSWER_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
START_SECONDS: Final = (0.5, 2.0, 10.0, 30.0, 120.0, 600.0, 1_800.0, 7_200.0)
COMMIT_ROWS: Final = (1, 2, 5, 10, 50, 100, 500, 1_000)


class Meters:
    """The histograms of one registry.

    Args:
        clock: Monotonic seconds; not the registry's own, which stands still while the process is
            stalled: what that costs is to be seen here.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.joins = Histogram(ANSWER_SECONDS)
        self.reports = Histogram(ANSWER_SECONDS)
        self.news = Histogram(ANSWER_SECONDS)
        self.lag = Histogram(ANSWER_SECONDS)
        self.commits = Histogram(ANSWER_SECONDS)
        self.commit_rows = Histogram(COMMIT_ROWS)
        self.phases: dict[tuple[Phase, bool], Histogram] = {}
        """Of the starts, by phase and whether programs had started before."""
        self.starts = {again: Histogram(START_SECONDS) for again in (False, True)}
        self.ends: Counter[str] = Counter()
        """Of runs, by how they ended."""

    def told(self, asked_at: float, live: LiveRun) -> None:
        """A watch that came then has its news."""
        self.news.observe(self.clock() - max(asked_at, live.news_at))

    def committed(self, began_at: float, rows: int) -> None:
        """So many records are durable."""
        self.commits.observe(self.clock() - began_at)
        self.commit_rows.observe(rows)

    def woke(self, due_at: float) -> None:
        """The event loop has come to what was due then."""
        self.lag.observe(max(0.0, self.clock() - due_at))

    def durable(self, live: LiveRun) -> None:
        """What has happened to the run is durable, and is about to be published."""
        if live.has_news:
            live.news_at = self.clock()
        starts, has_ended = live.starts.take()
        for start in starts:
            for phase, seconds in start.seconds.items():
                key = phase, start.again
                self.phases.setdefault(key, Histogram(START_SECONDS)).observe(seconds)
            self.starts[start.again].observe(sum(start.seconds.values()))
        if has_ended and live.run.result is not None:
            self.ends[live.run.result.status] += 1

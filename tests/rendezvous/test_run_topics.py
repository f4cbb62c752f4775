"""What features decide and declare in the registry: one that misbehaves costs a line, no run."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rendezvous import feature
from rendezvous.channel import Asked, Published
from rendezvous.feature import Feature, Lazy
from rendezvous.registry import run_topics
from rendezvous.registry.routes import topics as routes
from rendezvous.registry.run_topics import RunTopics
from rendezvous.run.events import Cancelled, Ending, Noted, StopAsked
from rendezvous.run.features import Remark
from rendezvous.wire.errors import Cause
from rendezvous.wire.run import Phase
from tests.support.driver import in_phase

REMARK = Remark(finding="it rains")


def noted(slot: int | None) -> Noted:
    return Noted(feature="weather", words="it rains", slot=slot)


def stop(slot: int | None) -> StopAsked:
    then = Ending(cause=Cause.STALLED, message="it rained", slot=slot)
    return StopAsked(feature="weather", reason="it rains", then=then)


def raises() -> Iterator[Noted]:
    yield noted(0)
    raise ValueError("not this way")


@dataclass(frozen=True)
class Judge(Lazy):
    """One that finds and remarks this."""

    found: Callable[[], Any] = list
    remarked: Any = None

    def load(self) -> Any:
        """See the base class."""
        return lambda port: self

    def events(self, run: Any, now: float) -> Any:
        return self.found()

    def remark(self, run: Any, now: float) -> Any:
        return self.remarked


def topics_of(monkeypatch: pytest.MonkeyPatch, *judges: Judge) -> RunTopics:
    features = [Feature(one.path, judge=one) for one in judges]
    monkeypatch.setattr(run_topics, "declared", lambda: features)
    return RunTopics(lambda: 0.0, lambda: None)


WELL = Judge("well", lambda: [noted(1), noted(None), stop(1), stop(None)], REMARK)


@pytest.mark.parametrize(
    "found",
    [
        raises,
        lambda: None,
        lambda: [None],
        lambda: [noted(1), noted(2)],
        lambda: [noted(-1)],
        lambda: [stop(2)],
        lambda: [Cancelled(reason="")],
    ],
)
def test_a_judge_whose_events_are_none_is_dropped_with_one_line(
    found: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = in_phase(Phase.RUNNING, 2).run
    topics = topics_of(monkeypatch, Judge("bad", found, Remark("never")), WELL)
    for _ in range(2):
        assert topics.events(run, 0.0) == WELL.found()
    assert caplog.messages == ["run r continues without bad, which failed"]
    assert topics.remark(run, 0.0) == REMARK


@pytest.mark.parametrize("remarked", [7, "", ("it rains",)])
def test_a_judge_whose_remark_is_none_is_dropped_with_one_line(
    remarked: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = in_phase(Phase.RUNNING, 2).run
    topics = topics_of(monkeypatch, Judge("silent"), Judge("bad", list, remarked), WELL)
    for _ in range(2):
        assert topics.remark(run, 0.0) == REMARK
    assert caplog.messages == ["run r continues without bad, which failed"]


def test_a_topic_that_cannot_be_loaded_costs_a_line_and_its_routes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone, model = Lazy("tests.nowhere:Model"), Lazy("rendezvous.wire.question:Answer")
    features = (
        Feature("bad", topics=(Published("rain", "rain", gone, gone), Asked("sun", gone, gone))),
        Feature(
            "good", topics=(Published("snow", "snow", model, model), Asked("ice", model, model))
        ),
    )
    monkeypatch.setattr(feature, "declared", lambda: features)
    router = runpy.run_path(routes.__file__)["router"]
    paths = {route.path.rpartition("/")[2] for route in router.routes}
    assert paths == {"snow", "ice"}
    error = ModuleNotFoundError("No module named 'tests.nowhere'")
    lines = [f"the topic '{name}' cannot be loaded: {error!r}" for name in ("rain", "sun")]
    assert caplog.messages == lines

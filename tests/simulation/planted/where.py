"""What a replacement of a run's functions finds in their arguments, for `while_set`."""

from __future__ import annotations

from typing import Any

from tests.simulation.planting import Function, but


def run_of(run: Any, *_: Any) -> Any:
    """The first argument."""
    return run


def starts_of(run: Any, *_: Any) -> Any:
    """How its programs have started."""
    return run.starts


def attempt_of(run: Any, *_: Any) -> Any:
    """What holds until its nodes gather again."""
    return run.attempt


def slot_of(_run: Any, slot: Any, *_: Any) -> Any:
    """The second argument."""
    return slot


def spec(**values: Any) -> Function:
    """For `while_set`: what a run is asked to be, but for these."""
    return lambda run, *_: but(run.spec, **values)


def limits(**values: Any) -> Function:
    """The same with its limits."""
    return lambda run, *_: but(run.spec, limits=but(run.spec.limits, **values))


def event(**values: Any) -> Function:
    """For `wrap` of what takes a run, an event and the time: the event says this."""
    return lambda real, run, event, now: real(run, but(event, **values), now)


def report(**values: Any) -> Function:
    """The same with the report that the event holds."""
    return lambda real, run, event, now: real(
        run, but(event, report=but(event.report, **values)), now
    )

"""What a journal holds, as spans of OpenTelemetry: a trace for each launch of a run, in it the
phases of the run, and of each slot how far its worker run and its node had come. Pure.

The document is OTLP's JSON, which collectors take as it is (`otlpjsonfile`, or HTTP to /v1/traces).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rendezvous.frozen import frozen
from rendezvous.run.state import Run, Slot
from rendezvous.wire.run import NodeState, Phase, SlotState

Stage = Literal["submitted", "queued", "booted", "joined", "verified", "armed", "running"]

_OF_SLOT: Final[dict[SlotState, Stage]] = {
    SlotState.SUBMITTING: "submitted",
    SlotState.SUBMITTED: "submitted",
    SlotState.QUEUED: "queued",
    SlotState.RUNNING: "booted",
}
_OF_NODE: Final[dict[NodeState, Stage]] = {
    NodeState.JOINED: "joined",
    NodeState.VERIFIED: "verified",
    NodeState.ARMED: "armed",
    NodeState.RUNNING: "running",
}
_TRACEPARENT = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}"
)
_ERROR: Final = 2


@frozen
class Parent:
    """The span of somebody else in which the runs happened."""

    trace: str
    span: str

    @staticmethod
    def read(text: str) -> Parent | None:
        """From a `TRACEPARENT` (W3C Trace Context); None: it is none."""
        found = _TRACEPARENT.fullmatch(text)
        return Parent(*found.groups()) if found else None


@dataclass(slots=True)
class _Span:
    """A span; without an end it lasts as long as the journal."""

    name: str
    start: float
    attributes: dict[str, str | int]
    end: float | None = None
    inner: list[_Span] = field(default_factory=list)
    error: str = ""

    def follow(self, name: str | None, now: float, **attributes: str | int) -> None:
        """The newest span in this one has this name, or ends; None: nothing follows it."""
        last = self.inner[-1] if self.inner else None
        if last is not None and last.end is None:
            if last.name == name:
                return
            last.end = now
        if name is not None:
            self.inner.append(_Span(name, now, attributes))


class _Trace:
    """One launch of a run, as it is replayed."""

    def __init__(self, run: Run, now: float) -> None:
        self.launch = run.id, run.spec.launch_id
        about: dict[str, str | int] = {"rdzv.run": run.id, "rdzv.launch_id": run.spec.launch_id}
        self.root = _Span(f"run {run.id}", now, about)
        self._phases = _Span("phases", now, {})
        self._slots: dict[int, _Span] = {}
        self.root.inner.append(self._phases)
        self.last = now

    def see(self, run: Run, now: float) -> None:
        """What has become of the run by now."""
        self.last = now
        is_over = run.phase is Phase.FINISHED
        self._phases.follow(None if is_over else run.phase, now, **{"rdzv.epoch": run.epoch})
        for slot in run.slots:
            self._see_slot(slot, now)
        if is_over and self.root.end is None:
            self.root.end = self._phases.end = now
            if run.result is not None and run.result.status == "failed":
                self.root.error = run.result.message

    def _see_slot(self, slot: Slot, now: float) -> None:
        stage, span = _stage(slot), self._slots.get(slot.index)
        if span is None:
            if stage is None:
                return
            span = self._slots[slot.index] = _Span(f"slot {slot.index}", now, {})
            span.attributes["rdzv.slot"] = slot.index
            self.root.inner.append(span)
        if slot.node is not None:
            span.attributes["host.name"] = slot.node.join.hostname
        span.follow(stage, now, **{"rdzv.generation": slot.generation})
        span.end = now if stage is None else None


def _stage(slot: Slot) -> Stage | None:
    """How far a slot has come; None: it has not begun, or has ended."""
    node = slot.node
    if node is not None and node.join.generation == slot.generation:
        return _OF_NODE.get(node.state)
    return _OF_SLOT.get(slot.state)


class Spans:
    """The traces of a journal.

    Args:
        parent: In whose trace they are; None: each has a trace of its own.
    """

    def __init__(self, parent: Parent | None) -> None:
        self._parent = parent
        self._traces: list[_Trace] = []
        self._newest: dict[str, _Trace] = {}

    def see(self, run: Run, now: float) -> None:
        """The state of a run after an event."""
        trace = self._newest.get(run.id)
        if trace is None or trace.launch[1] != run.spec.launch_id:
            trace = self._newest[run.id] = _Trace(run, now)
            self._traces.append(trace)
        trace.see(run, now)

    def document(self, zero: float, version: str) -> dict[str, Any]:
        """All of them, as OTLP has it in JSON.

        Args:
            zero: When the journal's clock was at 0, in seconds since 1970.
        """
        spans = [span for trace in self._traces for span in self._written(trace, zero)]
        about = _attributes({"service.name": "rdzv", "service.version": version})
        scope = {"scope": {"name": "rdzv", "version": version}, "spans": spans}
        return {"resourceSpans": [{"resource": {"attributes": about}, "scopeSpans": [scope]}]}

    def _written(self, trace: _Trace, zero: float) -> Iterator[dict[str, Any]]:
        seed = "|".join(trace.launch)
        number = self._parent.trace if self._parent else _number(seed, 32)
        above = self._parent.span if self._parent else ""

        def written(span: _Span, above: str, path: str) -> Iterator[dict[str, Any]]:
            own = _number(f"{seed}|{path}", 16)
            yield {
                "traceId": number,
                "spanId": own,
                **({"parentSpanId": above} if above else {}),
                "name": span.name,
                "kind": 1,
                "startTimeUnixNano": _nanoseconds(zero + span.start),
                "endTimeUnixNano": _nanoseconds(
                    zero + (trace.last if span.end is None else span.end)
                ),
                "attributes": _attributes(span.attributes),
                "status": {"code": _ERROR, "message": span.error} if span.error else {},
            }
            for place, inner in enumerate(span.inner):
                yield from written(inner, own, f"{path}.{place}")

        return written(trace.root, above, "0")


def _number(seed: str, digits: int) -> str:
    """The same for the same launch: who exports it twice has it once."""
    return hashlib.sha256(seed.encode()).hexdigest()[:digits]


def _nanoseconds(seconds: float) -> str:
    return str(round(seconds * 1e6) * 1000)


def _attributes(values: dict[str, str | int]) -> list[dict[str, Any]]:
    def value(of: str | int) -> dict[str, str]:
        return {"intValue": str(of)} if isinstance(of, int) else {"stringValue": of}

    return [{"key": name, "value": value(of)} for name, of in values.items()]

"""Runs as the contract of the page has them, of any size and in each state; all of it generated."""

from __future__ import annotations

import base64
import contextlib
import functools
from importlib import import_module
from typing import Any, Literal

from launcher.ui.shapes import (
    Checks,
    Environment,
    Epoch,
    Event,
    FoundBy,
    Head,
    LogPiece,
    Matrix,
    PhaseName,
    RunRow,
    Saved,
    Slot,
    Span,
    State,
    Tone,
)
from rendezvous.feature import declared

How = Literal["gathering", "running", "failed", "restarting"]
SIZES = (1, 4, 64, 1024)
HOWS: tuple[How, ...] = ("gathering", "running", "failed", "restarting")
_ENDED = ("ended, stopped by rdzv, exit code 143", "ended, exit code 137")
_PHASES: tuple[PhaseName, ...] = (
    *("submitted", "queued", "booted", "joined", "verified", "armed", "running", "ended"),
)
_SENTENCES: dict[How, tuple[Tone, str, str]] = {
    "gathering": ("wait", "{most} of {nodes} nodes have joined; slot {last} waits at Slurm", ""),
    "running": ("good", "running on {nodes} nodes for 5 min, step 1,200", ""),
    "failed": ("bad", "node 0 (h0) failed: rank 5 was killed for memory", "use a smaller batch"),
    "restarting": ("wait", "node 0 (h0) was lost; the programs start again in 8 s", ""),
}


def head(nodes: int, how: How, **changes: Any) -> Head:
    """How the run stands."""
    tone, sentence, next_step = _SENTENCES[how]
    words = sentence.format(nodes=nodes, most=nodes - 1, last=nodes - 1)
    made = Head(
        run="demo",
        launch_id="3f2c",
        state=how,
        tone=tone,
        sentence=words,
        next_step=next_step,
        over=how == "failed",
        elapsed=318.4,
        remaining=120.0 if how == "gathering" else None,
        epoch=2 if how == "restarting" else 1,
        restarts=1 if how == "restarting" else 0,
        max_restarts=3,
        replacements=0,
        resubmitted=0,
        max_replacements=0,
        nodes=str(nodes),
        trouble="",
        silent_seconds=None,
        finding="nothing has moved for 2 min: rank 2 (node 0, h0)" if how == "running" else "",
        silence="",
        checks="" if how == "gathering" else "1 failed",
        command="train.py --batch 8",
        scheduler="slurm",
        host="login1",
        started_at=1764081000.0,
        digest="5a1f0c",
        result=_RESULT if how == "failed" else None,
    )
    made.update(changes)  # type: ignore[typeddict-item]
    return made


_RESULT = {
    "status": "failed",
    "exit_code": 137,
    "exit_code_of": "program",
    "message": "node 0 (h0) failed: rank 5 was killed for memory",
    "hint": "use a smaller batch",
    "certain": True,
    "slot": 0,
    "evidence": ["the kernel's log of h0 names the process 4711"],
    "tail": ["Traceback (most recent call last):", "MemoryError"],
    "log": "/state/demo/logs/rank-5.log",
}


def slot(number: int, nodes: int, how: How, **changes: Any) -> Slot:
    """A slot; the last one is late, the first one has failed."""
    late = how == "gathering" and number == nodes - 1
    bad = how == "failed" and number == 0
    last = {"gathering": 2 if late else 4, "running": 7, "failed": 8, "restarting": 6}[how]
    state = "queued" if late else _PHASES[last - 1]
    made = Slot(
        slot=number,
        node=None if how == "gathering" else number,
        host="" if late else f"h{number}",
        address="" if late else f"10.0.{number // 250}.{number % 250 + 1}",
        processes=8,
        generation=1,
        state=state,
        counts_as="",
        tone="wait" if late else "bad" if bad else "off" if how == "failed" else "good",
        words="waits at Slurm" if late else _ENDED[bad] if how == "failed" else state,
        problem="",
        progress="step 1,200, loss 0.53" if how == "running" else "",
        mark="first cause" if bad else "",
        suspect=5 if bad else None,
        worse=2 if bad else 1 if late else 0,
        exit_code=137 if bad else None,
        silent=None,
        spans=_spans(last, number),
    )
    made.update(changes)  # type: ignore[typeddict-item]
    stopped = "stopped by rdzv" if "stopped by rdzv" in made["words"] else made["state"]
    made["counts_as"] = made["mark"] or ("failed" if made["tone"] == "bad" else stopped)
    return made


def _spans(last: int, number: int) -> list[Span]:
    times = [0.0, *(2.0 * each + number % 7 for each in range(1, last))]
    if last == len(_PHASES):
        times[-1] = 311.0 + number % 7
    ends: list[float | None] = [*times[1:], None]
    return [Span(phase=p, start=s, end=e) for p, s, e in zip(_PHASES, times, ends, strict=False)]


def event(number: int, **changes: Any) -> Event:
    """An event; one of four is not usual."""
    made = Event(
        number=number,
        at=number * 1.5,
        kind="lost" if number % 4 == 0 else "joined",
        reason=f"reason {number}",
        phase="gathering",
        epoch=1,
        slot=number % 4,
        usual=number % 4 != 0,
    )
    made.update(changes)  # type: ignore[typeddict-item]
    return made


def state(nodes: int, how: How = "running") -> State:
    """All of the first screen."""
    epochs = [
        Epoch(
            epoch=1,
            ran_seconds=95.0,
            words="node 0 (h0) was lost",
            then="started again on 4 nodes",
            exit_code=83,
            evidence=["no lease for 30 s"],
        )
    ]
    return State(
        n=10,
        head=head(nodes, how),
        slots=[slot(number, nodes, how) for number in range(nodes)],
        events=[event(number) for number in range(300, 320)],
        epochs=epochs if how == "restarting" else [],
        parts={name: part for name, one in features().items() if (part := one.part(nodes, how))},
    )


@functools.cache
def features() -> dict[str, Any]:
    """What the tests of features have for the page, by name: a module each."""
    found = {}
    for feature in declared():
        with contextlib.suppress(ModuleNotFoundError):
            found[feature.name] = import_module(f"tests.features.{feature.name}.shown")
    return found


def views(nodes: int) -> dict[str, Any]:
    """What views are answered."""
    return {"checks": checks(), "matrix": matrix(nodes), **of_features(nodes)}


def of_features(nodes: int) -> dict[str, Any]:
    """What those of features are answered."""
    return {
        name: answer for one in features().values() for name, answer in one.views(nodes).items()
    }


def acts() -> dict[str, Any]:
    """What acts of features are answered."""
    return {
        name: answer
        for one in features().values()
        for name, answer in getattr(one, "ACTS", {}).items()
    }


def open_all(view: str, place: Any) -> None:
    """Have the view of a feature show all that it can."""
    for one in features().values():
        if view in one.TEXTS and hasattr(one, "open_all"):
            one.open_all(place)


def checks() -> Checks:
    """Of each level, one."""
    found = [
        FoundBy(level="fail", check="clock", text="slot 3 is 40 s ahead", fix="start chronyd"),
        FoundBy(level="warn", check="disk", text="/tmp of 4 nodes has 2 GiB left", fix=""),
        FoundBy(level="skipped", check="rdma", text="there is no device", fix=""),
        FoundBy(level="ok", check="gpu", text="8 GPUs on each node", fix=""),
    ]
    return Checks(findings=found, total="1 failed, 1 warning, 1 skipped, 1 ok")


def matrix(nodes: int) -> Matrix:
    """Node 1 does not reach node 2, and the last one is slow."""
    cells, rtts = bytearray(b"\1" * nodes * nodes), bytearray(b"\x4b" * nodes * nodes)
    for one in range(nodes):
        cells[one * nodes + one] = rtts[one * nodes + one] = 0
        rtts[one * nodes + nodes - 1] = 150
    if nodes > 2:
        cells[nodes + 2], rtts[nodes + 2] = 3, 0
    return Matrix(
        networks=[
            {"network": "eth0 10.0.0.0/16", "verdict": "1 of 12 directed pairs fails"},
            {"network": "ib0 10.9.0.0/16", "verdict": "not all nodes have it"},
        ],
        shown=0 if nodes > 1 else None,
        names=[f"slot {number} (h{number})" for number in range(nodes)],
        outcomes=["not probed", "ok", "connection refused", "no answer"],
        cells=base64.b64encode(cells).decode(),
        rtts=base64.b64encode(rtts).decode(),
        rtt_words="0.18 ms usual, 33 ms at most",
    )


def environment(node: int) -> Environment:
    """What a program sees."""
    return Environment(
        node=node,
        host=f"h{node}",
        table="0 h0 10.0.0.1\n1 h1 10.0.0.2",
        transport="eth0, TCP",
        variables=[
            {"name": "MASTER_ADDR", "value": "10.0.0.1", "reason": "the address of node 0"},
            {"name": "NODE_RANK", "value": str(node), "reason": "the rank of this node"},
            {"name": "NCCL_SOCKET_IFNAME", "value": "=eth0", "reason": "the network that works"},
        ],
    )


def logs(how: How = "running") -> list[LogPiece]:
    """A banner, lines of two ranks of each level, those of the first cause, and a note."""
    begun = 1764081000.0
    steps = range(1, 30)
    cause = LogPiece(
        source="rank 5",
        lines=["Traceback (most recent call last):", "MemoryError"],
        at=[begun + 28.2] * 2,
        kinds="-e",
    )
    return [
        LogPiece(source="launcher-0", lines=["*" * 40] * 4, at=[begun] * 4, kinds="nnnn"),
        LogPiece(
            source="rank 0",
            lines=[f"step {n} loss {1 / n:.3f}" for n in steps],
            at=[begun + n for n in steps],
        ),
        LogPiece(
            source="rank 1",
            lines=["WARNING nan in loss", "", "ValueError: loss is nan"],
            at=[begun + 27.5, begun + 28.5, begun + 28.5],
            kinds="w-e",
        ),
        *([cause] if how == "failed" else []),
        LogPiece(note="node 3 (h3): has left, and its log with it"),
    ]


_RUNS: tuple[tuple[str, str, Tone, int | None, float | None, str], ...] = (
    ("demo", "running", "good", None, None, ""),
    ("demo-2", "failed", "bad", 137, 812.0, "rank 5 ran out of memory"),
)


def run_rows() -> list[RunRow]:
    """A run of each kind."""
    return [
        RunRow(
            run=name,
            state=how,
            tone=tone,
            exit_code=code,
            nodes="4",
            started_at=1764081000.0,
            took_seconds=took,
            command="train.py",
            reason=reason,
        )
        for name, how, tone, code, took, reason in _RUNS
    ]


def saved(nodes: int, how: How = "failed") -> Saved:
    """All of a run in one file."""
    return Saved(
        saved_at="2026-11-25 14:30 UTC",
        version="0.1.0",
        state=state(nodes, how),
        views=views(nodes),
        environments={str(node): environment(node) for node in range(nodes)},
        logs=logs(how),
    )

"""`rdzv look` at ranks that are stuck in CUDA, while another one waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.gpu.findings import Finding, holds, recorded
from tests.gpu.machine import Machine
from tests.gpu.session import PROGRAMS, Session

WAITS = ["wait_for_the_others", "read_result", "wait_for_stream", "fill_queue"]
"""Where each rank has to be seen."""


def run(session: Session, seen: dict[str, Any]) -> None:
    """Look twice, from when all ranks are about to be stuck."""
    command = [str(PROGRAMS / "stuck.py"), "FOLDER", session.device]
    with session.launch("look", "--nproc-per-node", str(len(WAITS)), command=command) as launched:
        ready = launched.reports("*.ready", len(WAITS))
        pids = [int(path.read_text()) for path in ready]
        called = launched.command("look", "--again", "5", "--json")
        seen["seconds"], seen["look"] = called.seconds, called.json()
        launched.end()
        seen["ended_in"] = launched.ended_in
        seen["left"] = [pid for pid in pids if _lives(pid)]


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def places(look: dict[str, Any]) -> list[tuple[int, list[str] | None]]:
    """Return each rank, and the functions of its main thread, innermost first; None: unknown."""
    found = []
    for node in look["nodes"]:
        report = node["report"] or {"ranks": []}
        for rank in report["ranks"]:
            stack = rank["stack"]
            frames = report["stacks"][stack]["frames"] if stack is not None else None
            found.append((rank["rank"], None if frames is None else [frame[0] for frame in frames]))
    return sorted(found)


def judge(seen: dict[str, Any], machine: Machine) -> list[Finding]:
    """The last rank may hold the GIL: then it does not answer, and its place may be unknown."""
    look, verdict = seen["look"], seen["look"]["verdict"]
    last = len(WAITS) - 1
    silent = [rank for rank in verdict["silent"] if rank != last]
    found = [holds(f"all ranks but {last} answer", not silent, verdict["silent"])]
    stacks = dict(places(look))
    for rank, function in enumerate(WAITS):
        frames = stacks.get(rank)
        is_seen = frames is not None and function in frames
        held = rank == last
        what = f"rank {rank} is seen in {function}" + (", or its place is unknown" if held else "")
        found.append(holds(what, is_seen or (held and frames is None), frames))
    found.append(holds("the others wait", verdict["rule"] == "behind", verdict["sentence"]))
    found.append(
        holds("two looks, 5 s apart, take at most 20 s", seen["seconds"] <= 20.0, seen["seconds"])
    )
    found.append(holds("all ranks ended with the run", not seen["left"], seen["left"]))
    found.append(recorded("seconds from cancel to the end of the launch", seen["ended_in"]))
    states = [
        {name: rank[name] for name in ("rank", "state", "waits_in", "cpu", "recorder")}
        for node in look["nodes"]
        for rank in (node["report"] or {"ranks": []})["ranks"]
    ]
    found.append(recorded("what the kernel shows of the ranks", states))
    return found

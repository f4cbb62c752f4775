"""Writes down what the nodes of the second corpus, of the third and of the fourth, see.

    python -m tests.causes.second_record [NAME...]

Of each fault that is how the registry saw its nodes, and what those that failed have printed: the
judge is asked again without any of them, by `tests/rendezvous/cause/test_second_corpus.py`. What is
to be objected to the sentence of this run is printed below it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rendezvous.cause.seen import NodeSeen
from rendezvous.run import events, first_cause
from rendezvous.run.events import load_event
from rendezvous.run.protocol import apply
from rendezvous.run.state import Run, create
from rendezvous.server.sqlite_journal import read_journal
from rendezvous.wire.reports import ExitReport
from tests.causes import fourth_ends, second_ends, third_ends
from tests.causes.record import without_machine
from tests.causes.second import Fault
from tests.support.launching import launching

HERE = Path(__file__).parent
FOLDERS = {
    **dict.fromkeys(second_ends.FAULTS, HERE / "second_outputs"),
    **dict.fromkeys(third_ends.FAULTS, HERE / "third_outputs"),
    **dict.fromkeys(fourth_ends.FAULTS, HERE / "fourth_outputs"),
}
"""Of each fault of all three, where what was seen of it is kept."""
OUTPUTS = {
    fault: folder for fault, folder in FOLDERS.items() if (folder / f"{fault.name}.json").exists()
}
"""Of those alone of which something was recorded, which can be judged again."""
LIMIT_SECONDS = 100.0


def start(fault: Fault, folder: Path) -> dict[str, Any]:
    """Run it to its end; its `result.json`."""
    (folder / "train.py").write_text(fault.program)
    options = ["--nnodes", str(fault.nodes), "--framework", fault.framework]
    if fault.framework != "command":
        options += ["--nproc-per-node", str(fault.each)]
    env = {"FOLDER": str(folder), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    state = folder / "state"
    with launching(state, *options, command=[*fault.command], env=env, cwd=folder) as launched:
        launched.finish(LIMIT_SECONDS)
    result: dict[str, Any] = json.loads((state / "r" / "result.json").read_text())
    return result


def marks_of(fault: Fault) -> list[pytest.MarkDecorator]:
    """Of a test that holds what is told of it to what is expected."""
    not_yet = fault in (*third_ends.NOT_YET, *fourth_ends.NOT_YET)
    return [pytest.mark.xfail(reason="not told right yet", strict=True)] if not_yet else []


def objections(fault: Fault, result: dict[str, Any]) -> list[str]:
    """What is wrong with the result of a run."""
    told = {name: result[name] for name in ("certain", "message")}
    return fault.objections(result["slot"], result["worker_rank"], **told)


def record(fault: Fault) -> dict[str, Any]:
    """Run it, and keep what was seen; its `result.json`."""
    with tempfile.TemporaryDirectory(prefix="rdzv-causes-") as name:
        folder = Path(name)
        result = start(fault, folder)
        nodes = first_cause._seen(_replayed(folder / "state" / "r" / "journal.sqlite"))
        began = min(node.began_at for node in nodes)
        kept = [_node(node, began) for node in nodes]
        text = without_machine(json.dumps(kept, indent=1, ensure_ascii=False), folder)
        FOLDERS[fault].mkdir(exist_ok=True)
        seen_of(fault).write_text(text + "\n")
        for node in nodes:
            if node.failed:
                log = folder / "state" / "r" / "logs" / f"node-{node.slot}.log"
                text = without_machine(log.read_text(errors="replace"), folder)
                output_of(fault, node.slot).write_text(text)
    return result


def output_of(fault: Fault, slot: int) -> Path:
    """Where the output of a node is kept."""
    return FOLDERS[fault] / f"{fault.name}.node{slot}.txt"


def read(fault: Fault) -> list[NodeSeen]:
    """What is recorded of it."""
    kept = json.loads(seen_of(fault).read_text())
    return [
        NodeSeen(
            slot=node["slot"],
            began_at=node["began_at"],
            report=ExitReport.model_validate(node["report"]),
            failed=node["failed"],
            ranks=range(*node["ranks"]),
        )
        for node in kept
    ]


def seen_of(fault: Fault) -> Path:
    """Where what was seen of its nodes is kept."""
    return FOLDERS[fault] / f"{fault.name}.json"


def _replayed(journal: Path) -> Run:
    run: Run | None = None
    for one in read_journal(journal):
        event = load_event(one.body)
        if isinstance(event, events.Created):
            run = create(one.run, event.spec, one.at)
        assert run is not None
        apply(run, event, one.at)
    assert run is not None
    return run


def _node(node: NodeSeen, began: float) -> dict[str, Any]:
    """For JSON. The last words of a node that did not fail count for nothing."""
    assert node.report is not None
    unread = {"log"} if node.failed else {"log", "tail"}
    return {
        "slot": node.slot,
        "began_at": round(node.began_at - began, 3),
        "failed": node.failed,
        "ranks": [node.ranks.start, node.ranks.stop],
        "report": node.report.model_dump(exclude_defaults=True, exclude=unread),
    }


def main() -> None:
    """Record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    for fault in FOLDERS:
        if not names or fault.name in names:
            result = record(fault)
            print(f"{fault.name}: {result['message']}", flush=True)
            for one in objections(fault, result):
                print(f"  {one}", flush=True)


if __name__ == "__main__":
    main()

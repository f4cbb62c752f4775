"""What `rdzv logs` prints of a run that lives or has ended is as in `logged.txt`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.plan.plan import WorkerRun
from launcher.show import log_lines, log_sources, logs
from launcher.state.last_words import RankWords
from launcher.state.ledger import LedgerEntry
from launcher.state.state_dir import StateDir
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.run import Phase, Result
from tests.launcher.asked import Asking, driven
from tests.launcher.command import record_of
from tests.launcher.drive import slot, status
from tests.support.courses import Told, lines_in, text_of
from tests.support.written import Registry

KNOWN = Path(__file__).with_name("logged.txt")
STANDS = status(
    slot(0, node=2, hostname="gpu-9", nproc_per_node=2),
    slot(1, node=0, hostname="gpu-4", nproc_per_node=5),
    slot(4, node=1, hostname="gpu-7", nproc_per_node=3),
    slot(6, hostname="spare", nproc_per_node=8),
    phase=Phase.RUNNING,
    epoch=3,
)


@dataclass
class Kept:
    """A scheduler that keeps logs, or does not."""

    name: str
    keeps_logs: bool

    async def logs(self, run: WorkerRun, handle: str, *, lines: int, follow: bool) -> Any:
        """See the contract."""
        if handle == "17x":
            raise RdzvError(f"no such job {handle}", hint="try")
        for number in range(min(lines, 3)):
            yield f"line {number} of {run.name} {handle}, error {number % 2}"


class Course:
    """A run whose logs somebody reads; see `asked`."""

    def __init__(self, asker: Asking, patch: pytest.MonkeyPatch) -> None:
        self.asker = asker
        self.state = StateDir(asker.root, "llama")
        self.state.acquire()
        self.state.write_record(record_of(RegistryPlace(("127.0.0.9",), 29_633)))
        self.state.secret(lambda: bytes(range(32)))
        Registry({}).put_in(patch)
        entry = lambda name: SimpleNamespace(  # noqa: E731
            make=lambda _: Kept(name, name != "none")
        )
        patch.setattr(log_sources, "scheduler_entry", entry)
        clock = SimpleNamespace(time=lambda: 5_000.0)
        for module in (log_sources, log_lines):
            patch.setattr(module, "time", clock)
        self.written = 1_000
        self.stands()

    def stands(self, **changes: Any) -> None:
        """Its launcher keeps how it stands."""
        kept = STANDS.model_copy(update=changes)
        self.state.write("status.json", kept.model_dump_json().encode())

    def logs(self, *names: str) -> None:
        """Logs of three lines each, written in this order."""
        for name in names:
            self.written += 1
            path = self.state.logs / name
            path.write_text(f"begin {name}\nWARNING: {name}\nend {name}, error\n")
            os.utime(path, (self.written, self.written))

    def at(self, number: int, starter: str, handle: str) -> None:
        """A worker run of a slot is at a scheduler."""
        run = WorkerRun(number, 2, f"rdzv-k7f2-{number}-2", {}, "w.sh")
        self.state.ledger.begin(LedgerEntry(run, starter))
        self.state.ledger.note(LedgerEntry(run, starter, handle=handle))

    def show(self, what: str, *, lines: int | None = 1, **chosen: Any) -> None:
        """Tell what `rdzv logs` prints."""
        shown = logs.show_logs(self.state, {}, lines=lines, follow=False, **chosen)
        self.asker.asks(f"{what}, {lines} lines", shown)

    def release(self) -> None:
        """Its launcher is gone."""
        self.state.release()


def what_is_printed(made: Course) -> None:
    """Of a run that lives, and that has ended in each way."""
    made.logs("node-0.log", "node-1.log", "node-2.log")
    made.show("lives")
    made.show("none of it", lines=0)
    made.show("since", lines=None, since=4_000.0)
    made.show("since", lines=None, since=900.0)
    made.at(6, "queue", "26")
    made.show("with a scheduler's", lines=None, since=900.0)
    made.state.release()
    made.state.write_result(Result(status="ok", exit_code=0, message="m"))
    made.show("ok")
    tail = ["begin of it", " it broke "]
    where: dict[str, Any] = {"slot": 4, "node": 1, "hostname": "gpu-7", "tail": tail}
    log = str(made.state.logs / "node-1.log")
    failed = Result(status="failed", exit_code=3, message="node 1 failed", log=log, **where)
    made.state.write_result(failed)
    made.show("failed")
    made.show("failed, one node", node=2)
    made.state.write_result(failed.model_copy(update={"rank": 6}))
    made.show("failed, of a rank")
    made.state.write_result(failed.model_copy(update={"tail": ["end node-1.log, error"]}))
    made.show("failed, and shows it")
    made.state.last_words.write([RankWords(3, 1, 6, "it broke"), RankWords(3, 1, None, "last")])
    made.state.write_result(failed)
    made.show("failed, with last words")
    made.at(4, "queue", "17x")
    made.show("a scheduler that fails", node=3)
    made.show("a scheduler that fails", node=1)
    made.show("a scheduler that fails")
    for path in made.state.logs.iterdir():
        path.unlink()
    made.show("nothing but last words")
    made.show("last words of a node", node=1)
    made.logs("agent-4.log", "agent-1.log", "registry.log")
    (made.state.path / "status.json").unlink()
    made.show("before any program, and a scheduler has lines")
    made.state.ledger.path.unlink()
    made.show("before any program")
    made.show("before any program", lines=0)
    made.state.write_result(failed.model_copy(update={"slot": 3}))
    made.show("before any program, an agent that has no log")


COURSES: dict[str, Callable[[], Told]] = {"what_is_printed": driven(Course, what_is_printed)}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_shown_of_logs(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

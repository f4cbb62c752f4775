"""What people are told of a run that they ask for is as in `status.txt`.

Its slots are not its ranks, and no two numbers of it are the same one; it is asked while it lives,
once its registry is gone, and once it has ended. Who changes what is shown writes the file anew
(`make reference`). What `--json` prints is asserted by value, in the tests of each view.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.show import epochs, run_list, status
from launcher.state.state_dir import StateDir
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.node import Finding
from rendezvous.wire.refused import RefusedAsk
from rendezvous.wire.run import (
    EpochEnd,
    NodeState,
    Phase,
    Result,
    Round,
    RunReport,
    SlotState,
)
from rendezvous.wire.verify import PairProbe
from tests.launcher.asked import Asking, driven
from tests.launcher.command import record_of
from tests.launcher.drive import slot
from tests.launcher.drive import status as stands
from tests.support.courses import Told, lines_in, text_of
from tests.support.written import Registry
from tests.ui.test_asked import table

KNOWN = Path(__file__).with_name("status.txt")
HOSTS = {0: "gpu-9", 1: "gpu-4", 4: "gpu-7"}
RUN = "/v1/runs/llama"


def _probe(one: int, other: int) -> PairProbe:
    bad: dict[tuple[int, int], Any] = {(4, 0): "timeout", (1, 4): "refused", (0, 4): "no_route"}
    outcome = bad.get((one, other), "ok")
    rtt = None if outcome != "ok" else 0.25 * (one + 1) + 2.0 * other
    return PairProbe(slot=other, outcome=outcome, rtt_ms=rtt)


TRIED = Round(
    network="ib0, 10.9.0.0/16",
    verdict="3 of 6 pairs failed",
    slots=[4, 0, 1],
    reports={
        **{one: [_probe(one, other) for other in (0, 1, 4) if other != one] for one in (0, 1, 4)},
        7: [PairProbe(slot=0, outcome="ok", rtt_ms=99.0)],
    },
)
NONE = Round(
    network="eth1, 10.3.0.0/16",
    verdict="nobody reaches anybody",
    slots=[0, 1, 4],
    reports={
        one: [PairProbe(slot=other, outcome="timeout") for other in (0, 1, 4) if other != one]
        for one in (1, 0, 4)
    },
)
FINDINGS = [
    Finding(check="X02", level="ok", subject="CUDA", cause="all nodes have CUDA 12.6"),
    Finding(check="L14", level="warn", slot=4, subject="/dev/shm", value="63 MiB", fix="more"),
    Finding(check="L14", level="warn", slot=1, subject="/dev/shm", value="63 MiB", fix="more"),
    Finding(check="X03", level="fail", slot=1, cause="slot 1 (gpu-4) is alone", fix="one image"),
    Finding(check="X03", level="skipped", cause="split over the count of GPUs"),
    Finding(check="X02", level="fail", slot=0, subject="NCCL", value="2.19", expected="2.21"),
    Finding(check="L17", level="warn", slot=0, subject="GLOO_SOCKET_IFNAME", value="lo", fix="out"),
    Finding(check="L01", level="ok", slot=4, fix="nothing"),
]
REPORT = RunReport(run="llama", hostnames=HOSTS, rounds=[NONE, TRIED], findings=FINDINGS)

ENDS = [
    EpochEnd(
        epoch=1,
        ran_seconds=3_700.0,
        message="node 2 (gpu-9, slot 0) failed\nbadly",
        exit_code=3,
        then="restart 1 of 5, after 4 s",
    ),
    EpochEnd(epoch=2, ran_seconds=4.0, message="node 0 was lost", replaced=[1]),
]
RUNNING = stands(
    slot(
        0,
        its=NodeState.RUNNING,
        node=2,
        hostname="gpu-9",
        address="10.0.0.9",
        nproc_per_node=2,
        progress="step 7",
        state=SlotState.RUNNING,
    ),
    slot(1, 3, 3, its=NodeState.RUNNING, node=0, hostname="gpu-4", nproc_per_node=5),
    slot(4, its=NodeState.EXITED, node=1, hostname="gpu-7", nproc_per_node=1, exit_code=0),
    phase=Phase.RUNNING,
    restarts=1,
    max_restarts=5,
    replacements=2,
    resubmitted=1,
    max_replacements=4,
    ended=ENDS,
    epoch=3,
    digest=table().digest(),
    elapsed_seconds=91.5,
    reason="runs on 3 nodes",
    on_node_loss="replace",
    trouble="its disk is slow",
    refused=[
        RefusedAsk(code="no_slot", reason=f"a node came too late {'x ' * 20}", last_seconds=17.4)
    ],
)

OPTIONS = {"command": ["train.py", "--lr", "0.1"], "nproc_per_node": 8}


class Course:
    """A run that somebody asks about; see `asked`."""

    def __init__(self, asker: Asking, patch: pytest.MonkeyPatch) -> None:
        self.asker, self.patch = asker, patch
        self.registry = Registry({})
        self.state = StateDir(asker.root, "llama")
        self.state.acquire()
        place = RegistryPlace(("127.0.0.9",), 29_633)
        record = record_of(place, options=OPTIONS, nodes="3", started_at=1_764_081_000.0)
        self.state.write_record(record)
        self.state.secret(lambda: bytes(range(32)))
        self.registry.put_in(patch)
        self.width: int | None = None
        for name in ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        patch.setattr(status, "declared", tuple)
        for module in (run_list, status, epochs):
            self.folds(module)

    def folds(self, module: Any) -> None:
        """The lines of this module are folded at `width`."""
        if hasattr(module, "width_of"):
            self.patch.setattr(module, "width_of", lambda _: self.width)

    def keep(self, name: str, value: Any) -> None:
        """Its launcher keeps this."""
        self.state.write(name, value.model_dump_json().encode())

    def check_who_asked(self) -> None:
        """Its registry was asked with the run's own credential each time, and not to change it."""
        keys = self.state.keys()
        assert keys is not None
        assert {*self.registry.credentials} <= {keys.admin.text()}
        assert {call.partition(" ")[0] for call, _ in self.registry.asked} <= {"GET"}

    def dated(self) -> None:
        """Have lists of runs say when by the clock of UTC, at one moment."""
        at = SimpleNamespace(
            localtime=time.gmtime, strftime=time.strftime, time=lambda: 1_764_085_321.0
        )
        self.patch.setattr(run_list, "time", at)

    def release(self) -> None:
        """Its launcher is gone."""
        self.state.release()


GONE = Unavailable("nobody answers there")


def how_it_stands(made: Course) -> None:
    """Its status and its epochs: while it lives, silent, and over in each way."""
    asker, root = made.asker, made.asker.root
    made.dated()

    def ask(what: str) -> None:
        asker.asks(what, status.show_status(root, "llama", as_json=False))
        asker.asks(f"epochs, {what}", epochs.show_epochs(root, "llama", as_json=False))

    made.registry.answers[f"GET {RUN}"] = RUNNING
    made.width = 50
    ask("it runs")
    made.registry.answers[f"GET {RUN}"] = GONE
    ask("silent")
    made.state.release()
    ask("killed")
    made.check_who_asked()
    made.width = None
    for result in (
        Result(status="ok", exit_code=0, message="all ended", restarts=2, replacements=0),
        Result(
            status="failed",
            exit_code=7,
            exit_code_of="program",
            message="node 2 failed",
            hint="mend it",
            epochs=ENDS,
            node=2,
            slot=0,
            tail=["one", "two"],
        ),
        Result(status="failed", exit_code=83, message="nobody came", log="/nowhere.log"),
        Result(status="cancelled", exit_code=130, message="cancelled by ann"),
    ):
        made.state.write_result(result)
        kept = made.state.result()
        assert kept is not None
        made.keep("result.json", kept.model_copy(update={"ended_at": 1_764_084_000.5}))
        ask(result.message)
        made.keep("status.json", RUNNING.model_copy(update={"restarts": 9}))


def all_runs(made: Course) -> None:
    """The list of them, narrow and wide; each stands in another way."""
    asker, root = made.asker, made.asker.root
    made.dated()
    asker.asks("no runs", run_list.show_runs(root / "none", everything=False, as_json=False))
    made.registry.answers[f"GET {RUN}"] = RUNNING
    held = []
    for number, (name, result) in enumerate(
        [
            ("killed", None),
            ("fine", Result(status="ok", exit_code=0, message="all ended")),
            ("失敗", Result(status="failed", exit_code=9, exit_code_of="program", message="a\nb")),
            ("gone", Result(status="cancelled", exit_code=130, message="by ann")),
            ("begins", "held"),
            ("silent", "held"),
        ]
    ):
        state = StateDir(root, name)
        state.acquire()
        record = record_of(
            RegistryPlace(("127.0.0.9",), 29_634 + number),
            options={"command": ["train.py", *["two words"] * number]},
            nodes=f"{number}:{number + 9}",
            started_at=1_764_080_000.0 + 700 * number**2,
        ).model_copy(update={"run": name})
        state.write_record(record)
        if name != "begins":
            state.secret(lambda: bytes(32))
        if isinstance(result, Result):
            state.write_result(result)
            kept = state.result()
            assert kept is not None
            at = {"ended_at": record.started_at + 40.0 * 90**number}
            state.write("result.json", kept.model_copy(update=at).model_dump_json().encode())
        if result == "held":
            held.append(state)
        else:
            state.release()
        path = state.path / "launch.json"
        stamp = 1_764_080_000 + number
        os.utime(path, (stamp, stamp))
    made.registry.answers["GET /v1/runs/silent"] = GONE
    for made.width in (None, 64):
        asker.asks(f"runs {made.width}", run_list.show_runs(root, everything=True, as_json=False))
    made.patch.setattr(run_list, "NEWEST", 3)
    asker.asks("the newest", run_list.show_runs(root, everything=False, as_json=False))
    for state in held:
        state.release()


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: driven(Course, one) for one in (how_it_stands, all_runs)
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_told_of_a_run(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

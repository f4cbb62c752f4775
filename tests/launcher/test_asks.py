"""`rdzv status`, `cancel`, `restart` and `drain` of a run that goes on, of whose nodes no
slot is the rank: what they ask its registry, and what is printed."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.plan.plan import WorkerRun
from launcher.show import status as status_module
from launcher.show.status import Shown
from launcher.state.ledger import LedgerEntry
from launcher.state.port_holder import user_name
from launcher.state.state_dir import StateDir
from rendezvous.feature import Feature, Lazy
from rendezvous.talk.client import RegistryClient
from rendezvous.wire.asked import DrainRequest, RestartRequest
from rendezvous.wire.errors import ExitCode, RunOver, Unavailable
from rendezvous.wire.refused import RefusedAsk
from rendezvous.wire.run import NodeState, Phase, Result, RunStatus
from tests.launcher.command import launched, rdzv
from tests.launcher.drive import slot, status
from tests.support.written import Registry

RUN = "/v1/runs/llama"
ASK = RefusedAsk(
    slot=4, code="taken", reason="gpu-3 asks for it", times=2, first_seconds=90.0, last_seconds=7.0
)


def stands(**more: Any) -> RunStatus:
    rows = [
        slot(0, node=2, hostname="gpu-9", its=NodeState.RUNNING),
        slot(1, node=0, hostname="gpu-4", its=NodeState.RUNNING),
        slot(4, node=1, hostname="gpu-7", its=NodeState.RUNNING),
    ]
    return status(*rows, **({"phase": Phase.RUNNING, "refused": [ASK]} | more))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setattr(status_module, "declared", tuple)
    one = Registry(
        {
            f"GET {RUN}": stands(),
            f"DELETE {RUN}": stands(reason="it is cancelled by a person"),
            f"POST {RUN}/restart": stands(reason="it restarts"),
            f"POST {RUN}/slots/4/drain": stands(reason="it leaves"),
        }
    )
    one.put_in(monkeypatch)
    return one


@pytest.fixture
def state(tmp_path: Path) -> Iterator[StateDir]:
    """Of a run whose launcher lives."""
    one = launched(tmp_path, command=["train.py"])
    one.acquire()
    yield one
    one.release()


def said(state: StateDir, *words: str) -> str:
    done = rdzv(*words, state=state.path.parent)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout


def test_the_status_of_a_run_has_its_rows_and_its_refusals(
    registry: Registry, state: StateDir
) -> None:
    shown = said(state, "status", "llama")
    assert "refused: gpu-3 asks for it; asked 2 times, last 7 s ago\n" in shown
    assert all(host in shown for host in ("gpu-9", "gpu-4", "gpu-7"))
    found = json.loads(said(state, "status", "llama", "--json"))
    assert [(one["slot"], one["node"]) for one in found["slots"]] == [(0, 2), (1, 0), (4, 1)]


class Shows:
    """A feature's part of the status."""

    async def live(self, client: RegistryClient, status: RunStatus) -> Shown:
        return Shown({"temper": status.run}, lambda: "it is in a good temper")

    def ended(self, state: StateDir) -> list[str]:
        return [f"temper   rdzv temper {state.run}"]


class Breaks:
    """One that fails as nobody expected."""

    async def live(self, client: RegistryClient, status: RunStatus) -> Shown:
        raise KeyError(status.run)

    def ended(self, state: StateDir) -> list[str]:
        raise KeyError(state.run)


class Odd:
    """One whose part cannot be shown."""

    async def live(self, client: RegistryClient, status: RunStatus) -> Shown:
        return Shown({"temper": status}, lambda: [][0])


class Bold:
    """One that would rather say itself which run it is."""

    async def live(self, client: RegistryClient, status: RunStatus) -> Shown:
        return Shown({"run": "other", "mood": 1})


def test_a_part_that_cannot_be_drawn_or_written_costs_a_line_and_no_key_of_the_core(
    state: StateDir, monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> None:
    names = ("Missing", "Odd", "Bold", "Shows")
    features = [Feature(name.lower(), status=Lazy(f"{__name__}:{name}")) for name in names]
    monkeypatch.setattr(status_module, "declared", lambda: features)
    shown = rdzv("status", "llama", state=state.path.parent)
    assert shown.stdout.endswith("\n\nit is in a good temper\n")
    missing, odd = shown.stderr.splitlines()
    assert missing.startswith("rdzv: missing cannot be shown: AttributeError(")
    assert odd == "rdzv: odd cannot be shown: IndexError('list index out of range')"
    shown = rdzv("status", "llama", "--json", state=state.path.parent)
    found = json.loads(shown.stdout)
    assert (found["run"], found["mood"], found["temper"]) == ("llama", 1, "llama")
    assert shown.stderr.splitlines()[1].startswith("rdzv: odd cannot be shown: TypeError(")


def test_the_status_has_what_features_add_and_a_line_for_one_that_fails(
    state: StateDir, monkeypatch: pytest.MonkeyPatch, registry: Registry
) -> None:
    features = [
        Feature(name.lower(), status=Lazy(f"{__name__}:{name}")) for name in ("Breaks", "Shows")
    ]
    monkeypatch.setattr(status_module, "declared", lambda: (Feature("without"), *features))
    failed = "rdzv: breaks cannot be shown: KeyError('llama')\n"
    shown = rdzv("status", "llama", state=state.path.parent)
    assert shown.stdout.endswith("\n\nit is in a good temper\n")
    assert (shown.exit_code, shown.stderr) == (0, failed)
    shown = rdzv("status", "llama", "--json", state=state.path.parent)
    assert (json.loads(shown.stdout)["temper"], shown.stderr) == ("llama", failed)
    state.write_result(Result(status="ok", exit_code=0, message="all ended"))
    state.release()
    shown = rdzv("status", "llama", state=state.path.parent)
    assert f"files    {state.path}\ntemper   rdzv temper llama\n" in shown.stdout
    assert shown.stderr == failed


def test_a_registry_that_is_silent_is_told_from_a_launcher_that_has_ended(
    registry: Registry, state: StateDir
) -> None:
    registry.answers[f"GET {RUN}"] = Unavailable("nobody answers")
    done = rdzv("status", "llama", state=state.path.parent)
    assert "does not answer, and its launcher runs: nobody answers" in done.stderr
    assert f"rdzv replay {state.journal}" in " ".join(done.stderr.split())
    assert done.exit_code == ExitCode.REGISTRY_LOST
    state.write_record(state_record(state).model_copy(update={"owns_registry": False}))
    state.release()
    done = rdzv("status", "llama", state=state.path.parent)
    assert "does not answer, and its launcher has ended: nobody answers" in done.stderr
    state.acquire()


def state_record(state: StateDir) -> Any:
    record = state.record()
    assert record is not None
    return record


def test_a_run_that_lives_is_asked_though_a_former_launch_has_ended(
    registry: Registry, state: StateDir
) -> None:
    state.write_result(Result(status="ok", exit_code=0, message="both nodes ended"))
    assert "gpu-9" in said(state, "status", "llama")
    assert said(state, "cancel", "llama") == "it is cancelled by a person\n"
    restart = ("restart", "llama", "--reason", "new data")
    assert said(state, *restart) == "run 'llama': it restarts\n"
    assert said(state, "drain", "llama", "1", "--in", "120", "--reason", "repair") == (
        "no node may take the place of node 1 (--on-node-loss fail), so run 'llama' will end\n"
        "run 'llama': it leaves\n"
    )
    sent = [body for call, body in registry.asked if call.startswith("POST")]
    assert sent == [RestartRequest(reason="new data"), DrainRequest(reason="repair", seconds=120)]


def test_a_cancel_tells_why(registry: Registry, state: StateDir) -> None:
    by = f"rdzv cancel by {user_name(os.getuid())} on {socket.gethostname()}"
    said(state, "cancel", "llama")
    assert said(state, "cancel", "llama", "--reason", "enough") == "it is cancelled by a person\n"
    assert registry.asked == [(f"DELETE {RUN}", {"reason": by + more}) for more in ("", ": enough")]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            Result(status="cancelled", exit_code=84, message="run 'llama' was cancelled"),
            "run 'llama' has already ended: it was cancelled",
        ),
        (
            Result(status="ok", exit_code=0, message="all ended"),
            "run 'llama' has already ended: all ended",
        ),
        (None, "the launcher of run 'llama' was killed; nothing that it started is still running"),
    ],
)
def test_of_a_run_that_is_over_nothing_is_cancelled(
    registry: Registry, tmp_path: Path, result: Result | None, words: str
) -> None:
    state = launched(tmp_path)
    if result is not None:
        state.write_result(result)
    assert said(state, "cancel", "llama") == f"{words}\n"
    assert registry.asked == []


def test_a_run_at_a_standing_registry_is_cancelled_there(
    registry: Registry, tmp_path: Path
) -> None:
    state = launched(tmp_path, owns_registry=False)
    assert said(state, "cancel", "llama") == "it is cancelled by a person\n"


@pytest.mark.parametrize("all_gone", [True, False])
def test_what_a_killed_launcher_has_left_is_ended_with_its_folder_held_and_let_go(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, all_gone: bool
) -> None:
    state = launched(tmp_path)
    state.ledger.begin(LedgerEntry(WorkerRun(4, 2, "rdzv-k7f2-4-2", {}, "w.sh"), "slurm"))
    held: list[bool] = []

    async def end_left(ledger: Any, context: Any, say: Any, *, grace: float) -> bool:
        held.append(StateDir(tmp_path, "llama").is_held())
        assert (context.folder, grace) == (state.path / "submissions", 10.0)  # the usual one
        if not held[1:]:
            say("ending slot 4")
            return all_gone
        raise RunOver("it fails")

    monkeypatch.setattr("launcher.run.cancel.end_left", end_left)
    registry.answers[f"DELETE {RUN}"] = Unavailable("nobody answers")
    done = rdzv("cancel", "llama", state=tmp_path)
    assert done.stdout == "the launcher of run 'llama' was killed\nending slot 4\n"
    assert done.exit_code == int(not all_gone)
    assert not state.is_held()
    rdzv("cancel", "llama", state=tmp_path)
    assert held == [True, True]
    assert not state.is_held()

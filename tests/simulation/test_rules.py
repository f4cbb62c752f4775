"""The simulator holds no rule of its own: it implements protocols, and drives what ships.

What an agent or a launch does about retries, time-outs, order, exit codes, resubmission and
resuming is the product's. A copy here would drift, and then prove the copy.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DRIVEN = {
    "agents",
    "doors",
    "launchers",
    "scheduler",
    "registry",
    "network",
    "stream",
    "asgi",
    "program",
}
"""What stands between the product's agent, or its launch, and the world."""

OF_THE_PRODUCT = {
    "launcher.run.clearing",
    "launcher.run.course",
    "launcher.run.desk",
    "launcher.run.effects",
    "launcher.run.ending",
    "launcher.run.following",
    "launcher.run.ground",
    "launcher.run.leaving",
    "launcher.run.machine",
    "launcher.run.registry_child",
    "launcher.run.shell",
    "launcher.run.slots",
    "launcher.run.submitting",
    "rendezvous.talk.dialling",
    "rendezvous.talk.retry",
    "worker.agent.attempt",
    "worker.agent.following",
    "worker.agent.joining",
    "worker.agent.leaving",
    "worker.agent.node",
    "worker.agent.reports",
    "worker.agent.session",
    "worker.agent.shell",
    "worker.agent.watching",
}
"""What decides, or carries out: it is driven, and never called or copied."""

PUBLIC = {
    "agents": {"GRACE_SECONDS", "RecordingClient", "Process"},
    "launchers": {"Launcher", "SimulatedBoard", "SimulatedEnvironment", "Folder", "FullLedger"}
    | {"Broken", "group_token", "join_by_token"},
    "scheduler": {"Submitted", "SimulatedScheduler", "SimulatedChildren"},
    "registry": {"Identity", "Registry", "Registries", "SimulatedSocket", "SimulatedChild"},
    "stream": {"SimulatedStream"},
    "doors": {"Doors", "Unforeseen"},
    "network": {"ADDRESSES", "PORT", "place_of", "Traffic", "Path", "Wire", "Network", "Door"}
    | {"SimulatedLine", "LOOPBACK", "BESIDE", "PROOF"},
    "asgi": {"serve"},
    "program": {"Course", "SimulatedProgram", "draw_course"},
}
"""What each gives to the others: a name that is new here is a rule that may be new here."""


def tree(name: str) -> ast.Module:
    return ast.parse((HERE / f"{name}.py").read_text())


def imported(name: str) -> set[str]:
    """Modules, and what is imported from them."""
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def defined(name: str) -> set[str]:
    """The public names of a module."""
    found = set()
    for node in tree(name).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(DRIVEN))
def test_what_decides_is_driven_and_not_called(name: str) -> None:
    assert imported(name) & OF_THE_PRODUCT == set()


@pytest.mark.parametrize("name", sorted(DRIVEN))
def test_a_module_gives_what_it_is_known_to_give(name: str) -> None:
    assert defined(name) == PUBLIC[name]


@pytest.mark.parametrize("name", sorted(DRIVEN))
def test_nothing_is_judged_by_an_exit_code_or_a_refusal(name: str) -> None:
    """No branch here asks what the registry refused, nor counts tries."""
    caught = {
        ast.unparse(handler.type)
        for handler in ast.walk(tree(name))
        if isinstance(handler, ast.ExceptHandler) and handler.type is not None
    }
    a_finding = {"Exception"} if name == "registry" else set()  # that its sequencer has ended
    a_finding |= {"Broken"} if name == "launchers" else set()  # a part, on purpose
    assert caught <= {"RdzvError", "Unforeseen", "BaseException"} | a_finding

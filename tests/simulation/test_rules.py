"""The simulator holds no rule of its own: it implements protocols, and drives what ships.

What an agent or a launch does about retries, time-outs, order, exit codes, resubmission and
resuming is the product's. A copy here would drift, and then prove the copy.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DRIVEN = ["agents", "asgi", "doors", "launchers", "network"]
DRIVEN += ["program", "registry", "scheduler", "stream"]
"""What stands between the product's agent, or its launch, and the world."""

OF_THE_PRODUCT = {
    f"{package}.{name}"
    for package, names in {
        "launcher.cleanup": "endings orphans",
        "launcher.launch": "background context_maker following hosts launch lifecycle recovery "
        "registry run_files run_view slot_run worker_runs",
        "rendezvous.talk": "dialling retry",
        "worker.agent": "attempt fencing following joining leaving node reports session shell "
        "watching",
    }.items()
    for name in names.split()
}
"""What decides, or carries out: it is driven, and never called or copied."""


def tree(name: str) -> ast.Module:
    return ast.parse((HERE / f"{name}.py").read_text())


@pytest.mark.parametrize("name", DRIVEN)
def test_what_decides_is_driven_and_not_called(name: str) -> None:
    found = set()
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    assert found & OF_THE_PRODUCT == set()


@pytest.mark.parametrize("name", DRIVEN)
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

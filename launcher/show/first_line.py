"""The line with which a launch begins: what is launched, and where its files are."""

from __future__ import annotations

from launcher.plan.plan import Plan
from launcher.state.state_dir import StateDir


def first_line(plan: Plan, state: StateDir) -> str:
    """What standard error shows first, once nothing that was asked for is refused."""
    nodes = f"{plan.nnodes} node{'s' * (plan.slots > 1)}"
    who = f"with --scheduler {plan.settings.starter}"
    return f"rdzv: launching run '{plan.run}' on {nodes} {who}; its files are in {state.path}"

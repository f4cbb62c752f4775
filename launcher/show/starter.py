"""The check of `rdzv doctor` for torchrun, which starts a COMMAND that names no framework."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from rendezvous.wire.checks import Check
from rendezvous.wire.node import Finding
from worker.contracts import needs_of
from worker.machine.user_python import absent_interpreter, has_module
from worker.preflight.own_environment import Completed, complete_path
from worker.preflight.verdict import Verdict

_TORCHRUN, _MODULE = "torchrun", "torch"


def complete(environ: Mapping[str, str]) -> Completed:
    """The environment in which a node that starts here looks for torchrun."""
    return complete_path(needs_of(_TORCHRUN, ["train.py"], leads=True), environ)


def check_torchrun(completed: Completed, skip: bool) -> list[Finding]:
    """Look for torchrun and its torch; nothing is imported.

    Args:
        completed: The environment of a node.
        skip: Look for nothing.
    """
    if skip:
        return [Verdict("skipped", "not asked for (--skip)").finding(Check.TORCHRUN)]
    found = shutil.which(_TORCHRUN, path=completed.environ.get("PATH", ""))
    torch = has_module(found, completed.environ, (_MODULE,)) if found else None
    absent = absent_interpreter(found) if found else ""
    verdict = judge_torchrun(found or "", torch, own=bool(completed.added), absent=absent)
    return [verdict.finding(Check.TORCHRUN)]


def judge_torchrun(found: str, torch: bool | None, *, own: bool, absent: str = "") -> Verdict:
    """Judge whether a launch of a script can start here. Pure.

    Args:
        found: The torchrun that a launch would use; empty: there is none.
        torch: Whether torch is installed for it; None: that cannot be told.
        own: Whether it is of rdzv's own environment, and not on PATH.
        absent: Its interpreter, where that is not there.
    """
    if not found:
        return Verdict(
            "fail",
            "neither on PATH nor in rdzv's own environment",
            expected="on PATH",
            cause="a launch whose COMMAND is a script or a module ends here with exit code 82",
            fix="activate the environment of your program before rdzv is started, or install "
            f"torch there (pip install torch); --skip {Check.TORCHRUN.id} if nothing here needs it",
        )
    if absent:
        return Verdict(
            "fail",
            found,
            expected="an interpreter that is there",
            cause=f"its interpreter '{absent}' is not there, so it cannot start",
            fix="install torch again (pip install torch), or put another environment first on PATH",
        )
    if torch is False:
        return Verdict(
            "warn",
            found,
            expected="with torch",
            cause="torch is not installed for its Python, so it cannot start",
            fix="install it there (pip install torch), or put another environment first on PATH",
        )
    return Verdict("ok", f"{found}, of rdzv's own environment; PATH has none" if own else found)

"""`rdzv doctor`: does it see the GPU, and find nothing wrong with it?"""

from __future__ import annotations

from typing import Any

from tests.gpu.findings import Finding, holds, recorded
from tests.gpu.machine import Machine
from tests.gpu.session import Session


def run(session: Session, seen: dict[str, Any]) -> None:
    """Call it as a program and as a person would."""
    called = session.call("doctor", "--json")
    seen["seconds"], seen["code"] = called.seconds, called.code
    seen["checks"] = called.json()["checks"]
    seen["text"] = session.call("doctor").text


def judge(seen: dict[str, Any], machine: Machine) -> list[Finding]:
    """L16 is about GPUs; the other checks are of this machine, whatever it is."""
    [gpus] = [check for check in seen["checks"] if check["check"] == "L16"]
    names = [row["name"] for row in machine.smi]
    others = [
        f"{check['check']} {check['level']}: {check['value']}"
        for check in seen["checks"]
        if check["level"] in ("warn", "fail") and check["check"] != "L16"
    ]
    found = [recorded("other checks that are not ok", others)]
    found.append(recorded("seconds", seen["seconds"]))
    if not names and machine.obstacle:
        return [holds("L16 is skipped without a GPU", gpus["level"] == "skipped", gpus), *found]
    if not names:
        return [recorded("L16, and nvidia-smi shows nothing", gpus), *found]
    right = gpus["level"] == "ok" and gpus["value"].startswith(f"{len(names)} x {names[0]}")
    return [holds(f"L16 is ok and says {len(names)} x {names[0]}", right, gpus), *found]

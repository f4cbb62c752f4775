"""A communicator of one rank: is it recorded by default, does look read it, what does RAS say?"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from tests.gpu.findings import Finding, holds, recorded
from tests.gpu.machine import Machine
from tests.gpu.session import PROGRAMS, Session

RAS = ("localhost", 28028)
"""Where NCCL 2.24 and later answers questions about its communicators."""
_RAS_SECONDS = 8.0
_RAS_BYTES = 1 << 16
WAYS: dict[str, dict[str, str]] = {"default": {}, "set": {"TORCH_FR_BUFFER_SIZE": "200"}}
"""The variables that each launch has."""


def run(session: Session, seen: dict[str, Any]) -> None:
    """Look at a rank that hangs in a collective, as torch is, and with its recorder switched on."""
    for name, variables in WAYS.items():
        command = [str(PROGRAMS / "one_rank.py"), "FOLDER", session.device]
        with session.launch(f"nccl-{name}", command=command, variables=variables) as launched:
            [report] = launched.reports("report.json", 1)
            way = seen[name] = {"report": json.loads(report.read_text())}
            if name == "default":
                seen["ras"] = ask_ras()
            way["look"] = launched.command("look", "--again", "5", "--json").json()


def ask_ras() -> str:
    """Return what RAS answers to `verbose status`, or why it does not."""
    text, deadline = b"", time.monotonic() + _RAS_SECONDS
    try:
        with socket.create_connection(RAS, 3.0) as connection:
            connection.sendall(b"verbose status\n")
            while len(text) < _RAS_BYTES and (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                if not (part := connection.recv(4096)):
                    break
                text += part
    except OSError as error:
        return text.decode(errors="replace") or f"no answer: {error}"
    return text.decode(errors="replace")


def groups(look: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the process groups that the ranks have shown, with their calls."""
    return [
        group
        for node in look["nodes"]
        for rank in (node["report"] or {"ranks": []})["ranks"]
        for group in rank["groups"]
    ]


def judge(seen: dict[str, Any], machine: Machine) -> list[Finding]:
    """docs/look.md promises NCCL's collectives where the recorder's size is set."""
    found = [recorded("RAS", seen["ras"])]
    for name in WAYS:
        report, look = seen[name]["report"], seen[name]["look"]
        calls = [call for group in groups(look) for call in group["calls"]]
        shown = [call for call in calls if call["operation"].startswith("all_reduce")]
        waits = [call for call in shown if call["done"] is False]
        is_set = bool(WAYS[name])
        found.append(holds(f"{name}: the all-reduces are right", report["correct"], report))
        found.append(recorded(f"{name}: entries of torch's recorders", report["recorded"]))
        if is_set:
            found.append(holds(f"{name}: look shows the all-reduces", bool(shown), calls))
        else:
            found.append(recorded(f"{name}: look shows the all-reduces", bool(shown)))
        found.append(recorded(f"{name}: look shows one that has not ended", waits))
        found.append(recorded(f"{name}: look says", look["verdict"]["sentence"]))
    return found

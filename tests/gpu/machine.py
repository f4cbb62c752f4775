"""The GPUs of this machine as nvidia-smi and the user's torch see them."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.gpu.session import call

_PROBE = """
import json, torch
cuda = torch.cuda.is_available()
nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda else ""
versions = {"torch": torch.__version__, "cuda": torch.version.cuda or "", "nccl": nccl}
print(json.dumps({"available": cuda, **versions}))
"""
_QUERY = "index,name,uuid,driver_version,memory.total,compute_mode,mig.mode.current"


@dataclass(frozen=True)
class Machine:
    """What other programs say of the GPUs here.

    Attributes:
        smi: A row of nvidia-smi for each GPU, by the names of its query.
        smi_problem: Why there is none.
        devices: Device nodes of GPUs.
        torch: What the user's torch says; empty where there is none.
        torch_problem: Why it says nothing.
    """

    smi: list[dict[str, str]] = field(default_factory=list)
    smi_problem: str = ""
    devices: list[str] = field(default_factory=list)
    torch: dict[str, Any] = field(default_factory=dict)
    torch_problem: str = ""
    python: str = ""
    python_version: str = ""
    kernel: str = ""

    @property
    def obstacle(self) -> str:
        """Why nothing can be tested on a GPU, as a sentence; empty where it can."""
        if self.torch.get("available"):
            return ""
        why = self.torch_problem
        if self.torch:
            why = f"torch {self.torch['torch']} of {self.python} has no usable CUDA"
        if self.smi or self.devices:
            names = ", ".join(row["name"] for row in self.smi) or ", ".join(self.devices)
            return f"a GPU is here ({names}) that cannot be used: nothing was tested ({why})"
        return f"no GPU here: nothing was tested ({why})"


def look_at_machine(python: Path, environ: dict[str, str]) -> Machine:
    """Ask nvidia-smi, the device nodes and torch."""
    smi = call(["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"], environ, 20.0)
    rows = smi_rows(smi.text) if smi.code == 0 else []
    probe = call([str(python), "-c", _PROBE], environ, 90.0)
    try:
        torch, problem = json.loads(probe.text), ""
    except ValueError:
        last = (probe.error.strip().splitlines() or [f"exit code {probe.code}"])[-1]
        torch, problem = {}, f"torch of {python} does not answer: {last}"
    return Machine(
        smi=rows,
        smi_problem="" if rows else (smi.error or smi.text).strip()[:500],
        devices=sorted(
            f"/dev/{n}" for n in os.listdir("/dev") if n[:6] == "nvidia" and n[6:].isdigit()
        ),
        torch=torch,
        torch_problem=problem,
        python=str(python),
        python_version=platform.python_version(),
        kernel=platform.release(),
    )


def smi_rows(text: str) -> list[dict[str, str]]:
    """Read the table that nvidia-smi prints as comma-separated values."""
    rows = [
        [cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()
    ]
    return [dict(zip(_QUERY.split(","), row, strict=False)) for row in rows]

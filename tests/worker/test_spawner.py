"""The program that starts the processes of a cold node of a `--warm on` run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from worker.contracts.framework import PROGRAMS

FAILS = "import os, sys; print(os.environ['TORCHELASTIC_ERROR_FILE']); sys.exit(3)\n"


def test_its_folder_lies_beside_the_agents_socket(tmp_path: Path) -> None:
    """What goes with the agent is gone also where this program is killed."""
    script, place = tmp_path / "fails.py", tmp_path / "agent"
    script.write_text(FAILS)
    place.mkdir()
    order: dict[str, Any] = {
        "words": [f"{script}"],
        "set": {},
        "unset": [],
        "ranks": [{"RANK": "0"}],
        "port": None,
    }
    done = subprocess.run(
        [sys.executable, "-u", f"{PROGRAMS}/warm/spawner.py", f"{script}"],
        input=json.dumps(order),
        env={**os.environ, "RDZV_SOCKET": f"{place}/agent.sock", "NNODES": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(place)
    assert not [*place.iterdir()]

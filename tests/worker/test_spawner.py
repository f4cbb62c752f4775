"""The program that starts the processes of a cold node of a `--warm on` run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from worker.contracts.framework import PROGRAMS
from worker.programs.warm import spawner

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


@pytest.mark.parametrize(
    ("safe", "port", "path"), [(False, None, ["/b"]), (True, 7, ["/own", "/b"])]
)
def test_its_own_folder_is_no_place_for_imports_and_who_serves_the_store_waits_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: bool, port: int | None, path: list[str]
) -> None:
    """A Python that is safe by itself has not put it there."""
    given: dict[str, Any] = {}
    room = tmp_path / "room"
    room.mkdir()
    flags = SimpleNamespace(safe_path=True) if safe else SimpleNamespace()
    fake = SimpleNamespace(path=["/own", "/b"], flags=flags)
    monkeypatch.setattr(spawner, "sys", fake)
    for name, found in {
        "forget_ours": None,
        "read_order": {"port": port},
        "room_for_errors": f"{room}",
        "ranks_of": ("words", "environs"),
        "SpawnedProcesses": SimpleNamespace(run=lambda: 3),
        "await_others": None,
    }.items():

        def call(*words: Any, name: str = name, found: Any = found, **more: Any) -> Any:
            given[name] = (*words[1:], more)
            return found

        monkeypatch.setattr(spawner, name, call)
    assert (spawner.main(), fake.path, room.exists()) == (3, path, False)
    assert given["SpawnedProcesses"] == ("environs", port, {})
    code, _, more = given["await_others"]
    assert (code, more) == (3, {"serves": port is not None})

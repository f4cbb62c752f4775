"""A launch whose worker runs are made by a batch system that behaves; see `command`.

All of it lives on an emulated host, where each node has an address.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.launching import RDZV, Launched, environment, launching
from tests.support.netlab import INTERFACE, Host, Lab
from tests.support.waiting import until

HERE = Path(__file__).parent
NODES = 4
_SUBNET = "10.77.0"


class Farm:
    """The farm's folder, and the launches that use it."""

    def __init__(self, folder: Path, host: Host) -> None:
        self.folder = folder / "farm"
        self.state = folder / "state"
        self._inside = tuple(host.command(()))
        self._bin = folder / "bin"
        for made in (self.folder, self._bin):
            made.mkdir()
        program = self._bin / "farm"
        program.write_text(
            f"#!/bin/sh\nFARM_FOLDER={self.folder} exec {sys.executable} -IS "
            f'{HERE / "command.py"} "$@"\n'
        )
        program.chmod(0o755)
        for name in ("farm.toml", "farm.sh"):
            (folder / name).write_text((HERE / name).read_text())
        self.profile = folder / "farm.toml"

    # --- troubles -----------------------------------------------------------------------------

    def has(self, trouble: str, text: str = "") -> None:
        """From now on, the farm has this trouble."""
        (self.folder / trouble).write_text(text)

    def is_rid_of(self, trouble: str) -> None:
        """The trouble is over."""
        (self.folder / trouble).unlink(missing_ok=True)

    def prologue(self, script: str) -> None:
        """What every worker run does first, in its shell; it knows SLOT and GENERATION."""
        self.has("prologue", script)

    # --- what it has --------------------------------------------------------------------------

    def runs(self) -> list[dict[str, Any]]:
        """All runs ever made, oldest first."""
        found = [json.loads(path.read_text()) for path in self.folder.glob("*.json")]
        return sorted(found, key=lambda run: int(run["id"]))

    def names(self) -> list[str]:
        """Slot and generation of all runs ever made, as `1-1`."""
        return [run["name"].split("-", 2)[2] for run in self.runs()]

    def living(self) -> list[str]:
        """Slot and generation of what is queued or runs."""
        return [run["name"].split("-", 2)[2] for run in self.runs() if self._lives(run)]

    def _lives(self, run: dict[str, Any]) -> bool:
        is_over = (self.folder / f"{run['id']}.exit").exists()
        return run["state"] in ("QUEUED", "STARTED") and not is_over

    def run_of(self, name: str) -> dict[str, Any]:
        """The run of a slot and generation (`1-1`); waits for it."""

        def find() -> dict[str, Any] | None:
            return next((run for run in self.runs() if run["name"].endswith(f"-{name}")), None)

        return until(find)

    def started(self, name: str) -> int:
        """The process group of a run; waits until it has begun."""
        return int(until(lambda: self.run_of(name)["pid"]))

    def gives_up(self, name: str) -> None:
        """Take the node of a run that has begun away; from now on the farm says so."""
        self.started(name)
        run = self.run_of(name) | {"state": "EVICTED", "why": "the node is drained"}
        path = self.folder / f"{run['id']}.json"
        path.with_suffix(".evicted").write_text(json.dumps(run))
        path.with_suffix(".evicted").replace(path)

    def kills(self, name: str) -> None:
        """Let nothing of a run go on."""
        os.killpg(self.started(name), signal.SIGKILL)

    # --- launching ----------------------------------------------------------------------------

    def launching(
        self, *options: str, command: list[str], env: dict[str, str] | None = None
    ) -> AbstractContextManager[Launched]:
        """A launch whose other nodes the farm starts."""
        own = f"{_SUBNET}.1"
        where = ("--address", own, "--registry-address", own, "--hosts", "off")
        farm = ("--framework", "command", "--scheduler-profile", str(self.profile))
        return launching(
            self.state,
            *(*farm, *where, *options),
            command=command,
            env=self.environment(**(env or {})),
            by=self._inside,
        )

    def environment(self, **env: str) -> dict[str, str]:
        """Of the person who launches."""
        own = environment(self.state, **env)
        prologue = str(self.folder / "prologue")
        return own | {
            "PATH": f"{self._bin}:{own['PATH']}",
            **({"FARM_PROLOGUE": prologue} if os.path.exists(prologue) else {}),
        }

    def rdzv(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command of the person's."""
        started = self.start_rdzv(*words)
        out, err = started.communicate(timeout=60)
        return subprocess.CompletedProcess(started.args, started.returncode, out, err)

    def start_rdzv(self, *words: str) -> subprocess.Popen[str]:
        """The same, while it runs."""
        return subprocess.Popen(
            [*self._inside, RDZV, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
        )

    def close(self) -> None:
        """End what is left of it."""
        for run in self.runs():
            if run["pid"]:
                with suppress(ProcessLookupError):
                    os.killpg(run["pid"], signal.SIGKILL)


@contextmanager
def network() -> Iterator[Host]:
    """An emulated host with an address for each node."""
    with Lab(1) as lab:
        [host] = lab.hosts
        for number in range(1, NODES + 1):
            host.run(["ip", "address", "add", f"{_SUBNET}.{number}/24", "dev", INTERFACE])
        yield host

"""docker compose, version 1 and 2, in a copy of this checkout."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docker.engine import USER_PATH, Engine
from tests.support.launching import Outcome

ROOT = Path(__file__).parents[2]
IMAGE = "rdzv-test"
PIN = "pydantic==1.10.24"
"""What the user of the image pins: rdzv itself needs pydantic 2."""
SERVICES = ("launcher", "worker")
_LIMIT_SECONDS = 170.0


def copy_checkout(folder: Path) -> None:
    """What a fresh clone has, as far as docker compose looks at it."""
    folder.mkdir()
    for name in ("features", "launcher", "rdzv", "rendezvous", "worker", "specs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    files = ("Dockerfile", "docker-compose.yml", "pyproject.toml", "hatch_build.py")
    for name in (*files, ".dockerignore", "rdzv_command.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)


@dataclass
class Compose:
    """One version of docker compose, on one engine, in one copy of the checkout."""

    engine: Engine
    words: tuple[str, ...]
    folder: Path
    mounts: list[str]

    def adapt(self, script: str = "") -> None:
        """Say, in the file that compose adds by itself, what is different here.

        The image is the tests' own, and torch comes from this machine; or a shell's script runs.
        """
        service: dict[str, Any] = {"environment": {"PATH": USER_PATH}, "volumes": self.mounts}
        if script:  # compose fills in $VARIABLE itself
            service["command"] = ["sh", "-c", script.replace("$", "$$")]
            service["environment"]["RDZV_FRAMEWORK"] = "command"
        self._override(service | {"image": IMAGE})

    def adapt_build(self, base: str) -> None:
        """The same for a build: from the tests' base image, on this machine's network."""
        build = {
            "target": "rdzv",
            "network": "host",
            "args": {"BASE": base, "EXTRAS": "launcher,postgres"},
        }
        self._override({"image": IMAGE, "build": build})

    def _override(self, service: dict[str, Any]) -> None:
        text = json.dumps({"services": dict.fromkeys(SERVICES, service)})
        (self.folder / "docker-compose.override.yml").write_text(text)

    def run(self, *argv: str, **variables: str) -> Outcome:
        """A compose command, seen to its end."""
        done = subprocess.run(
            [*self.words, *argv],
            cwd=self.folder,
            env=self.engine.environ(COMPOSE_PROJECT_NAME="rdzv", **variables),
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def containers(self, service: str) -> list[str]:
        """The containers of a service, also those that have ended."""
        return self.engine.containers(f"label=com.docker.compose.service={service}")

    def exit_codes(self) -> dict[str, list[int]]:
        """How the containers of each service ended; none runs any more."""
        found: dict[str, list[int]] = {}
        for service in SERVICES:
            states = [self.engine.look(one)["State"] for one in self.containers(service)]
            assert {state["Status"] for state in states} == {"exited"}
            found[service] = [state["ExitCode"] for state in states]
        return found

    def remove(self) -> None:
        """Take away containers, network and volume."""
        down = self.run("down", "--volumes", "--timeout", "2")
        assert down.code == 0, down.err

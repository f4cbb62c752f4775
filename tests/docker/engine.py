"""A Docker engine of the tests' own: in a folder, and in a network namespace, of its own.

Nothing of this machine's engine, bridges, routes and firewall is touched, and nothing is pulled: to
build images (`networked`) the engine shares this machine's network, without a bridge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.launching import environment
from tests.support.postgres import programs
from tests.support.waiting import until

TOOLS = ("dockerd", "docker", "docker-compose", "ip", "mmdebstrap", "nsenter", "unshare")
HOST = "192.0.2.7"
"""Of the engine's own host, in its network namespace."""
_UP_SECONDS = 60.0
_END_SECONDS = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Engine:
    """An engine that runs; its folder keeps all of it. No namespace: on this machine's network."""

    folder: Path
    namespace: str | None = None
    config: Path = field(init=False)

    def __post_init__(self) -> None:
        self.config = self.folder / "config"

    def environ(self, **more: str) -> dict[str, str]:
        """What a person who uses this engine has in the environment."""
        return environment(
            self.folder / "state",
            DOCKER_HOST=f"unix://{self.folder}/sock",
            DOCKER_CONFIG=str(self.config),
            **more,
        )

    def inside(self, argv: Sequence[str]) -> list[str]:
        """A command line that runs on the engine's own host: in its network namespace."""
        if self.namespace is None:
            return list(argv)
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *argv]

    def docker(self, *argv: str, stdin: int | None = None) -> str:
        """What a docker command prints."""
        env, words = self.environ(), ["docker", *argv]
        done = subprocess.run(words, env=env, stdin=stdin, capture_output=True, text=True)
        assert done.returncode == 0, f"docker {argv}: {done.stderr}"
        return done.stdout.strip()

    def logs(self, container: str) -> list[str]:
        """The lines that a container has printed, to standard output and error."""
        env, argv = self.environ(), ["docker", "logs", container]
        said = subprocess.check_output(argv, env=env, stderr=subprocess.STDOUT, text=True)
        return said.splitlines()

    def containers(self, *filters: str) -> list[str]:
        """The ids of all containers, also of those that have ended."""
        words = [f"--filter={each}" for each in filters]
        return self.docker("ps", "--all", "--quiet", "--no-trunc", *words).split()

    def look(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        found: list[dict[str, Any]] = json.loads(self.docker("inspect", container))
        return found[0]

    def look_at_image(self, image: str) -> dict[str, Any]:
        """What the engine knows of an image."""
        found: list[dict[str, Any]] = json.loads(self.docker("image", "inspect", image))
        return found[0]

    def remove_all(self) -> None:
        """End and remove all containers, with their volumes."""
        if found := self.containers():
            self.docker("rm", "--force", "--volumes", *found)


@contextmanager
def engine(folder: Path, *, networked: bool = False) -> Iterator[Engine]:
    """An engine for as long as the context lasts; what an earlier one left in the folder is there.

    The folder's path must be short: a socket lies in it.
    """
    with _namespace(None if networked else f"rdzvdocker-{os.getpid()}") as namespace:
        up = Engine(folder, namespace)
        up.config.mkdir(parents=True, exist_ok=True)
        with (folder / "dockerd.log").open("a") as log:
            argv = up.inside(["unshare", "--mount", "dockerd", *_options(up)])
            daemon = subprocess.Popen(argv, stdout=log, stderr=log, env=_without_proxies())
            try:
                until(lambda: daemon.poll() is not None or _answers(up), _UP_SECONDS)
                assert daemon.poll() is None, (folder / "dockerd.log").read_text()[-2000:]
                yield up
                up.remove_all()
            finally:
                daemon.terminate()  # unshare has become dockerd: it ends its containers, and itself
                daemon.wait(_END_SECONDS)


def _options(up: Engine) -> list[str]:
    folder = up.folder
    options = [f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    options += [f"--pidfile={folder}/pid", f"--host=unix://{folder}/sock", "--shutdown-timeout=1"]
    if up.namespace is None:
        options += ["--bridge=none", "--iptables=false", "--ip-forward=false"]
    return options


def _without_proxies() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}


def _answers(up: Engine) -> bool:
    asked = subprocess.run(["docker", "version"], env=up.environ(), capture_output=True)
    return asked.returncode == 0


@contextmanager
def _namespace(name: str | None) -> Iterator[str | None]:
    if name is None:
        yield None
        return
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        # An address such as a machine has; containers reach it through their bridge.
        for words in (
            "link add eth0 type veth peer name wire",
            f"address add {HOST}/24 dev eth0",
            *(f"link set {interface} up" for interface in ("lo", "eth0", "wire")),
        ):
            subprocess.run(["ip", "-n", name, *words.split()], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


# --- a base image, of which nothing is pulled -----------------------------------------------------


def base_image(up: Engine, packed: Path, name: str = "rdzv-test-base") -> str:
    """Import a Debian, packed as a tar, whose pip finds the packages that this machine's finds."""
    changes = [f"--change=ENV {name}={value}" for name, value in _pip_settings().items()]
    up.docker("import", *changes, str(packed), name)
    return name


def postgresql_image(up: Engine, packed: Path) -> str:
    """Import a Debian with PostgreSQL, whose programs are on PATH as in the official image."""
    path = f"/usr/lib/postgresql/{programs().parent.name}/bin:{_PATH}"
    up.docker("import", f"--change=ENV PATH={path}", str(packed), "rdzv-test-postgresql")
    return "rdzv-test-postgresql"


def users_image(up: Engine, base: str, pin: str) -> str:
    """Make an image of a user, whose environment on PATH pins a package."""
    lines = [
        f"FROM {base}",
        f"RUN python3 -m venv /opt/user && /opt/user/bin/pip install --quiet {pin}",
        f"ENV PATH=/opt/user/bin:{_PATH}",
    ]
    with tempfile.TemporaryFile("w+") as file:
        file.write("\n".join(lines))
        file.seek(0)
        up.docker("build", "--network=host", "--tag=rdzv-test-user", "-", stdin=file.fileno())
    return "rdzv-test-user"


def _pip_settings() -> dict[str, str]:
    """Where this machine's pip looks for packages, as far as a container can follow it."""
    names = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")
    found = {name: os.environ[name] for name in names if name in os.environ}
    return {"PIP_CERT": "/etc/ssl/certs/ca-certificates.crt", "PATH": _PATH, **found}


# --- a user's packages: this interpreter's, since an image with torch could only be pulled --------


def user_mounts(folder: Path) -> list[str]:
    """What a container mounts to have, as /user, the torchrun of this environment alone."""
    folder.mkdir()
    torchrun = folder / "torchrun"
    torchrun.write_text(f"#!{sys.executable}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    places = [f for f in dict.fromkeys((sys.prefix, sys.base_prefix)) if f not in ("/usr", "/")]
    return [f"{folder}:/user:ro", *(f"{place}:{place}:ro" for place in places)]


USER_PATH = f"/user:{_PATH}"

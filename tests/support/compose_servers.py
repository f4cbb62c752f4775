"""The database servers of specs/standing/docker-compose.yml, without a Docker engine.

Each is a host of its own, on which the file's command runs, and `docker compose` is understood as
far as the file's text needs it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from launcher.schedulers.shipped import specs_folder
from tests.support.netlab import Host
from tests.support.postgres import programs
from tests.support.vendor_specs import shipped
from tests.support.waiting import until

FILE = "standing/docker-compose.yml"
NAMES = ("db1", "db2", "db3")
_LIMIT_SECONDS = 60.0
_SCRIPT = "/postgres.sh"
# What a container has of its own. A mount point must be there, on this machine as well.
_ENTER = """
mkdir -p /run/secrets /var/lib/postgresql
mount --bind "$1/lib" /var/lib/postgresql
mount --bind "$1/tmp" /tmp
mount --bind "$1/secrets" /run/secrets
shift
cd /
exec "$@"
"""


def commands() -> list[str]:
    """What the file says to do where its primary is lost, in order."""
    text = (specs_folder() / FILE).read_text(encoding="utf-8")
    block = text.partition("# Nothing takes the primary's place by itself.")[2]
    return re.findall(r"^#   (docker compose .*?)(?:  .*)?$", block.partition("\nx-")[0], re.M)


class Servers:
    """All three.

    Args:
        folder: Of their files; of this machine's own, where the user of PostgreSQL gets to.
        hosts: Where they run, by name.
    """

    def __init__(self, folder: Path, hosts: Mapping[str, Host]) -> None:
        programs()  # where they are not installed there is no user of theirs, either
        self._folder, self._hosts = folder, hosts
        self.password = secrets.token_hex(24)
        self._services: dict[str, Any] = shipped(FILE)[0]["services"]
        self._running: dict[str, subprocess.Popen[str]] = {}
        shutil.copy(specs_folder() / "standing" / "postgres.sh", folder / "postgres.sh")
        for name in NAMES:
            for own in ("lib", "tmp", "secrets"):
                (folder / name / own).mkdir(parents=True)
            user = pwd.getpwnam("postgres")
            for own in ("lib", "tmp"):
                os.chown(folder / name / own, user.pw_uid, user.pw_gid)
            (folder / name / "secrets" / "pgpass").write_text(f"*:*:*:*:{self.password}\n")

    def compose(self, line: str) -> subprocess.CompletedProcess[str]:
        """Do what a line of the file's text says, of one service."""
        words = shlex.split(line)
        assert words[:2] == ["docker", "compose"]
        call, *rest = words[2:]
        named = [word for word in rest if not word.startswith("--")]
        name, command = named[0], named[1:]
        if call == "rm":
            self.end(name)
        elif call == "up":
            self.start(name)
        elif call == "run":
            assert name not in self._running
            return self._run(name, ["sh", _SCRIPT, *command])
        else:
            assert call == "exec"
            assert name in self._running
            return self._run(name, command)
        return subprocess.CompletedProcess(words, 0, "", "")

    def _run(self, name: str, argv: list[str]) -> subprocess.CompletedProcess[str]:
        words = self._words(name, argv)
        return self._hosts[name].run(words, env=self._env(), timeout=_LIMIT_SECONDS, check=False)

    def _words(self, name: str, argv: list[str]) -> list[str]:
        own = [str(self._folder / "postgres.sh") if one == _SCRIPT else one for one in argv]
        return ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self._folder / name), *own]

    def _env(self) -> dict[str, str]:
        return {"PATH": f"{programs()}:{os.environ['PATH']}"}

    # Its processes

    def start(self, name: str) -> None:
        """Start a server by the command of the file."""
        argv = [*self._services[name]["entrypoint"], *self._services[name]["command"]]
        with self.log(name).open("a") as log:
            words = self._words(name, argv)
            process = self._hosts[name].start(words, env=self._env(), stdout=log)
        self._running[name] = process

    def log(self, name: str) -> Path:
        return self._folder / name / "log"

    def wait_until_up(self, name: str) -> None:
        """As the health check of the file."""
        test = self._services[name]["healthcheck"]["test"][1:]

        def is_up() -> bool:
            assert self._running[name].poll() is None, self.log(name).read_text()
            return self._run(name, test).returncode == 0

        until(is_up)

    def wait_for_end(self, name: str) -> int:
        """The exit code of one that ends by itself."""
        return self._running.pop(name).wait(_LIMIT_SECONDS)

    def end(self, name: str, number: int = signal.SIGKILL) -> None:
        """As where its machine is lost: none of its processes does anything more."""
        if (process := self._running.pop(name, None)) is None:
            return
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(process.pid)
            family = [first, *first.children(recursive=True)]
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)
        process.wait(_LIMIT_SECONDS)
        psutil.wait_procs(family, _LIMIT_SECONDS)

    def end_all(self) -> None:
        for name in [*self._running]:
            self.end(name)

    # What they say

    def ask(self, name: str, query: str) -> str:
        """What a server answers; empty where it does not."""
        psql = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "psql"]
        psql += ["--host=/tmp", "--username=postgres", "--dbname=rdzv", "--tuples-only"]
        done = self._run(name, [*psql, "--no-align", f"--command={query}"])
        return done.stdout.strip()

    def followers(self, name: str) -> list[str]:
        """Who follows this server."""
        query = "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'"
        return sorted(self.ask(name, query).split())

"""What a start imports, in order of what waits for it: seconds of each launch go into imports.

The rule: a module is imported where it is first needed, inside of the function, when nothing before
the moments that are tested here needs it; everything else is imported at the top of a file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOR_LATER = {
    *("anyio", "cryptography", "fastapi", "h11", "httpcore", "httpx", "rich", "sqlite3"),
    *("starlette", "torch", "uvicorn", "uvloop"),
}
LAUNCHER = {
    *FOR_LATER,
    *("launcher.launch.launch", "launcher.launch.worker_runs", "launcher.show.checks"),
    *("rendezvous.proof", "rendezvous.run", "rendezvous.registry"),
    *("rendezvous.talk.client", "worker.agent", "worker.hosts", "worker.probe", "worker.rsh"),
}
"""A launcher needs these after it has said what it launches."""
WORKER = {
    *(FOR_LATER - {"anyio", "h11", "httpcore", "httpx"}),
    *("yaml", "launcher.plan", "launcher.run", "launcher.schedulers", "launcher.show"),
    *("launcher.state", "launcher.symmetric", "rendezvous.proof"),
    *("rendezvous.run", "rendezvous.registry"),
}
"""A worker never needs these."""
REPLICA = {"sqlite3"}
"""A replica, whose journal is PostgreSQL, never needs these."""
REGISTRY = {
    *("cryptography", "h11", "httpx", "rich", "yaml", "launcher", "worker"),
    "rendezvous.cause.judge",
}
"""A registry serves launches without these, until one fails."""

FIRST = """
import rdzv_command
rdzv_command.install_features()
"""
AT_THE_FIRST_LINE = """
import click, json, os, sys

def echo(words, **_):
    assert words.startswith("rdzv: launching run "), words
    sys.stdout.write(json.dumps(sorted(sys.modules)))
    sys.stdout.flush()
    os._exit(0)

click.echo = echo
from launcher.cli import main
options = ["--state-dir", sys.argv[1], "--framework", "command", "--nnodes", "2"]
main(["launch", *options, "--", "true"])
"""
WITHOUT_A_JOIN_STRING = """
import json, sys
from launcher.cli import main
try:
    main(["worker", "--framework", "command", "--", "true"])
except SystemExit as exc:
    assert exc.code == 64, exc.code
sys.stdout.write(json.dumps(sorted(sys.modules)))
"""
OF_A_REGISTRY = """
import json, sys
import rendezvous.registry.process
sys.stdout.write(json.dumps(sorted(sys.modules)))
"""

OF_A_REPLICA = """
import json, sys
import rendezvous.registry.process, rendezvous.registry.postgres_journal
sys.stdout.write(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize(
    ("program", "needed", "unwanted"),
    [
        (AT_THE_FIRST_LINE, "launcher.run.command", LAUNCHER),
        # What a registry's answer would wait for is here before the join string comes.
        (WITHOUT_A_JOIN_STRING, "httpcore", WORKER),
        (OF_A_REGISTRY, "rendezvous.registry.app", REGISTRY),
        (OF_A_REPLICA, "asyncpg", REGISTRY | REPLICA),
    ],
    ids=["launcher", "worker", "registry", "replica"],
)
def test_a_start_imports_nothing_that_can_wait(
    tmp_path: Path, program: str, needed: str, unwanted: set[str]
) -> None:
    argv = [sys.executable, "-I", "-c", FIRST + program, str(tmp_path)]
    done = subprocess.run(argv, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.stdout, done.stderr
    imported = set(json.loads(done.stdout))
    assert needed in imported
    assert sorted(imported & unwanted) == []

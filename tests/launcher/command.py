"""`rdzv` called in this process, and the folder of a run whose launcher has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from launcher.cli import main
from launcher.state.state_dir import StateDir
from rendezvous.talk.join_string import RegistryPlace

LAUNCH_ID = "k7f2a9c1xy"
NOWHERE = RegistryPlace(("127.0.0.1",), 1)


def rdzv(*words: str, state: Path | None = None, env: dict[str, str] | None = None) -> Result:
    where = [] if state is None else ["--state-dir", str(state)]
    return CliRunner().invoke(main, [*words, *where], prog_name="rdzv", env=env)


def launched(
    root: Path, place: RegistryPlace = NOWHERE, *, owns_registry: bool = True, **options: Any
) -> StateDir:
    """The folder of run 'llama', whose launcher was killed."""
    state = StateDir(root, "llama")
    state.acquire()
    state.write_record(LAUNCH_ID, "local", place, owns_registry=owns_registry, options=options)
    state.secret()
    state.release()
    return state

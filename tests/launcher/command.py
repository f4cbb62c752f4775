"""`rdzv` called in this process, a launch as it is planned, and one that was killed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from launcher.cli import main
from launcher.plan.plan import Plan, Site, Spec, make_plan
from launcher.settings import LaunchSettings
from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import StateDir
from rendezvous.talk.join_string import RegistryPlace

LAUNCH_ID = "k7f2a9c1xy"
NOWHERE = RegistryPlace(("127.0.0.1",), 1)


def rdzv(*words: str, state: Path | None = None, env: dict[str, str] | None = None) -> Result:
    where = [] if state is None else ["--state-dir", str(state)]
    return CliRunner().invoke(main, [*words, *where], prog_name="rdzv", env=env)


def plan_of(
    *command: str,
    site: Site = Site(Spec("worker.sh", "")),  # noqa: B008 (it is frozen)
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> Plan:
    """The plan of run 'llama'."""
    given = LaunchSettings.model_validate(settings)
    return make_plan(given, command, environ or {}, site, run="llama", launch_id=LAUNCH_ID)


def record_of(place: RegistryPlace, **more: Any) -> LaunchRecord:
    """Of run 'llama'."""
    known: dict[str, Any] = {"run": "llama", "launch_id": LAUNCH_ID, "scheduler": "local"}
    return LaunchRecord(**known, place=place.to_json(), **more)


def launched(
    root: Path, place: RegistryPlace = NOWHERE, *, owns_registry: bool = True, **options: Any
) -> StateDir:
    """The folder of run 'llama', whose launcher was killed."""
    state = StateDir(root, "llama")
    state.acquire()
    state.write_record(record_of(place, owns_registry=owns_registry, options=options))
    state.secret()
    state.release()
    return state

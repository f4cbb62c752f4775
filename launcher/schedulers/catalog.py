"""All schedulers, by name: those that are code, and the shipped profiles.

Most schedulers are *profiles*: a TOML file with the command lines of somebody's tool, in
`profiles/` or the user's own; see `profile`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from launcher.schedulers.contract import Entry, Scheduler, SchedulerContext
from launcher.schedulers.external import ExternalScheduler
from launcher.schedulers.local import LocalScheduler
from launcher.schedulers.manual import ManualScheduler
from launcher.schedulers.profile import profile_entry
from launcher.schedulers.shipped import PROFILES
from launcher.schedulers.vessl import VesslScheduler
from launcher.schedulers.vessl_http import VesslHttpScheduler
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import did_you_mean

SCHEDULERS: dict[str, Entry] = {
    "local": Entry(
        "processes on this machine, each with a loopback address",
        "local/worker.yaml",
        LocalScheduler,
        "an inherited anonymous file",
    ),
    "manual": Entry(
        "writes a script for each worker run; you start it",
        "manual/worker.sh",
        ManualScheduler,
        "in the script, readable by you alone",
    ),
    "external": Entry(
        "nothing: workers start by other means, and take a join string from a folder",
        "external/worker.sh",
        ExternalScheduler,
        "in a file of a folder that the workers share",
        variables=frozenset({"JOIN_FOLDER"}),
    ),
    "vessl-http": Entry(
        "one VESSL run per worker, through VESSL's HTTP API; needs no command",
        "worker.yaml.tpl",
        VesslHttpScheduler,
        "in the rendered spec",
    ),
}
"""Those that are code; `known_schedulers` adds the shipped profiles."""


@functools.cache
def known_schedulers() -> Mapping[str, Entry]:
    """All that `--scheduler` takes, by name."""
    entries = {path.stem: profile_entry(path) for path in sorted(PROFILES.glob("*.toml"))}
    entries["vessl"] = replace(entries["vessl"], make=VesslScheduler)
    return SCHEDULERS | entries


def scheduler_entry(name: str) -> Entry:
    """The scheduler of that name, or of the profile whose path is given (there is a `/` in it).

    Raises:
        UsageError: There is none; it lists what is known. Or the profile cannot be read.
    """
    if "/" in name:
        path = Path(name)
        return profile_entry(path, path.parent)
    entry = SCHEDULERS.get(name) or known_schedulers().get(name)  # profiles are files to read
    if entry is None:
        close = did_you_mean(name, known_schedulers())
        raise UsageError(
            f"there is no scheduler '{name}'",
            hint=close
            or f"choose one of {', '.join(known_schedulers())}, or give your own profile with "
            "--scheduler-profile FILE",
        )
    return entry


def make_scheduler(starter: str, context: SchedulerContext) -> Scheduler:
    """The scheduler of that name, for one launch. Raises UsageError."""
    return scheduler_entry(starter).make(context)

"""Looks at what `launcher.plan.hostlist` decides on: the hostfile, and this machine's own names."""

from __future__ import annotations

import os
import socket

from launcher.plan.hostlist import Host, place, processes_of, read_hostfile, read_hostlist
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError
from worker.machine.interfaces import look


def on_named_hosts(settings: LaunchSettings) -> tuple[LaunchSettings, tuple[str, ...]]:
    """The settings with what the hosts say, and the machine of each slot; none: ().

    What was given as an option counts more than what the hosts say. Raises UsageError.
    """
    named = _named(settings)
    if not named:
        return settings, ()
    hosts = place(
        named,
        nnodes=settings.nnodes,
        local_node=settings.local_node,
        own_names=_own_names(),
        spares=settings.spares,
        standby=settings.standby,
    )
    said = {"nnodes": settings.nnodes or str(len(hosts) - settings.extra_nodes)}
    if "nproc_per_node" not in settings.model_fields_set and (processes := processes_of(hosts)):
        said["nproc_per_node"] = str(processes)
    if settings.scheduler_profile is None:
        said["scheduler"] = _scheduler(settings)
    return settings.model_copy(update=said), tuple(host.destination for host in hosts)


def working_folder() -> str:
    """This process's working folder; empty when it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _scheduler(settings: LaunchSettings) -> str:
    if "scheduler" not in settings.model_fields_set:
        return "ssh"
    if settings.scheduler == "local":
        raise UsageError(
            "--scheduler local starts all nodes on this machine, but hosts are given",
            hint="remove one of them",
        )
    return settings.scheduler


def _named(settings: LaunchSettings) -> list[Host]:
    if settings.hostlist and settings.hostfile is not None:
        raise UsageError("--hostlist and --hostfile name the hosts twice", hint="give one of them")
    if settings.hostfile is None:
        return read_hostlist(settings.hostlist) if settings.hostlist else []
    try:
        text = settings.hostfile.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"the hostfile {settings.hostfile} cannot be read: {exc}") from exc
    return read_hostfile(text, str(settings.hostfile))


def _own_names() -> list[str]:
    addresses = [cidr.split("/")[0] for each in look().interfaces for cidr in each.addresses]
    return [socket.gethostname(), "localhost", "127.0.0.1", "::1", *addresses]

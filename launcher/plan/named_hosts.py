"""Looks at what `launcher.plan.hostlist` decides on: the hostfile, and this machine's own names."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from launcher.options import given_as
from launcher.plan.host_entries import Host, read_hostfile, read_hostlist, read_names
from launcher.plan.hostlist import notes_of, place, processes_of
from launcher.settings import LaunchSettings
from rendezvous.wire.errors import UsageError
from rendezvous.wire.words import listed
from worker.counts import read_size
from worker.machine.interfaces import look


def on_named_hosts(
    settings: LaunchSettings,
) -> tuple[LaunchSettings, tuple[str, ...], tuple[str, ...], Sequence[str]]:
    """The settings with what the hosts say, the machine of each slot, further ones, and notes.

    Without hosts there are neither. What was given as an option counts more than what the hosts
    say. Raises UsageError.
    """
    settings = _with_avoided(settings)
    named = _named(settings)
    if not named:
        return settings, (), (), ()
    left = [host for host in named if not host.is_one_of(settings.avoid)]
    if not left:
        raise UsageError("--avoid leaves none of the hosts")
    placed = place(
        left,
        nnodes=settings.nnodes,
        given_by=settings.source("nnodes"),
        local_node=settings.local_node,
        own_names=_own_names(),
        spares=settings.spares,
        standby=settings.standby,
        may_be_more=settings.outlives_nodes,
    )
    slots = _slots(settings, placed)
    hosts = placed[:slots]
    said = {"nnodes": settings.nnodes or str(len(hosts) - settings.extra_nodes)}
    source = "--hostlist" if settings.hostlist else "--hostfile"
    if "nproc_per_node" in settings.model_fields_set:
        option = given_as(LaunchSettings, "nproc_per_node")
        notes = notes_of(hosts, source, settings.processes, option)
    else:
        notes = notes_of(hosts, source, None)
        if processes := processes_of(hosts):
            said["nproc_per_node"] = str(processes)
    if settings.nnodes is None and len(left) < len(named):
        names = listed([host.name for host in left])
        avoid = settings.source("avoid")
        notes = [*notes, f"{avoid} leaves {names} of the hosts, so --nnodes is {said['nnodes']}"]
    if settings.scheduler_profile is None:
        said["scheduler"] = _scheduler(settings)
    machines = tuple(host.destination for host in placed)
    return settings.model_copy(update=said), machines[:slots], machines[slots:], notes


def _slots(settings: LaunchSettings, placed: Sequence[Host]) -> int:
    """Count the machines that have a slot from the beginning."""
    if settings.nnodes is None:
        return len(placed)
    return read_size(settings.nnodes)[1] + settings.extra_nodes


def _with_avoided(settings: LaunchSettings) -> LaunchSettings:
    """The settings with each host to avoid as a name of its own. Raises UsageError."""
    if not settings.avoid:
        return settings
    names = read_names(settings.avoid, settings.source("avoid"))
    return settings.model_copy(update={"avoid": names})


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
    except UnicodeDecodeError as exc:
        raise UsageError(
            f"the hostfile {settings.hostfile} is not text in UTF-8: {exc}", hint="save it as UTF-8"
        ) from exc
    except OSError as exc:
        raise UsageError(f"the hostfile {settings.hostfile} cannot be read: {exc}") from exc
    return read_hostfile(text, str(settings.hostfile))


def _own_names() -> list[str]:
    addresses = [cidr.split("/")[0] for each in look().interfaces for cidr in each.addresses]
    return [socket.gethostname(), "localhost", "127.0.0.1", "::1", *addresses]

"""What this node offers when it joins: addresses, signed with the row key, facts, findings."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rendezvous.talk.join_string import JoinString
from rendezvous.talk.macs import sign_join, word_macs
from rendezvous.wire.errors import AddressError, ArmingFailed, UsageError
from rendezvous.wire.node import Candidate, Job, JoinRequest
from rendezvous.wire.protocol import PROTOCOL
from rendezvous.wire.run import DEFAULT_MASTER_PORT
from rendezvous.wire.words import printable
from worker.contracts import FRAMEWORKS
from worker.counts import Count, check_processes
from worker.machine.cpus import count_cpus
from worker.machine.interfaces import count_gpus, look, route_source
from worker.machine.kernel import read_arp
from worker.machine.surroundings import (
    LIMIT_SECONDS,
    PATIENT_SECONDS,
    Requested,
    Surroundings,
    look_around,
)
from worker.offer.address import AddressChoice, choose_candidates
from worker.offer.ports import find_free, is_free
from worker.preflight.checks import check_node, worth_telling
from worker.preflight.needs import missing_here, user_program
from worker.preflight.rdma import switched_off
from worker.preflight.variables import left_out_by
from worker.settings import WorkerSettings

logger = logging.getLogger(__name__)

_LOOPBACK_PORTS = 1_000


def look_ahead(
    settings: WorkerSettings, slot: int, command: Sequence[str], environ: Mapping[str, str]
) -> None:
    """Look for what this node can never do, before it asks anybody.

    Addresses are looked for once the registry is reached: an interface may come up late.

    Raises:
        UsageError: What the person asked for is not to be had here, or cannot be meant.
        ArmingFailed: The program, or what starts it, is not there.
    """
    known = settings.known_source("nproc_per_node")
    source = known or "--nproc-per-node, GPUS_PER_NODE or a list of hosts"
    count = count_processes(settings.processes.of(slot))
    check_processes(count, count_cpus(), source, of_list=not known)
    if missing := missing_here(settings.framework, command, environ, leads=slot == 0):
        raise ArmingFailed(
            missing,
            hint="check that it is in this node's image, or on a disk that is mounted here",
        )


def make_offer(
    settings: WorkerSettings,
    join: JoinString,
    command: Sequence[str],
    registry_host: str,
    *,
    environ: Mapping[str, str] = os.environ,
    probe_port: int | None = None,
) -> JoinRequest:
    """Look at this machine, check it, and write the join.

    Args:
        settings: What the person said.
        join: The worker run's join string.
        command: The COMMAND; the registry cannot read what is sent of it.
        registry_host: The address at which the registry was reached.
        environ: The user's environment.
        probe_port: Where this node answers its peers' probes.

    Raises:
        AddressError, UsageError: What the person asked for is not to be had here.
    """
    nproc = count_processes(settings.processes.of(join.slot))
    master_port = _master_port(settings, join)
    here = survey(
        settings,
        command,
        environ,
        registry_host=registry_host,
        nproc=nproc,
        master_port=master_port,
    )
    if not here.candidates:
        message, hint = here.address_problem
        raise AddressError(message, hint=hint)

    def named(one: Candidate) -> Candidate:
        return replace(one, left_out_by=left_out_by(one.interface, here.given))

    request = JoinRequest(
        protocol=PROTOCOL,
        slot=join.slot,
        generation=join.generation,
        join_id=secrets.token_urlsafe(16),
        hostname=here.hostname or "localhost",
        nproc_per_node=nproc,
        candidates=[*map(named, here.candidates)],
        left_out=[*map(named, here.left_out)],
        registry_source=here.registry_source,
        requested_node=settings.node_rank,
        master_port=master_port,
        job=_job(settings, join, command),
        facts=replace(here.facts, wants_rdma=not switched_off(here)),
        findings=worth_telling(check_node(here)),
        probe_port=probe_port,
    )
    return sign_join(request, join.row_key, run=join.run, launch_id=join.launch_id)


def survey(
    settings: WorkerSettings,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    registry_host: str = "",
    nproc: int | None = None,
    master_port: int | None = None,
    patient: bool = False,
) -> Surroundings:
    """Look at this machine as a run with these settings would find it.

    Args:
        settings: What the person said.
        command: The COMMAND; may be empty.
        environ: The user's environment.
        registry_host: Where the registry is; its route counts in the choice of addresses.
        nproc: Processes that will be started here, where known.
        master_port: Where torch will listen, if this node is to be node 0.
        patient: A person waits for the answer, and not a run: slow answers are awaited.
    """
    network, choice, problem = look(), AddressChoice([], []), ("", "")
    source = route_source(registry_host) if registry_host else None
    try:
        choice = choose_candidates(
            network,
            route_source=source,
            prefer=settings.prefer,
            overrides=[*settings.address, *settings.interface, *settings.network],
            loopback=settings.loopback,
        )
    except AddressError as exc:
        problem = (exc.message, exc.hint)
    for skipped in choice.skipped:
        logger.debug("not offered: %s %s: %s", skipped.interface, skipped.address, skipped.reason)
    return replace(
        look_around(
            user_program(command, settings.framework),
            command,
            environ,
            folders=[settings.log_dir] if settings.log_dir else [],
            # Nodes of one machine share its disks, and the launcher has written to them just now.
            probe="sync" if patient else "space" if settings.loopback else "write",
            resolve=patient,
            limit_seconds=PATIENT_SECONDS if patient else LIMIT_SECONDS,
        ),
        network=network,
        candidates=tuple(choice.candidates),
        skipped=tuple(choice.skipped),
        left_out=tuple(choice.left_out),
        registry_source=source or "",
        address_problem=problem,
        arp=read_arp(dict.fromkeys(one.interface for one in choice.candidates)),
        is_master_port_free=None if master_port is None else is_free(master_port),
        requested=_requested(settings, nproc, master_port),
    )


def _requested(settings: WorkerSettings, nproc: int | None, master_port: int | None) -> Requested:
    """What the checks have to know of the run."""
    return Requested(
        hosts=settings.hosts,
        nproc=nproc,
        master_port=master_port,
        loopback=settings.loopback,
        require_rdma=settings.require_rdma,
        looks_up_name=FRAMEWORKS[settings.framework].looks_up_name,
    )


def _job(settings: WorkerSettings, join: JoinString, command: Sequence[str]) -> Job:
    """The job, as this node knows it: the registry compares it with the others'."""
    return Job(
        nnodes=settings.nnodes,
        nnodes_source=printable(settings.source("nnodes"), 253),
        command_words=word_macs(join.row_key, command, run=join.run, launch_id=join.launch_id),
        framework=settings.framework_words,
        rdzv_backend=settings.rdzv_backend,
    )


def _master_port(settings: WorkerSettings, join: JoinString) -> int | None:
    """The port to listen on as node 0: as asked for, or one that is free now."""
    if settings.master_port or join.slot != 0:
        return settings.master_port
    return find_free(_first_port(settings, join))


def _first_port(settings: WorkerSettings, join: JoinString) -> int:
    """torch's own port; on a machine that several runs share, one that another run starts from.

    A port is looked for long before torch listens on it: two runs that start together would find
    the same one free.
    """
    if not settings.loopback:
        return DEFAULT_MASTER_PORT
    number = int(hashlib.sha256(join.launch_id.encode()).hexdigest(), 16)
    return DEFAULT_MASTER_PORT + number % _LOOPBACK_PORTS


def count_processes(count: Count) -> int:
    """The number of processes of this node; raises UsageError."""
    if isinstance(count, int):
        return count
    gpus = count_gpus()
    if count == "gpu" and gpus == 0:
        raise UsageError(
            "--nproc-per-node gpu was given, but this node has no GPU (no /dev/nvidia0, or "
            "CUDA_VISIBLE_DEVICES is empty)",
            hint="check the GPU request of the worker spec, or use --nproc-per-node cpu",
        )
    if count in ("gpu", "auto") and gpus:
        return gpus
    return count_cpus()

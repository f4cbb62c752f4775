"""What this node offers when it joins: addresses, processes, facts, signed with the row key."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from rendezvous.errors import UsageError
from rendezvous.schema import (
    DEFAULT_MASTER_PORT,
    Facts,
    Job,
    JoinRequest,
    canonical_json,
    printable,
)
from rendezvous.security import JoinString, sign_candidate
from rendezvous.version import rdzv_version
from worker.address import choose_candidates
from worker.interfaces import count_cpus, count_gpus, look, route_source
from worker.ports import find_free
from worker.settings import WorkerSettings

logger = logging.getLogger(__name__)

_LOOPBACK_PORTS = 1_000


def make_offer(
    settings: WorkerSettings, join: JoinString, command: Sequence[str], registry_host: str
) -> JoinRequest:
    """Look at this machine and write the join.

    Args:
        settings: What the person said.
        join: The worker run's join string.
        command: The COMMAND; only its digest is sent.
        registry_host: The address at which the registry was reached.

    Raises:
        AddressError, UsageError: What the person asked for is not to be had here.
    """
    choice = choose_candidates(
        look(),
        route_source=route_source(registry_host),
        prefer=settings.prefer,
        overrides=[*settings.address, *settings.interface, *settings.network],
        loopback=settings.loopback,
    )
    for skipped in choice.skipped:
        logger.debug("not offered: %s %s: %s", skipped.interface, skipped.address, skipped.reason)
    hostname = printable(socket.gethostname(), 253) or "localhost"
    nproc = processes(settings.nproc_per_node, join.slot)
    candidates = [
        sign_candidate(
            candidate,
            join.row_key,
            run=join.run,
            launch_id=join.launch_id,
            slot=join.slot,
            hostname=hostname,
            nproc_per_node=nproc,
        )
        for candidate in choice.candidates
    ]
    return JoinRequest(
        slot=join.slot,
        generation=join.generation,
        join_id=secrets.token_urlsafe(16),
        hostname=hostname,
        nproc_per_node=nproc,
        candidates=candidates,
        requested_rank=settings.node_rank,
        master_port=settings.master_port
        or (find_free(_first_port(settings, join)) if join.slot == 0 else None),
        job=Job(
            nnodes=settings.nnodes,
            command_digest=command_digest(command),
            framework=settings.framework,
        ),
        facts=facts(),
    )


def _first_port(settings: WorkerSettings, join: JoinString) -> int:
    """torch's own port; on a machine that several runs share, one that another run starts from.

    A port is looked for long before torch listens on it: two runs that start together would find
    the same one free.
    """
    if not settings.loopback:
        return DEFAULT_MASTER_PORT
    number = int(hashlib.sha256(join.launch_id.encode()).hexdigest(), 16)
    return DEFAULT_MASTER_PORT + number % _LOOPBACK_PORTS


def command_digest(command: Sequence[str]) -> str:
    """SHA-256 of the COMMAND, by which nodes see that they would run the same."""
    return hashlib.sha256(canonical_json(list(command))).hexdigest()


def processes(text: str, slot: int) -> int:
    """The number of processes of this node; raises UsageError.

    Args:
        text: `--nproc-per-node`, as the settings have let it pass.
        slot: This node's slot.
    """
    parts = text.split(",")
    if len(parts) > 1 and slot >= len(parts):
        raise UsageError(
            f"--nproc-per-node {text} has {len(parts)} entries, and there is a slot {slot}",
            hint="give one number for all nodes, or one for each slot",
        )
    word = parts[slot] if len(parts) > 1 else parts[0]
    if word.isdecimal():
        return int(word)
    gpus = count_gpus()
    if word == "gpu" and gpus == 0:
        raise UsageError(
            "--nproc-per-node gpu, and this node shows no GPU (no /dev/nvidia0, or "
            "CUDA_VISIBLE_DEVICES is empty)",
            hint="check the GPU request of the worker spec, or use --nproc-per-node cpu",
        )
    if word in ("gpu", "auto") and gpus:
        return gpus
    return count_cpus()


def facts() -> Facts:
    """What is worth knowing of this machine."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    return Facts(
        rdzv_version=rdzv_version(),
        python_version=platform.python_version(),
        gpus=count_gpus(),
        cpus=os.cpu_count() or 0,
        boot_id=boot_id,
    )

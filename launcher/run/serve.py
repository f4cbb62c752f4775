"""`rdzv serve`: a standing registry, on the same code as a launch's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace

import click

from launcher.run.registry_process import (
    check_file_limit,
    listen,
    own_addresses,
    server_command,
    write_config,
)
from launcher.settings import ServeSettings
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import RegistryString
from rendezvous.wire.errors import RunExists
from rendezvous.wire.types import is_loopback
from worker.settings import state_home

_FOLDER = "registry"


def serve(settings: ServeSettings, environ: Mapping[str, str]) -> None:
    """Become the registry; does not return. Raises UsageError, RunExists."""
    check_file_limit(1)
    root = settings.state_dir or state_home(environ) / "standing"
    state = StateDir(root, _FOLDER)
    try:
        state.acquire()
    except RunExists as exc:
        raise RunExists(
            f"a registry already uses {state.path}", hint="stop it, or choose another --state-dir"
        ) from exc
    sock = listen(settings.port, address=settings.listen, exact=True)
    loopback = is_loopback(settings.listen)
    tls = not loopback and not settings.behind_ingress
    secret = state.secret()
    proof = write_config(
        state,
        secret,
        tls=tls,
        hosts=settings.allow_host,
        trust_close=not settings.behind_ingress,
        max_runs=settings.max_runs,
    )
    everywhere = settings.listen in ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)
    addresses = settings.registry_address or (own_addresses() if everywhere else [settings.listen])
    place = replace(proof, addresses=tuple(addresses), port=settings.port)
    credential = RegistryString(place, registry_credential(secret))
    path = state.write("credential", credential.text().encode() + b"\n")
    if settings.behind_ingress and not loopback:
        click.echo(
            "rdzv: --behind-ingress: plain HTTP: every machine on the path to this port can read "
            "the tokens, so let only the ingress and the nodes reach it",
            err=True,
        )
    click.echo(
        f"rdzv: registry on port {settings.port} of {', '.join(addresses)}"
        f"{' (TLS)' if tls else ''}; launchers use it with RDZV_REGISTRY_FILE={path}",
        err=True,
    )
    state.keep_lock_over_exec()
    os.set_inheritable(sock.fileno(), True)
    command = server_command(state, sock.fileno())
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until the registry can end by it
    os.execv(command[0], command)  # noqa: S606

"""`rdzv serve`: a standing registry, on the same code as a launch's own.

It is alone, with a journal in a file, or one of several replicas that share a database.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import click

from launcher.options import given_as
from launcher.plan.endpoints import read_endpoint, read_endpoints
from launcher.prepare.registry_process import (
    check_file_limit,
    listen,
    own_addresses,
    server_command,
    write_config,
)
from launcher.settings import ServeSettings
from launcher.show.installation import how_to_install
from launcher.state.port_holder import CREDENTIAL, STANDING, STANDING_RUN
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import (
    RegistryPlace,
    RegistryString,
    own_port,
    parse_group_token,
    with_port,
)
from rendezvous.wire.errors import RunExists, UsageError
from rendezvous.wire.types import is_loopback
from worker.program.state_home import state_home, why_elsewhere

_SCHEMES = ("postgresql", "postgres")
_PASSWORDS = {"password", "sslpassword"}


def serve(settings: ServeSettings, environ: Mapping[str, str], token: str | None) -> None:
    """Become the registry; does not return. Raises UsageError, RunExists.

    `token` is the one that all replicas have.
    """
    settings = _with_addresses(settings)
    check_file_limit(1)
    shared = _shared_secret(settings, token)
    root = settings.state_dir or state_home(environ) / STANDING
    if settings.state_dir is None and (why := why_elsewhere(environ)):
        click.echo(f"rdzv: {why}", err=True)
    state = StateDir(root, STANDING_RUN)
    try:
        state.acquire()
    except RunExists as exc:
        raise RunExists(
            f"a registry already uses {state.path}", hint="stop it, or choose another --state-dir"
        ) from exc
    sock = listen(settings.port, address=settings.listen, exact=True)
    loopback = is_loopback(settings.listen)
    # 'rdzv token registry' knows no replica's --listen: of replicas, only --behind-ingress decides.
    tls = not settings.behind_ingress and (shared is not None or not loopback)
    secret = shared or state.secret()
    own = _own_addresses(settings)
    addresses = _addresses(settings, own)
    proof = write_config(
        state,
        secret,
        tls=tls,
        shared=shared is not None,
        announcement=_announcement(settings.port, addresses, tls, state.path / CREDENTIAL),
        hosts=settings.allow_host,
        trust_close=not settings.behind_ingress,
        max_runs=settings.max_runs,
        **({} if shared is None else _as_replica(settings, own)),
    )
    place = _place(settings, proof, addresses)
    credential = RegistryString(place, registry_credential(secret))
    state.write(CREDENTIAL, credential.text().encode() + b"\n")
    if settings.behind_ingress and not loopback:
        click.echo(
            "rdzv: --behind-ingress: plain HTTP: every machine on the path to this port can read "
            "the tokens, so let only the ingress and the nodes reach it",
            err=True,
        )
    state.keep_lock_over_exec()
    os.set_inheritable(sock.fileno(), True)
    command = server_command(state, sock.fileno())
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until the registry can end by it
    os.execv(command[0], command)  # noqa: S606


def _with_addresses(settings: ServeSettings) -> ServeSettings:
    """The settings with all addresses as clients dial them. Raises UsageError."""
    named = given_as(ServeSettings, "registry_address")
    found: dict[str, object] = {
        "registry_address": read_endpoints(settings.registry_address, named)
    }
    if settings.advertise is not None:
        found["advertise"] = read_endpoint(settings.advertise, given_as(ServeSettings, "advertise"))
    return settings.model_copy(update=found)


def _own_addresses(settings: ServeSettings) -> list[str]:
    """Where this machine may be reached."""
    everywhere = settings.listen in ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)
    return own_addresses() if everywhere else [settings.listen]


def _addresses(settings: ServeSettings, own: list[str]) -> tuple[str, ...]:
    """Those that clients are told of."""
    if settings.journal is not None and settings.advertise is not None:
        return tuple(settings.registry_address or [settings.advertise])
    return tuple(settings.registry_address or own)


def _announcement(port: int, addresses: tuple[str, ...], tls: bool, credential: Path) -> str:
    """What is said once the registry is ready."""
    return (
        f"rdzv: registry on port {port} of {', '.join(addresses)}{' (TLS)' if tls else ''}; "
        f"launchers use it with RDZV_REGISTRY_FILE={credential}"
    )


def _place(
    settings: ServeSettings, proof: RegistryPlace, addresses: tuple[str, ...]
) -> RegistryPlace:
    """What clients are told of the registry."""
    return replace(
        proof,
        addresses=addresses,
        port=settings.port,
        replicas=settings.journal is not None and len(addresses) > 1,
    )


# --- as one of several


def _shared_secret(settings: ServeSettings, token: str | None) -> bytes | None:
    """The secret of all replicas; None where this registry is alone. Raises UsageError."""
    if settings.journal is None:
        if settings.advertise is not None:
            raise UsageError(
                "--advertise is for one of several replicas, which share a --journal",
                hint="with one registry, use --registry-address",
            )
        return None
    _check_url(settings.journal)
    if importlib.util.find_spec("asyncpg") is None:
        raise UsageError(
            "a journal in PostgreSQL needs asyncpg, which is not installed",
            hint=how_to_install("postgres"),
        )
    if token is None:
        raise UsageError(
            "replicas need one secret, and neither RDZV_TOKEN nor RDZV_TOKEN_FILE is set",
            hint="make it once with 'rdzv token new', and give the same one to every replica",
        )
    return parse_group_token(token)


def _check_url(url: str) -> None:
    """Say what is wrong with it, without a word of what may be a password."""
    try:
        parts = urlsplit(url)
        scheme, database = parts.scheme, parts.path.strip("/")
        in_query = _PASSWORDS & parse_qs(parts.query).keys()
        has_password = parts.password is not None or bool(in_query)
    except ValueError:
        scheme, database, has_password = "", "", False
    if scheme not in _SCHEMES or not database:
        raise UsageError(
            "--journal is not the URL of a PostgreSQL database",
            hint="for example postgresql://rdzv@db1,db2/rdzv",
        )
    if has_password:
        raise UsageError(
            "--journal has a password, which every user of this machine could read",
            hint="leave it out of the URL, and set PGPASSFILE (or PGPASSWORD) instead",
        )


def _as_replica(settings: ServeSettings, own: list[str]) -> dict[str, object]:
    """The further configuration of one of several. Raises UsageError."""
    address = settings.advertise or next(iter(own), None)
    if address is None:
        raise UsageError(
            "this machine has no address that other machines could reach",
            hint="name it with --advertise",
        )
    if own_port(address) is None:
        address = with_port(address, settings.port)
    return {"journal": None, "shared_journal": settings.journal, "address": address}

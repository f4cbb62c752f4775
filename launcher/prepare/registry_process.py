"""Inputs of a registry's process: a listening socket, its configuration, its command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import socket
from pathlib import Path

from launcher.state.port_holder import Holder, holder_of
from launcher.state.state_dir import StateDir
from rendezvous.door import own_command
from rendezvous.talk.credentials import hkdf, registry_credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import AddressError, ArmingFailed, UsageError
from rendezvous.wire.run import REGISTRY_FILES
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import bytes_text, printable
from worker.machine.interfaces import look
from worker.machine.limits import byte_limits, too_few
from worker.machine.shortage import Kind
from worker.machine.sysfs import content
from worker.offer.address import choose_candidates
from worker.program.state_home import state_home

_PORT_TRIES = 100
_MOST_WORDS = 300
_LEAST_BYTES = {
    Kind.FILE_SIZE: ("the run's journal", 256 << 10),
    Kind.ADDRESS_SPACE: ("a registry", 96 << 20),
    Kind.DATA: ("a registry", 72 << 20),
}
"""Below these, tried, a registry ends, or a thread of it never begins and it hangs."""
# Bytes that fit into every IPv6 packet. Where a path carries smaller packets than the interfaces
# send, and does not say so, a node that could not even join would never be told of it.
_SEGMENT = 1_200


def listen(port: int, *, address: str = "", exact: bool) -> socket.socket:
    """A listening socket.

    Args:
        port: Where to listen.
        address: An address; empty for all of this machine's, of both families.
        exact: Take this port or none: workers may have been told of it.

    Raises:
        UsageError: No port could be had.
    """
    last = port if exact else min(port + _PORT_TRIES - 1, 65_535)
    for number in range(port, last + 1):
        try:
            return _bind(number, address)
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE and number < last:
                continue
            raise _cannot_listen(port, last, address, exc) from exc
    raise AssertionError("a range of ports is never empty")


def _cannot_listen(port: int, last: int, address: str, error: OSError) -> UsageError:
    is_one, is_taken = port == last, error.errno == errno.EADDRINUSE
    ports = f"port {port}" if is_one else f"any of the ports {port} to {last}"
    holder = holder_of(port, state_home(os.environ)) if is_one and is_taken else Holder()
    others = "another program uses it" if is_one else "other programs use them"
    users = holder.hint or ("wait until it has ended" if holder.words else others)
    # socket.create_server adds the address to the error's words, as Python writes it.
    reason = os.strerror(error.errno) if error.errno else str(error)
    return UsageError(
        f"the registry cannot listen on {ports} of {address or 'this machine'}: {reason}"
        + (f"; {holder.words}" if holder.words else ""),
        hint=f"{users}; or choose another with --port"
        if is_taken
        else "choose another port or address",
    )


def _bind(port: int, address: str) -> socket.socket:
    sock = _create_server(port, address)
    if not is_loopback(address):
        # It holds for what is accepted, both ways; not every container's kernel can do it.
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT)
    return sock


def _create_server(port: int, address: str) -> socket.socket:
    if not address and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096
            )
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                raise
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=4096)


def check_file_limit(nodes: int) -> None:
    """Whether a registry of this process could serve so many nodes; raises UsageError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = REGISTRY_FILES + nodes
    if soft < REGISTRY_FILES or hard < needed:  # the registry process raises its soft limit itself
        raise UsageError(
            f"this process may open {min(soft, hard)} files (ulimit -n), but a registry needs "
            f"{needed} for {nodes} node{'s' * (nodes != 1)}",
            hint=f"raise the limit: ulimit -n {needed}; docker run --ulimit nofile={needed}; "
            "LimitNOFILE= of a systemd unit",
        )


def check_machine(nodes: int) -> None:
    """Whether a registry's journal, and so many nodes, can surely not be here; raises ArmingFailed.

    Each node is an agent and a keeper, whatever its program starts.
    """
    for limit in byte_limits(content(Path("/proc/self/status"))):
        what, least = _LEAST_BYTES[limit.kind]
        if limit.value < least:
            raise ArmingFailed(
                f"{limit.words}, but {what} needs {bytes_text(least)} or more", hint=limit.hint
            )
    if found := too_few(1 + 2 * nodes):
        words, hint = found
        raise ArmingFailed(f"the registry and {nodes} nodes need processes: {words}", hint=hint)


def own_addresses() -> list[str]:
    """Every address under which another machine might reach this one; may be none.

    Those of VPNs come last: all are dialled, and the first that answers in time is used.
    """
    try:
        choice = choose_candidates(look(), route_source=None)
    except AddressError:
        return []
    return [candidate.address for candidate in (*choice.candidates, *choice.left_out)]


def write_config(
    state: StateDir, secret: bytes, *, tls: bool, shared: bool = False, **options: object
) -> RegistryPlace:
    """Write what the registry process reads; returns how it proves itself (without addresses).

    What is `shared` by several replicas has one certificate. `options` are further fields of
    `rendezvous.registry.process.ServerConfig`.
    """
    config: dict[str, object] = {
        "key": hkdf(secret, "registry key for node credentials").hex(),
        "admin_sha256": registry_credential(secret).sha256(),
        "journal": str(state.journal),
        **options,
    }
    proof = b""
    if tls:
        from rendezvous.talk.certificate import make_certificate, make_shared_certificate

        path = state.path / "certificate.pem"
        if shared or not os.path.exists(path):
            made = make_shared_certificate(secret) if shared else make_certificate(secret)
            state.write("key.pem", made.key_pem)
            state.write("certificate.pem", made.pem)
            state.write("certificate.der", made.der)
        proof = (state.path / "certificate.der").read_bytes()
        config |= {"certificate": str(path), "certificate_key": str(state.path / "key.pem")}
    state.write("registry.json", json.dumps(config, indent=1).encode())
    return RegistryPlace((), 0, "certificate" if tls else "plain", proof)


def server_command(state: StateDir, fd: int) -> list[str]:
    """Return the command that starts a registry process."""
    config = str(state.path / "registry.json")
    return own_command("_registry", config, "--fd", str(fd))


def last_words(log: Path) -> str:
    """The end of the last line: what is wrong stands behind the paths that it names."""
    lines = log.read_text(errors="replace").strip().splitlines()
    if not lines:
        return "none"
    end = lines[-1][-_MOST_WORDS:]
    return printable(end if end == lines[-1] else f"…{end}", _MOST_WORDS + 1)

"""How talking to a registry can fail, as values; and the words for them, which are made last."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rendezvous.enums import StrEnum
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import Unavailable

_CLOSED = "it closed the connection without an answer"
_SILENT_HOST = "no answer (filtered, or the host is down)"


class Fault(StrEnum):
    """What happened at an address."""

    NO_NAME = "no_name"
    """The resolver does not know it; the detail is its answer."""
    NO_NAME_SERVER = "no_name_server"
    """The resolver did not answer in time; the detail is how many seconds that was."""
    REFUSED = "refused"
    FILTERED = "filtered"
    """No connection in time, or nothing passes on one."""
    HOST_DOWN = "host_down"
    """Its neighbours say that it is not there."""
    SILENT = "silent"
    """The connection is open, and no answer came in time."""
    CLOSED = "closed"
    NO_TLS = "no_tls"
    """It closed the connection during the handshake."""
    TLS = "tls"
    """The handshake failed; the detail is OpenSSL's reason."""
    NOT_PROVEN = "not_proven"
    """It has another certificate than the one that is expected."""
    OTHER_KEY = "other_key"
    """It has another public key than the one that is expected."""
    NOT_HTTP = "not_http"
    NOT_RDZV = "not_rdzv"
    """It speaks HTTP and is no registry."""
    OTHER = "other"
    """The detail is in the system's words."""


_WORDS = {
    Fault.NO_NAME: "its name cannot be resolved ({})",
    Fault.NO_NAME_SERVER: "no name server has told its address within {} s",
    Fault.REFUSED: "connection refused (no registry is listening)",
    Fault.FILTERED: _SILENT_HOST,
    Fault.HOST_DOWN: _SILENT_HOST,
    Fault.SILENT: "it accepted the connection and did not answer",
    Fault.CLOSED: _CLOSED,
    Fault.NO_TLS: f"{_CLOSED}; it may not speak TLS 1.3",
    Fault.TLS: "it does not speak TLS 1.3 ({})",
    Fault.NOT_PROVEN: "it does not hold this run's certificate",
    Fault.OTHER_KEY: "another launch answers there, with another key; RDZV_TOKEN must be the same "
    "on every node",
    Fault.NOT_HTTP: "it does not speak HTTP",
    Fault.NOT_RDZV: "something else than an rdzv registry answers there",
    Fault.OTHER: "{}",
}
"""With a place for the detail."""
_OF_NAMES = frozenset({Fault.NO_NAME, Fault.NO_NAME_SERVER})
_OPEN_PORT = (
    "check that this node can open that port on rank 0's node, and that the registry has it there"
)
_WAIT_FOR_NAME = (
    "nobody here knows the name of rank 0's node: check MASTER_ADDR, and on Kubernetes the "
    "headless service (with publishNotReadyAddresses) and the pods' subdomain; with Slurm, that "
    "'scontrol show node' tells its address here"
)
_OTHER_JOIN = (
    "somebody else listens there, or a newer launch: start this node with the RDZV_JOIN of the "
    "launch that runs now"
)


class NetworkFailure(Exception):
    """A `Network` or one of its lines failed; who calls a registry turns it into Unavailable.

    Attributes:
        detail: What the fault says of it.
        opened: Whether a connection was open by then.
    """

    def __init__(self, fault: Fault, detail: str = "", *, opened: bool = True) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail
        self.opened = opened


def words_of(failure: NetworkFailure) -> str:
    """What a failure means, in words."""
    return _WORDS[failure.fault].format(failure.detail)


def unreachable(place: RegistryPlace, failures: Mapping[str, NetworkFailure]) -> Unavailable:
    """The error that tells what happened at each address.

    In the order of the addresses, not of the answers: the same state is the same sentence.
    """
    words = "; ".join(f"{a}: {_dial_words(failures[a], place)}" for a in place.addresses)
    return Unavailable(
        f"no registry at port {place.port} of {', '.join(place.addresses)} ({words})",
        hint=_hint_for({failure.fault for failure in failures.values()}),
    )


def _dial_words(failure: NetworkFailure, place: RegistryPlace) -> str:
    """Who hears no HTTP on an open connection without TLS may have met a server with TLS."""
    unclear = failure.opened and failure.fault in (Fault.CLOSED, Fault.NOT_HTTP)
    more = "; it may speak TLS" if unclear and place.trust == "plain" else ""
    return words_of(failure) + more


def _hint_for(faults: Collection[Fault]) -> str:
    """What to do about the failures at all addresses."""
    if _OF_NAMES.issuperset(faults):
        return _WAIT_FOR_NAME
    if Fault.NOT_PROVEN in faults:
        return _OTHER_JOIN
    return "" if Fault.OTHER_KEY in faults else _OPEN_PORT

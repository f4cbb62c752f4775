"""How talking to a registry can fail, as values; and the words for them, which are made last."""

from __future__ import annotations

from collections.abc import Mapping, Set

from rendezvous.enums import StrEnum
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import ExitCode, Unavailable
from rendezvous.wire.protocol import same_rdzv
from rendezvous.wire.types import is_loopback
from rendezvous.wire.words import few

_CLOSED = "it closed the connection without an answer"
_SILENT_HOST = "no answer (filtered, or the host is down)"


class Fault(StrEnum):
    """What happened at an address, and how it is told: with the failure's detail in place of {}."""

    words: str

    def __new__(cls, value: str, words: str) -> Fault:
        made = str.__new__(cls, value)
        made._value_, made.words = value, words
        return made

    NO_NAME = "no_name", "its name cannot be resolved ({})"
    NO_NAME_SERVER = "no_name_server", "no name server has returned its address within {} s"
    REFUSED = "refused", "connection refused (no registry is listening)"
    FILTERED = "filtered", _SILENT_HOST
    """No connection in time, or nothing passes on one."""
    HOST_DOWN = "host_down", _SILENT_HOST
    """Its neighbours say that it is not there."""
    SILENT = "silent", "it accepted the connection but did not answer"
    CLOSED = "closed", _CLOSED
    NO_TLS = "no_tls", f"{_CLOSED}; it might not speak TLS 1.3"
    """It closed the connection during the handshake."""
    TLS = "tls", "it does not speak TLS 1.3 ({})"
    OTHER_PROGRAM = "other_program", "{} answers there, and no registry of this run"
    """It serves that port itself."""
    PROXY = "proxy", "{} answers there, and no registry of this run"
    """It may do so for a registry that is not up yet."""
    NOT_PROVEN = "not_proven", "it does not hold this run's certificate"
    OTHER_KEY = (
        "other_key",
        "it has another key: another RDZV_TOKEN than this node's, or another launch or program",
    )
    NOT_HTTP = "not_http", "it does not speak HTTP"
    OTHER_PROTOCOL = "other_protocol", "it {}"
    """A replica that would refuse this rdzv; another one may not."""
    NOT_RDZV = "not_rdzv", "it answered, but it is not an rdzv registry"
    OTHER = "other", "{}"


_OF_NAMES = frozenset({Fault.NO_NAME, Fault.NO_NAME_SERVER})
_OF_PROGRAMS = frozenset(
    {Fault.TLS, Fault.NOT_HTTP, Fault.NOT_RDZV, Fault.OTHER_PROGRAM, Fault.PROXY}
)
"""Something answers, and it is no registry."""
_HOLD_THE_PORT = frozenset({Fault.OTHER_KEY, Fault.OTHER_PROGRAM})
"""As long as they are there, no registry of this run can listen at that port."""
_FEW_ADDRESSES = 5
_OPEN_PORT = (
    "check that this node can reach that port on node 0, and that the registry listens on it"
)
_NO_RANK_0 = (
    "check that one node was started with NODE_RANK 0, on the machine that MASTER_ADDR names, and "
    "that it has not ended; ranks begin at 0"
)
"""Of a symmetric start, whose registry is node 0's."""
_OTHER_PROGRAM = (
    "another program listens at that port of node 0: end it, give all nodes the same other "
    "--port, or correct MASTER_ADDR"
)
_ONE_LAUNCH = (
    "give all nodes of a launch the same RDZV_TOKEN, and each launch on one machine another --port"
)
_WAIT_FOR_NAME = (
    "this node cannot resolve the name of node 0: check MASTER_ADDR; on Kubernetes, "
    "check the headless service (with publishNotReadyAddresses) and the pods' subdomain; "
    "with Slurm, check that 'scontrol show node' prints its address here"
)
_OTHER_JOIN = (
    "another program or a newer launch listens there: start this node with the RDZV_JOIN of "
    "the current launch"
)


class OtherKey(Unavailable, exit_code=ExitCode.REFUSED):
    """At each address somebody answers whose key is another one, or that has none: nobody else can
    listen there.

    Attributes:
        pins: The keys that were met, as their SHA-256 in hex, by address.
    """

    def __init__(self, message: str, *, hint: str = "", pins: Mapping[str, str] | None = None):
        super().__init__(message, hint=hint)
        self.pins = pins or {}


class NobodyListens(Unavailable):
    """Each address refuses the connection."""


class NetworkFailure(Exception):
    """A `Network` or one of its lines failed; who calls a registry turns it into Unavailable.

    Attributes:
        detail: What the resolver, OpenSSL or the system says; or after how many seconds it was;
            or the pin of another key.
        opened: Whether a connection was open by then.
        resolved: The addresses of the name that was dialled, in order; none of an address.
    """

    resolved: tuple[str, ...] = ()

    def __init__(self, fault: Fault, detail: str = "", *, opened: bool = True) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail
        self.opened = opened

    def again(self) -> NetworkFailure:
        """The same, to be raised once more."""
        return NetworkFailure(self.fault, self.detail, opened=self.opened)


def words_of(failure: NetworkFailure) -> str:
    """What a failure means, in words."""
    return failure.fault.words.format(failure.detail)


def unreachable(place: RegistryPlace, failures: Mapping[str, NetworkFailure]) -> Unavailable:
    """The error that tells what happened at each address.

    In the order of the addresses, not of the answers: the same state is the same sentence.
    """
    told = {
        _as_dialled(address, failures[address]): dial_words(failures[address], place)
        for address in place.addresses
    }
    if len(told) <= _FEW_ADDRESSES:
        words = "; ".join(f"{address}: {what}" for address, what in told.items())
    else:
        alike: dict[str, list[str]] = {}
        for address, what in told.items():
            alike.setdefault(what, []).append(address)
        words = "; ".join(f"{few(each)}: {what}" for what, each in alike.items())
    message = f"no registry at {place.where()} ({words})"
    faults = {failure.fault for failure in failures.values()}
    if faults <= _HOLD_THE_PORT:
        keys = {one: met for one, met in failures.items() if met.fault is Fault.OTHER_KEY}
        pins = {address: failure.detail for address, failure in keys.items()}
        return OtherKey(message, hint=_ONE_LAUNCH if pins else _hint_for(faults, place), pins=pins)
    error = NobodyListens if faults == {Fault.REFUSED} else Unavailable
    return error(message, hint=_hint_for(faults, place))


def _as_dialled(address: str, failure: NetworkFailure) -> str:
    """An address of a place; a name with what it means on this node."""
    if not failure.resolved:
        return address
    own = ", which is this node itself" if all(map(is_loopback, failure.resolved)) else ""
    return f"{address} as {few(failure.resolved, 2)}{own}"


def dial_words(failure: NetworkFailure, place: RegistryPlace) -> str:
    """What a failure to dial means, in words.

    Who hears no HTTP on an open connection without TLS may have met a server with TLS.
    """
    unclear = failure.opened and failure.fault in (Fault.CLOSED, Fault.NOT_HTTP)
    more = "; it may speak TLS" if unclear and place.trust == "plain" else ""
    return words_of(failure) + more


def _hint_for(faults: Set[Fault], place: RegistryPlace) -> str:
    """What to do about the failures at all addresses."""
    if _OF_NAMES.issuperset(faults):
        return _WAIT_FOR_NAME
    if Fault.OTHER_PROTOCOL in faults:
        return same_rdzv("")
    if Fault.NOT_PROVEN in faults:
        return _OTHER_JOIN
    if faults <= _OF_PROGRAMS:
        return _OTHER_PROGRAM if place.trust == "public_key" else _OTHER_JOIN
    if Fault.OTHER_KEY in faults:
        return _ONE_LAUNCH
    return _NO_RANK_0 if faults == {Fault.REFUSED} and place.trust == "public_key" else _OPEN_PORT

"""The caller of one request, and the roles in which it may call: each needs another credential."""

# No postponed annotations here: FastAPI reads those of the roles.

from collections.abc import Callable
from typing import Annotated

from fastapi import Path
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import Field
from starlette.types import Scope

from rendezvous.registry.access import required
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.service import Service
from rendezvous.serving.connection import Connection, connection_of
from rendezvous.talk.credentials import Credential, parse_credential
from rendezvous.talk.network import UNREACHED
from rendezvous.wire.tenant import Tenant
from rendezvous.wire.types import RunId

RunPath = Annotated[RunId, Path(description="The RDZV_ID.")]
SlotNumber = Annotated[int, Field(ge=0, le=999_999)]
SlotPath = Annotated[SlotNumber, Path(description="The slot of the node.")]

_UNREACHED = UNREACHED.encode()
_CREDENTIAL = "rdzv.credential"
"""The key under which the scope keeps it."""


def credential_of(scope: Scope) -> Credential | None:
    """The credential in the Authorization header, or None; it is read once for each request."""
    if _CREDENTIAL not in scope:
        scope[_CREDENTIAL] = _read_credential(scope)
    found: Credential | None = scope[_CREDENTIAL]
    return found


def _read_credential(scope: Scope) -> Credential | None:
    # There is one such header at most: `request_head` has seen to it.
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    connection = connection_of(scope)
    if connection is not None and connection.authorization[0] == header:
        return connection.authorization[1]
    scheme, _, text = header.decode("latin-1").partition(" ")
    credential = parse_credential(text) if scheme.lower() == "bearer" else None
    if connection is not None:
        connection.authorization = header, credential
    return credential


class Caller:
    """The caller of one request, with the run that it is about."""

    __slots__ = ("connection", "credential", "live", "run", "scope", "service", "tenant")

    live: LiveRun
    """The run that the credential opens."""
    tenant: Tenant | None
    """The maker or lister of runs; None: the operator."""

    def __init__(self, service: Service, scope: Scope) -> None:
        self.service = service
        self.scope = scope
        self.credential = credential_of(scope)
        self.connection = connection_of(scope)
        self.run: str = scope["path_params"].get("run", "")
        """The run in the path."""

    @property
    def slot(self) -> int:
        """The slot of the node in the path."""
        slot: int = self.scope["path_params"]["node"]
        return slot

    @property
    def number(self) -> int:
        """The incarnation of a node, or the generation of a join token."""
        return required(self.credential).number

    @property
    def source(self) -> str:
        """The address that the request came from; empty: not known."""
        return self.connection.peer if self.connection is not None else ""

    @property
    def unreached(self) -> str:
        """The address that the client tried before, and could not connect to."""
        headers = self.scope["headers"]
        value: bytes = next((value for name, value in headers if name == _UNREACHED), b"")
        return value.decode("latin-1")

    def proven(self) -> None:
        """Note that the peer of this connection has proven who it is."""
        if self.connection is not None:
            self.connection.is_known = True


# --- roles


class Public:
    """A role that needs no credential.

    Args:
        check: Raises for whoever may not call.

    Attributes:
        is_of_run: Whether the request is about one run that is there.
        any_protocol: Whether clients of other protocols are answered.
        is_proof: Whether a caller in this role has proven who it is.
    """

    is_of_run = False
    any_protocol = True
    is_proof = False

    def __init__(self, check: Callable[[Caller], None]) -> None:
        self._check = check
        self.__doc__, self.__name__ = check.__doc__, check.__name__

    def admit(self, caller: Caller) -> None:
        """Raise for whoever may not call, before anything of the body is read."""
        self._check(caller)
        if self.is_proof:
            caller.proven()

    def check_again(self, caller: Caller) -> None:
        """Raises Unauthorized where the caller may not call any more."""

    def __call__(self) -> None:
        """Declare nothing: FastAPI reads the parameters, and `Route` calls `admit`."""


class Role(Public, SecurityBase):
    """A role that needs a credential, which it declares for OpenAPI."""

    any_protocol = False
    is_proof = True
    scheme_name = "credential"
    model = HTTPBearer(description="The path determines which one is needed.")

    def check_again(self, caller: Caller) -> None:
        """See the base class: a tenant may have been revoked since it was let in."""
        shown = caller.credential
        if shown is not None and shown.kind == "tenant":
            caller.service.access.tenant(shown)


class OfRun(Role):
    """A role in a run."""

    is_of_run = True

    def __call__(self, run: RunPath) -> None:  # type: ignore[override]
        """Declare what stands in the path."""


class Newcomer(OfRun):
    """The role of a node that has not joined."""

    any_protocol = True
    is_proof = False


class OfNode(OfRun):
    """A role of one node of a run."""

    def __call__(self, run: RunPath, node: SlotPath) -> None:  # type: ignore[override]
        """Declare what stands in the path."""


@Public
def anyone(caller: Caller) -> None:
    """Anybody."""


@Role
def operator(caller: Caller) -> None:
    """The registry's operator."""
    caller.service.access.registry(caller.credential)


@Role
def lister(caller: Caller) -> None:
    """The operator, and a tenant, for its own runs."""
    caller.tenant = caller.service.access.tenant(caller.credential)


@Role
def scraper(caller: Caller) -> None:
    """The collector of the registry's metrics, and the operator."""
    caller.service.access.metrics(caller.credential)


@Role
def creator(caller: Caller) -> None:
    """The operator, and the tenant in whose name space the run is to be."""
    caller.tenant = caller.service.access.creator(caller.run, caller.credential)


@OfRun
def reader(caller: Caller) -> None:
    """Whoever may look at the run."""
    caller.live = caller.service.access.run(caller.run, caller.credential, "read")


@OfRun
def maker(caller: Caller) -> None:
    """The maker of the run, its tenant, and the operator."""
    caller.live = caller.service.access.run(caller.run, caller.credential, "write")


@OfRun
def looker(caller: Caller) -> None:
    """Whoever may look at the program of the run: its source lines, and the state of processes."""
    caller.live = caller.service.access.run(caller.run, caller.credential, "look")


@OfRun
def log_reader(caller: Caller) -> None:
    """Whoever may read what the programs print, which may hold secrets."""
    caller.live = caller.service.access.run(caller.run, caller.credential, "logs")


@Newcomer
def newcomer(caller: Caller) -> None:
    """A node that has not joined; which join token it needs, the call sees."""
    required(caller.credential)


@OfNode
def node(caller: Caller) -> None:
    """The present node of the slot; its lease is renewed."""
    _hear(caller, caller.connection)


@OfNode
def command_of_node(caller: Caller) -> None:
    """The present node of the slot, on the connection of a command, which ends before the node."""
    _hear(caller, None)


def _hear(caller: Caller, connection: Connection | None) -> None:
    service, slot = caller.service, caller.slot
    live = caller.live = service.access.node(caller.run, slot, caller.credential)
    service.heard(live, slot, caller.number, connection)

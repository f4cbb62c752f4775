"""What a request brings, and who may make it: each kind of caller shows another credential."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.types import Scope

from rendezvous.registry.access import required
from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.service import Service
from rendezvous.serving.connection import Connection
from rendezvous.talk.credentials import Credential, parse_credential
from rendezvous.talk.network import UNREACHED
from rendezvous.wire.errors import BadRequest
from rendezvous.wire.tenant import Tenant
from rendezvous.wire.words import printable

T = TypeVar("T")

_UNREACHED = UNREACHED.encode()
_CREDENTIAL = "rdzv.credential"
"""Where it is kept in the scope."""


def credential_of(scope: Scope) -> Credential | None:
    """The credential in the Authorization header, or None; it is read once for each request."""
    if _CREDENTIAL not in scope:
        scope[_CREDENTIAL] = _read_credential(scope)
    found: Credential | None = scope[_CREDENTIAL]
    return found


def _read_credential(scope: Scope) -> Credential | None:
    # There is one such header at most: `request_head` has seen to it.
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    connection: Connection | None = scope.get("state", {}).get("connection")
    if connection is not None and connection.authorization[0] == header:
        return connection.authorization[1]
    scheme, _, text = header.decode("latin-1").partition(" ")
    credential = parse_credential(text) if scheme.lower() == "bearer" else None
    if connection is not None:
        connection.authorization = header, credential
    return credential


def bad_request(exc: ValidationError) -> BadRequest:
    """What is wrong with a message: the places and the rules, never the values."""
    errors = exc.errors(include_input=False, include_context=False)
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"])
    # This one sentence of Pydantic's quotes what it was given.
    rule = "unknown kind" if first["type"] == "union_tag_invalid" else first["msg"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return BadRequest(printable(f"{place or 'the body'}: {rule}{more}", 500))


def parse(adapter: TypeAdapter[T], data: bytes) -> T:
    """A message, as strict JSON; of a key that stands twice, the last one counts."""
    try:
        return adapter.validate_json(data)
    except ValidationError as exc:
        raise bad_request(exc) from None


class Asked:
    """One request: what it brings, and what its route has made of that."""

    __slots__ = ("connection", "live", "query", "run", "said", "scope", "tenant", "value")

    live: LiveRun
    """The run that the credential opens."""
    query: Any
    """The values of the query, by name, defaults included."""
    said: Any
    """The body."""
    tenant: Tenant | None
    """Who makes or lists runs; None: the operator."""

    def __init__(self, scope: Scope, run: str, value: str) -> None:
        self.scope = scope
        self.connection: Connection | None = scope.get("state", {}).get("connection")
        self.run = run
        """The run in the path; in that of a tenant, its name."""
        self.value = value

    @property
    def credential(self) -> Credential | None:
        """What was shown."""
        return credential_of(self.scope)

    @property
    def slot(self) -> int:
        """The slot in the path."""
        return int(self.value)

    @property
    def number(self) -> int:
        """The incarnation of a node, or the generation of a join token."""
        return required(self.credential).number

    @property
    def source(self) -> str:
        """The address that it came from; empty: not known."""
        return self.connection.peer if self.connection is not None else ""

    @property
    def unreached(self) -> str:
        """Where it was sent to before, and could not connect."""
        headers = self.scope["headers"]
        value: bytes = next((value for name, value in headers if name == _UNREACHED), b"")
        return value.decode("latin-1")

    def check_tenant(self, service: Service) -> None:
        """Raises Unauthorized where a tenant that was let in has been revoked since."""
        shown = self.credential
        if shown is not None and shown.kind == "tenant":
            service.access.tenant(shown)

    def proven(self) -> None:
        """The peer of this connection has proven who it is."""
        if self.connection is not None:
            self.connection.is_known = True


# --- who may call; each of these raises when the credential is not the one that it needs


def anyone(service: Service, asked: Asked) -> None:
    """No credential is needed."""


def operator(service: Service, asked: Asked) -> None:
    """The registry's operator."""
    service.access.registry(asked.credential)
    asked.proven()


def lister(service: Service, asked: Asked) -> None:
    """The operator, and a tenant, for its own runs."""
    asked.tenant = service.access.tenant(asked.credential)
    asked.proven()


def creator(service: Service, asked: Asked) -> None:
    """The operator, and the tenant in whose name space the run is to be."""
    asked.tenant = service.access.creator(asked.run, asked.credential)
    asked.proven()


def scraper(service: Service, asked: Asked) -> None:
    """Who collects what the registry measures, and the operator."""
    service.access.metrics(asked.credential)
    asked.proven()


def reader(service: Service, asked: Asked) -> None:
    """Whoever may look at the run."""
    asked.live = service.access.run(asked.run, asked.credential, "read")
    asked.proven()


def maker(service: Service, asked: Asked) -> None:
    """The maker of the run, its tenant, and the operator."""
    asked.live = service.access.run(asked.run, asked.credential, "write")
    asked.proven()


def looker(service: Service, asked: Asked) -> None:
    """Whoever may look at the program of the run: its source lines, and the state of processes."""
    asked.live = service.access.run(asked.run, asked.credential, "look")
    asked.proven()


def log_reader(service: Service, asked: Asked) -> None:
    """Whoever may read what the programs print, which may hold secrets."""
    asked.live = service.access.run(asked.run, asked.credential, "logs")
    asked.proven()


def newcomer(service: Service, asked: Asked) -> None:
    """A node that has not joined; which join token it needs, the call sees."""
    required(asked.credential)


def node(service: Service, asked: Asked) -> None:
    """The present node of the slot; its lease is renewed."""
    _hear(service, asked, asked.connection)


def command_of_node(service: Service, asked: Asked) -> None:
    """The same. The connection does not count: it ends with the command, and the node goes on."""
    _hear(service, asked, None)


def _hear(service: Service, asked: Asked, connection: Connection | None) -> None:
    slot = asked.slot
    live = asked.live = service.access.node(asked.run, slot, asked.credential)
    asked.proven()
    service.heard(live, slot, asked.number, connection)

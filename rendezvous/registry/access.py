"""Who may do what in a registry: every call names the credential that it needs.

A stranger to a run learns nothing about it, not even whether it exists.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal

from rendezvous.registry.live_run import LiveRun
from rendezvous.registry.tenants import Tenants
from rendezvous.run.leases import Key
from rendezvous.run.replacing import is_given_up
from rendezvous.run.state import Run
from rendezvous.talk.credentials import (
    Credential,
    logs_credential,
    look_credential,
    metrics_credential,
    node_credential,
)
from rendezvous.wire.errors import Fenced, Forbidden, NotFound, RunOver, Unauthorized, Unavailable
from rendezvous.wire.run import RunSpec
from rendezvous.wire.tenant import Tenant
from rendezvous.wire.types import Wire

Scope = Literal["read", "look", "logs", "write"]
"""What is asked of a run: its state, the state of its program, its output, or to change it."""
_MAY: dict[Scope, tuple[str, ...]] = {
    "read": ("admin", "tenant", "read", "node"),
    "look": ("admin", "tenant", "look"),
    "logs": ("admin", "tenant", "logs"),
    "write": ("admin", "tenant"),
}
_REFUSALS: dict[Scope, str] = {
    "read": "cannot read the state of a run",
    "look": "cannot look at the program of a run",
    "logs": "cannot read the output of a run",
    "write": "cannot change a run",
}


_DERIVED = {"look": look_credential, "logs": logs_credential}


class NotYours(NotFound):
    """No run of that name, or none that this credential has to do with: a failed login."""


class Access:
    """The credentials of one registry, as `Service` has them, and of its runs by name."""

    def __init__(
        self, key: bytes, admin_sha256: str, runs: Mapping[str, LiveRun], tenants: Tenants
    ) -> None:
        self._key = key
        self._admin_sha256 = admin_sha256
        self._metrics = metrics_credential(admin_sha256)
        self._runs = runs
        self._tenants = tenants
        self._had_a_run = False

    def registry(self, credential: Credential | None) -> None:
        """The operator alone; raises Unauthorized or Forbidden."""
        shown = required(credential)
        if shown.kind != "registry":
            raise Forbidden("this request needs the credential of the registry's operator")
        if not shown.matches(self._admin_sha256):
            raise Unauthorized("this is not the credential of this registry's operator")

    def tenant(self, credential: Credential | None) -> Tenant | None:
        """The tenant whose credential this is; None: the operator's. Raises as `registry` does."""
        shown = required(credential)
        if shown.kind != "tenant":
            self.registry(shown)
            return None
        if (found := self._tenants.find(shown)) is None:
            raise Unauthorized("this is not the credential of a tenant of this registry")
        return found

    def creator(self, name: str, credential: Credential | None) -> Tenant | None:
        """Who may make a run of this name, as `tenant`; Forbidden outside of its name space."""
        tenant = self.tenant(credential)
        if tenant is not None and not tenant.owns(name):
            raise Forbidden(
                f"tenant '{tenant.name}' can only make runs whose ID begins with '{tenant.prefix}'",
                hint=f"launch it with --rdzv-id {tenant.prefix}NAME",
            )
        return tenant

    def metrics(self, credential: Credential | None) -> None:
        """Who may read what the registry measures of itself; raises as `registry` does."""
        shown = required(credential)
        if shown.kind == "registry":
            self.registry(shown)
        elif shown.kind != "metrics":
            raise Forbidden(
                "this request needs the metrics credential of the registry, or its operator's"
            )
        elif not hmac.compare_digest(shown.secret, self._metrics.secret):
            raise Unauthorized("this is not the metrics credential of this registry")

    def run(self, name: str, credential: Credential | None, scope: Scope) -> LiveRun:
        """The run, for its admin, its tenant and the operator, and for whom the scope is open to.

        A tenant's own run that is not there is no failed login, and reads like a foreign one.
        """
        shown = required(credential)
        live = self._runs.get(name)
        if shown.kind == "registry":
            self.registry(shown)
            if live is None:
                raise NotFound(f"there is no run '{name}' here")
        elif live is None or not self._knows(live, shown):
            is_own = self._tenants.opens(shown, name)
            raise (NotFound if is_own else NotYours)(
                f"there is no run '{name}' here, or it is not yours"
            )
        elif shown.kind not in _MAY[scope]:
            raise Forbidden(f"a {shown.kind} credential {_REFUSALS[scope]}")
        elif shown.kind == "node":
            _refuse_fenced(live.run, shown)
        return live

    def _knows(self, live: LiveRun, shown: Credential) -> bool:
        if shown.kind == "tenant":
            return self._tenants.opens(shown, live.run.id)
        if shown.kind == "node":
            return self._is_node(live, shown)
        return is_of_launch(live.run.spec, live.run.id, shown)

    def joiner(
        self, name: str, credential: Credential | None, slot: int, generation: int
    ) -> LiveRun:
        """The run, for the holder of the join token of this slot and generation.

        In a symmetric start a node may come between node 0's opening of the registry and its making
        of the run: Unavailable as long as no run was ever here.
        """
        shown = required(credential)
        live = self._runs.get(name)
        self._had_a_run |= bool(self._runs)
        if shown.kind == "join" and not self._had_a_run:
            raise Unavailable("no run has been created here yet")
        if live is None or not _token_fits(live.run, shown, slot, generation):
            raise Unauthorized(
                f"this join token is not one of run '{name}', slot {slot}, generation {generation}",
                hint="this node was started with the RDZV_JOIN of another launch or slot; in a "
                "symmetric start, with a different RDZV_ID from node 0",
            )
        return live

    def node(self, name: str, slot: int, credential: Credential | None) -> LiveRun:
        """The run, for the present incarnation of this slot; older ones are Fenced.

        To a node of a launch that another one has replaced, its run is over.
        """
        shown = required(credential)
        live = self._runs.get(name)
        if live is None or shown.kind != "node" or not self._is_node(live, shown):
            if live is not None and shown.kind == "node":
                self._refuse_former(live, shown)
            raise Unauthorized(f"this credential does not belong to a node of run '{name}'")
        if shown.slot != slot:
            raise Forbidden(f"a node of slot {shown.slot} cannot act for slot {slot}")
        _refuse_fenced(live.run, shown)
        return live

    def node_credential(self, live: LiveRun, slot: int, incarnation: int) -> Credential:
        """The credential of one incarnation."""
        return Credential("node", self._secret(live, (slot, incarnation)), slot, incarnation)

    def _secret(self, live: LiveRun, key: Key) -> bytes:
        """What the credential of a node hides, derived once."""
        if (known := live.secrets.get(key)) is None:
            of = live.run.id, live.run.spec.launch_id
            known = live.secrets[key] = node_credential(self._key, *of, *key).secret
        return known

    def _refuse_former(self, live: LiveRun, shown: Credential) -> None:
        run = live.run.id
        for launch_id, ended in live.former.items():
            known = node_credential(self._key, run, launch_id, shown.slot, shown.number)
            if hmac.compare_digest(known.secret, shown.secret):
                raise RunOver(f"launch {launch_id} of run '{run}' has ended: {ended}")

    def _is_node(self, live: LiveRun, shown: Credential) -> bool:
        run = live.run
        if not 0 <= shown.slot < len(run.slots):
            return False
        if not 1 <= shown.number <= run.slots[shown.slot].incarnations:
            return False
        return hmac.compare_digest(self._secret(live, (shown.slot, shown.number)), shown.secret)


def _refuse_fenced(run: Run, shown: Credential) -> None:
    """Raise Fenced for any but the present incarnation of a slot, for ever."""
    slot = run.slots[shown.slot]
    is_present = slot.node is not None and slot.node.incarnation == shown.number
    if is_present and not is_given_up(run, slot):
        return
    raise Fenced(
        f"slot {slot.index}: incarnation {shown.number} has been replaced",
        hint="a newer worker run has this slot, or the slot was given up",
    )


class Maker(Wire):
    """A launch as far as that of every version is read."""

    launch_id: str
    read_sha256: str = ""
    admin_sha256: str = ""
    token_sha256: tuple[str, ...] = ()


def is_of_launch(spec: RunSpec | Maker, run: str, shown: Credential) -> bool:
    """Whether this is a credential of the launch itself: of no node, tenant or operator."""
    if shown.kind == "admin":
        return shown.matches(spec.admin_sha256)
    if shown.kind == "read":
        return shown.matches(spec.read_sha256)
    if (derive := _DERIVED.get(shown.kind)) is not None:
        known = derive(spec.admin_sha256, run, spec.launch_id)
        return hmac.compare_digest(known.secret, shown.secret)
    return False


def required(credential: Credential | None) -> Credential:
    """What was shown; raises Unauthorized when it is no credential at all."""
    if credential is None:
        raise Unauthorized(
            "this request needs a credential", hint="send it as 'Authorization: Bearer ...'"
        )
    return credential


def _token_fits(run: Run, shown: Credential, slot: int, generation: int) -> bool:
    if shown.kind != "join" or not 0 <= slot < len(run.slots):
        return False
    if (shown.slot, shown.number) != (slot, generation):
        return False
    expected = run.slots[slot].tokens.get(generation)
    return shown.matches(expected or hashlib.sha256(b"").hexdigest())

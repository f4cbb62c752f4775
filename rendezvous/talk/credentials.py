"""Keys and credentials, all derived from one secret per launch.

The launcher makes one 256-bit secret. From it come, by HKDF-SHA-256 (RFC 5869) with one label per
use, the join token of each slot and generation, the read and admin credentials of the run, the row
key with which nodes sign their rows, and the probe key. The registry of a run that is not its own
gets only SHA-256 of the tokens.

A credential is text: its kind, what it is good for, and 256 secret bits, as `j.3.1.<secret>`. It is
looked up by its public part and compared in constant time, on bytes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import field
from typing import Literal

from rendezvous.frozen import frozen

SERVER_NAME = "rdzv.internal"
"""The one name in the registry's certificate, sent as SNI and Host whatever address is dialled."""


def hkdf(secret: bytes, label: str, length: int = 32) -> bytes:
    """HKDF-SHA-256 with an empty salt; `label` says what the key is for."""
    key = hmac.digest(b"", secret, "sha256")
    out, block = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.digest(key, block + label.encode() + bytes([counter]), "sha256")
        out += block
    return out[:length]


def new_secret() -> bytes:
    """256 random bits."""
    return secrets.token_bytes(32)


def base64url(data: bytes) -> str:
    """Without padding: one word, of letters, digits, - and _."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """The inverse of `base64url`; raises ValueError."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


CredentialKind = Literal[
    "join", "node", "read", "look", "logs", "admin", "registry", "metrics", "tenant"
]
_LETTERS: dict[str, CredentialKind] = {
    "j": "join",
    "n": "node",
    "r": "read",
    "l": "look",
    "o": "logs",
    "a": "admin",
    "g": "registry",
    "m": "metrics",
    "t": "tenant",
}
_LETTER_OF = {kind: letter for letter, kind in _LETTERS.items()}
_CREDENTIAL = re.compile(
    r"([rloagmt]|[jn]\.(0|[1-9][0-9]{0,6})\.(0|[1-9][0-9]{0,6}))"
    r"\.([A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])\Z"
)


@frozen
class Credential:
    """A parsed credential.

    `slot` and `number` (the generation of a join token, the incarnation of a node credential) are
    -1 where they do not apply.
    """

    kind: CredentialKind
    secret: bytes = field(repr=False)
    slot: int = -1
    number: int = -1

    def text(self) -> str:
        """The form that travels in the Authorization header."""
        parts = [_LETTER_OF[self.kind]]
        if self.slot >= 0:
            parts += [str(self.slot), str(self.number)]
        return ".".join([*parts, base64url(self.secret)])

    def sha256(self) -> str:
        """What may be stored of it: hex SHA-256 of the secret part."""
        return hashlib.sha256(self.secret).hexdigest()

    def matches(self, sha256: str) -> bool:
        """Compare with a stored hash in constant time."""
        return hmac.compare_digest(self.sha256().encode(), sha256.encode())


def parse_credential(text: str) -> Credential | None:
    """The credential in `text`, or None when it is not one; never raises.

    A credential has one text: `n.00.1.…` is none, and neither is one whose last character has other
    spare bits than zeros (RFC 4648, section 3.5).
    """
    if (found := _CREDENTIAL.match(text)) is None:
        return None
    what, slot, number, secret = found.groups()
    numbers = () if slot is None else (int(slot), int(number))
    return Credential(_LETTERS[what[0]], from_base64url(secret), *numbers)


@frozen
class RunKeys:
    """All that is derived from the secret of one launch of one run."""

    secret: bytes = field(repr=False)
    run: str
    launch_id: str

    def _derive(self, use: str) -> bytes:
        return hkdf(self.secret, f"{use}|{self.run}|{self.launch_id}")

    def join_token(self, slot: int, generation: int) -> Credential:
        """The token that lets one worker run fill its slot, and nothing else."""
        return Credential("join", self._derive(f"join|{slot}|{generation}"), slot, generation)

    @property
    def read(self) -> Credential:
        """May look at the run."""
        return Credential("read", self._derive("read"))

    @property
    def admin(self) -> Credential:
        """May look at the run, tell of its slots, and cancel it."""
        return Credential("admin", self._derive("admin"))

    @property
    def look(self) -> Credential:
        """May ask where the ranks are, and nothing else."""
        return look_credential(self.admin.sha256(), self.run, self.launch_id)

    @property
    def logs(self) -> Credential:
        """May read what the programs print, and nothing else."""
        return logs_credential(self.admin.sha256(), self.run, self.launch_id)

    @property
    def row_key(self) -> bytes:
        """Nodes sign their rows with it."""
        return self._derive("row")

    @property
    def probe_key(self) -> bytes:
        """Nodes prove who they are to each other with it."""
        return self._derive("probe")


def look_credential(admin_sha256: str, run: str, launch_id: str) -> Credential:
    """Lets its holder look at the program's state, source lines among it.

    Who has the admin credential can make it, and so can the registry, which does not have to be
    given anything for it: a registry of any age makes runs of which it is good for.
    """
    return Credential("look", hkdf(bytes.fromhex(admin_sha256), f"look|{run}|{launch_id}"))


def logs_credential(admin_sha256: str, run: str, launch_id: str) -> Credential:
    """Lets its holder read what the programs print: as `look_credential`, for the other thing that
    a program may show."""
    return Credential("logs", hkdf(bytes.fromhex(admin_sha256), f"logs|{run}|{launch_id}"))


def registry_credential(secret: bytes) -> Credential:
    """The credential of a registry's operator: may create runs and see them all."""
    return Credential("registry", hkdf(secret, "registry admin"))


def new_tenant_credential() -> Credential:
    """A credential of a tenant: it comes from nothing, so that another one can take its place."""
    return Credential("tenant", new_secret())


def metrics_credential(admin_sha256: str) -> Credential:
    """Lets its holder read what a registry measures of itself, and nothing else.

    It comes from the hash of the operator's credential: a registry knows no more of that, and needs
    to be given nothing for it. One machine stores it for years, in a file of Prometheus.
    """
    return Credential("metrics", hkdf(bytes.fromhex(admin_sha256), "metrics"))


def node_credential(
    registry_key: bytes, run: str, launch_id: str, slot: int, number: int
) -> Credential:
    """The credential of one incarnation: derived, so that a repeated join gets it again."""
    label = f"node|{run}|{launch_id}|{slot}|{number}"
    return Credential("node", hkdf(registry_key, label), slot, number)

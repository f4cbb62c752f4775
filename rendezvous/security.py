"""Keys, credentials and the join string: everything secret, derived from one secret per launch.

The launcher makes one 256-bit secret. From it come, by HKDF-SHA-256 (RFC 5869) with one label per
use, the join token of each slot and generation, the read and admin credentials of the run, the row
key with which nodes sign their rows, and the probe key. The registry of a run that is not its own
gets only SHA-256 of the tokens.

A credential is text: its kind, what it is good for, and 256 secret bits, as `j.3.1.<secret>`. It is
looked up by its public part and compared in constant time, on bytes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import secrets
import ssl
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from rendezvous.errors import UsageError
from rendezvous.frozen import frozen
from rendezvous.schema import (
    MOST_COMMAND_WORDS,
    JoinRequest,
    RunId,
    TableRow,
    canonical_json,
)

SERVER_NAME = "rdzv.internal"
"""The one name in the registry's certificate, sent as SNI and Host whatever address is dialled."""

_RUN_ID: TypeAdapter[str] = TypeAdapter(RunId)
_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME; the ssl module has no name for it
_JOIN_PREFIX = "rdzv1-"
_REGISTRY_PREFIX = "rdzvreg1-"
_TOKEN_PREFIX = "rdzvtok1-"  # noqa: S105 (a prefix)
_SECRET_WORD = re.compile(r"\brdzv(?:reg|tok)?1-[\w-]+", re.ASCII)


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


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _key(text: str) -> bytes:
    key = _unb64(text)
    if len(key) != 32:
        raise ValueError("a key has 256 bits")
    return key


def _whole(value: Any, most: int = 1_000_000) -> int:
    """A number of a packed word: JSON has 1.5 and Infinity as well."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("not a number that fits here")
    return value


CredentialKind = Literal["join", "node", "read", "admin", "registry"]
_LETTERS: dict[str, CredentialKind] = {
    "j": "join",
    "n": "node",
    "r": "read",
    "a": "admin",
    "g": "registry",
}
_LETTER_OF = {kind: letter for letter, kind in _LETTERS.items()}
_CREDENTIAL = re.compile(
    r"([rag]|[jn]\.(0|[1-9][0-9]{0,6})\.(0|[1-9][0-9]{0,6}))"
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
        return ".".join([*parts, _b64(self.secret)])

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
    return Credential(_LETTERS[what[0]], _unb64(secret), *numbers)


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
    def row_key(self) -> bytes:
        """Nodes sign their rows with it."""
        return self._derive("row")

    @property
    def probe_key(self) -> bytes:
        """Nodes prove who they are to each other with it."""
        return self._derive("probe")


def registry_credential(secret: bytes) -> Credential:
    """The credential of a registry's operator: may create runs and see them all."""
    return Credential("registry", hkdf(secret, "registry admin"))


def node_credential(
    registry_key: bytes, run: str, launch_id: str, slot: int, number: int
) -> Credential:
    """The credential of one incarnation: derived, so that a repeated join gets it again."""
    label = f"node|{run}|{launch_id}|{slot}|{number}"
    return Credential("node", hkdf(registry_key, label), slot, number)


def sign_join(join: JoinRequest, row_key: bytes, *, run: str, launch_id: str) -> JoinRequest:
    """The join, each candidate with the MAC of the row that it would become."""
    signed = []
    for one in join.candidates:
        mac = row_mac(join.row(one), row_key, run=run, launch_id=launch_id)
        signed.append(one.model_copy(update={"mac": mac}))
    return join.model_copy(update={"candidates": signed})


def row_mac(row: TableRow, row_key: bytes, *, run: str, launch_id: str) -> str:
    """The MAC with which a node signs its row."""
    return hmac.digest(row_key, row.signed_text(run, launch_id), "sha256").hex()


def row_is_genuine(row: TableRow, row_key: bytes, *, run: str, launch_id: str) -> bool:
    """Whether a node that holds the row key has signed this row."""
    expected = row_mac(row, row_key, run=run, launch_id=launch_id)
    return hmac.compare_digest(expected.encode(), row.mac.encode("utf-8", "replace"))


def word_macs(row_key: bytes, command: Sequence[str], *, run: str, launch_id: str) -> list[str]:
    """A COMMAND as nodes show it to the registry, which finds differences and reads no word.

    The registry does not hold the row key: it cannot guess a word, nor see that two are the same.

    Args:
        row_key: Of the run; see `RunKeys`.
        command: The words.
        run: The run's id.
        launch_id: The launch's.

    Returns:
        A MAC of each word at its place; behind the first `MOST_COMMAND_WORDS`, one of all the rest.
    """
    most = MOST_COMMAND_WORDS
    parts = [[word] for word in command[:most]]
    parts += [list(command[most:])] if len(command) > most else []
    texts = (canonical_json(["word", run, launch_id, n, *part]) for n, part in enumerate(parts))
    return [hmac.digest(row_key, text, "sha256").hex()[:16] for text in texts]


def command_mac(
    row_key: bytes, *, digest: str, sender: int, target: int, number: int, command: bytes
) -> str:
    """By what a node knows that a command comes from a node of its run, and was meant for it.

    The registry passes commands on and does not hold the row key: it can neither make nor change
    one, nor pass it on to another node, in another epoch, or a second time.

    Args:
        row_key: Of the run; see `RunKeys`.
        digest: Of the endpoint table.
        sender: The caller's slot.
        target: The slot that is to run it.
        number: Counts the commands of this caller for this target.
        command: What `sh -c` is given.
    """
    text = canonical_json(["command", digest, sender, target, number])
    return hmac.digest(row_key, text + b"\n" + command, "sha256").hex()


def is_command_mac(mac: str, row_key: bytes, **command: Any) -> bool:
    """Whether it is the `command_mac` of this command."""
    return hmac.compare_digest(command_mac(row_key, **command), mac)


def client_context(certificate: bytes) -> ssl.SSLContext:
    """A TLS 1.3 context that trusts exactly this certificate (DER) and nothing else.

    A plain SSLContext reads no default CAs and no SSLKEYLOGFILE. The trust lies in the bytes, so no
    date is looked at: a node whose clock stands at 1970 must be able to join.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= _NO_CHECK_TIME
    # Not as DER: how OpenSSL says that there is no more of it has changed (3.5.7, for one), and
    # CPython 3.11 takes that for a damaged certificate (NOT_ENOUGH_DATA).
    context.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(certificate))
    return context


Trust = Literal["plain", "certificate", "public_key"]


@frozen
class RegistryPlace:
    """Where a registry is, and how it proves itself.

    Attributes:
        addresses: Host names or IP literals, best first; all are dialled side by side.
        port: TCP port.
        trust: `plain` (loopback), `certificate` (DER) or `public_key` (SHA-256 of the SPKI).
        proof: The certificate or the pin; empty for `plain`.
    """

    addresses: tuple[str, ...]
    port: int
    trust: Trust = "plain"
    proof: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """The short form inside the join string."""
        return {"a": list(self.addresses), "p": self.port, "t": self.trust, "c": _b64(self.proof)}

    @staticmethod
    def from_json(value: dict[str, Any]) -> RegistryPlace:
        """The inverse of `to_json`; raises KeyError, TypeError or ValueError when it is not."""
        if value["t"] not in get_args(Trust):
            raise ValueError("no way to trust a registry that is known here")
        addresses = tuple(str(address) for address in value["a"])
        return RegistryPlace(addresses, _whole(value["p"], 65_535), value["t"], _unb64(value["c"]))


@frozen
class JoinString:
    """All that a worker needs to join its run; travels as `RDZV_JOIN`."""

    place: RegistryPlace
    run: str
    launch_id: str
    slot: int
    generation: int
    token: Credential
    row_key: bytes = field(repr=False)
    probe_key: bytes = field(repr=False)

    def text(self) -> str:
        """One word: it begins with a letter and has no character that YAML or a shell touches."""
        return _pack(
            _JOIN_PREFIX,
            {
                "w": self.place.to_json(),
                "r": self.run,
                "l": self.launch_id,
                "s": self.slot,
                "g": self.generation,
                "j": _b64(self.token.secret),
                "k": _b64(self.row_key),
                "q": _b64(self.probe_key),
            },
        )

    @staticmethod
    def parse(text: str) -> JoinString:
        """The inverse of `text`.

        Raises:
            UsageError: The text is no join string, or a part of it is missing.
        """
        value = _unpack(_JOIN_PREFIX, text, "RDZV_JOIN")
        with _complete("RDZV_JOIN"):
            slot, generation = _whole(value["s"]), _whole(value["g"])
            return JoinString(
                RegistryPlace.from_json(value["w"]),
                _RUN_ID.validate_python(value["r"]),
                str(value["l"]),
                slot,
                generation,
                Credential("join", _key(value["j"]), slot, generation),
                _key(value["k"]),
                _key(value["q"]),
            )


@frozen
class RegistryString:
    """Where a standing registry is, with its operator's credential; travels as `RDZV_REGISTRY`."""

    place: RegistryPlace
    credential: Credential

    def text(self) -> str:
        """One word, as `JoinString.text`."""
        return _pack(
            _REGISTRY_PREFIX, {"w": self.place.to_json(), "g": _b64(self.credential.secret)}
        )

    @staticmethod
    def parse(text: str) -> RegistryString:
        """The inverse of `text`; raises UsageError."""
        value = _unpack(_REGISTRY_PREFIX, text, "RDZV_REGISTRY")
        with _complete("RDZV_REGISTRY"):
            credential = Credential("registry", _key(value["g"]))
            return RegistryString(RegistryPlace.from_json(value["w"]), credential)


def group_token_text(secret: bytes) -> str:
    """The group secret of a symmetric start, as `rdzv token new` prints it."""
    return _pack(_TOKEN_PREFIX, {"s": _b64(secret)})


def parse_group_token(text: str) -> bytes:
    """The inverse of `group_token_text`; raises UsageError."""
    value = _unpack(_TOKEN_PREFIX, text, "RDZV_TOKEN")
    with _complete("RDZV_TOKEN"):
        return _key(value["s"])


def without_secrets(text: str) -> str:
    """The text of a stranger, who may repeat what was sent to him, without our secret words."""
    return _SECRET_WORD.sub("(hidden)", text)


@contextlib.contextmanager
def _complete(variable: str) -> Iterator[None]:
    """Say what a word with a good checksum and a missing or odd part is; never show the part."""
    try:
        yield
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            f"{variable} is whole, but a part of it is missing or not as this version writes it",
            hint="use the same version of rdzv on all nodes",
        ) from None


def _pack(prefix: str, value: dict[str, Any]) -> str:
    packed = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)
    return prefix + _b64(packed + zlib.crc32(packed).to_bytes(4, "big"))


def _unpack(prefix: str, text: str, variable: str) -> dict[str, Any]:
    """The object inside a packed word; a cut or changed word is named as such."""
    text = text.strip()
    if not text.startswith(prefix):
        raise UsageError(
            f"{variable} does not begin with '{prefix}' ({len(text)} characters)",
            hint=f"give the whole value in {variable}, or its file in {variable}_FILE",
        )
    try:
        data = _unb64(text[len(prefix) :])
        packed, check = data[:-4], data[-4:]
        if zlib.crc32(packed).to_bytes(4, "big") != check:
            raise ValueError("checksum")
        decoder = zlib.decompressobj()
        value = json.loads(decoder.decompress(packed, 1_000_000))
        if not isinstance(value, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError, RecursionError, zlib.error) as exc:
        raise UsageError(
            f"{variable} is damaged: {len(text)} characters, and its checksum does not fit",
            hint="it was probably cut or re-quoted on its way; pass it as a file "
            f"({variable}_FILE) where the variable cannot be passed whole",
        ) from exc
    return value

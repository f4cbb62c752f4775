"""The words that carry everything: RDZV_JOIN, RDZV_REGISTRY, RDZV_TOKEN and RDZV_VIEW.

Each is one word that begins with a letter and has no character that YAML or a shell touches: what
it is, and packed JSON with a checksum.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import zlib
from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, Literal, TypeVar, get_args

from rendezvous.frozen import frozen
from rendezvous.talk.credentials import Credential, RunKeys, base64url, from_base64url
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import UsageError
from rendezvous.wire.protocol import PROTOCOL, Speaker, other_protocol, same_rdzv
from rendezvous.wire.types import RunId, adapter_of
from rendezvous.wire.words import bracketed, few, printable

T = TypeVar("T")


@frozen
class Word:
    """How the value of one variable is written."""

    variable: str
    prefix: str

    def pack(self, value: dict[str, Any]) -> str:
        """The word."""
        packed = zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)
        return self.prefix + base64url(packed + zlib.crc32(packed).to_bytes(4, "big"))

    def read(self, text: str, make: Callable[[dict[str, Any]], T]) -> T:
        """What is made of the word's parts, of which none is ever shown; raises UsageError."""
        value = self.unpack(text)
        try:
            return make(value)
        except (KeyError, TypeError, ValueError):
            raise UsageError(
                f"{self.variable} is complete, but a part of it is missing or has a form that "
                "this version does not know",
                hint=same_rdzv(rdzv_version()),
            ) from None

    def unpack(self, text: str) -> dict[str, Any]:
        """The inverse of `pack`; raises UsageError for another word, or one that was cut."""
        text = text.strip()
        if not text.startswith(self.prefix):
            raise UsageError(
                f"{self.variable} does not begin with '{self.prefix}' ({len(text)} characters)",
                hint=f"give the whole value in {self.variable}, or its file in "
                f"{self.variable}_FILE",
            )
        try:
            data = from_base64url(text[len(self.prefix) :])
            packed, check = data[:-4], data[-4:]
            if zlib.crc32(packed).to_bytes(4, "big") != check:
                raise ValueError("checksum")
            decoder = zlib.decompressobj()
            value = json.loads(decoder.decompress(packed, 1_000_000))
            if not isinstance(value, dict):
                raise TypeError("not an object")
        except (ValueError, TypeError, RecursionError, zlib.error) as exc:
            raise UsageError(
                f"{self.variable} is damaged: {len(text)} characters, and its checksum does "
                "not match",
                hint="it was probably cut or quoted again on the way; pass it as a file "
                f"({self.variable}_FILE) where the variable cannot be passed whole",
            ) from exc
        return value


_JOIN = Word("RDZV_JOIN", "rdzv1-")
_REGISTRY = Word("RDZV_REGISTRY", "rdzvreg1-")
_TOKEN = Word("RDZV_TOKEN", "rdzvtok1-")
_VIEW = Word("RDZV_VIEW", "rdzvview1-")
_ANY_WORD = re.compile(
    rf"\b(?:{'|'.join(word.prefix for word in (_JOIN, _REGISTRY, _TOKEN, _VIEW))})[\w-]+", re.ASCII
)


def without_secrets(text: str) -> str:
    """The text of a stranger, who may repeat what was sent to him, without our secret words."""
    return _ANY_WORD.sub("(hidden)", text)


def _key(text: str) -> bytes:
    key = from_base64url(text)
    if len(key) != 32:
        raise ValueError("a key has 256 bits")
    return key


def _whole(value: Any, most: int = 1_000_000) -> int:
    """A number of a packed word: JSON has 1.5 and Infinity as well."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("not a number that fits here")
    return value


_WITH_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+)):([0-9]{1,5})\Z", re.ASCII)


def own_port(address: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT or [IPv6]:PORT; None for what has no port, as any IPv6 alone."""
    found = _WITH_PORT.match(address)
    if found is None or not 0 < int(found[3]) < 65_536:
        return None
    return found[1] or found[2], int(found[3])


def with_port(host: str, port: int) -> str:
    """The inverse of `own_port`."""
    return f"{bracketed(host)}:{port}"


def weight(run: str, replica: str) -> bytes:
    """How much a replica is the one for a run, in rendezvous hashing: the greatest has it."""
    return hashlib.sha256(f"{run}|{replica}".encode()).digest()


Trust = Literal["plain", "certificate", "public_key"]


@frozen
class RegistryPlace:
    """Where a registry is, and how it proves itself.

    Attributes:
        addresses: Host names or IP literals, best first, each with a port of its own or without.
        port: TCP port of those without.
        trust: `plain` (loopback), `certificate` (DER) or `public_key` (SHA-256 of the SPKI).
        proof: The certificate or the pin; empty for `plain`.
        replicas: The addresses are those of different replicas, one each, and are dialled one
            after another; else they are one machine's, and are dialled side by side.
    """

    addresses: tuple[str, ...]
    port: int
    trust: Trust = "plain"
    proof: bytes = b""
    replicas: bool = False

    def host_and_port(self, address: str) -> tuple[str, int]:
        """What to dial for an address of this place."""
        return own_port(address) or (address, self.port)

    def where(self) -> str:
        """In words: `port 29600 of a, b`, or `a:1, b:2` where the ports differ."""
        found = [self.host_and_port(address) for address in self.addresses]
        ports = {port for _, port in found} or {self.port}
        if len(ports) > 1:
            return few(with_port(*one) for one in found)
        return f"port {ports.pop()} of {few(host for host, _ in found)}"

    def ordered_for(self, run: str) -> RegistryPlace:
        """As the clients of this run dial it: replicas in the order of rendezvous hashing.

        The launcher and all nodes of a run meet at one replica, and the runs spread over all.
        """
        if not self.replicas:
            return self
        order = sorted(self.addresses, key=lambda one: weight(run, one), reverse=True)
        return replace(self, addresses=tuple(order))

    def to_json(self) -> dict[str, Any]:
        """The short form inside the join string."""
        proof = base64url(self.proof)
        value = {"a": list(self.addresses), "p": self.port, "t": self.trust, "c": proof}
        return value | {"m": True} if self.replicas else value

    @staticmethod
    def from_json(value: dict[str, Any]) -> RegistryPlace:
        """The inverse of `to_json`; raises KeyError, TypeError or ValueError when it is not."""
        if value["t"] not in get_args(Trust):
            raise ValueError("not a way of trusting a registry that this version knows")
        addresses = tuple(str(address) for address in value["a"])
        port, proof = _whole(value["p"], 65_535), from_base64url(value["c"])
        return RegistryPlace(addresses, port, value["t"], proof, value.get("m") is True)


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

    @staticmethod
    def of(keys: RunKeys, place: RegistryPlace, slot: int, generation: int = 1) -> JoinString:
        """For one slot of the run that has these keys."""
        return JoinString(
            place,
            keys.run,
            keys.launch_id,
            slot,
            generation,
            keys.join_token(slot, generation),
            keys.row_key,
            keys.probe_key,
        )

    def text(self) -> str:
        """One word."""
        return _JOIN.pack(
            {
                "n": PROTOCOL,
                "v": rdzv_version(),
                "w": self.place.to_json(),
                "r": self.run,
                "l": self.launch_id,
                "s": self.slot,
                "g": self.generation,
                "j": base64url(self.token.secret),
                "k": base64url(self.row_key),
                "q": base64url(self.probe_key),
            }
        )

    @staticmethod
    def parse(text: str) -> JoinString:
        """The inverse of `text`; raises UsageError.

        One of another protocol is taken where it can be read: the registry refuses the node then,
        and its run hears of it.
        """
        try:
            return _JOIN.read(text, JoinString._from_json)
        except UsageError:
            _refuse_other_protocol(text)
            raise

    @staticmethod
    def _from_json(value: dict[str, Any]) -> JoinString:
        if not isinstance(value["v"], str) or not _whole(value["n"]):
            raise ValueError("no protocol")
        slot, generation = _whole(value["s"]), _whole(value["g"])
        return JoinString(
            RegistryPlace.from_json(value["w"]),
            adapter_of(RunId).validate_python(value["r"]),
            str(value["l"]),
            slot,
            generation,
            Credential("join", _key(value["j"]), slot, generation),
            _key(value["k"]),
            _key(value["q"]),
        )


def _refuse_other_protocol(text: str) -> None:
    """Raise UsageError for a join string whose protocol is another one."""
    value = _JOIN.unpack(text)
    number, version = value.get("n"), printable(str(value.get("v", "")), 40)
    if type(number) is int and number != PROTOCOL:
        them = Speaker("the launcher that wrote RDZV_JOIN", number, version)
        us = Speaker(f"the rdzv of this node ({socket.gethostname()})", PROTOCOL, rdzv_version())
        error = other_protocol(them, us)
        raise UsageError(error.message, hint=same_rdzv(them.version))


@frozen
class RegistryString:
    """Where a standing registry is, with the credential of its operator or of one of its tenants;
    travels as `RDZV_REGISTRY`."""

    place: RegistryPlace
    credential: Credential

    def text(self) -> str:
        """One word, as `JoinString.text`."""
        key = "t" if self.credential.kind == "tenant" else "g"
        return _REGISTRY.pack({"w": self.place.to_json(), key: base64url(self.credential.secret)})

    @staticmethod
    def parse(text: str) -> RegistryString:
        """The inverse of `text`; raises UsageError."""
        return _REGISTRY.read(text, RegistryString._from_json)

    @staticmethod
    def _from_json(value: dict[str, Any]) -> RegistryString:
        is_tenant = "t" in value
        credential = Credential(
            "tenant" if is_tenant else "registry", _key(value["t" if is_tenant else "g"])
        )
        return RegistryString(RegistryPlace.from_json(value["w"]), credential)


@frozen
class ViewString:
    """What lets somebody elsewhere see a run and what it prints, and do nothing to it; travels as
    `RDZV_VIEW`."""

    place: RegistryPlace
    run: str
    launch_id: str
    read: Credential
    logs: Credential

    def text(self) -> str:
        """One word, as `JoinString.text`."""
        return _VIEW.pack(
            {
                "w": self.place.to_json(),
                "r": self.run,
                "l": self.launch_id,
                "s": base64url(self.read.secret),
                "o": base64url(self.logs.secret),
            }
        )

    @staticmethod
    def parse(text: str) -> ViewString:
        """The inverse of `text`; raises UsageError."""
        return _VIEW.read(text, ViewString._from_json)

    @staticmethod
    def _from_json(value: dict[str, Any]) -> ViewString:
        return ViewString(
            RegistryPlace.from_json(value["w"]),
            adapter_of(RunId).validate_python(value["r"]),
            str(value["l"]),
            Credential("read", _key(value["s"])),
            Credential("logs", _key(value["o"])),
        )


def group_token_text(secret: bytes) -> str:
    """The group secret of a symmetric start, as `rdzv token new` prints it."""
    return _TOKEN.pack({"s": base64url(secret)})


def parse_group_token(text: str) -> bytes:
    """The inverse of `group_token_text`; raises UsageError."""
    return _TOKEN.read(text, lambda value: _key(value["s"]))

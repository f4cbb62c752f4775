"""What nodes say to each other when they probe: packets of fixed size, signed. Pure.

Over TCP: hello -> reply, then 16 KiB there -> a receipt, and all of it back as it comes. Over UDP:
a hello, padded to the size that is tried, and a small reply. Whoever says hello proves that it
holds the run's probe key, and so does whoever answers; a reply is good for its own hello alone, by
the nonce in it. What proves nothing is not answered.
"""

from __future__ import annotations

import hmac
import re
import struct
from dataclasses import field
from typing import Literal, NamedTuple

from rendezvous.frozen import frozen

Kind = Literal["tcp", "udp"]

BULK_BYTES = 16_384
RECEIPT = b"received"
NONCE_BYTES = 16

_HELLO = struct.Struct("!8sII16s")  # magic, from slot, to slot, nonce
_REPLY = struct.Struct("!8s16sId64sI")  # magic, nonce, slot, clock, address seen, bytes seen
_MAC_BYTES = 32
_ADDRESS = re.compile(r"[0-9a-f.:]+")
_HELLO_MAGIC: dict[Kind, bytes] = {"tcp": b"rdzv-ht1", "udp": b"rdzv-hu1"}
_REPLY_MAGIC: dict[Kind, bytes] = {"tcp": b"rdzv-rt1", "udp": b"rdzv-ru1"}
_MOST_CLOCK_SECONDS = 4e9

HELLO_BYTES = _HELLO.size + _MAC_BYTES
REPLY_BYTES = _REPLY.size + _MAC_BYTES


@frozen
class Identity:
    """Who probes, or answers: a slot of one launch of one run."""

    key: bytes = field(repr=False)
    run: str
    launch_id: str
    slot: int


class Hello(NamedTuple):
    """A hello that a node of the run has said."""

    sender: int
    receiver: int
    nonce: bytes


class Reply(NamedTuple):
    """What a node of the run has answered.

    Attributes:
        nonce: Of the hello that it answers.
        slot: Who answers.
        clock: Its clock, in seconds since 1970.
        source: The address that the hello came from, as it was seen.
        size: The bytes of the hello that have arrived.
    """

    nonce: bytes
    slot: int
    clock: float
    source: str
    size: int


class Packets:
    """Writes and reads the packets of one node.

    Args:
        identity: Whose packets they are.
    """

    def __init__(self, identity: Identity) -> None:
        whose = f"{identity.run}\n{identity.launch_id}".encode()
        # Copied for each packet, which is cheaper than to begin with the key.
        self._hmac = hmac.new(hmac.digest(identity.key, whose, "sha256"), digestmod="sha256")
        self.slot = identity.slot

    def hello(self, kind: Kind, receiver: int, nonce: bytes) -> bytes:
        """What is sent to the node that is believed to be `receiver`."""
        return self._signed(_HELLO.pack(_HELLO_MAGIC[kind], self.slot, receiver, nonce))

    def read_hello(self, kind: Kind, data: bytes) -> Hello | None:
        """The hello at the beginning of `data`; None when no node of this run has made it."""
        text = self._proven(data[:HELLO_BYTES], HELLO_BYTES)
        if text is None:
            return None
        magic, sender, receiver, nonce = _HELLO.unpack(text)
        return Hello(sender, receiver, nonce) if magic == _HELLO_MAGIC[kind] else None

    def reply(self, kind: Kind, hello: Hello, *, clock: float, source: str, size: int) -> bytes:
        """The answer to a hello that came from the address `source`."""
        magic = _REPLY_MAGIC[kind]
        seen = source.encode("ascii", "replace")
        return self._signed(_REPLY.pack(magic, hello.nonce, self.slot, clock, seen, size))

    def read_reply(self, kind: Kind, data: bytes) -> Reply | None:
        """The reply in `data`; None when no node of this run has made it."""
        text = self._proven(data, REPLY_BYTES)
        if text is None:
            return None
        magic, nonce, slot, clock, source, size = _REPLY.unpack(text)
        if magic != _REPLY_MAGIC[kind] or not abs(clock) < _MOST_CLOCK_SECONDS:
            return None
        return Reply(nonce, slot, clock, _address(source), size)

    def _signed(self, text: bytes) -> bytes:
        return text + self._mac(text)

    def _proven(self, data: bytes, size: int) -> bytes | None:
        if len(data) != size:
            return None
        text, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        return text if hmac.compare_digest(self._mac(text), mac) else None

    def _mac(self, text: bytes) -> bytes:
        made = self._hmac.copy()
        made.update(text)
        return made.digest()


def _address(seen: bytes) -> str:
    """An address as the kernel of a peer has written it, without zone, IPv4 always as IPv4."""
    text = seen.rstrip(b"\0").decode("ascii", "replace").partition("%")[0]
    plain = text.removeprefix("::ffff:") if "." in text else text
    return plain if _ADDRESS.fullmatch(plain) else ""

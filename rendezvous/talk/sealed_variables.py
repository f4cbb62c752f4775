"""Secret variables on their way from the launcher to the nodes, through a registry that cannot read
them. Pure.

The keys come from the run's row key, which is in the join strings, and which no registry holds. The
scheme is encrypt-then-MAC, of the standard library alone, as nodes have no `cryptography`:

    ciphertext = text XOR SHAKE-256(key || nonce)        tag = HMAC-SHA-256(other key, all of it)

It is safe because SHAKE-256 behind a secret key of 256 bits is a pseudorandom function, a nonce of
256 random bits never comes twice, and nothing is decrypted before its tag was compared in constant
time. The tag covers the run and the launch as well, and the two keys are derived for them with a
label of their own: what was sealed for another launch, changed or cut is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping

from rendezvous.talk.credentials import hkdf
from rendezvous.wire.sealed import MOST_SEALED_BYTES

SLOT = "{slot}"
"""Stands for the number of a node's slot, in the values of which that is said."""

_VERSION = b"\x01"
NONCE, _TAG = 32, 32
_AROUND = len(_VERSION) + NONCE + _TAG


class NotSealedHere(ValueError):
    """Raised for what no launcher of this launch has sealed: changed, cut, or of another one."""


def pack(values: Mapping[str, str], by_slot: Collection[str] = ()) -> bytes:
    """The variables as they are sealed; `by_slot` names those in which `SLOT` is filled in."""
    parts = {
        name: value.split(SLOT) if name in by_slot else [value]
        for name, value in sorted(values.items())
    }
    return json.dumps(parts, separators=(",", ":")).encode()


def excess(values: Mapping[str, str], by_slot: Collection[str] = ()) -> int:
    """By how many bytes these are too many to be sealed; 0: they are not."""
    return max(0, len(pack(values, by_slot)) + _AROUND - MOST_SEALED_BYTES)


def seal(packed: bytes, row_key: bytes, nonce: bytes, *, run: str, launch_id: str) -> str:
    """What was packed, for the nodes of this launch alone; `nonce` is `NONCE` random bytes."""
    hides, proves = _keys(row_key, run, launch_id)
    body = _VERSION + nonce + _xor(packed, hides, nonce)
    return base64.b64encode(body + _tag(proves, body, run, launch_id)).decode()


def unseal(sealed: str, row_key: bytes, *, run: str, launch_id: str, slot: int) -> dict[str, str]:
    """The variables as the node of this slot has them; raises NotSealedHere."""
    try:
        whole = base64.b64decode(sealed, validate=True)
    except ValueError:
        raise NotSealedHere("not base64") from None
    if len(whole) < _AROUND or whole[:1] != _VERSION:
        raise NotSealedHere("not sealed in a form that this version knows")
    body, tag = whole[:-_TAG], whole[-_TAG:]
    hides, proves = _keys(row_key, run, launch_id)
    if not hmac.compare_digest(_tag(proves, body, run, launch_id), tag):
        raise NotSealedHere("not sealed by a launcher of this launch")
    nonce, ciphertext = body[1 : 1 + NONCE], body[1 + NONCE :]
    parts = json.loads(_xor(ciphertext, hides, nonce))
    return {name: str(slot).join(each) for name, each in parts.items()}


def _keys(row_key: bytes, run: str, launch_id: str) -> tuple[bytes, bytes]:
    """What hides and what proves."""
    both = hkdf(row_key, f"sealed variables|{run}|{launch_id}", 64)
    return both[:32], both[32:]


def _xor(text: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(key + nonce).digest(len(text))
    mixed = int.from_bytes(text, "big") ^ int.from_bytes(stream, "big")
    return mixed.to_bytes(len(text), "big")


def _tag(key: bytes, body: bytes, run: str, launch_id: str) -> bytes:
    return hmac.digest(key, f"{run}|{launch_id}|".encode() + body, "sha256")

"""What nodes prove to each other with their run's row key, which its registry does not hold."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rendezvous.wire.node import MOST_COMMAND_WORDS, Candidate, JoinRequest
from rendezvous.wire.table import TableRow, canonical_json


def sign_join(join: JoinRequest, row_key: bytes, *, run: str, launch_id: str) -> JoinRequest:
    """The join, each candidate with the MACs of the row that it would become."""

    def signed(one: Candidate) -> Candidate:
        row = join.row(one)
        mac = row_mac(row, row_key, run=run, launch_id=launch_id)
        newer = row_mac(row, row_key, run=run, launch_id=launch_id, generation=join.generation)
        return replace(one, mac=mac, generation_mac=newer)

    return replace(
        join,
        candidates=[*map(signed, join.candidates)],
        left_out=[*map(signed, join.left_out)],
    )


def row_mac(
    row: TableRow, row_key: bytes, *, run: str, launch_id: str, generation: int | None = None
) -> str:
    """The MAC with which a node signs its row, or (with one) its row in this generation."""
    return hmac.digest(row_key, row.signed_text(run, launch_id, generation), "sha256").hex()


def row_is_genuine(
    row: TableRow, row_key: bytes, *, run: str, launch_id: str, generation: int | None = None
) -> bool:
    """Whether a node that holds the row key has signed this row."""
    expected = row_mac(row, row_key, run=run, launch_id=launch_id, generation=generation)
    return hmac.compare_digest(expected.encode(), row.mac.encode("utf-8", "replace"))


def word_macs(row_key: bytes, command: Sequence[str], *, run: str, launch_id: str) -> list[str]:
    """A COMMAND as nodes show it to the registry, which finds differences and reads no word.

    The registry does not hold the row key: it cannot guess a word, nor see that two are the same.
    Each word has a MAC at its place; behind `MOST_COMMAND_WORDS`, all the rest have one.
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
        sender: The caller's slot; `target` is the one that is to run it.
        number: Counts the commands of this caller for this target.
        command: What `sh -c` is given.
    """
    text = canonical_json(["command", digest, sender, target, number])
    return hmac.digest(row_key, text + b"\n" + command, "sha256").hex()


def is_command_mac(mac: str, row_key: bytes, **command: Any) -> bool:
    """Whether it is the `command_mac` of this command."""
    return hmac.compare_digest(command_mac(row_key, **command), mac)

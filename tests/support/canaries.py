"""Looks for the secrets of a run in whatever was written, printed or shown.

A secret is searched for as it is and in every usual coat: hex, base64 in both alphabets and at each
of the three places that it can have inside a longer one, a bytes literal. Of each form its pieces
are searched for, so that a part of a secret is found as well.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rendezvous.talk.certificate import key_from_secret
from rendezvous.talk.credentials import RunKeys, hkdf, node_credential, registry_credential

PIECE = 16
"""Any part of a form with twice as many characters holds a whole piece."""


def forms(secret: bytes) -> Iterator[bytes]:
    """Every way in which somebody would write these bytes."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    yield repr(secret)[2:-1].encode()
    for before in range(3):
        # Characters that depend on the neighbours are left away.
        whole = base64.b64encode(b"\0" * before + secret)
        inner = whole[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))


@dataclass
class Canaries:
    """The secrets that are searched for, by their pieces."""

    pieces: dict[bytes, str] = field(default_factory=dict)

    def add(self, name: str, secret: bytes) -> None:
        """Look for these bytes."""
        for form in forms(secret):
            self._add_pieces(name, form)

    def add_text(self, name: str, text: str) -> None:
        """Look for this text, which is written in one way only."""
        self._add_pieces(name, text.encode())

    def _add_pieces(self, name: str, form: bytes) -> None:
        for at in range(0, len(form) - PIECE + 1, PIECE):
            self.pieces.setdefault(form[at : at + PIECE], name)

    def find(self, data: bytes) -> set[str]:
        """Which secrets, or parts of them, stand in the data."""
        return {name for piece, name in self.pieces.items() if piece in data}

    def find_in_files(self, folder: Path) -> dict[str, set[str]]:
        """Which files below a folder hold secrets, and which ones."""
        found = {}
        for path in files_below(folder):
            with contextlib.suppress(FileNotFoundError):
                if names := self.find(path.read_bytes()):
                    found[str(path.relative_to(folder))] = names
        return found

    def find_in_processes(self, pids: Iterable[int]) -> dict[str, set[str]]:
        """Which processes show secrets in their arguments, names or environments."""
        found: dict[str, set[str]] = {}
        for pid in pids:
            for name in ("cmdline", "environ", "comm", "status"):
                with contextlib.suppress(OSError):
                    data = Path(f"/proc/{pid}/{name}").read_bytes()
                    if names := self.find(data):
                        found[f"{pid} {name}: {command_of(pid)}"] = names
        return found


def files_below(folder: Path) -> Iterator[Path]:
    """Every regular file."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path


def command_of(pid: int) -> str:
    """A process's command line, for a message."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    return ""


def add_run(canaries: Canaries, secret: bytes, run: str, launch_id: str, slots: int) -> None:
    """All that is derived from the secret of a launch, three times over for each slot."""
    keys = RunKeys(secret, run, launch_id)
    canaries.add("launch secret", secret)
    canaries.add("row key", keys.row_key)
    canaries.add("probe key", keys.probe_key)
    canaries.add("read credential", keys.read.secret)
    canaries.add("admin credential", keys.admin.secret)
    canaries.add("registry credential", registry_credential(secret).secret)
    add_registry(canaries, secret)
    for slot, number in itertools.product(range(slots), (1, 2, 3)):
        canaries.add(f"join token {slot}.{number}", keys.join_token(slot, number).secret)
        made = node_credential(registry_key(secret), run, launch_id, slot, number)
        canaries.add(f"node credential {slot}.{number}", made.secret)


def registry_key(secret: bytes) -> bytes:
    """The key from which a registry derives its nodes' credentials."""
    return hkdf(secret, "registry key for node credentials")


def add_registry(canaries: Canaries, secret: bytes) -> None:
    """What only the registry has: its key, and its certificate's."""
    canaries.add("registry key", registry_key(secret))
    canaries.add("key of the certificate", hkdf(secret, "registry key", 48))
    key = key_from_secret(secret)
    canaries.add("number of the key", key.private_numbers().private_value.to_bytes(32, "big"))


def loose(folder: Path) -> list[str]:
    """Files and folders below that somebody else could read or change."""
    found = []
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_mode & 0o077 and not path.is_symlink():
                    found.append(f"{path.relative_to(folder)} {path.lstat().st_mode & 0o777:o}")
    return found

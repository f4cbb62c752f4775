"""How NCCL reads what it is told: its configuration files, and lists of interfaces. Pure.

Facts are those of NCCL 2.18 to 2.30.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from rendezvous.frozen import frozen
from rendezvous.wire.words import printable

NetworkKind = Literal["", "IB", "Socket", "Libfabric"]

_MOST_CHARACTERS = 1023
"""Of a name and of a value; NCCL cuts the rest off."""


@frozen
class Given:
    """A variable that the user has set, and where: empty for the environment, else a file."""

    value: str
    source: str = ""

    def __str__(self) -> str:
        words = printable(self.value, 200)
        return f"{words} ({self.source})" if self.source else words


def given_by(
    environ: Mapping[str, str], configured: Mapping[str, Given] | None = None
) -> dict[str, Given]:
    """What the user has set: the environment wins, then NCCL's configuration files."""
    return {**(configured or {}), **{name: Given(value) for name, value in environ.items()}}


def conf_values(text: str) -> dict[str, str]:
    """The variables of NCCL's that a configuration file sets; of a repeated one the first counts.

    As NCCL does it: a line is `NAME=VALUE` with nothing trimmed, and a comment begins with `#` in
    its first column.
    """
    found: dict[str, str] = {}
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and name.startswith("NCCL_"):
            found.setdefault(name[:_MOST_CHARACTERS], value[:_MOST_CHARACTERS])
    return found


def selects(words: str, name: str, *, exact: bool = False, port: int | None = None) -> bool:
    """Whether a list of interfaces, or of RDMA devices, takes `name` in.

    Args:
        words: `eth,ib0` (beginnings of names), `=eth0` (whole names), `^docker` (all but these);
            each may end in a `:PORT`.
        name: The interface's or device's.
        exact: Names are whole ones and signs mean nothing: Gloo and TensorPipe read it so.
        port: The device's port; interfaces have none, and their ports do not count.
    """
    if exact:
        return name in words.split(",")
    rest = words.removeprefix("^")
    whole = rest.startswith("=")
    found = False
    for entry in filter(None, rest.removeprefix("=").split(",")):
        word, *numbers = entry.split(":")  # port, and then rail and plane
        is_port = port is None or not numbers or numbers[0] in ("", str(port))
        found = found or (is_port and (name == word if whole else name.startswith(word)))
    return found != words.startswith("^")


@frozen
class GidWish:
    """Which GID of a RoCE port NCCL takes: the first of a family, or the one at an index."""

    family: Literal["IPv4", "IPv6"] = "IPv4"
    index: int | None = None

    def __str__(self) -> str:
        return f"{self.family} RoCE v2 GID" if self.index is None else f"GID at index {self.index}"


def gid_wish(given: Mapping[str, Given]) -> GidWish:
    """What the user's NCCL_IB_GID_INDEX and NCCL_IB_ADDR_FAMILY ask for."""
    family, index = given.get("NCCL_IB_ADDR_FAMILY"), given.get("NCCL_IB_GID_INDEX")
    return GidWish(
        family="IPv6" if family and family.value == "AF_INET6" else "IPv4",
        index=int(index.value) if index and index.value.isdecimal() else None,
    )


def network_kind(name: str) -> NetworkKind:
    """What stands behind the name of a network in NCCL's words: `Using network X`, NCCL_NET=X.

    Plugins have names of their own: IBext (HPC-X), gIB and UCX go over verbs, AWS Libfabric over
    EFA. Empty for one that is not known.
    """
    low = name.strip().lower()
    if low.startswith(("ib", "gib", "ucx")):
        return "IB"
    if "libfabric" in low or low.startswith("ofi"):
        return "Libfabric"
    return "Socket" if low in ("socket", "fastsocket") else ""


def is_true(value: str) -> bool:
    """Whether a number that switches something is not 0.

    Read as NCCL does, with C's `strtoll` and base 0: only what it begins with counts, a leading 0
    makes it octal, and what begins with no number is 0.
    """
    return re.match(r"\s*[+-]?([1-9]|0+[1-7]|0[xX]0*[1-9a-fA-F])", value) is not None

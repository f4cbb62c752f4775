"""How NCCL reads what it is told: its configuration files, and lists of interfaces. Pure.

Facts are those of NCCL 2.18 to 2.30.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rendezvous.schema import printable

NetworkKind = Literal["", "IB", "Socket", "Libfabric"]

_MOST_CHARACTERS = 1023
"""Of a name and of a value; NCCL cuts the rest off."""


@dataclass(frozen=True, slots=True)
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


def selects(words: str, name: str, *, exact: bool = False) -> bool:
    """Whether a list of interfaces takes `name` in.

    Args:
        words: `eth,ib0` (beginnings of names), `=eth0` (whole names), `^docker` (all but these).
        name: The interface's.
        exact: Names are whole ones and signs mean nothing: Gloo and TensorPipe read it so.
    """
    if exact:
        return name in words.split(",")
    rest = words.removeprefix("^")
    whole = rest.startswith("=")
    listed = [word.partition(":")[0] for word in rest.removeprefix("=").split(",") if word]
    found = name in listed if whole else any(name.startswith(word) for word in listed)
    return found != words.startswith("^")


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

"""Which protocol this rdzv speaks, and how a peer that speaks another one is refused. Pure.

Within a number messages only get more fields, which a peer that does not know them passes over.
Everything else, a field that is removed, renamed or needed among them, is another number, and peers
of two numbers do not talk: one sentence names both, and says what to do.

Never changes, so that peers of any two numbers understand a refusal: `HEADER`, `Greeting`, the
shape of an error (`Problem`) and that of a node's own refusal (`Refusal`).
"""

from __future__ import annotations

from pydantic import Field

from rendezvous.frozen import frozen
from rendezvous.wire.errors import OtherProtocol
from rendezvous.wire.types import Generation, ShortWords, SlotIndex, Wire
from rendezvous.wire.words import printable

PROTOCOL = 1
"""The one number: in each join, RDZV_JOIN and request. A journal has its own (`JOURNAL`): what a
reader passes over would be lost there."""
HEADER = "x-rdzv-protocol"
"""Of each request: the number, the version of rdzv, and who asks. Of the answer to a dial: the
number and the version."""
_MOST_SHOWN = 120


@frozen
class Speaker:
    """One of two peers.

    Attributes:
        name: As a sentence names it: `the launcher on h1`.
        protocol: None where it tells none.
        version: Of its rdzv; may be empty.
    """

    name: str
    protocol: int | None
    version: str

    def header(self) -> str:
        """The value of `HEADER`."""
        name = self.name.encode("ascii", "replace").decode()
        return printable(f"{self.protocol} {self.version or '?'} {name}", _MOST_SHOWN).rstrip()

    @staticmethod
    def from_header(value: str) -> Speaker:
        """The inverse, of whatever somebody has sent."""
        number, version, name, *_ = (*printable(value, _MOST_SHOWN).split(" ", 2), "", "", "")
        protocol = int(number) if number.isascii() and number.isdigit() else None
        return Speaker(name or "this client", protocol, version.strip("?"))

    def says(self) -> str:
        """`speaks protocol 2 (rdzv 0.9)`."""
        about = f"rdzv {self.version}" if self.version else "an unknown rdzv"
        number = "an unknown protocol" if self.protocol is None else f"protocol {self.protocol}"
        return f"speaks {number} ({about})"


class Greeting(Wire):
    """A join as far as that of every protocol is read."""

    class Facts(Wire):
        """Of its machine."""

        rdzv_version: ShortWords = ""

    protocol: int | None = None
    slot: SlotIndex
    generation: Generation
    hostname: ShortWords = ""
    facts: Facts = Field(Facts())

    @property
    def speaker(self) -> Speaker:
        """Who has sent it."""
        about = f" ({self.hostname})" if self.hostname else ""
        return Speaker(f"slot {self.slot}{about}", self.protocol, self.facts.rdzv_version)


def other_protocol(them: Speaker, us: Speaker) -> OtherProtocol:
    """The refusal of a peer that speaks another protocol than this rdzv, which is `us`."""
    return OtherProtocol(
        f"{them.name} {them.says()}, but {us.name} {us.says()}", hint=same_rdzv(us.version)
    )


def same_rdzv(version: str) -> str:
    """The way to get one protocol everywhere."""
    words = "install the same rdzv for the launcher, for all nodes and where you read its runs"
    return words if version in ("", "unknown") else f"{words}. Try: pip install rdzv=={version}"

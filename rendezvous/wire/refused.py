"""A node that asked to join a run and was refused, while the run goes on. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rendezvous.wire.types import ShortWords, Wire, Words

_Seconds = Annotated[float, Field(ge=0)]


def asker(slot: int | None, hostname: str, place: str) -> str:
    """What tells one that asks from another; a process that starts again is the same."""
    return f"{slot}|{hostname}|{place}"


class RefusedAsk(Wire):
    """Who asked for which slot, and why it does not get it."""

    slot: int | None = Field(None, description="Asked for; None: not one of this run.")
    hostname: ShortWords = Field("", description="As the node says; empty: not known.")
    address: ShortWords = Field("", description="The first one that it offers.")
    source: ShortWords = Field("", description="Where the request came from; empty: not known.")
    code: ShortWords = Field(description="The error's code, see `rendezvous.wire.errors`.")
    reason: Words = Field(
        min_length=1, description="A clause that names who asked, and why it is refused."
    )
    hint: Words = ""
    holder: ShortWords = Field("", description="Who has the slot; empty: no node.")
    stranger: bool = Field(False, description="It has shown no credential of this run.")
    times: Annotated[int, Field(ge=1)] = Field(
        1, description="How often it has asked; in an event: since the one before."
    )
    first_seconds: _Seconds = Field(0.0, description="Since it asked first.")
    last_seconds: _Seconds = Field(0.0, description="Since it asked last, as far as noted.")

    @property
    def who(self) -> str:
        """See `asker`."""
        return asker(self.slot, self.hostname, self.address or self.source)

    @property
    def words(self) -> str:
        """The clause, with how often it was asked."""
        return f"{self.reason}; asked {self.times} times" if self.times > 1 else self.reason

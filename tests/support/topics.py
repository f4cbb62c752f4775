"""A topic on which nodes are asked, of no feature."""

from __future__ import annotations

from rendezvous.channel import Asked
from rendezvous.feature import Lazy

WEATHER = Asked(
    name="weather",
    answer=Lazy("rendezvous.wire.question:Answer"),
    response=Lazy("rendezvous.wire.question:Answers"),
)

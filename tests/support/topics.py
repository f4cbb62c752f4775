"""The topics of the features, and one of no feature, on which nodes are asked."""

from __future__ import annotations

from rendezvous.feature import Asked, Lazy, Published, declared

TOPICS = [topic for feature in declared() for topic in feature.topics]
PUBLISHED = [topic for topic in TOPICS if isinstance(topic, Published)]
ASKED = [topic for topic in TOPICS if isinstance(topic, Asked)]

WEATHER = Asked(
    name="weather",
    answer=Lazy("rendezvous.wire.question:Answer"),
    response=Lazy("rendezvous.wire.question:Answers"),
)

"""The counters of a registry, for `/metrics`."""

from __future__ import annotations

from typing import Final

from rendezvous.feature import declared

COUNTERS: Final = {
    "joins": "Joins of nodes with a valid token.",
    "watches": "Watches of nodes: each node has one open at a time.",
    "views": "Requests to view what programs print.",
    "reports": "Reports of nodes, such as probes, acknowledgements and exits.",
    "last_words": "Parts of the last output of failed programs.",
    "events": "Events that were written to the journal.",
    "commits": "Commits of the journal.",
    "refusals": "Requests that were refused because of a run's state.",
    "takeovers": "Runs that were taken over from replicas that were gone.",
    "moves": "Runs that were given to another replica.",
    "fenced": "Runs that another replica had taken.",
    "journal_errors": "Heartbeats that the shared journal did not answer, and commits that failed.",
    **{topic.name: topic.counts for one in declared() for topic in one.topics if topic.counts},
}
"""The help of each of the service's counters."""

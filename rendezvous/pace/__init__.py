"""Who makes the others wait: a *straggler*, by when each rank has called its collectives.

- A rank is *late* by the time from when all others have made a call until it makes it too.
- That the others *wait* for it is shown by what they do next: it follows its call, not their own.
- A straggler is named twice in a row before anybody is told, and only if nobody made it late.
"""

from rendezvous.pace.judge import Straggler, judge
from rendezvous.pace.timeline import Timeline
from rendezvous.pace.watch import Ask, Found, Judge, PaceWatch, Who, asked, judged, step

__all__ = [
    "Ask",
    "Found",
    "Judge",
    "PaceWatch",
    "Straggler",
    "Timeline",
    "Who",
    "asked",
    "judge",
    "judged",
    "step",
]

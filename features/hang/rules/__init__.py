"""Where a run hangs, judged from what its nodes see of their ranks.

- A *look* is what every node has seen of its ranks at one moment: their process state, their main
  threads' stacks, and what their flight recorders hold.
- A rank *waits* when it has called a collective, a send or a receive that has not ended.
- A rank is *odd* when others wait for it, and it waits for none of them.
- Where two explanations fit, no rank is odd: a wrong name costs more than none.
"""

from features.hang.rules.judge import groups_of, look_at, stacks_of
from features.hang.rules.verdict import Rule, Source, Verdict

__all__ = [
    "Rule",
    "Source",
    "Verdict",
    "groups_of",
    "look_at",
    "stacks_of",
]

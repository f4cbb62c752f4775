"""What a program is told of the starts before it: which epoch it is of, and why the last one ended.

The same on every node, so that a launcher may take it from one to all. Pure.
"""

from __future__ import annotations

import os

from rendezvous.wire.run import RestartFacts
from worker.contracts.variables import Variable


def restart_variables(epoch: str, restarts: RestartFacts) -> list[Variable]:
    """What every program is given, also in a run without restarts.

    Args:
        epoch: Of the table.
        restarts: What the registry says of the epochs before it.
    """
    # As UTF-8, whatever the locale: a word that it lacks would keep the program from its start.
    failure = os.fsdecode(restarts.last_failure.encode())
    return [
        Variable("RDZV_EPOCH", epoch, "the table's number: each start has a higher one"),
        Variable("RDZV_RESTARTS", str(restarts.restarts), "the restarts so far"),
        Variable("RDZV_MAX_RESTARTS", str(restarts.max_restarts), "the most that there may be"),
        Variable("RDZV_REPLACEMENTS", str(restarts.replacements), "the nodes replaced so far"),
        Variable("RDZV_LAST_FAILURE", failure, "why the epoch before this one ended, if one did"),
    ]


def elastic_variables(restarts: RestartFacts) -> list[Variable]:
    """What torchrun would tell its processes, for those that rdzv starts in its place."""
    return [
        Variable("TORCHELASTIC_RESTART_COUNT", str(restarts.restarts), "as torchrun sets it"),
        Variable("TORCHELASTIC_MAX_RESTARTS", str(restarts.max_restarts), "as torchrun sets it"),
    ]

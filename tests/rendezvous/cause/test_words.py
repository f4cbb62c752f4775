"""Words of communication libraries and accelerators, each labelled with whose failure they show.

`tests/causes/words` was written from the sources of some eighty libraries, and from what they are
known to print, by who had seen no rule: `own`, `between` ranks, or of `others`. The label of a
single text is an opinion; the shares are what counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from rendezvous.cause.table import BY_ID, Kind
from tests.rendezvous.cause.corpus import CAUSES
from tests.rendezvous.cause.public import WAYS, Public
from tests.rendezvous.cause.verdicts import Expected, told_of

WORDS = CAUSES / "words"
FAILS = 2
"""The rank, of four on two nodes, that says them and ends; the others go on."""
MOST_OF_OTHERS = 0.13
"""Of those of others, so many may be told as this rank's own: most say nothing by which to know."""
LEAST_OF_ITSELF = 0.8
_ABORTS = ("terminate called", "F0", "F1", "F2", "[F")


def texts() -> Iterator[dict[str, Any]]:
    """All of them."""
    for path in sorted(WORDS.glob("*.jsonl")):
        yield from map(json.loads, path.read_text("utf-8").splitlines())


def blames(text: list[str]) -> bool:
    """Whether this rank is held to be the cause, where it alone has said anything."""
    aborts = any(line.startswith(_ABORTS) or "Aborted" in line for line in text)
    steps = [
        {"rank": rank, "at": 0.5, "stream": "stdout", "text": f"step 10 loss 3.{rank}\n"}
        for rank in range(4)
    ]
    said = {"rank": FAILS, "at": 2.0, "stream": "stderr", "text": "\n".join(text) + "\n"}
    end = {"signal": "SIGABRT"} if aborts else {"code": 1}
    table = {"nodes": 2, "each": 2, "said": [*steps, said]}
    ended = [{"rank": FAILS, "at": 2.2, **end}]
    told = told_of(Public("words", Expected(2, (FAILS,)), {**table, "ended": ended}).nodes(WAYS[0]))
    return told is not None and told.certain and BY_ID[told.row].kind is not Kind.OUTSIDE


@cache
def counts() -> Counter[tuple[str, bool]]:
    """How many of each label are told as this rank's own failure, and how many are not."""
    return Counter((one["of"], blames(one["text"])) for one in texts())


def share(of: str) -> float:
    """Of a label, how much is told as this rank's own."""
    return counts()[of, True] / (counts()[of, True] + counts()[of, False])


def test_there_are_many_of_each_label() -> None:
    labels = Counter(one["of"] for one in texts())
    assert labels.keys() == {"own", "between", "others"}
    assert min(labels.values()) >= 150


def test_what_others_have_done_is_seldom_told_as_a_ranks_own(
    record_property: Callable[[str, object], None],
) -> None:
    record_property("of others", f"{share('others'):.1%}")
    assert share("others") <= MOST_OF_OTHERS


def test_what_a_rank_has_failed_of_itself_is_mostly_told() -> None:
    assert share("own") >= LEAST_OF_ITSELF

"""What a node decides of values, for many that are drawn, is as in `decisions_courses.txt`.

Families of ranks and who of them failed, how programs are reported, what of their output is sent,
and what `rdzv bench` says of speeds. See `make reference`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from rendezvous.cause.clues import Line
from rendezvous.wire.evidence import Fact
from rendezvous.wire.log_view import ViewOrder
from tests.support.courses import lines_in, text_of
from tests.worker.agent.test_doors_courses import FIRST, JOIN, SECOND
from tests.worker.skewed import SLOT
from tests.worker.told import Told
from worker.agent import last_words, viewing
from worker.agent.evidence import evidence_of, has_failed, named_in, own_tail, pids_of
from worker.agent.inputs import OwnWords
from worker.agent.last_words import Printed, last_lines, whole_text
from worker.agent.reports import exit_report, served_report, signal_report, with_trouble
from worker.agent.state import Place, ProgramState, SignalTold
from worker.agent.table import problem_of
from worker.agent.viewing import Backlog, place_in, ranks_shown
from worker.program.ending import Ending
from worker.program.family import (
    Child,
    Failure,
    Family,
    Ranks,
    certain_failure,
    ended_well_at,
    failed_rank,
    late_to_end,
    likely_cause,
    pids_by_local_rank,
    ranks_in,
    ranks_of,
)
from worker.programs.bandwidth import judge, pair_of, rounds_of, second_pass, suspect

KNOWN = Path(__file__).with_name("decisions_courses.txt")


def _family(draw: random.Random) -> Family:
    """Up to five children; of some the ranks, the end or the code is not known."""
    children = []
    siblings = draw.randrange(2, 5)
    for number in range(draw.randrange(1, 6)):
        local = draw.randrange(siblings)
        own = Ranks(8 + local, local, draw.choice((siblings, siblings, 0)))
        ended = draw.choice((None, 21.0, 21.5, 22.0, 35.0))
        children.append(
            Child(
                300 + number,
                draw.choice((1.0, 1.0, 1.5, 4.0)),
                draw.choice((10.0, 21.2)),
                own if draw.random() < 0.75 else None,
                ended,
                None if ended is None else draw.choice((0, 0, 1, 3, 143, 137, None)),
                draw.choice(("", "", "T", "D")) if ended is None else "",
            )
        )
    return Family(draw.choice((None, Ranks(8, 0, siblings))), tuple(children))


def _shown(family: Family) -> str:
    own = family.own and family.own.pair
    words = []
    for one in family.children:
        ranks = "-" if one.ranks is None else f"{one.ranks.rank}/{one.ranks.siblings}"
        end = "" if one.ended_at is None else f" {one.ended_at}={one.exit_code}"
        words.append(f"{one.pid} {one.started} {one.seen_at} {ranks}{one.state}{end}")
    return f"{own}: {', '.join(words)}"


def _who(found: Failure | None) -> str:
    return "-" if found is None else f"{found.pid} {found.rank} {found.exit_code}"


def who_failed_first() -> Told:
    """Of families at some moments: for certain, as a warning, as a guess, and who is late."""
    told, draw = Told(), random.Random(7)
    for _ in range(160):
        family = _family(draw)
        told.of(
            _shown(family),
            " | ".join(
                (
                    _who(certain_failure(family, ends_all=True)),
                    _who(failed_rank(family)),
                    _who(likely_cause(family)),
                    f"well {ended_well_at(family)} late {late_to_end(family, 31.5)}",
                    f"{[one.pid for one in ranks_of(family)]} {pids_of(family)}",
                    f"{has_failed(family)} {pids_by_local_rank(family, 70, 3)}",
                )
            ),
        )
    told.of("never", certain_failure(family, ends_all=False))
    for main, count in ((70, 1), (None, 1), (70, 2)):
        told.of(f"alone {main} {count}", pids_by_local_rank(Family(), main, count))
    for words in ("8 0 4", "8 0 -", "8 - 4", "x 0 4", "- 0 4", "8 0 x"):
        rank, local, size = (None if word == "-" else word for word in words.split())
        named = {"RANK": rank, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": size}
        told.of(words, ranks_in({name: value for name, value in named.items() if value}))
    return told


def how_an_end_is_reported() -> Told:
    """Programs that failed, were stopped before or after, signalled, fenced; words of ranks."""
    told, draw = Told(), random.Random(13)
    lines = (
        *(Line("RuntimeError: CUDA error: out of memory", 9, 20.5), Line("plain\ttext ", 9, 20.75)),
        *(Line("OSError: [Errno 28] No space left on device", 8, 22.5), Line("node", None, None)),
    )
    facts = (Fact(kind="space", path="/data"), Fact(kind="state", rank=9, words="D"))
    for _ in range(120):
        family = _family(draw)
        ended = draw.choice((20.0, 22.0, 36.0))
        code = draw.choice((0, 1, 137, 143))
        first = draw.choice((None, None, failed_rank(family), likely_cause(family)))
        ending = Ending(code, ended, first, None, draw.choice((0, 0, 9)), draw.random() < 0.3)
        program = ProgramState(
            7,
            4,
            started_at=draw.choice((None, 3.0, 21.0)),
            family=family,
            stop_at=draw.choice((None, 19.0, 21.25)),
            fenced=draw.random() < 0.3,
            left_behind=draw.random() < 0.3,
        )
        given = draw.choice((lines, lines[:1], lines[3:], ()))
        words = OwnWords(
            ("last", "lines"), draw.choice((None, 9)), "/log", draw.choice((None, 11)), given,
            draw.choice(((), facts)),
        )  # fmt: skip
        signal = draw.choice((None, None, SignalTold(15, 19.5), SignalTold(2, 21.5)))
        report, since = exit_report(program, ending, words, signal)
        told.of(
            f"{_shown(family)} | {ended} {code} {_who(first)} {ending.keeper_signal} "
            f"{ending.was_told} | {program.started_at} {program.stop_at} {program.left_behind} | "
            f"{len(given)} {signal}",
            report,
            since,
        )
        served, at = served_report(program, signal)
        told.of("serves", served, at)
        found = evidence_of(program, words, 20.0, ended_well=draw.random() < 0.2)
        told.of("evidence", found, own_tail(words, 8), own_tail(words, 9))
    told.of("trouble", *(with_trouble(report, words).message for words in ("", "a cable")))
    told.of("signal", signal_report(6, 12))
    texts = (
        *("OSError: '/data/x' and \"/b\"", "E0102 03:04:05.6 7 a.cc:98] ok", "port 29500 is taken"),
        *("EADDRINUSE: ('10.0.0.1', 29501) port=70000", "Failed to add port to server: [::]:8080"),
        "[Errno 98] address already in use: port 29502",
    )
    return told.of("named", *named_in([Line(text, 8, 1.0) for text in texts]))


def what_is_sent_of_output() -> Told:
    """Backlogs of little room, last words in pieces, and which ranks a view shows."""
    told, draw = Told(), random.Random(17)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MAX_PARTS", 6), ("MAX_POST_LINES", 5), ("POST_BYTES", 60)):
            patch.setattr(viewing, name, value)
        for _ in range(12):
            held = Backlog()
            for _ in range(draw.randrange(2, 12)):
                rank, most = draw.choice((None, 10, 11, 12)), draw.choice((None, 25, 40))
                lines = [f"{rank}" * draw.choice((1, 6, 20)) for _ in range(draw.randrange(4))]
                held.add(rank, lines, most=most)
                if draw.random() < 0.3:
                    held.skip(rank, draw.randrange(3))
                told.of(f"{rank} {most} {[len(one) for one in lines]}", held.letters, bool(held))
                if draw.random() < 0.4:
                    told.of("takes", *held.take())
            while held:
                told.of("takes the rest", held.letters, *held.take())
        for name, value in (("PIECE_BYTES", 40), ("MOST_TEXTS", 2), ("MOST_PIECES", 3)):
            patch.setattr(last_words, name, value)
        patch.setattr(last_words, "LAST_LINES", 3)
        patch.setattr(last_words, "_WIDTH", 12)
        for _ in range(10):
            printed = Printed(1, {
                rank: [draw.choice(("", " ", "a\tb ", "word", "x" * 25, "\x1b[31mred\x1b[0m", "é"))
                       for _ in range(draw.randrange(7))]
                for rank in draw.sample((None, 10, 11, 12, 13), 3)
            })  # fmt: skip
            told.of(
                f"{dict(printed.lines)!r}",
                *last_lines(4, printed),
                *whole_text(4, printed, 11),
                *whole_text(4, printed, None),
            )
    places = [Place(4, 1, range(8, 13)), Place(6, 2, range(10, 15)), Place(9, 0, range(5))]
    for epoch in (None, 1, 4, 5, 6, 8, 9, 12):
        told.of(f"in {epoch}", place_in(places, epoch).epoch)
    asked: tuple[dict[str, Any], ...] = ({}, {"rank": 10}, {"rank": 13}, {"node": 1})
    for given in (*asked, {"node": 2, "rank": 10}):
        told.of(f"{given}", ranks_shown(ViewOrder(view=1, **given), 1, range(8, 13)))
    return told


def which_tables_are_refused() -> Told:
    """After another one, of other sizes and masters, of nodes that are twice there or strangers."""
    told = Told()
    rows = FIRST.rows
    own = FIRST.row_of_slot(SLOT)
    assert own is not None
    changes: dict[str, Any] = {
        "well": {},
        "another master": {"master_address": rows[1].address},
        "no port": {"master_port": 0},
        "the last port": {"master_port": 65_535},
        "too high a port": {"master_port": 65_536},
        "two": {"rows": rows[:2]},
        "without this node": {"rows": [rows[0], rows[2]]},
        "in another order": {"rows": [rows[1], rows[0], rows[2]]},
        "twice": {"rows": [*rows, rows[1]]},
        "of another run": {"run": "other"},
        "generations": {"generations": [1, 1, 1]},
        "one generation": {"generations": [1]},
        "epoch": {"epoch": 5},
    }
    for what, values in changes.items():
        given = FIRST.model_copy(update=values)
        for nnodes, former in ((None, None), ("3", FIRST), ("2:4", SECOND), ("4", None)):
            found = [
                problem_of(
                    given,
                    JOIN,
                    offered=offered,
                    nnodes=nnodes,
                    former=former,
                    of_generations=generations,
                )
                for offered in (frozenset([own.mac]), frozenset(["x"]))
                for generations in (False, True)
            ]
            told.of(f"{what} {nnodes} {former and former.epoch}", *dict.fromkeys(found))
    return told


def what_speeds_say() -> Told:
    """Of up to six nodes with slow pairs, slow nodes, and where too few are good."""
    told, draw = Told(), random.Random(19)
    for number in range(60):
        count = 2 + number % 5
        slow = set(draw.sample(range(count), draw.choice((0, 0, 1, min(2, count), min(3, count)))))
        pairs = {}
        for pair in combinations(range(count), 2):
            is_slow = {*pair} & slow or draw.random() < 0.08
            pairs[pair] = round(draw.uniform(1, 3) if is_slow else draw.uniform(90, 120), 1)
        found = suspect(pairs, 0.5)
        again = second_pass(found, pairs)
        faster = {pair: pairs[pair] * draw.choice((1, 1, 40)) for pair in again}
        verdict = judge([f"h{n}" for n in range(count)], pairs, faster, 0.5)
        told.of(f"{pairs}", f"{found} {found.is_split}", f"{again} {faster}", verdict)
    told.of("rounds", *(rounds_of(range(count)) for count in (1, 2, 3, 4, 5)))
    return told.of("pair", pair_of(3, 1), pair_of(1, 3))


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: one
    for one in (
        *(who_failed_first, how_an_end_is_reported),
        *(what_is_sent_of_output, which_tables_are_refused, what_speeds_say),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_decided(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

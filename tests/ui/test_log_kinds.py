"""The kinds of lines: levels, and a launcher's noise, as real ones have printed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.show.log_lines import LogLine
from launcher.ui.log_kinds import KindLine, LauncherKinds, Together, kind_of

OUTPUTS = Path(__file__).parents[1] / "worker" / "launcher_outputs"
PRINTED = (OUTPUTS / "torchrun-stopped.txt").read_text("utf-8").splitlines()


def kinds(printed: list[str], *, stopped: bool = False, traceback: bool = False) -> list[KindLine]:
    made = LauncherKinds(lambda: stopped, lambda rank: traceback)
    found = [one for number, text in enumerate(printed) for one in made.take(LogLine(text, number))]
    found += made.end()
    assert [one.line for one in found] == [LogLine(text, n) for n, text in enumerate(printed)]
    return found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("step 3", "-"),
        ("UserWarning: x", "w"),
        ("E0101 12:00", "e"),
        ("Traceback (most recent call last):", "e"),
    ],
)
def test_a_line_is_of_the_level_that_its_words_show(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_what_a_stopped_launcher_prints_is_noise_and_all_lines_come_in_their_order() -> None:
    assert {one.kind for one in kinds(PRINTED, stopped=True)} == {"n"}


def test_without_a_stop_the_banner_alone_is_noise_and_an_error_is_one() -> None:
    found = "".join(one.kind for one in kinds(PRINTED))
    assert found.startswith("nnnn")
    assert "n" not in found[4:]
    assert "e" in found


def test_what_is_no_launcher_s_is_of_its_level_also_among_noise() -> None:
    found = kinds([*PRINTED[:4], "", "step 1", "ERROR: no data", "after", ""], stopped=True)
    assert "".join(one.kind for one in found) == "nnnn--e--"


def test_a_line_is_held_until_it_is_known_what_it_is_or_nothing_comes() -> None:
    stopped = False
    made = LauncherKinds(lambda: stopped, lambda rank: False)
    record = LogLine(PRINTED[4])
    assert made.take(record) == []
    assert [one.line for one in made.idle()] in ([], [record])
    assert made.take(LogLine("step")) != []
    held = [LogLine(PRINTED[4]), LogLine("E0101 12:00:00.0 7 torch/distributed/x.py:1] oh")]
    assert [made.take(one) for one in held] == [[], []]
    stopped = True
    assert [one.kind for one in made.idle()] == ["n", "n"]
    assert made.idle() == made.end() == []


def test_a_traceback_and_what_is_indented_have_one_time() -> None:
    together = Together()
    texts = (
        *(
            "step",
            "Traceback (most recent call last):",
            '  File "x.py"',
            "    f()",
            "ValueError: x",
        ),
        *("after", "\tindented", "Traceback (most recent call last):", "KeyError: 1", "last"),
    )
    found = [together.line(LogLine(text, float(at))).at for at, text in enumerate(texts)]
    assert found == [0, 1, 1, 1, 1, 5, 5, 7, 7, 9]
    assert Together().line(LogLine(" first", 3.0)) == LogLine(" first", 3.0)
    assert Together().line(LogLine(" first")) == LogLine(" first")

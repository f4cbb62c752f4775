"""What a terminal shows: colours, lines that are folded between words, and pages of the manual."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

import pytest

from launcher.show.pages import page_lines
from launcher.terminal import fold, fold_lines, shows_colours, width_of
from worker.program.terminal import can_redraw

PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))


@pytest.mark.parametrize(
    ("environ", "colours", "redraws"),
    [
        ({}, True, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),  # as no-color.org has it
        ({"TERM": "xterm", "NO_COLOR": "0"}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({"TERM": "unknown"}, False, False),
    ],
)
def test_the_environment_says_what_a_terminal_can_show(
    environ: dict[str, str], colours: bool, redraws: bool
) -> None:
    assert (shows_colours(environ), can_redraw(environ)) == (colours, redraws)


def test_only_a_terminal_has_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert width_of(None) is None
    assert width_of(io.StringIO()) is None
    ours, its = os.openpty()
    with open(its, "w") as terminal:
        assert width_of(terminal) == 80  # it does not tell
        monkeypatch.setenv("COLUMNS", "61")
        assert width_of(terminal) == 61
        assert width_of(io.StringIO()) is None
    os.close(ours)


@pytest.mark.parametrize(
    ("line", "width", "at", "parts"),
    [
        ("name  some words", None, 6, ["name  some words"]),
        ("name  some words", 16, 6, ["name  some words"]),
        ("some words that fit no more", 16, 0, ["some words that", "fit no more"]),
        (
            "slurm        one sbatch job for each worker run",
            40,
            13,
            ["slurm        one sbatch job for each", "             worker run"],
        ),
        ("see /a/path/longer/than/that now", 16, 0, ["see", "/a/path/longer/than/that", "now"]),
        # Too little room below the words, or too little for the longest of them.
        ("name         some words and more", 20, 13, ["name         some", "    words and more"]),
        ("a  --a-very-long-option", 20, 3, ["a", "   --a-very-long-option"]),
        (
            "name           /a/path/that/is/too/long/to/be/folded here",
            40,
            15,
            ["name", "    /a/path/that/is/too/long/to/be/folded", "    here"],
        ),
        # What stands below a label begins where its first line would go on.
        (
            " " * 20 + "fix: one and another and one",
            30,
            20,
            ["    fix: one and another and", "    one"],
        ),
    ],
)
def test_a_line_is_folded_between_words_and_goes_on_below_them(
    line: str, width: int | None, at: int, parts: list[str]
) -> None:
    assert fold(line, width, at) == parts


def test_each_line_of_a_text_is_folded() -> None:
    text = "rdzv: something has failed here\n      try another thing"
    folded = "rdzv: something has failed\n      here\n      try another thing"
    assert fold_lines(text, 30, 6) == folded


PAGE = """\
# A title that is longer than the terminal

A paragraph of two lines, of which the first
is folded anew.
- an item that is too long for its line, with
  a second line
- short

<!-- run -->
```console
$ a command that is copied, and so stays whole

$ another

```

| option | what it does |
| --- | --- |
| `--one` | something that has many words |
| `a\\|b` | |

| a | b |
| --- | --- |
| 1 | 2 |

    code that stays too, however long it is
"""
NARROW = """\
# A title that is longer than
the terminal

A paragraph of two lines, of
which the first is folded
anew.
- an item that is too long for
  its line, with a second line
- short

<!-- run -->
```console
$ a command that is copied, and so stays whole

$ another

```

- option: `--one`
  what it does: something that
    has many words
- option: `a\\|b`

| a | b |
| --- | --- |
| 1 | 2 |

    code that stays too, however long it is
"""


def test_a_page_is_folded_but_for_code_and_a_wide_table_becomes_a_list() -> None:
    assert "\n".join(page_lines(PAGE, 30)) + "\n" == NARROW


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_every_page_fits_a_narrow_terminal_and_is_itself_in_a_pipe(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "".join(f"{line}\n" for line in page_lines(text, None)) == text
    lines = list(page_lines(text, 60))
    prose = re.sub(
        r"^(```.*?^```| {4}[^\n]*)$", "", "\n".join(lines), flags=re.DOTALL | re.MULTILINE
    )
    wide = [line for line in prose.splitlines() if len(line) > 60]
    assert [line for line in wide if len(line.split()) > 2] == []  # one word, maybe after a dash
    without = [re.sub(r"[|\s:-]+", " ", part).split() for part in (text, "\n".join(lines))]
    assert set(without[0]) <= set(without[1])

"""What becomes of a program's output, piece by piece, is as in `output_courses.txt`.

Launchers' lines as they are, one of them missing or another, stopped before, amid or never; streams
of several ranks, bars that overwrite themselves, long logs that begin anew, and who reads them. See
`make reference`.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.courses import lines_in, one_line, text_of
from tests.worker.told import Told
from worker.program import (
    launcher_lines,
    log_file,
    log_index,
    log_reader,
    output,
    rank_logs,
    rank_streams,
    rank_words,
    terminal_rows,
)
from worker.program.fold import Fold
from worker.program.launcher_lines import LauncherLines
from worker.program.log_file import first_part, older_part
from worker.program.log_index import IndexedLog, index_of, offset_at
from worker.program.log_reader import LogReader
from worker.program.output import LAUNCHER, OutputSink, Tail
from worker.program.prefixed import PrefixedOutput
from worker.program.rank_logs import RankLogs, RankPlace
from worker.program.rank_streams import RankLines
from worker.program.rank_words import RankWords
from worker.program.terminal_rows import TerminalRows, cut_to
from worker.program.wanted import Wanted, looks_like, shown_line

KNOWN = Path(__file__).with_name("output_courses.txt")
OUTPUTS = Path(__file__).with_name("launcher_outputs")
NAMES = sorted(path.stem for path in OUTPUTS.glob("*.txt"))
HEAD = "W1127 16:31:57.048000 14317 torch/distributed/elastic/multiprocessing/api.py:1028]"

THREADS = "Setting OMP_NUM_THREADS environment variable for each process to be 7 in default, x"


class Bytes(Told):
    """Whose lines show bytes, and what has some in it, as they are written in Python."""

    def of(self, what: str, *found: object, **named: object) -> Told:
        """See the base class."""
        plain = (str, int, float, type(None))
        return super().of(what, *(e if isinstance(e, plain) else repr(e) for e in found), **named)


class Clock:
    """In place of `time`: it is moved by hand."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def time(self) -> float:
        """Seconds."""
        return self.now


def _printed(name: str) -> list[str]:
    return (OUTPUTS / f"{name}.txt").read_text("utf-8").splitlines()


def _spans(numbers: list[int]) -> str:
    """Numbers that follow each other as `3-7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return " ".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else str(one[0]) for one in found)


def _read(told: Told, what: str, given: list[str], steps: str, ranks: tuple[int, ...]) -> None:
    """Which of the lines are shown at which; `steps`: what is done at the line of its place."""
    made = LauncherLines(ranks.__contains__)
    numbers: dict[str, list[int]] = {}
    for number, line in enumerate(given):
        numbers.setdefault(line, []).append(number)

    def shown(lines: list[str]) -> str:
        return _spans([numbers[line].pop(0) if numbers.get(line) else -1 for line in lines])

    done: list[str] = []
    before = False
    for number, line in enumerate(given):
        step = steps[number % len(steps)] if steps else "."
        made.is_stopped |= step == "s"
        found = shown(made.take(line))
        found += "+" + shown(made.idle()) if step == "i" else ""
        if found.strip("+") and found != str(number):
            done.append(f"{number}: {found}")
        now = made.is_behind
        if now != before:
            done.append(f"{number}: behind {now}")
        before = now
    done.append(f"end: {shown(made.end())}")
    folded = ", ".join(f"{count} {why.value}" for why, count in made.folded.items() if count)
    told.lines.append(one_line(f"* {what} | {' | '.join(done)} | {folded}"))


def what_launchers_print() -> Told:
    """Of each launcher: never stopped, from the start, at any of several lines; with silences."""
    told = Told()
    for name in NAMES:
        given = _printed(name)
        for what, steps in (
            ("whole", ""),
            ("stopped", "s"),
            ("with silences", "...i"),
            ("silent", "i"),
            *((f"stopped at {n}", "." * n + "s" + "." * 200) for n in (3, 5, 6, 17, 30)),
            ("stopped and silent", "." * 9 + "s" + "..i" * 50),
        ):
            for ranks in ((), (0,), (1,), (1, 0)):
                if not ranks or "failed" in name:
                    _read(told, f"{name} {what} {ranks}", given, steps, ranks)
    return told


def what_no_launcher_prints() -> Told:
    """Each of their lines missing, or in place of another; and some that look like them."""
    told = Told()
    for name in NAMES:
        given = _printed(name)
        for number in range(len(given)):
            without = given[:number] + given[number + 1 :]
            _read(told, f"{name} without {number}", without, "", (0, 1))
            other = [*given[:number], "other", *given[number + 1 :]]
            _read(told, f"{name} stopped, other {number}", other, "s", (0, 1))
    stars, record = "*" * 41, HEAD.replace("elastic/multiprocessing/api", "run")
    threads = THREADS
    old = "[2026-01-02 03:04:05,678] torch.distributed.run: [WARNING]"
    trace = [
        "Traceback (most recent call last):",
        '  File "/opt/bin/torchrun", line 8, in <module>',
    ]
    ends = [f"{word}: gone" for word in sorted(launcher_lines._ENDS)]
    barrier = f"{HEAD} Error waiting on exit barrier. Elapsed: 300.1"
    cases: dict[str, list[str]] = {
        "banner": ["", stars, threads, stars, "x"],
        "banner twice": ["", stars, threads, stars, "", stars, threads.replace("7", "9"), stars],
        "banner of records": [f"{record} {text}" for text in ("", stars, threads, stars)],
        "old banner": [f"{old} {text}" for text in ("", stars, threads, stars)],
        "another file": [f"{HEAD} {text}" for text in ("", stars, threads, stars)],
        "no banner": ["", stars, stars, threads],
        "empty lines": ["", "", "", "", "", "x"],
        "barriers": [barrier, f"{HEAD} more", barrier.replace("14317", "9"), f"{HEAD} again"],
        "levels": [HEAD.replace("W1", f"{letter}1") + " x" for letter in "DIWEC"] + [""],
        "sending": [f"{HEAD} Sending process 7 closing signal SIGTERM"] * 2 + [f"{HEAD} x", "y"],
        "another path": [*trace[:1], '  File "/job/train.py", line 1, in f', "    x", ends[0]],
        "frozen": [*trace[:1], '  File "<frozen runpy>", line 1, in _run', ends[0], "x"],
        "site": [*trace[:1], '  File "/a/lib/python3.11/site-packages/x.py", line 1, in f', "x"],
        "library": [*trace[:1], '  File "/a/lib/python3.13t/runpy.py", line 1, in f', ends[0]],
        "repeated": [*trace, "    x()", "  [Previous line repeated 3 more times]", ends[1], "x"],
        "nothing below": [*trace[:1], "    x()", ends[0]],
        "other end": [*trace, "    x()", "ValueError: no", "x"],
        "twice": [*trace, ends[0], "", *trace, ends[0], "x"],
        "behind": [
            *(*trace, ends[0], ""),
            "During handling of the above exception, another exception occurred:",
            *("", *trace, "SignalException: x", "Exception raised from recv at a.cpp:7"),
            *("frame #0: c10::Error", "C++ CapturedTraceback:", "#4 c10d::x", "frame: none", ""),
        ],
        "no behind": ["frame #0: c10::Error", "x", *trace, ends[0], "x", "frame #0: y", ""],
        "report of none": [*trace, "x.ChildFailedError: ", "=" * 60, "x", "=" * 60, "y"],
        "report without a rule": [*trace, "ChildFailedError: ", "=" * 19, "x"],
        "other rule": [*trace, "ChildFailedError: ", "=" * 60, "=" * 61, "x", "=" * 60, "y"],
        **{end.partition(":")[0]: [*trace, "    x()", end, "y"] for end in ends},
    }
    for what, lines in cases.items():
        for steps in ("", "s", "i", "..s.i"):
            _read(told, f"{what} {steps}", lines, steps, ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launcher_lines, "MOST_HELD", 5)
        for count in (5, 6):
            _read(told, f"{count} held", [f"{HEAD} {n}" for n in range(count)], "", ())
            _read(told, f"{count} open", trace + ["    x()"] * (count - 2), "s", ())
            _read(told, f"{count} both", [HEAD, *trace, *["    x()"] * (count - 3)], "", ())
    for code in (1, -6, 6, 0, -9):
        for rank in ("0", "1", "x"):
            report = [
                line.replace("(local_rank: 1)", f"(local_rank: {rank})")
                if "local_rank" in line
                else line.replace("exitcode  : 1 ", f"exitcode  : {code} ")
                for line in _printed("torchrun-failed")
            ]
            _read(told, f"code {code} of {rank}", report, "", (1,))
    return told


def what_is_shown_of_a_launcher() -> Told:
    """Bytes in pieces, silences, ranks' words beside; the sentence at the end."""
    told = Bytes()
    banner = "\n".join(["", "*" * 41, THREADS, "*" * 41, ""])
    for stopped, rank in ((False, 1), (True, 1), (True, None)):
        for name in NAMES:
            fold, words = Fold("torchrun", "rdzv logs llama --rank 3"), None
            if rank is not None:
                words = RankWords()
                words.take(rank, b"Traceback (most rec")
                words.take(rank, b"ent call last):\n  x\n")
                fold.read(words)
            data = (banner + "\n".join(_printed(name)) + "\n\xffhalf").encode("latin-1")
            shown, place = [], 0
            if stopped:
                fold.stop()
            for number, size in enumerate((7, 300, 1, 900, 64, 20_000)):
                shown.append(fold.take(data[place : place + size]))
                place += size
                if number % 2:
                    fold.pass_by(b"of a rank\n" * number)
                if number == 3:
                    shown.append(fold.idle())
            shown += [fold.idle(), fold.idle(), fold.take(b" more\n\n"), fold.close()]
            told.of(f"{name} {stopped} {rank}", *(repr(one) for one in shown if one))
    for length in (65_536, 65_537):
        fold = Fold("torchrun", "rdzv logs")
        sizes = [len(fold.take(b"x" * length)), len(fold.take(b"y")), len(fold.close())]
        told.of(f"long {length}", *sizes)
    for lines in ([HEAD + " x"], [HEAD + " x"] * 2):
        fold = Fold("accelerate", "rdzv logs")
        fold.stop()
        told.of("count", fold.take("".join(f"{line}\n" for line in lines).encode()))
        fold.pass_by(b"a\nb\nc")
        told.of("end", fold.close(), fold.close())
    return told


class Taker:
    """An output that tells what it takes."""

    def __init__(self, told: Told, clock: Clock) -> None:
        self._told, self._clock = told, clock

    def write(self, stream: Any, data: bytes, rank: int | None = None) -> None:
        """See the protocol."""
        self._told.lines.append(f"- {self._clock.now - 1_000:.2f} {stream} {rank} {data[:60]!r}"
                                f"{'' if len(data) <= 60 else len(data)}")  # fmt: skip

    def idle(self) -> None:
        """See the protocol."""
        self._told.lines.append(f"- {self._clock.now - 1_000:.2f} idle")

    @property
    def words(self) -> RankWords:
        """None."""
        return RankWords()


def whole_lines_of_ranks() -> Told:
    """Three ranks and the launcher on both streams: halves, bars, silences, and what is long."""
    told, clock = Bytes(), Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_streams, "time", clock)
        patch.setattr(rank_streams, "_LONGEST_LINE", 40)
        lines = RankLines(Taker(told, clock))
        given: list[tuple[float, str, bytes, int | None]] = [
            (0.0, "stdout", b"whole\n", 4),
            (0.01, "stdout", b"ha", 4),
            (0.01, "stdout", b"lf\nother ha", 4),
            (0.05, "stdout", b"of five\n", 5),
            (0.05, "stderr", b"error of fo", 4),
            (0.1, "stdout", b"lf\n", 4),
            (0.05, "stdout", b"waits", 5),
            (0.19, "stdout", b"x\n", 4),
            (0.01, "stdout", b"y\n", 4),
            (0.02, "stdout", b" on", 5),
            (0.01, "stdout", b" and on\n", 5),
            (0.01, "stdout", b" 10%\r", 5),
            (0.01, "stdout", b"\r 20%", 4),
            (0.01, "stdout", b"\r 30%\rof five", 5),
            (0.01, "stdout", b"plain", 6),
            (0.3, "stdout", b"", 6),
            (0.3, "stdout", b"\n", 6),
            (0.01, "stdout", b"a" * 40, 4),
            (0.01, "stdout", b"a", 4),
            (0.01, "stdout", b"launcher's\n", LAUNCHER),
            (0.01, "stdout", b"nobody's", None),
            (0.01, "stderr", b"b\rc\nd", None),
            (0.01, "stdout", b"e\n", 4),
        ]
        for seconds, stream, data, rank in given:
            clock.now += seconds
            told.lines.append(f"* {stream} {rank} {data[:50]!r}")
            lines.write(stream, data, rank)  # type: ignore[arg-type]
        for seconds in (0.1, 0.15, 0.5):
            clock.now += seconds
            told.lines.append("* silence")
            lines.idle()
        lines.write("stdout", b"z\n", 6)
    return told


_PIECES = (
    *(b"ab", b"\r", b"\n", b"\b", b"10%", b"  ", b"\x1b[A", b"\x1b[2B", b"\x1b[K", b"\x1b[1K"),
    *(b"\x1b[31m", b"\x1b[0m", b"\x1b[2D", b"\x1b[J", b"\x1b[G", b"\x1b[7G", b"\x1b[E", b"\x1b["),
    *(
        b"3",
        b"\r\n",
        b"\x1b]8;;x\x07",
        b"\x1b]0;t\x07",
        b"\x1b7",
        b"\xe4\xb8\xad",
        b"\x1b[2F",
        b"cd",
    ),
    *(b"cd", b"\n\n", b"\x1b[999999A", b"\x1b[40A", b"xyz\n", b"\x1b[12;3H", b"\x1b", b"]0;"),
)


def rows_that_are_overwritten() -> Told:
    """Pieces at random, as a terminal would show them; and behind a prefix."""
    told, draw = Bytes(), random.Random(71)
    for number in range(150):
        rows, pieces = TerminalRows(), [draw.choice(_PIECES) for _ in range(draw.randrange(3, 16))]
        done = []
        for piece in pieces:
            finished = rows.write(piece)
            done.append(f"{finished or ''}{rows.newest!r}{'~' if rows.overwrites else ''}")
            if number % 7 == 3:
                rows.settle()
            if number % 11 == 5 and len(done) == 4:
                rows.drop()
        told.of(f"{b''.join(pieces)!r}", " ".join(done), rows.close(), rows.newest)
    for number in range(100):
        widths: list[int | None] = [None, 14, 30]
        width = widths[number % 3]
        made, now, said = PrefixedOutput(b"[3] ", lambda width=width: width), 50.0, []  # type: ignore[misc]
        for _ in range(draw.randrange(3, 12)):
            now += draw.choice((0.01, 0.5, 1.0, 9.0, 10.0))
            data = b"".join(draw.choice(_PIECES) for _ in range(draw.randrange(1, 4)))
            said.append(f"{data!r}>{made.write(data, now)!r}")
            if draw.random() < 0.3:
                now += 0.2
                said.append(f"idle>{made.idle(now)!r}")
        told.of(f"{width}", " ".join(said), made.close())
    for text in (
        "plain",
        "\x1b[31mred\x1b[0m end",
        "中文字x",
        "e\u0301a\u200bb",
        "\x1b]8;;u\x07l",
        "",
    ):
        told.of(ascii(text), *(cut_to(text, cells).encode() for cells in (0, 1, 2, 3, 4, 9)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal_rows, "_MOST_ROWS", 3)
        rows = TerminalRows()
        told.of("few rows", rows.write(b"a\nb\x1b[9Ac\x1b[Bd"), rows.newest, rows.close())
    return told


def the_newest_words() -> Told:
    """Of several ranks, of little room; and the tail of both streams."""
    told, clock = Bytes(), Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank_words, "KEPT_BYTES", 20)
        patch.setattr(rank_words, "_MOST_PIECES", 4)
        patch.setattr(rank_words, "_LONGEST_LINE", 9)
        words = RankWords(clock.monotonic)
        for rank, data in (
            *((4, b"one\ntw"), (None, b"pipe\n"), (0, b"\x1b[31mred\x1b[0m\n"), (4, b"o\nthree\n")),
            *((4, b"four"), (4, b"\n"), (4, b"a"), (4, b"b"), (0, b"x" * 30), (0, b" 1%\r 2%\r\n")),
            *((4, b"c\nd\n"), (7, b"1234567890123\n \nz"), (4, b"0123456789\r012345678"), (7, b"")),
        ):
            clock.now += 1.5
            words.take(rank, data)
            told.of(
                f"{rank} {data!r}",
                words.ranks(),
                [(piece.at, piece.data) for piece in words.newest(rank)],
                *(words.lines(rank, most) for most in (1, 3)),
            )
        told.of("nobody", words.newest(9), words.lines(9, 2))
        for stream, data in (("stdout", b"\rhal"), ("stderr", b"bad\nba"), ("stdout", b"f\nx")):
            clock.now += 1.5
            words.take(8, data, stream)
        told.of("streams", words.newest(8), words.lines(8, 9))
        patch.setattr(output, "_TAIL_LINES", 3)
        patch.setattr(output, "_TAIL_WIDTH", 8)
        patch.setattr(output, "_MAX_UNFINISHED", 6)
        tail = Tail()
        for stream, data in (
            *(("stdout", b"one\ntwo\nthr"), ("stderr", b"bad\n\n  \nworse"), ("stdout", b"ee\n")),
            *(
                ("stdout", b"a\nb\nc\nd\ne\nunfinished"),
                ("stderr", b" 1%\r 2%\r\n"),
                ("stderr", b"\t"),
            ),
            *(("stdout", b" end\n0123456789\n\x1b[1mx\x1b[0m\n"), ("stderr", b"last")),
        ):
            tail.write(stream, data)  # type: ignore[arg-type]
            told.of(f"{stream} {data!r}", tail.lines())
    return told


def which_lines_are_wanted() -> Told:
    """By texts and levels, of lines that are long, coloured, bars or no text at all."""
    told = Bytes()
    lines = [
        *(
            b"plain",
            b"ERROR: x",
            b"x WARNING y",
            b"ValueError: no",
            b"an error: x",
            b"UserWarning: x",
        ),
        *(
            b"E0102 03:04:05 x",
            b"[rank7] W0102 03:04:05",
            b"xE0102 03:04:05",
            b"warning: w",
            b"FATAL",
        ),
        *(b"Traceback (most recent call last):", b"SomeException: x", b"CRITICAL", b"errors: none"),
        *(
            b"\x1b[31mERR\x1b[0mOR",
            b" 1%\r 2%\r\n",
            b"a\tb",
            b"\xff\xfe",
            b"a\x00b",
            b"\r",
            b"x\r\r\n",
        ),
        *(b"x" * 4_200, b"F1231 23:59:59", b"(W0102 03:04:05", b" W0102 03:04:05", b"Exception:"),
    ]
    for raw in lines:
        text = shown_line(raw)
        shown = text if len(text) < 99 else f"{len(text)} {text[-30:]}"
        told.of(
            f"{raw[:40]!r}", ascii(shown), looks_like(text, "warning"), looks_like(text, "error")
        )
    for wanted in (
        *(Wanted(), Wanted(("1%", "plain")), Wanted((), "error"), Wanted(("x",), "warning")),
        *(
            Wanted(("?",)),
            Wanted(("\N{REPLACEMENT CHARACTER}",)),
            Wanted(("more char",)),
            Wanted(("a   b",)),
        ),
    ):
        numbers = [n for n, raw in enumerate(lines) if wanted.line(raw) is not None]
        blocks = [b"\n".join(lines[n : n + 3]) for n in range(0, len(lines), 3)]
        told.of(f"{wanted}", numbers, [int(wanted.may_be_in(one)) for one in blocks], wanted.all)
    for length in (4_095, 4_096, 4_097):
        for ahead in (b"", b"abc\n", b"y" * 4_096 + b"\n"):
            block = ahead + b"x" * length
            told.of(f"{len(ahead)} {length}", Wanted(("zz",)).may_be_in(block))
    return told


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_file, "HEAD_BYTES", 300)
        patch.setattr(log_index, "MARK_BYTES", 100)
        patch.setattr(log_index, "_LONGEST_LINE", 90)
        patch.setattr(log_reader, "STEP_BYTES", 120)
        patch.setattr(log_reader, "_LONGEST", 80)
        patch.setattr(log_reader, "KEPT_BYTES", 900)
        yield Path(folder)


def _files(log: Path) -> Iterator[str]:
    """What there is of a log, and of its index."""
    for path in (first_part(log), older_part(log), log):
        if path.exists():
            text = path.read_text()
            yield f"{path.name} {len(text)} {text[:24]!r} {text[-120:]!r}"
        if index_of(path).exists():
            yield f"{path.name} at {' '.join(index_of(path).read_text().split())}"


def logs_that_begin_anew() -> Told:
    """Three times, with lines that end elsewhere; what an index leads to, and who reads beside."""
    told, clock = Bytes(), Clock(5_000.0)
    with _folder() as folder:
        log = folder / "node-3.log"
        made = IndexedLog(log, 1_000, clock.time)
        follows = LogReader(log, Wanted(), 2, follow=True)
        greps = LogReader(log, Wanted(("7",)), 9, follow=True)
        number = 0
        for round_, (count, size, seconds) in enumerate(
            (
                (3, 30, 10),
                (9, 41, 25),
                (20, 37, 7),
                (5, 90, 61),
                (30, 20, 3),
                (1, 700, 1),
                (8, 50, 90),
            )
        ):
            for _ in range(count):
                number += 1
                made.write(
                    f"{number:03d} {'x' * (size - 5)}\n".encode()[: -1 if size == 90 else None]
                )
                clock.now += seconds
            told.of(f"round {round_}", *_files(log))
            for what, reader in (("follows", follows), ("greps", greps)):
                read: list[str] = []
                for step in range(60):
                    read += reader.step()
                    if step == 20 and round_ == 4:
                        told.of("skips", reader.skip(200))
                    if reader.at_end:
                        break
                shown = [one[:3] + (f"({len(one)})" if len(one) > 80 else "") for one in read]
                told.of(what, " ".join(shown), reader.follows, reader.is_there, step)
            since = clock.now - 100
            for what, reader in (
                ("newest 4", LogReader(log, Wanted(), 4)),
                ("young", LogReader(log, Wanted(), 50, since=since)),
                ("all", LogReader(log, Wanted(), None, follow=True)),
                ("5", LogReader(log, Wanted(("5",)), 3, since=5_000.0)),
            ):
                read = [one for _ in range(80) for one in reader.step()]
                told.of(what, " ".join(one[:3] for one in read), reader.at_end)
                reader.close()
            times = (0.0, 5_050.0, 5_300.0, since, clock.now, 9_999.0)
            parts = [one for one in (first_part(log), older_part(log), log) if one.exists()]
            places = [offset_at(path, at) for path in parts for at in times]
            told.of("places", places)
        made.close()
        again = IndexedLog(log, 600, clock.time)  # with a smaller limit
        for word in (b"a" * 99 + b"\n", b"b" * 400, b"\nc\n" * 90):
            again.write(word)
            told.of("smaller", again.has_content, *_files(log))
        again.close()
        follows.close()
        greps.close()
    return told


def logs_of_ranks_and_of_their_node() -> Told:
    """Global ranks, an epoch, what is there already; a pipe that nobody reads."""
    told, clock = Bytes(), Clock()
    with _folder() as folder, pytest.MonkeyPatch.context() as patch:
        warned: list[str] = []
        said = SimpleNamespace(warning=lambda words, *of: warned.append(words % of))
        for module in (rank_logs, output):
            patch.setattr(module, "logger", said)
        for epoch in (0, 6, 6):
            place = RankPlace(folder, 10, epoch, 500, "--- again ---")
            logs = RankLogs(Taker(told, clock), place)
            for stream, data, rank in (
                *(
                    ("stdout", b"of 12\n", 2),
                    ("stderr", b"of 10\n", 0),
                    ("stdout", b"node\n", None),
                ),
                *(("stderr", b"launcher\n", LAUNCHER), ("stdout", b"more of 12\n", 2)),
            ):
                logs.write(stream, data, rank)  # type: ignore[arg-type]
            logs.idle()
            logs.close()
            logs.close()
        (folder / "rank-11.log").mkdir()
        (folder / "rank-13.log").mkdir()
        logs = RankLogs(Taker(told, clock), RankPlace(folder, 10))
        for rank in (1, 3, 1, 2):
            logs.write("stdout", b"x\n", rank)
        logs.close()
        files = [one for one in sorted(folder.glob("rank*.log")) if one.is_file()]
        told.of("files", *(f"{one.name} {one.read_text()!r}" for one in files))
        told.of("warned", *(words.replace(str(folder), "") for words in warned))
        warned.clear()
        for prefix, with_log, goes in (
            *(("", True, True), ("[5] ", True, True), ("", False, True), ("[5] ", True, False)),
        ):
            (reader, writer), (errors, its_errors) = os.pipe(), os.pipe()
            log = folder / f"node{len(prefix)}{with_log}{goes}.log"
            if with_log:
                log.write_text("before\n")
            sink = OutputSink(
                log if with_log else None,
                log_limit=4_000,
                divider="--- 2 ---",
                prefix=prefix,
                stdout=writer,
                stderr=its_errors,
            )
            sink.fold_launcher(Fold("torchrun", "rdzv logs"))
            sink.write("stdout", b"half")
            sink.write("stderr", f"{HEAD} x\n{HEAD} y".encode(), LAUNCHER)
            sink.write("stdout", b"rdzv: says\nmore\n", 1)
            sink.idle()
            sink.stop()
            sink.write("stderr", f"\n{HEAD} z\n".encode(), LAUNCHER)
            sink.idle()
            found = os.read(reader, 4_096), os.read(errors, 4_096)
            if goes:
                os.close(errors)
            sink.write("stderr", b"nobody reads\n", 0)
            sink.write("stderr", b"again\n", 0)
            sink.write("stdout", b"y" * 5_000 + b"\nrest", 1)
            sink.close()
            left = os.read(reader, 9_000)
            if not goes:
                told.of("errors", os.read(errors, 4_096))
                os.close(errors)
            for fd in (reader, writer, its_errors):
                os.close(fd)
            told.of(
                f"{prefix} {with_log}",
                *found,
                *(f"{len(left)} {left[:30]!r} {left[-60:]!r}", sink.printed, sink.tail[-4:]),
                *(sink.words.ranks(), *(word.replace(str(folder), "") for word in warned)),
                *([log.read_text().replace("y" * 4_000, "")[:300]] if with_log else []),
            )
            warned.clear()
    return told


def pieces_of_whole_lines() -> Told:
    """What a pipe takes whole, of lines that are short, long and very long."""
    told = Bytes()
    for sizes in ((10,), (4_095,), (4_096,), (100, 4_000), (9_000,), (50,) * 200, (4_090, 9)):
        data = b"".join(b"x" * size + b"\n" for size in sizes)
        told.of(f"{sizes[:3]}", [len(one) for one in output._whole_lines(data)])
        told.of("unfinished", [len(one) for one in output._whole_lines(data[:-1])])
    return told


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: one
    for one in (
        *(what_launchers_print, what_no_launcher_prints, what_is_shown_of_a_launcher),
        *(whole_lines_of_ranks, rows_that_are_overwritten, the_newest_words),
        *(which_lines_are_wanted, logs_that_begin_anew, logs_of_ranks_and_of_their_node),
        pieces_of_whole_lines,
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_becomes_of_output(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

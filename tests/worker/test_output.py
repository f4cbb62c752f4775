"""What a program prints: how it is passed on, logged, and remembered for a report."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.waiting import until
from tests.worker.programs.started import Recording
from worker.program import output as output_module
from worker.program.fold import Fold
from worker.program.output import LAUNCHER, OutputSink, Pump, Source, Stream


class Ours:
    """Files in the place of our own standard output and error."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "stdout", folder / "stderr"]
        self.stdout, self.stderr = (os.open(p, os.O_CREAT | os.O_RDWR) for p in self.paths)

    def read(self) -> tuple[bytes, bytes]:
        return self.paths[0].read_bytes(), self.paths[1].read_bytes()

    def sink(self, log: Path | None = None, prefix: str = "") -> OutputSink:
        return OutputSink(log, prefix=prefix, stdout=self.stdout, stderr=self.stderr)


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Ours]:
    made = Ours(tmp_path)
    yield made
    os.close(made.stdout)
    os.close(made.stderr)


def test_without_a_prefix_bytes_pass_unchanged_and_at_once(ours: Ours, tmp_path: Path) -> None:
    output = ours.sink(tmp_path / "node.log")
    output.write("stdout", b"\r 10%\x00\xff")
    output.write("stderr", b"oh\n")
    assert ours.read() == (b"\r 10%\x00\xff", b"oh\n")
    assert (tmp_path / "node.log").read_bytes() == b"\r 10%\x00\xffoh\n"
    output.close()


def test_a_new_line_on_a_terminal_erases_what_a_launcher_has_drawn_there(tmp_path: Path) -> None:
    """But no line that is not finished, which the launcher leaves alone."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    try:
        output = OutputSink(tmp_path / "node.log", stdout=its, stderr=its)
        for data in (b"one\n", b"two", b" three\n"):
            output.write("stdout", data)
        output.write("stderr", b"oh\n")
        output.close()
        shown = b"\x1b[Kone\r\n\x1b[Ktwo three\r\n\x1b[Koh\r\n"
        found = b""
        while len(found) < len(shown):
            found += os.read(ours, 999)
        assert found == shown
        assert (tmp_path / "node.log").read_bytes() == b"one\ntwo three\noh\n"
    finally:
        os.close(ours)
        os.close(its)


def test_a_log_of_another_launch_goes_on_behind_a_line_that_says_so(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    for words in (b"one", b"two\n", b"three\n"):
        output = OutputSink(log, divider="--- next", stdout=-1, stderr=-1)
        output.write("stdout", words)
        output.close()
    assert log.read_bytes() == b"one\n--- next\ntwo\n\n--- next\nthree\n"


def test_a_prefix_stands_before_each_line_that_is_complete(ours: Ours, tmp_path: Path) -> None:
    """Or is not continued: a question, and the last one."""
    output = ours.sink(tmp_path / "node.log", "[1] ")
    shown = []
    for piece in (b"one\ntw", b"o\nGo on? ", None, b"yes\nthree"):
        if piece is None:
            output.idle()
        else:
            output.write("stdout", piece)
        shown.append(ours.read()[0])
    output.write("stderr", b"\n")
    output.close()
    assert shown[0] == b"[1] one\n"
    assert shown[1] == shown[0] + b"[1] two\n"
    assert shown[2] == shown[1] + b"[1] Go on? "
    assert shown[3] == shown[2] + b"yes\n"
    assert ours.read() == (shown[3] + b"[1] three\n", b"[1] \n")
    assert (tmp_path / "node.log").read_bytes() == b"one\ntwo\nGo on? yes\nthree\n"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "/no/node.log",
            (
                "cannot write the log file {}: No such file or directory; the program continues "
                "without it"
            ),
        ),
        ("/dev/full", "the log file {} has gaps from here on: No space left on device"),
    ],
)
def test_a_log_that_cannot_be_written_is_reported_once_and_stops_nothing(
    ours: Ours, caplog: pytest.LogCaptureFixture, log: str, said: str
) -> None:
    output = ours.sink(Path(log))
    output.write("stdout", b"a\n")
    output.write("stdout", b"b\n")
    assert ours.read()[0] == b"a\nb\n"
    assert [record.message for record in caplog.records] == [said.format(log)]
    output.close()


def test_our_output_being_closed_leaves_the_log_going_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    log = tmp_path / "node.log"
    output = OutputSink(log, stdout=writer, stderr=writer)
    output.write("stdout", b"a\n")
    output.write("stdout", b"b\n")
    output.close()
    os.close(writer)
    assert log.read_bytes() == b"a\nb\n"
    assert output.tail == ["a", "b"]
    assert [record.message for record in caplog.records] == [
        (
            "standard output cannot be written: Broken pipe; what the program prints is only in "
            f"{log} from here on"
        )
    ]
    caplog.clear()
    with open("/dev/full", "wb", buffering=0) as full:
        full_output = OutputSink(stderr=full.fileno())
        full_output.write("stderr", b"a\n")
        full_output.write("stderr", b"b\n")
    assert [record.message for record in caplog.records] == [
        (
            "standard error cannot be written: No space left on device; what the program prints is "
            "lost from here on"
        )
    ]


def test_an_output_that_is_non_blocking_gets_everything() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with subprocess.Popen(["wc", "-c"], stdin=reader, stdout=subprocess.PIPE) as counting:
        os.close(reader)
        OutputSink(stdout=writer).write("stdout", b"x" * 300_000)
        os.close(writer)
        assert counting.communicate()[0] == b"300000\n"


@pytest.mark.parametrize(
    ("pieces", "tail"),
    [
        ([b"step %d\n" % n for n in range(300)], [f"step {n}" for n in range(100, 300)]),
        (
            [b"".join(b"line %d\n" % n for n in range(9_000))],
            [f"line {n}" for n in range(8_800, 9_000)],
        ),
        ([b"Runtime", b"Error: ", b"no\nnext"], ["RuntimeError: no", "next"]),
        # Fit for a report: no colours, no bells, no bars, no blank lines, and not too long.
        ([b"\x1b[31mred\x1b[0m\tbell\x07 \xff\n"], ["red bell? �"]),
        ([b"\r 10%\r 20%\r\n"], [" 20%"]),
        ([b"y" * 1000 + b"\n \t \n"], ["y" * 399 + "…"]),
    ],
    ids=["the last lines", "of one piece", "in pieces", "colours", "a bar", "long"],
)
def test_the_tail_keeps_the_last_lines(ours: Ours, pieces: list[bytes], tail: list[str]) -> None:
    output = ours.sink()
    for piece in pieces:
        output.write("stdout", piece)
    assert output.tail == tail


def test_pieces_behind_a_prefix_are_whole_lines_that_a_pipe_keeps_together() -> None:
    reader, writer = os.pipe()
    output = OutputSink(prefix="[1] ", stdout=writer)
    output.write("stdout", b"".join(b"line %d\n" % n for n in range(2_000)))
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"".join(b"[1] line %d\n" % n for n in range(2_000))


def test_of_what_came_at_once_standard_error_is_the_last_word(ours: Ours, tmp_path: Path) -> None:
    pipes: dict[int, Source] = {}
    streams: tuple[Stream, Stream] = ("stdout", "stderr")
    for stream, number in zip(streams, (215, 216), strict=True):  # a set of them begins with 216
        reader, writer = os.pipe()
        pipes[fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, number)] = Source(stream)
        os.write(writer, f"{stream}\n".encode())
        os.close(reader)
        os.close(writer)
    made = ours.sink(tmp_path / "log")
    Pump(pipes, made).finish()
    made.close()
    assert made.tail == ["stdout", "stderr"]
    assert (tmp_path / "log").read_text() == "stdout\nstderr\n"


def piped(*pieces: tuple[Stream, bytes]) -> tuple[dict[int, Source], list[int]]:
    """A pipe for each piece, which is in it: the ends to read, and those to write."""
    made = [(os.pipe(), *piece) for piece in pieces]
    for (_, writer), _, data in made:
        os.write(writer, data)
    return {ends[0]: Source(stream) for ends, stream, _ in made}, [ends[1] for ends, _, _ in made]


def test_who_holds_an_end_of_a_pipe_lets_go_before_its_end_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each end of a program would wait for it, as for a process that escaped."""
    pieces: list[bytes] = []
    done: list[str] = []
    output: Any = SimpleNamespace(write=lambda s, data, r: pieces.append(data), idle=lambda: None)
    reader, writer = os.pipe()
    os.write(writer, b"last")

    def release() -> None:
        done.append("released")
        os.close(writer)

    pump = Pump({reader: Source("stdout")}, output, release)
    thread = pump._thread
    join = thread.join

    def waits(seconds: float) -> None:
        done.append("waited")
        join(seconds)

    monkeypatch.setattr(thread, "join", waits)
    pump.finish()
    assert (pieces, done, thread.is_alive()) == ([b"last"], ["released", "waited"], False)


def test_an_output_that_raises_does_not_stop_the_program(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recording):
        def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
            raise ValueError("broken")

    readers, writers = piped(("stdout", b"a"), ("stderr", b"b"))
    pump = Pump(readers, Broken())
    for writer in writers:
        os.close(writer)
    pump.finish()
    words = "a piece of the program's output was lost"
    assert [record.message for record in caplog.records] == [words] * 2


@pytest.mark.real_time
def test_our_own_output_being_stuck_holds_up_the_program_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(output_module, "STUCK_SECONDS", 0.1)
    our_reader, ours = os.pipe()
    os.write(ours, bytes(1 << 16))  # our pipe is full
    readers, (writer,) = piped(("stdout", b"more"))
    pump = Pump(readers, OutputSink(stdout=ours))
    os.close(writer)
    pump.finish()
    os.close(our_reader)
    words = "rdzv's own output is blocked; the program's last lines may be missing"
    assert caplog.records[0].message == words  # the broken pipe is told as well, a moment later
    until(lambda: not pump._thread.is_alive())
    os.close(ours)


def test_what_came_while_our_own_output_was_slow_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output_module, "DRAIN_SECONDS", 0.0)
    begun, fast = threading.Event(), threading.Event()

    class Slow(Recording):
        def write(self, stream: Stream, data: bytes, rank: int | None = None) -> None:
            begun.set()
            fast.wait(60)
            super().write(stream, data)

    output = Slow()
    readers, writers = piped(("stdout", b"first, "), ("stderr", b""))
    pump = Pump(readers, output)
    begun.wait(60)
    for writer, text in zip(writers, (b"last", bytes(60_000)), strict=True):
        os.write(writer, text)
    finishing = threading.Thread(target=pump.finish)
    finishing.start()
    until(lambda: pump._deadline < time.monotonic())
    fast.set()
    finishing.join(60)
    assert (output.of("stdout"), output.of("stderr")) == (b"first, last", bytes(60_000))
    for writer in writers:  # which a process elsewhere would still hold
        os.close(writer)


def test_what_a_launcher_prints_of_a_stop_is_folded_and_whole_in_the_log(
    ours: Ours, tmp_path: Path
) -> None:
    """The same lines of a rank, or by the common pipe, are shown."""
    printed = (Path(__file__).parent / "launcher_outputs" / "torchrun-stopped.txt").read_bytes()
    shown = []
    for rank in (LAUNCHER, 0, None):
        fold = Fold("torchrun", "rdzv logs r", "rdzv logs r --all")
        log, before = tmp_path / f"{rank}.log", len(ours.read()[1])
        output = ours.sink(log, "[1] ")
        output.fold_launcher(fold)
        output.stop()
        output.write("stderr", printed, rank)
        assert output.tail[-1].endswith("got signal: 15")
        output.idle()
        output.close()
        assert log.read_bytes() == printed
        shown.append(ours.read()[1][before:])
    assert shown[0] == (
        b"[1] rdzv: torchrun printed 31 lines when rdzv stopped it: rdzv logs r --lines 32\n"
    )
    assert shown[1] == shown[2] == b"".join(b"[1] " + line for line in printed.splitlines(True))


@pytest.mark.parametrize("prefix", ["[1] ", ""])
@pytest.mark.parametrize("unfinished", [b"\rtrain:  50%|##", b"step 5 ..."])
def test_the_line_for_what_is_folded_does_not_stand_behind_an_unfinished_one(
    unfinished: bytes, prefix: str, ours: Ours, tmp_path: Path
) -> None:
    printed = (Path(__file__).parent / "launcher_outputs" / "torchrun-stopped.txt").read_bytes()
    output = ours.sink(tmp_path / "log", prefix)
    output.fold_launcher(Fold("torchrun", "rdzv logs r", "rdzv logs r --all"))
    output.write("stderr", unfinished, 0)
    output.idle()
    output.stop()
    output.write("stderr", printed, LAUNCHER)
    output.idle()
    output.close()
    *before, line, end = ours.read()[1].decode().split("\n")
    assert (end, before[-1].strip()) == ("", f"{prefix}{unfinished.decode().strip()}")
    assert line.startswith(f"{prefix}rdzv: torchrun printed 31 lines")


def test_without_a_log_nothing_is_folded(ours: Ours) -> None:
    printed = (Path(__file__).parent / "launcher_outputs" / "torchrun-stopped.txt").read_bytes()
    fold = Fold("torchrun", "rdzv logs r", "rdzv logs r --all")
    output = ours.sink()
    output.fold_launcher(fold)
    output.stop()
    output.write("stderr", printed, LAUNCHER)
    output.close()
    assert ours.read()[1] == printed


def raised(rank: int, words: str, before: str = "") -> bytes:
    """What ends a rank, as torch's hook prints it."""
    text = f"{before}Traceback (most recent call last):\n  File 'x.py', line 1\n    f()\n{words}"
    return re.sub("(?m)^(?=.)", f"[rank{rank}]: ", f"{text}\n").encode()


GONE = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:23"
NCCL = (
    "DistBackendError: NCCL error\nLast error:\nremote process exited or there was a network error"
)
ABOVE = raised(0, "E: x\n\nDuring handling of the above exception, another exception occurred:\n")


def test_of_ranks_that_lost_another_or_fail_alike_a_line_is_shown_and_all_is_in_the_log(
    ours: Ours, tmp_path: Path
) -> None:
    """But not where it has a cause of its own above, is in pieces, or lost something else."""
    output = ours.sink(tmp_path / "log")
    output.fold_launcher(Fold("torchrun", "rdzv logs r", "rdzv logs r --all"))
    warning = b"[rank4]:[W1 x.cpp:1] Warning\n"
    shown = [
        raised(2, "ValueError: x"),
        raised(0, "ConnectionResetError: [Errno 104] Connection reset by peer"),
        ABOVE + raised(0, GONE),
        raised(1, GONE).replace(b"[rank1]: ", b""),
        b"[rank2]: Traceback (most recent call last):\n",
        b"[rank2]: gloo/: Connection closed by peer\n",
    ]
    pieces = [*shown, raised(5, GONE), raised(3, NCCL), raised(4, GONE) + warning]
    pieces += [raised(6, "ValueError: x")]
    for piece in pieces:
        output.write("stderr", piece, 0)
    output.close()
    assert (tmp_path / "log").read_bytes() == b"".join(pieces)
    told = b"rdzv: ranks 3-5 lost the connection to another rank (rdzv logs r --all)\n"
    alike = b"rdzv: rank 6 raised the same as rank 2 (rdzv logs r --all)\n"
    assert ours.read()[1] == b"".join([*shown, told, warning, alike])


def test_what_each_rank_says_is_its_own_and_what_its_launcher_says_is_nobodys(
    ours: Ours, tmp_path: Path
) -> None:
    output = ours.sink(tmp_path / "node.log")
    taken: list[tuple[int | None, bytes]] = []
    streams = []

    def take(rank: int | None, data: bytes, stream: str = "") -> None:
        taken.append((rank, data))
        streams.append(stream)

    output.words.take = take  # type: ignore[method-assign]
    for rank, data in ((5, b"five\n"), (LAUNCHER, b"launcher\n"), (None, b"all\n"), (0, b"zero\n")):
        output.write("stdout", data, rank)
    assert taken == [(5, b"five\n"), (None, b"launcher\n"), (None, b"all\n"), (0, b"zero\n")]
    assert output.printed == sum(len(data) for _, data in taken if data != b"launcher\n")
    for _ in range(2):
        output.close()
    output.write("stderr", b"late\n")
    assert streams == ["stdout"] * 4 + ["stderr"]
    assert (tmp_path / "node.log").read_bytes() == b"".join(data for _, data in taken[:4])


@pytest.mark.parametrize(
    ("terminals", "redraws", "width"),
    [
        ({1: 90, 2: 70}, True, 90),
        ({1: 90}, True, None),  # what is an error goes elsewhere
        ({2: 70}, True, None),
        ({}, True, None),
        ({1: 90, 2: 70}, False, None),
    ],
)
def test_bars_are_redrawn_where_both_streams_are_shown_by_a_terminal_that_can(
    monkeypatch: pytest.MonkeyPatch, terminals: dict[int, int], redraws: bool, width: int | None
) -> None:
    sizes = {fd: os.terminal_size((cells, 24)) for fd, cells in terminals.items()}
    monkeypatch.setattr(output_module, "size_of", sizes.get)
    monkeypatch.setattr(output_module, "can_redraw", lambda environ: redraws)
    assert output_module._width_of(1, 2) == width

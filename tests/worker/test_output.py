"""What a program prints: how it is passed on, logged, and remembered for a report."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.program.output import OutputSink, Pump, Stream


class Ours:
    """Files in the place of our own standard output and error."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / "stdout", folder / "stderr"]
        self.stdout, self.stderr = (os.open(p, os.O_CREAT | os.O_RDWR) for p in self.paths)

    def read(self) -> tuple[bytes, bytes]:
        return self.paths[0].read_bytes(), self.paths[1].read_bytes()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Ours]:
    made = Ours(tmp_path)
    yield made
    os.close(made.stdout)
    os.close(made.stderr)


def sink(ours: Ours, log: Path | None = None, prefix: str = "") -> OutputSink:
    return OutputSink(log, prefix=prefix, stdout=ours.stdout, stderr=ours.stderr)


def test_without_a_prefix_bytes_pass_unchanged_and_at_once(ours: Ours, tmp_path: Path) -> None:
    output = sink(ours, tmp_path / "node.log")
    output.write("stdout", b"\r 10%\x00\xff")
    output.write("stderr", b"oh\n")
    assert ours.read() == (b"\r 10%\x00\xff", b"oh\n")
    assert (tmp_path / "node.log").read_bytes() == b"\r 10%\x00\xffoh\n"
    output.close()


def test_a_prefix_stands_before_each_line_that_is_complete(ours: Ours, tmp_path: Path) -> None:
    output = sink(ours, tmp_path / "node.log", "[1] ")
    output.write("stdout", b"one\ntw")
    output.write("stderr", b"\n")
    assert ours.read() == (b"[1] one\n", b"[1] \n")
    output.write("stdout", b"o\nthree")
    assert ours.read() == (b"[1] one\n[1] two\n", b"[1] \n")
    output.close()
    assert ours.read() == (b"[1] one\n[1] two\n[1] three", b"[1] \n")
    assert (tmp_path / "node.log").read_bytes() == b"one\ntw\no\nthree"


def test_an_unfinished_line_is_passed_on_after_a_silence_and_then_continued(ours: Ours) -> None:
    output = sink(ours, prefix="[1] ")
    output.write("stdout", b"Continue? ")
    output.idle()
    assert ours.read()[0] == b"[1] Continue? "
    output.write("stdout", b"yes\nmore\n")
    assert ours.read()[0] == b"[1] Continue? yes\n[1] more\n"


def test_an_endless_line_is_not_kept_for_ever(ours: Ours) -> None:
    output = sink(ours, prefix="[1] ")
    for _ in range(100):
        output.write("stdout", b"x" * 1000)
    assert len(ours.read()[0]) > 60_000


def test_a_log_file_is_private_and_appended_to(ours: Ours, tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    for _ in range(2):
        output = sink(ours, log)
        output.write("stdout", b"epoch\n")
        output.close()
    assert log.read_bytes() == b"epoch\nepoch\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_file_that_cannot_be_made_is_reported_once(
    ours: Ours, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "nowhere" / "node.log"
    output = sink(ours, log)
    output.write("stdout", b"a\n")
    output.write("stdout", b"b\n")
    assert ours.read()[0] == b"a\nb\n"
    assert [record.message for record in caplog.records] == [
        f"no log file {log}: No such file or directory; the program goes on without"
    ]


def test_a_full_disk_is_reported_once_and_stops_nothing(
    ours: Ours, caplog: pytest.LogCaptureFixture
) -> None:
    output = sink(ours, Path("/dev/full"))
    output.write("stdout", b"a\n")
    output.write("stdout", b"b\n")
    assert ours.read()[0] == b"a\nb\n"
    assert [record.message for record in caplog.records] == [
        "the log file /dev/full has gaps from here on: No space left on device"
    ]
    output.close()


def test_our_output_being_closed_leaves_the_log_going(tmp_path: Path) -> None:
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


def test_an_output_that_is_non_blocking_gets_everything() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    text = b"x" * 300_000
    with subprocess.Popen(["wc", "-c"], stdin=reader, stdout=subprocess.PIPE) as counting:
        os.close(reader)
        OutputSink(stdout=writer).write("stdout", text)
        os.close(writer)
        assert counting.communicate()[0] == b"300000\n"


def test_the_tail_keeps_the_last_lines_of_both_streams_as_they_came(ours: Ours) -> None:
    output = sink(ours)
    for number in range(300):
        output.write("stdout", b"step %d\n" % number)
    output.write("stderr", b"Traceback:\n\n  oh\n")
    output.write("stdout", b"unfinished")
    expected = [f"step {n}" for n in range(103, 300)] + ["Traceback:", "  oh", "unfinished"]
    assert output.tail == expected


def test_the_tail_of_one_large_piece_is_its_last_lines(ours: Ours) -> None:
    output = sink(ours)
    output.write("stdout", b"".join(b"line %d\n" % n for n in range(10_000)))
    assert output.tail == [f"line {n}" for n in range(9_800, 10_000)]


def test_the_tail_puts_lines_together_that_came_in_pieces(ours: Ours) -> None:
    output = sink(ours)
    for piece in (b"Runtime", b"Error: ", b"no\nnext"):
        output.write("stderr", piece)
    assert output.tail == ["RuntimeError: no", "next"]


def test_the_tail_is_fit_for_a_report(ours: Ours) -> None:
    output = sink(ours)
    output.write("stdout", b"\x1b[31mred\x1b[0m\tbell\x07 \xff\n")
    output.write("stdout", b"\r 10%\r 20%\r\n")
    output.write("stdout", b"y" * 1000 + b"\n \t \n")
    assert output.tail == ["red bell? �", " 20%", "y" * 399 + "…"]


def test_a_progress_bar_behind_a_prefix_is_a_line_now_and_then(ours: Ours) -> None:
    output = sink(ours, prefix="[1] ")
    for number in range(200):
        output.write("stderr", b"\r%3d%%" % number)
    output.write("stderr", b"\rdone\n")
    _, shown = ours.read()
    assert b"\r" not in shown.removesuffix(b"\n").rpartition(b"\n")[0]
    assert shown.startswith(b"[1]   0%\n")
    assert shown.endswith(b"done\n")
    assert len(shown.splitlines()) < 5


def test_pieces_behind_a_prefix_are_whole_lines_that_a_pipe_keeps_together() -> None:
    reader, writer = os.pipe()
    output = OutputSink(prefix="[1] ", stdout=writer)
    output.write("stdout", b"".join(b"line %d\n" % n for n in range(2_000)))
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"".join(b"[1] line %d\n" % n for n in range(2_000))


def test_of_what_came_at_once_standard_error_is_the_last_word(ours: Ours, tmp_path: Path) -> None:
    pipes: dict[int, Stream] = {}
    streams: tuple[Stream, Stream] = ("stdout", "stderr")
    for stream, number in zip(streams, (215, 216), strict=True):  # a set of them begins with 216
        reader, writer = os.pipe()
        pipes[fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, number)] = stream
        os.write(writer, f"{stream}\n".encode())
        os.close(reader)
        os.close(writer)
    made = sink(ours, tmp_path / "log")
    Pump(pipes, made).finish()
    made.close()
    assert made.tail == ["stdout", "stderr"]
    assert (tmp_path / "log").read_text() == "stdout\nstderr\n"

"""Which lines of a launcher are folded: what real ones printed, and what only looks like it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from worker.program import launcher_lines
from worker.program.fold import Fold
from worker.program.launcher_lines import LauncherLines, Why
from worker.program.rank_words import RankWords

OUTPUTS = Path(__file__).parent / "launcher_outputs"
RECORD = "W1127 16:31:57.048000 14317 torch/distributed/elastic/multiprocessing/api.py:1028]"
SENDING = f"{RECORD} Sending process 14396 closing signal SIGTERM"
OLD = "[2026-01-02 03:04:05,678] torch.distributed.run: [WARNING]"
SIGNAL = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"
FRAME = '  File "/opt/venv/bin/torchrun", line 8, in <module>'


def output(name: str) -> list[str]:
    """What a launcher printed on one node, beside its ranks."""
    return (OUTPUTS / f"{name}.txt").read_text("utf-8").splitlines()


def lines(*, stopped: bool = False, traceback: bool = False) -> LauncherLines:
    made = LauncherLines(lambda rank: traceback and rank == 1)
    made.is_stopped = stopped
    return made


def shown(reader: LauncherLines, given: list[str]) -> list[str]:
    return [*(line for one in given for line in reader.take(one)), *reader.end()]


@pytest.mark.parametrize(
    ("name", "first", "at_start", "stopped"),
    [("torchrun-stopped", 0, 4, 31), ("accelerate-stopped", 4, 0, 32)],
)
def test_what_a_stop_prints_is_folded(name: str, first: int, at_start: int, stopped: int) -> None:
    printed, reader = output(name), lines(stopped=True)
    assert shown(reader, printed) == printed[:first]  # accelerate's own settings
    assert (reader.folded[Why.AT_START], reader.folded[Why.STOPPED]) == (at_start, stopped)


@pytest.mark.parametrize("name", ["torchrun-stopped", "accelerate-stopped"])
def test_without_a_stop_a_signal_is_a_cause_and_shown_in_order(name: str) -> None:
    printed, reader = output(name), lines()
    banner = 4 if name.startswith("torchrun") else 0
    assert shown(reader, printed) == printed[banner:]
    assert reader.folded[Why.STOPPED] == 0


def test_the_banner_of_a_module_has_no_heads_and_is_folded_where_it_is_whole() -> None:
    """As `python -m torch.distributed.run` prints it."""
    banner = [line.partition("] ")[2] for line in output("torchrun-stopped")[:4]]
    assert banner[0] == ""
    reader = lines()
    assert shown(reader, ["before", *banner, "after"]) == ["before", "after"]
    assert reader.folded == Counter({Why.AT_START: 4})
    for missing in range(4):
        part = [line for number, line in enumerate(banner) if number != missing]
        reader = lines()
        assert shown(reader, [*part, "after"]) == [*part, "after"]
        assert reader.folded.total() == 0
    stopped = lines(stopped=True)
    report = output("torchrun-stopped")[4:]
    assert shown(stopped, ["", *report]) == [""]


@pytest.mark.parametrize(("name", "count"), [("torchrun-failed", 40), ("accelerate-failed", 41)])
def test_a_report_is_folded_unless_it_alone_quotes_an_exception(name: str, count: int) -> None:
    printed = output(name)
    before = printed[: 4 if name.startswith("accelerate") else 0]
    killed = [line.replace("exitcode  : 1 ", "exitcode  : -9 ") for line in printed]
    for given in (printed, killed):
        reader = lines()
        assert shown(reader, given) == before
        assert reader.folded[Why.FAILED] == count
    first = printed.index("Root Cause (first observed failure):")
    quotes = [line.replace("<N/A>", "/tmp/1/error.json") for line in printed[first:]]
    filed = printed[:first] + quotes
    assert shown(lines(), filed)[-count:] == filed[-count:]
    assert shown(lines(traceback=True), filed) == before


@pytest.mark.parametrize("name", ["torchrun-failed", "accelerate-failed"])
def test_of_a_launcher_that_is_stopped_after_a_rank_failed_it_is_not_said_that_the_stop_was_why(
    name: str,
) -> None:
    printed = output(name)
    first = printed.index("Root Cause (first observed failure):")
    for given, why in (
        (printed, Why.FAILED),
        (printed[:first] + [one.replace(": 1 ", ": -15 ") for one in printed[first:]], Why.STOPPED),
    ):
        reader = lines(stopped=True)
        shown(reader, given)
        assert set(reader.folded) - {Why.AT_START} == {why}


def test_an_exit_barrier_is_folded_whole_and_nothing_behind_it() -> None:
    printed, reader = output("torchrun-barrier"), lines()
    other = printed[0].replace("Error waiting on", "No").replace("16:", "17:", 1)
    assert shown(reader, [*printed, other]) == [other]
    assert reader.folded == Counter({Why.AT_END: len(printed)})


def test_what_else_torchrun_warns_of_is_no_banner_nor_are_its_words_from_elsewhere() -> None:
    record = RECORD.replace("elastic/multiprocessing/api", "run")
    for printed in (f"{record} master_addr is only used for static rdzv", f"{RECORD} {'*' * 41}"):
        reader = lines()
        assert shown(reader, [printed]) == [printed]
        assert reader.folded.total() == 0


def test_a_banner_is_folded_also_of_older_torches() -> None:
    stars = "*" * 41
    setting = (
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid"
    )
    for head in (RECORD.replace("elastic/multiprocessing/api", "run"), OLD):
        reader = lines()
        assert shown(reader, [f"{head} {text}" for text in ("", stars, setting, stars)]) == []
        assert reader.folded == Counter({Why.AT_START: 4})


@pytest.mark.parametrize(
    "printed",
    [
        ["usage: torchrun [-h] [--nnodes NNODES]", "torchrun: error: unrecognized arguments: --x"],
        [f"[default0]:{SENDING}"],
        [f" {SENDING}"],
        ["Traceback (most recent call last):", FRAME, "    main()", "ImportError: no torch"],
        ["Traceback (most recent call last):", '  File "/job/train.py", line 1, in f', SIGNAL],
        ["Traceback (most recent call last):", SIGNAL.replace("Signal", "Some")],
        ["Traceback (most recent call last):", FRAME, "    main()"],
        ["", "During handling of the above exception, another exception occurred:"],
        [RECORD.replace("W1127", "I1127") + " Local worker group finished"],
        ["*" * 41],
    ],
)
def test_what_has_no_known_form_is_shown_also_after_a_stop(printed: list[str]) -> None:
    reader = lines(stopped=True)
    assert shown(reader, printed) == printed
    assert reader.folded.total() == 0


def test_what_may_still_be_a_stops_is_held_until_that_is_known() -> None:
    """A scheduler signals all processes of a step: torchrun, and the agent that then stops it."""
    reader = lines()
    death = SENDING.replace("Sending process 14396 closing signal", "Received 15 death signal")
    assert reader.take(death) == []
    assert reader.idle() == [death]  # nobody has stopped it
    assert reader.take(death) == []
    reader.is_stopped = True
    assert reader.idle() == []
    assert reader.folded == Counter({Why.STOPPED: 1})


def test_a_signal_to_other_ranks_is_no_cause_and_may_wait_for_the_report() -> None:
    reader = lines()
    assert [*reader.take(SENDING), *reader.idle(), *reader.idle()] == []
    assert reader.take("torchrun: something else") == [SENDING, "torchrun: something else"]
    assert [*reader.take(SENDING), *reader.end()] == [SENDING]


def test_a_traceback_that_stands_still_is_shown_unless_it_is_a_stops() -> None:
    began = ["Traceback (most recent call last):", FRAME]
    reader = lines()
    assert [line for one in began for line in reader.take(one)] == []
    assert reader.idle() == began
    reader = lines(stopped=True)
    assert [line for one in began for line in reader.take(one)] == []
    assert reader.idle() == []
    assert [*reader.take("    sys.exit(main())"), *reader.take(SIGNAL), *reader.end()] == []
    assert reader.folded == Counter({Why.STOPPED: 4})


def test_tracebacks_that_follow_from_each_other_are_folded_together() -> None:
    one = ["Traceback (most recent call last):", FRAME, "    main()", SIGNAL]
    between = ["", "During handling of the above exception, another exception occurred:", ""]
    network = "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes."
    behind = ["Exception raised from recvBytes at Utils.hpp:787:", "frame #0: main + 0x21", ""]
    assert shown(lines(stopped=True), [*one, *between, *one[:3], network, *behind]) == []


def test_a_piece_without_an_end_is_not_held_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_lines, "MOST_HELD", 5)
    reader = lines()
    given = ["Traceback (most recent call last):", FRAME, *["    x"] * 4]
    assert [line for one in given for line in reader.take(one)] == given
    assert reader.take("more") == ["more"]


# --- the bytes, and the line that stands for them -----------------------------------------------


def fold() -> Fold:
    made = Fold("torchrun", "rdzv logs r --node 1", "rdzv logs r --all")
    made.read(RankWords())
    return made


def test_one_line_stands_for_what_a_stop_printed() -> None:
    whole = (OUTPUTS / "torchrun-stopped.txt").read_bytes()
    for size in (7, 4096):  # however it is cut
        one = fold()
        one.stop()
        said = b"".join(one.take(whole[at : at + size]) for at in range(0, len(whole), size))
        assert said == b""
        assert one.close() == (
            b"rdzv: torchrun printed 31 lines when rdzv stopped it: "
            b"rdzv logs r --node 1 --lines 32\n"
        )


def test_the_command_asks_for_all_lines_from_the_first_that_is_folded() -> None:
    """So many as stand in the log, those of the ranks among them, and no more than that."""
    lines = (OUTPUTS / "torchrun-stopped.txt").read_bytes().splitlines(keepends=True)
    banner, stopped, one = lines[:4], lines[4:], fold()
    one.take(b"".join(banner))
    one.pass_by(b"a step\n" * 1000)
    one.take(b"W1127 17:53:08.509000 1 torch/distributed/x.py:1] not of a stop\n")
    one.pass_by(b"a step\n" * 100)
    assert b"not of a stop" in one.idle()
    one.pass_by(b"a step\n" * 10)
    one.stop()
    one.take(stopped[0])
    one.pass_by(b"interrupted\nat a step\n")
    one.take(b"".join(stopped[1:]))
    one.pass_by(b"over")
    printed = len(stopped) + len([b"interrupted", b"at a step", b"over"])
    assert one.close().endswith(b" --lines %d\n" % printed)


def test_a_report_counts_what_the_rank_itself_printed() -> None:
    whole = (OUTPUTS / "torchrun-failed.txt").read_bytes().replace(b"<N/A>", b"/tmp/1/error.json")
    words, one = RankWords(), fold()
    words.take(1, b"[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: planted\n")
    one.read(words)
    one.take(whole)
    assert b"printed 40 lines about the rank that failed" in one.close()
    one = fold()
    assert whole.endswith(one.take(whole))
    assert one.close() == b""


def test_all_other_bytes_pass_as_they_are() -> None:
    one = fold()
    assert one.take(b"oh\xff\r\nGo on? ") == b"oh\xff\r\n"
    assert one.idle() == b"Go on? "
    assert one.take(b"\x00\n") == b"\x00\n"
    assert one.take(b"x" * 70_000) == b"x" * 70_000
    banner = (OUTPUTS / "torchrun-stopped.txt").read_bytes().splitlines(keepends=True)[:4]
    assert one.take(b"".join(banner)) == b""
    assert one.close() == b""  # of a banner nobody has to be told more

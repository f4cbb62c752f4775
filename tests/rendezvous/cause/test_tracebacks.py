"""Groups, chains, dumps and messages of several lines, by value."""

from __future__ import annotations

import pytest

from rendezvous.cause.clues import LOGGED, Line, find_clues
from rendezvous.wire.evidence import Clue

TRACEBACK = "Traceback (most recent call last):"
HANDLING = "During handling of the above exception, another exception occurred:"
DIRECT = "The above exception was the direct cause of the following exception:"
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:5"
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/out/emergency.pt'"
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/app/train.py", line 9, in load
  |     raise ExceptionGroup("outer", errors)
  | ExceptionGroup: outer (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ExceptionGroup: inner (2 sub-exceptions)
    +-+---------------- 1 ----------------
      | Traceback (most recent call last):
      |   File "/app/data.py", line 3, in fetch
      |     check(shard)
      | {first}
      +---------------- 2 ----------------
      | TypeError: second
      +------------------------------------
    +---------------- 2 ----------------
    | ValueError: third
    +------------------------------------"""


def clues(*lines: str, rank: int | None = 0) -> list[Clue]:
    return find_clues(Line(line, rank) for text in lines for line in text.split("\n"))


def frame(line: int, source: str = "go()", file: str = "/app/train.py") -> str:
    return f'  File "{file}", line {line}, in step\n    {source}'


def raised(line: int, words: str, source: str = "go()") -> str:
    return f"{TRACEBACK}\n{frame(line, source)}\n{words}"


@pytest.mark.parametrize(("prefix", "rank"), [("", 0), ("[rank0]: ", 0), ("[rank0]: ", None)])
def test_of_a_group_the_innermost_first_exception_counts(prefix: str, rank: int | None) -> None:
    text = GROUP.format(first="OSError: shard-5: checksum is 9c, expected 77")
    (clue,) = clues(*(prefix + line for line in text.split("\n")), rank=rank)
    assert clue.line == "OSError: shard-5: checksum is 9c, expected 77 (and 2 more)"
    assert (clue.where, clue.rank, clue.last) == ("data.py:3 in fetch", 0, True)


@pytest.mark.parametrize("first", [LOST, "asyncio.exceptions.CancelledError"])
def test_of_a_group_what_only_follows_does_not_count(first: str) -> None:
    (clue,) = clues(GROUP.format(first=first))
    assert (clue.line, clue.where) == ("TypeError: second (and 2 more)", "train.py:9 in load")


def test_a_group_is_a_part_of_a_chain() -> None:
    group = GROUP.format(first="KeyError: 'x'").split("\n      +--")[0]
    (clue,) = clues(group, "", HANDLING, "", raised(20, MISSING, "save(state)"))
    assert clue.line.startswith("KeyError: 'x' (data.py:3 in fetch); then FileNotFoundError")
    (clue,) = clues(raised(4, "ValueError: root"), "", HANDLING, "", group)
    assert clue.line == "ValueError: root (train.py:4 in step); then KeyError: 'x'"


@pytest.mark.parametrize(
    ("first", "link", "last", "source", "row", "told"),
    [
        (
            "ValueError: 17",
            HANDLING,
            "RuntimeError: no folder",
            "go()",
            "exception",
            ("17", "folder"),
        ),
        ("ValueError: 17", HANDLING, MISSING, "go()", "exception", ("17", "emergency")),
        ("KeyError: 'x'", HANDLING, MISSING, "torch.save(x)", "exception", ("'x'", "emergency")),
        ("KeyError: 'x'", HANDLING, MISSING, "open(path)", "file_missing", ("'x'", "emergency")),
        ("KeyError: 'x'", HANDLING, "ValueError: no adamz", "go()", "exception", ("'x'", "adamz")),
        ("KeyError: 'x'", DIRECT, "ValueError: no adamz", "go()", "exception", ("'x'", "adamz")),
        (MISSING, DIRECT, "RuntimeError: cannot load", "go()", "file_missing", ("emergency",)),
        (
            "OSError: [Errno 28] x",
            HANDLING,
            "PermissionError: [Errno 13] y",
            "go()",
            "disk_full",
            ("28", "13"),
        ),
        (LOST, HANDLING, MISSING, "go()", "peer_gone", ("closed",)),
        (LOST, HANDLING, "KeyError: 'x'", "go()", "peer_gone", ("closed",)),
        (LOST, HANDLING, "OSError: [Errno 28] x", "go()", "peer_gone", ("closed",)),
        ("KeyError: 'x'", HANDLING, LOST, "go()", "exception", ("'x'",)),
        ("OSError: [Errno 28] x", HANDLING, LOST, "go()", "disk_full", ("28",)),
        (MISSING, HANDLING, "RuntimeError: cannot load", "go()", "file_missing", ("emergency",)),
        (LOST, DIRECT, "RuntimeError: step failed", "go()", "peer_gone", ("closed",)),
    ],
)
def test_of_a_chain_what_happened_first_is_told_and_what_failed_then(
    first: str, link: str, last: str, source: str, row: str, told: tuple[str, ...]
) -> None:
    (clue,) = clues(raised(3, first), "", link, "", raised(7, last, source))
    assert clue.id == row
    assert all(words in clue.line for words in told)
    assert ("; then " in clue.line) == (len(told) > 1)


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_a_program_that_cannot_be_read_is_told_with_its_place(prefix: str) -> None:
    lines = ['  File "/app/syn.py", line 2', "    print(1", "         ^"]
    (clue,) = clues(*(prefix + text for text in (*lines, "SyntaxError: '(' was never closed")))
    assert (clue.id, clue.line) == ("syntax_error", "SyntaxError: '(' was never closed")
    assert (clue.where, clue.raised, clue.last) == ("syn.py:2", True, True)


def test_what_only_a_library_has_seen_is_not_what_happened_first() -> None:
    library = frame(3, file="/usr/lib/python3/urllib/request.py")
    refused = "ConnectionRefusedError: [Errno 111] Connection refused"
    last = "ValueError: the service is not there"
    (clue,) = clues(TRACEBACK, library, "KeyError: 1", "", HANDLING, "", raised(7, last))
    assert (clue.line, clue.where) == (last, "train.py:7 in step")
    last = "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"
    (clue,) = clues(TRACEBACK, library, refused, "", HANDLING, "", raised(7, last))
    assert clue.line == last


def test_what_a_childs_exception_is_raised_from_tells_where() -> None:
    words = "ValueError: row 4 is empty"
    remote = ["multiprocessing.pool.RemoteTraceback: ", '"""', raised(3, words), '"""']
    (clue,) = clues(*remote, "", DIRECT, "", raised(9, words))
    assert (clue.line, clue.where) == (words, "train.py:3 in step")


def test_what_a_child_has_raised_is_told_with_who_says_that_a_process_failed() -> None:
    child = raised(3, "ValueError: row 3 is empty")
    found = clues(child, raised(9, "RuntimeError: the script exited with code 1"))
    assert found[-1].line == (
        "ValueError: row 3 is empty (train.py:3 in step); "
        "then RuntimeError: the script exited with code 1"
    )
    assert clues(child, raised(9, "RuntimeError: no"))[-1].line == "RuntimeError: no"


def test_an_assertion_without_words_is_told_by_its_source() -> None:
    (clue,) = clues(raised(3, "AssertionError", "assert batch % world == 0"))
    assert clue.line == "AssertionError: assert batch % world == 0"
    (clue,) = clues(raised(3, "AssertionError: no", "assert batch % world == 0"))
    assert clue.line == "AssertionError: no"


def test_a_traceback_in_a_record_of_json_is_read() -> None:
    text = raised(3, 'ValueError: label 17 is "bad"').replace('"', '\\"').replace("\n", "\\n")
    record = f'{{"level":"ERROR","exc_info":"{text}","rank":0}}'
    (clue,) = clues('{"level":"INFO"}', record, '{"level":"INFO","msg":"bye"}')
    assert (clue.line, clue.where) == ('ValueError: label 17 is "bad"', "train.py:3 in step")


def test_the_tracebacks_of_loguru_have_a_mark() -> None:
    marked = f'{TRACEBACK}\n\n> File "/app/train.py", line 10, in <module>\n    main()\n'
    (clue,) = clues(marked, frame(7), "    \u2514 0", "", "ZeroDivisionError: division by zero")
    assert (clue.line, clue.where) == (
        "ZeroDivisionError: division by zero",
        "train.py:7 in step",
    )


def test_colours_do_not_hide_a_level() -> None:
    (clue,) = clues("\x1b[31mERROR\x1b[0m shard 7 is gone", "\x1b[32mINFO\x1b[0m bye")
    assert (clue.id, clue.line) == (LOGGED, "ERROR shard 7 is gone")


def test_what_a_command_wrote_is_told_with_its_failure() -> None:
    failed = "subprocess.CalledProcessError: Command '['ls']' returned non-zero exit status 2."
    (clue,) = [one for one in clues("ls: cannot access '/x'", raised(3, failed)) if one.raised]
    assert clue.line == f"{failed}; its command said 'ls: cannot access '/x''"


@pytest.mark.parametrize(
    ("said", "row"),
    [
        ("nvcc fatal   : Value 'c++17' is not defined for option 'std'", "build_failed"),
        ("/tmp/ccJ.s: fatal error: error writing: No space left on device", "disk_full"),
    ],
)
@pytest.mark.parametrize(
    "then",
    [
        ["FAILED: adam.cuda.o"],
        ["collect2: error: ld returned 1 exit status"],
        ["ninja: build stopped: subcommand failed."],
        ["make[1]: *** [Makefile:7: adam.o] Error 1"],
        ["error: command '/usr/bin/gcc' failed with exit code 1"],
    ],
)
def test_what_a_compiler_said_is_told_with_what_came_of_it(
    said: str, row: str, then: list[str]
) -> None:
    failed = "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero status 1."
    last = "RuntimeError: Error building extension 'adam'"
    clue = clues(said, *then, raised(3, failed), "", DIRECT, "", raised(7, last))[-1]
    assert clue.line.startswith(failed)
    assert clue.line.endswith(f"; its command said '{said}'")
    assert clue.id == row


def test_what_a_linker_lacks_is_told_rather_than_the_builders_exception() -> None:
    lacks = "/usr/bin/ld: cannot find -lcuda: No such file or directory"
    failed = "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero status 1."
    last = "RuntimeError: Error building extension 'adam': [1/2] c++ a.o -lcuda -o adam.so"
    before = clues(lacks, raised(3, failed), "", DIRECT, "", raised(7, last))[-1]
    within = clues(raised(7, last), "FAILED: adam.so", lacks, "collect2: error: ld returned 1")[-1]
    assert (before.id, before.line) == (within.id, within.line) == ("build_failed", lacks)


@pytest.mark.parametrize(
    "words",
    ["Exception ignored in: <function A.__del__ at 0x7f>", "Exception ignored in atexit callback:"],
)
def test_what_the_interpreter_ignores_ends_nothing(words: str) -> None:
    ignored = f"{words}\n{raised(9, 'OSError: [Errno 24] Too many open files')}"
    (clue,) = clues(raised(3, "OSError: [Errno 24] Too many open files: 'a'"), ignored)
    assert (clue.line[-5:], clue.where) == (": 'a'", "train.py:3 in step")
    assert clues("step 1", ignored) == []


def dump(header: str, *threads: str) -> str:
    return "\n".join((header, *threads))


OURS = """\
Thread 0x00007f560aa666c0 (most recent call first):
  File "/usr/lib/python3/dist-packages/rdzv/_app/worker/look/answering.py", line 107 in _serve
"""
MAIN = """\
{} 0x00007f5627a5ab80 (most recent call first):
  File "/app/train.py", line 46 in read_shard
  File "/app/train.py", line 49 in <module>"""
OTHER = """\
{} 0x00007f560aa666c1 (most recent call first):
  File "/app/train.py", line 12 in prefetch
"""
IN_TORCH = """\
Thread 0x00007f5627a5ab80 (most recent call first):
  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce
  File "/app/train.py", line 49 in <module>"""


@pytest.mark.parametrize("time", ["0:00:04", "0:00:00.300000", "1:30:00"])
def test_a_programs_own_watchdog_tells_where_its_main_thread_was(time: str) -> None:
    (clue,) = clues(dump(f"Timeout ({time})!", OURS, OTHER.format("Thread"), MAIN.format("Thread")))
    assert (clue.id, clue.line) == ("own_watchdog", f"Timeout ({time})!")
    assert (clue.where, clue.last) == ("train.py:46 in read_shard", True)


def test_a_watchdog_of_who_waits_for_others_only_shows_that() -> None:
    (clue,) = clues(dump("Timeout (0:00:04)!", OURS, IN_TORCH))
    assert (clue.id, clue.where) == ("waited", "train.py:49")


def test_a_watchdog_after_which_its_program_went_on_did_not_end_it() -> None:
    dumped = dump("Timeout (0:00:04)!", OURS, MAIN.format("Thread"))
    assert clues(dumped, *(f"step {n}" for n in range(60))) == []


@pytest.mark.parametrize(
    ("threads", "where"),
    [
        ((OURS, MAIN.format("Current thread")), "train.py:46 in read_shard"),
        ((OTHER.format("Current thread"), OURS, MAIN.format("Thread")), "train.py:12 in prefetch"),
        ((OURS, OTHER.format("Thread"), MAIN.format("Thread")), "train.py:46 in read_shard"),
        (
            ("Current thread 0x7f:\n  <no Python frame>\n", MAIN.format("Thread")),
            "train.py:46 in read_shard",
        ),
        ((OURS,), ""),
    ],
)
def test_a_crash_is_where_its_current_thread_was(threads: tuple[str, ...], where: str) -> None:
    (clue,) = clues(dump("Fatal Python error: Segmentation fault", "", *threads))
    assert (clue.id, clue.where) == ("segfault", where)


def test_an_error_is_a_clue_where_nothing_was_raised() -> None:
    error = "2026-11-25 data ERROR shard 7 is gone"
    (clue,) = clues("step 1", error, "2026-11-25 data INFO bye")
    assert (clue.id, clue.line, clue.raised) == (LOGGED, error, False)
    assert [one.id for one in clues(error, raised(3, "ValueError: no"))] == ["exception"]
    steps = (f"step {n}" for n in range(20))
    (clue,) = clues(raised(3, "ValueError: got over"), *steps, error)
    assert clue.id == LOGGED


def test_a_warning_of_a_store_that_answers_later_is_none() -> None:
    warning = (
        "[W1125 17:56:01.66 socket.cpp:764] [c10d] The client socket has failed to connect to "
        "[localhost]:29500 (errno: 111 - Connection refused)."
    )
    assert [one.id for one in clues(warning)] == ["waited"]
    native = ["Exception raised from ping at x.cpp:4", "frame #2: c10::DistNetworkError()", ""]
    assert [one.line for one in clues(warning, *native)] == [warning]
    assert clues(warning, "step 1") == []
    assert [one.id for one in clues(warning, "ERROR: no shard")] == [LOGGED]


OF_ALL = f"""\
x.CheckpointException: CheckpointException ranks:dict_keys([3, 5])
{TRACEBACK} (RANK 3)
{frame(90, file="/usr/lib/python3/dist-packages/torch/distributed/checkpoint/utils.py")}
RuntimeError: Missing key in checkpoint state_dict: ema.
{TRACEBACK} (RANK 5)
{frame(91, file="/usr/lib/python3/dist-packages/torch/distributed/checkpoint/utils.py")}
ValueError: no"""


@pytest.mark.parametrize("rank", [None, 2, 3])
def test_what_all_say_of_one_rank_is_one_exception_that_names_it(rank: int | None) -> None:
    (clue,) = clues(raised(7, OF_ALL), rank=rank)
    assert (clue.id, clue.where, clue.rank) == ("told_of_rank", "train.py:7 in step", rank)
    assert clue.line.endswith("(RANK 3) RuntimeError: Missing key in checkpoint state_dict: ema.")


SUMMARY = [f"track: layer{number}/gradient_error 0.1" for number in range(200)]


def test_what_torch_says_of_an_uncaught_exception_ended_its_rank_whatever_follows() -> None:
    lines = raised(7, "AssertionError", source="assert len(tokens) == len(mask)").split("\n")
    (clue,) = clues(*(f"[rank0]: {line}" for line in lines), *SUMMARY)
    assert clue.line == "AssertionError: assert len(tokens) == len(mask)"
    assert (clue.where, clue.last) == ("train.py:7 in step", True)
    assert clues(*lines, *SUMMARY) == []


@pytest.mark.parametrize(
    ("seconds", "last", "told"),
    [
        (0.9, "", ["exception"]),
        (1.1, "", []),
        (0.9, "data ERROR shard 7 is gone", [LOGGED]),
    ],
)
def test_what_is_said_at_once_after_an_exception_is_said_at_its_end(
    seconds: float, last: str, told: list[str]
) -> None:
    lines = [*raised(7, "ValueError: no").split("\n"), *(f"layer {n}: 1" for n in range(80)), last]
    times = [0.0] * 4 + [seconds] * 81
    found = find_clues(Line(text, 0, at) for text, at in zip(lines, times, strict=True))
    assert [one.id for one in found] == told


def test_in_a_stream_of_several_ranks_what_only_follows_hides_no_reason() -> None:
    said = [raised(7, "ValueError: no"), *(raised(line, LOST) for line in (8, 9, 10))]
    assert [one.id for one in clues(*said, rank=None)] == ["exception", "peer_gone", "peer_gone"]
    assert [one.id for one in clues(*said)] == ["peer_gone", "peer_gone"]
    went_on = [said[0], *(f"step {number}" for number in range(20)), *said[1:]]
    assert [one.id for one in clues(*went_on, rank=None)] == ["peer_gone", "peer_gone"]


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("urllib.error.HTTPError: HTTP Error 403: Forbidden", "service_refuses"),
        ("acme.GatedRepoError: 401 Client Error. (Request ID: 5a)", "service_refuses"),
        ("botocore.exceptions.ClientError: An error occurred (404) when", "service_lacks"),
        ("requests.exceptions.HTTPError: 429 Client Error: Too Many", "service_fails"),
        ("aiohttp.ClientResponseError: 403, message='Forbidden'", "service_refuses"),
        ("requests.exceptions.RetryError: x: too many 503 error responses", "service_fails"),
        ("urllib.error.URLError: <urlopen error timed out>", "unreachable"),
    ],
)
def test_a_service_that_answers_is_reached(words: str, row: str) -> None:
    assert [one.id for one in clues(raised(7, words))] == [row]
    assert row == "unreachable" or clues(f"WARNING {words}, trying again", "step 1") == []


def test_what_a_library_raises_from_another_exception_is_told_with_that() -> None:
    library = frame(5, "assert a == b", "/usr/lib/python3/dist-packages/stage.py")
    cause = f"{TRACEBACK}\n{library}\nAssertionError"
    found = clues(cause, "", DIRECT, "", raised(7, "RuntimeError: no stage"))
    assert found[-1].line == "RuntimeError: no stage; from AssertionError: assert a == b"
    again = f"{TRACEBACK}\n{library}\nValueError: why"
    found = clues(again, "", DIRECT, "", raised(7, "RuntimeError: no stage, for: why"))
    assert found[-1].line == "RuntimeError: no stage, for: why"

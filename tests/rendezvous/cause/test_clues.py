"""What lines of output tell, by value."""

from __future__ import annotations

import pytest

from rendezvous.cause.clues import LOGGED, Line, find_clues, without_tracebacks
from rendezvous.wire.evidence import Clue

TRACEBACK = "Traceback (most recent call last):"
FRAME = '  File "/app/train.py", line 7, in step'
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:5"


def clues(*lines: str, rank: int | None = 0) -> list[Clue]:
    return find_clues(Line(line, rank) for line in lines)


def test_of_a_launchers_traceback_only_that_it_was_told_to_end_is_said() -> None:
    frames = [TRACEBACK, '  File "/x/torch/distributed/run.py", line 9, in main', "    run(args)"]
    told = f"{CHILD.removesuffix('errors.ChildFailedError: ')}api.SignalException: Process 7 ended"
    assert without_tracebacks(["step 1", *frames, told, "step 2"]) == ["step 1", told, "step 2"]
    assert without_tracebacks(["step 1", *frames, CHILD, "step 2"]) == ["step 1", "step 2"]


def the_clue(*lines: str, rank: int | None = 0) -> Clue:
    (clue,) = clues(*lines, rank=rank)
    return clue


def test_a_traceback_tells_its_last_line_and_the_users_own_frame() -> None:
    library = '  File "/usr/lib/python3/site-packages/torch/nn.py", line 9, in forward'
    clue = the_clue("step 1", TRACEBACK, FRAME, "    go()", library, "ValueError: no")
    assert (clue.id, clue.line, clue.where) == ("exception", "ValueError: no", "train.py:7 in step")
    assert (clue.rank, clue.raised, clue.last) == (0, True, True)


def test_a_loaders_exception_is_its_workers() -> None:
    _, clue = clues(
        TRACEBACK,
        FRAME,
        "PermissionError: Caught PermissionError in DataLoader worker process 0.",
        "Original Traceback (most recent call last):",
        '  File "/app/data.py", line 3, in __getitem__',
        "PermissionError: [Errno 13] Permission denied: '/data/7'",
    )
    assert clue.id == "permission"
    assert (clue.where, clue.raised, clue.last) == ("data.py:3 in __getitem__", True, True)


def test_a_worker_that_was_killed_says_so_though_torch_raises_more_from_it() -> None:
    killed = "RuntimeError: DataLoader worker (pid 4844) is killed by signal: Killed. "
    words = "The above exception was the direct cause of the following exception:"
    gone = "RuntimeError: DataLoader worker (pid(s) 4844) exited unexpectedly"
    clue = the_clue(TRACEBACK, FRAME, killed, "", words, "", TRACEBACK, FRAME, gone)
    assert (clue.id, clue.line) == ("loader_worker", killed.strip())


@pytest.mark.parametrize(("rank", "lines"), [(0, ["closed"]), (None, ["no", "closed"])])
def test_an_exception_after_which_a_rank_went_on_does_not_explain_its_end(
    rank: int | None, lines: list[str]
) -> None:
    steps = [f"step {step}" for step in range(20)]
    last = "RuntimeError: gloo/transport: Connection closed"
    found = clues(TRACEBACK, FRAME, "ValueError: no", *steps, TRACEBACK, FRAME, last, rank=rank)
    assert [clue.line.split()[-1] for clue in found] == lines


def test_native_code_may_write_between_the_lines_of_a_traceback() -> None:
    nccl = "h:9:9 [0] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=12"
    found = clues(
        TRACEBACK, FRAME, nccl, "[rank0]:[E612 06:24:44.9 x.cpp:7] y", FRAME, "ValueError: no"
    )
    assert [(clue.id, clue.line) for clue in found] == [
        ("ib_path", nccl),
        ("exception", "ValueError: no"),
    ]
    assert clues(TRACEBACK, FRAME, "it is over", "INFO: done") == []


def test_torchruns_own_words_are_no_clue() -> None:
    assert clues(TRACEBACK, FRAME, CHILD, "train.py FAILED", rank=None) == []
    found = clues(TRACEBACK, FRAME, "ValueError: no", TRACEBACK, FRAME, CHILD, rank=None)
    assert [clue.line for clue in found] == ["ValueError: no"]


CALLED = "subprocess.CalledProcessError: Command '['/usr/bin/python', 'x.py']' returned 1."


def test_a_command_that_a_rank_has_run_is_its_own_and_a_launchers_is_not() -> None:
    assert the_clue(TRACEBACK, FRAME, CALLED).line == CALLED
    assert clues(TRACEBACK, FRAME, CALLED, rank=None) == []


@pytest.mark.parametrize(("steps", "told"), [(0, ["ValueError: no"]), (20, [CALLED])])
def test_what_a_ranks_command_has_raised_says_more_than_that_it_failed(
    steps: int, told: list[str]
) -> None:
    between = [f"step {step}" for step in range(steps)]
    found = clues(TRACEBACK, FRAME, "ValueError: no", *between, TRACEBACK, FRAME, CALLED)
    assert [clue.line for clue in found] == told


def test_what_the_colon_of_an_exception_announces_belongs_to_it() -> None:
    words = ("RuntimeError: Error(s) in loading state_dict for Net:", "\tMissing key(s): 'a'")
    clue = the_clue(TRACEBACK, FRAME, *words, "\tUnexpected key(s): 'b'")
    assert clue.line == f"{words[0]} Missing key(s): 'a'; Unexpected key(s): 'b'"
    assert the_clue(TRACEBACK, FRAME, words[0]).line == words[0]
    assert the_clue(TRACEBACK, FRAME, "ValueError: no", "step 2").line == "ValueError: no"


WHY = "ValueError: no (train.py:7 in step)"


@pytest.mark.parametrize("aside", ["Exception in thread Thread-1 (fetch):", "Process Spawn-1:"])
@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("_queue.Empty", ["ValueError: no", f"{WHY}; then _queue.Empty"]),
        ("EOFError", ["ValueError: no", f"{WHY}; then EOFError"]),
        ("EOFError: Ran out of input", ["ValueError: no", "EOFError: Ran out of input"]),
        ("KeyError: 'x'", ["ValueError: no", "KeyError: 'x'"]),
    ],
)
def test_who_waits_in_vain_for_a_thread_or_a_child_is_not_the_cause(
    aside: str, then: str, told: list[str]
) -> None:
    found = clues(aside, TRACEBACK, FRAME, "ValueError: no", "step 2", TRACEBACK, FRAME, then)
    assert [clue.line for clue in found] == told
    assert found[-1].last


BUS = "ERROR: Unexpected bus error encountered in worker. This might be caused by no memory (shm)."
OF_CHILD = '  File "/usr/lib/python3.12/multiprocessing/connection.py", line 399, in _recv'
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("frame", "lost"),
    [
        (FRAME, "RuntimeError: DataLoader worker (pid(s) 1233, 1236) exited unexpectedly"),
        (FRAME, "RuntimeError: Pin memory thread exited unexpectedly"),
        (FRAME, "SystemError: (Fatal) Blocking queue is killed because the data reader raises."),
        (FRAME, "concurrent.futures.process.BrokenProcessPool: A process was terminated"),
        (FRAME, "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker ended."),
        (FRAME, "RuntimeError: Engine core initialization failed. See root cause above."),
        (FRAME, "EngineDeadError: see stack trace (above) for the root cause."),
        (FRAME, "RuntimeError: One of the subprocesses has abruptly died during map operation."),
        (OF_CHILD, "EOFError: Ran out of input"),
        (OF_CHILD.replace("processing", "process"), "_pickle.UnpicklingError: data was truncated"),
        (OF_CHILD, "BrokenPipeError: [Errno 32] Broken pipe"),
        (OF_CHILD, "ConnectionResetError: [Errno 104] Connection reset by peer"),
        (OF_CHILD, REFUSED),
    ],
)
@pytest.mark.parametrize("marks", [[], ["Process loader of the first shard:", "EXCEPTION"]])
def test_who_has_lost_a_part_of_its_program_is_told_behind_its_reason(
    frame: str, lost: str, marks: list[str]
) -> None:
    reason = "OSError: [Errno 28] No space left on device"
    last = (TRACEBACK, frame, lost)
    clue = clues(*marks, TRACEBACK, FRAME, reason, *last, *last)[-1]
    assert (clue.id, clue.line) == ("disk_full", f"{reason} (train.py:7 in step); then {lost}")
    assert (clue.raised, clue.last) == (True, True)
    clue = clues("libc.so: undefined symbol: x", "WARNING: rows are lost", *last)[-1]
    assert (clue.id, clue.line) == ("shared_library", f"libc.so: undefined symbol: x; then {lost}")
    assert clues(BUS, *last)[-1].line == f"{BUS}; then {lost}"
    assert [one.line for one in clues(TRACEBACK, FRAME, LOST, *last)] == [LOST, lost]


@pytest.mark.parametrize(
    ("said", "lost", "told"),
    [
        (3.0, 4.0, f"{BUS}; then _queue.Empty"),
        (3.0, 14.0, "_queue.Empty"),
        (4.5, 4.0, f"{BUS}; then _queue.Empty"),
        (6.0, 4.0, "_queue.Empty"),
    ],
)
def test_the_reason_of_who_lost_a_child_is_said_about_then(
    said: float, lost: float, told: str
) -> None:
    lines = [Line(BUS, 0, said, stream="stdout")]
    texts = [TRACEBACK, FRAME, "_queue.Empty"]
    lines += [Line(text, 0, lost, stream="stderr") for text in texts]
    *_, clue = find_clues(sorted(lines, key=lambda line: line.at or 0.0))
    assert clue.line == told


def test_of_a_service_that_refuses_a_connection_no_child_is_the_reason() -> None:
    found = clues(TRACEBACK, FRAME, "ValueError: no", TRACEBACK, FRAME, REFUSED)
    assert [clue.line for clue in found] == ["ValueError: no", REFUSED]


@pytest.mark.parametrize(
    ("line", "last"),
    [
        ("step 2, loss 0.1", False),
        ("", True),
        ("  indented words of the exception", True),
        ("W1125 11:02:16.430000 4416 torch/distributed: closing", True),
        ("[rank0]:[E612 06:24:44.903800913 ProcessGroupNCCL.cpp:757] destroyed", True),
        ("Exception ignored in: <function f>", True),
        ("/app/x.py:3: UserWarning: leaked", True),
    ],
)
def test_what_was_got_over_is_not_the_last(line: str, last: bool) -> None:
    assert the_clue(TRACEBACK, FRAME, "ValueError: no", line).last is last


def test_of_two_tracebacks_the_first_is_not_the_last() -> None:
    found = clues(TRACEBACK, FRAME, "ValueError: 1", TRACEBACK, FRAME, "ValueError: 2")
    assert [(clue.line, clue.last) for clue in found] == [
        ("ValueError: 1", False),
        ("ValueError: 2", True),
    ]


@pytest.mark.parametrize(
    ("prefix", "ranks"),
    [
        ("[rank{}]: ", [3, 12]),
        ("[default{}]:", [None, None]),
        ("[1,{}]<stderr>:", [None, None]),
    ],
)
def test_prefixes_tell_sources_apart(prefix: str, ranks: list[int | None]) -> None:
    lines = [TRACEBACK, FRAME, "ValueError: {}"]
    mixed = [prefix.format(rank) + line.format(rank) for line in lines for rank in (3, 12)]
    found = clues(*mixed, rank=None)
    assert [clue.rank for clue in found] == ranks
    assert [clue.line for clue in found] == ["ValueError: 3", "ValueError: 12"]


def test_a_rank_may_have_the_prefix_of_its_own_number() -> None:
    mixed = [f"[1,{n}]<stderr>:{line}" for line in (TRACEBACK, FRAME, "ValueError") for n in (3, 4)]
    (clue,) = [one for one in clues(*mixed, rank=3) if one.raised]
    assert (clue.line, clue.where) == ("ValueError", "train.py:7 in step")


def test_the_interpreters_last_words_name_the_innermost_line() -> None:
    clue = the_clue(
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f (most recent call first):",
        '  File "/usr/lib/python3/ctypes/__init__.py", line 1 in string_at',
        '  File "/app/train.py", line 9 in step',
        '  File "/app/train.py", line 20 in <module>',
    )
    assert (clue.id, clue.where, clue.raised) == ("segfault", "train.py:9 in step", False)


def test_of_single_lines_the_first_consequence_and_the_last_of_others_count() -> None:
    found = clues(
        "[c10d] TCPStore.cpp Connection 1 closed",
        "[c10d] TCPStore.cpp Connection 2 closed",
        "write: No space left on device 1",
        "write: No space left on device 2",
    )
    assert [clue.line[-8:] for clue in found] == ["1 closed", "device 2"]


JUNK = {
    "NUL": "\x00" * 50,
    "ESC": "\x1b[31mred\x1b[0m",
    "separators": "\u2028\u2029\u202e\x85",
    "half a character": "\ud800",
    "long": "gloo::" * 2000,
    "dots": "a." * 5000,
    "rank": "[rank99999999999999]: x",
    "negative": "[rank-1]: x",
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
def test_hostile_lines_do_no_harm(junk: str) -> None:
    error = f"OSError: [Errno 28] No space left on device {junk}"
    found = clues(junk, f"[rank1]: {junk}", TRACEBACK, f'  File "{junk}", line 1, in {junk}', error)
    full = next(clue for clue in found if clue.id == "disk_full")
    assert len(full.line) <= 400
    for clue in found:
        assert Clue.model_validate(clue.model_dump()) == clue


def test_there_are_never_more_clues_than_may_be_sent() -> None:
    lines = [f"[rank{rank}]: OSError: [Errno 28] x" for rank in range(100)]
    assert len(find_clues(map(Line, lines))) == 32


@pytest.mark.parametrize(
    ("level", "told"),
    [
        ("h:9:9 [0] NCCL INFO NET/Plugin : ", False),
        ("2026-03-08 10:11:02 | DEBUG | app.plugins - ", False),
        ('{"level": "info", "msg": "', False),
        ("I0720 08:15:11.594192 4529 dso_loader.cc:152] ", False),
        ("info: ", False),
        ("h:9:9 [0] NCCL WARN NET/Plugin : ", True),
        ("WARNING: ", True),
        ("W0720 08:15:11.594192 4529 dso_loader.cc:152] ", True),
        ("", True),
    ],
)
def test_what_is_logged_below_a_warning_is_no_clue(level: str, told: bool) -> None:
    line = f"{level}libx.so: cannot open shared object file: No such file or directory"
    assert [clue.id for clue in clues(line) if clue.id != LOGGED] == ["shared_library"] * told

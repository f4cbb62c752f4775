"""Which lines tell most where no row knows them, by value."""

from __future__ import annotations

import pytest

from rendezvous.cause.lines import Tells, is_warning, last_error, last_line, message, tells

LOGGED = {
    "logging": "2026-11-25 17:58:01,062 data ERROR shard 7 is gone",
    "logging's own": "CRITICAL:root:shard 7 is gone",
    "dashes": "2026-11-25 - data - ERROR - shard 7 is gone",
    "loguru": "2026-11-25 17:58:01.123 | ERROR    | data:load:12 - shard 7 is gone",
    "absl": "E1125 17:58:01.062000 123 data.py:12] shard 7 is gone",
    "glog": "F20261125 17:58:01.062000 123 data.cc:12] Check failed: left > 0",
    "hydra": "[2026-11-25 17:58:01,062][data][ERROR] - shard 7 is gone",
    "structlog": "2026-11-25T17:58:01Z [error    ] shard is gone   number=7",
    "JSON": '{"ts": 1, "level":"error", "msg": "shard 7 is gone"}',
    "JSON of bunyan": '{"name":"data","level":50,"msg":"shard 7 is gone"}',
    "logfmt": 'ts=1 level=error msg="shard 7 is gone"',
    "Go's": "panic: runtime error: index out of range [5] with length 3",
    "Java's": 'Exception in thread "main" java.lang.IllegalStateException: no shard',
    "a shell's": "train.sh: line 3: trainx: command not found",
    "a compiler's": "x.c:3:5: error: unknown type name 'foo'",
    "argparse's": "train.py: error: unrecognized arguments: --x",
    "an exception's": "data.errors.ShardError: 7 is gone",
    "C's": "train: x.c:12: main: Assertion `n > 0' failed.",
    "Dask's": "Exception: XGBoostError('no label; [bt] libxgboost.so(f+0x97) [0x7f2778]')",
}
NOISE = {
    "a bar": "Epoch 1:  12%|#2        | 37/300 [00:01<00:08, 97.31it/s]",
    "a rate": "300 steps, 3.2 it/s",
    "wandb": "wandb: Synced 5 W&B file(s), 0 media file(s)",
    "a tracker": "/usr/lib/resource_tracker.py:224: UserWarning: 1 leaked semaphore",
    "a line": "=========",
    "a caret": "    ^^^^^^^^",
    "a frame": '  File "/app/train.py", line 3 in step',
    "of Java": "\tat Main.load(Main.java:5)",
    "of Go": "goroutine 1 [running]:",
    "of Rust": "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
    "a shell": "Aborted (core dumped)",
    "of Open MPI": "[node-0:123] 3 more processes have sent help message help-mpi-errors.txt",
    "of PETSc": "[2]PETSC ERROR: Try option -start_in_debugger",
    "of Paddle": "[Hint: Expected killed_ != true, but received killed_:1 == true:1.]",
    "nothing": "",
}


@pytest.mark.parametrize("text", LOGGED.values(), ids=LOGGED.keys())
def test_an_error_is_known_by_its_level_or_by_how_it_is_announced(text: str) -> None:
    assert tells(text) is Tells.ERROR
    later = ["2026-11-25 data INFO bye", *NOISE.values(), "Exiting.", "done"]
    assert last_error(["step 1", text, *later]) == text


@pytest.mark.parametrize("text", NOISE.values(), ids=NOISE.keys())
def test_noise_is_no_last_word(text: str) -> None:
    assert tells(text) is Tells.NOISE
    assert last_line(["need at least 4 GPUs", text]) == "need at least 4 GPUs"


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-25 data INFO no ERROR was found",
        "WARNING:root:error 503, trying again",
        '{"level":"info","msg":"0 errors"}',
        "[warning] the error was got over",
        "I1125 17:58:01.062000 123 data.py:12] error 503 of the cache",
        "Goodbye!",
        "Shutting down the pool",
    ],
)
def test_what_is_no_error_is_quiet(text: str) -> None:
    assert tells(text) is Tells.QUIET
    assert last_error([text]) == ""


def test_who_aborts_itself_says_why() -> None:
    assert last_error(["step 1", "Aborted: the shards overlap"]) == "Aborted: the shards overlap"
    assert tells("ERROR: NCCL failed. Set NCCL_DEBUG=WARN for detail") is Tells.ERROR
    assert not is_warning("InternalError: NCCL failed. Set NCCL_DEBUG=WARN for detail")


def test_an_error_may_be_a_metric() -> None:
    assert last_error(["ep 41 train, step 12, ce 0.412, error 0.081", "train_error=.1"]) == ""
    assert last_error(["step 12: error 28"]) == "step 12: error 28"


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["cannot read /data/7", "step 2"], "cannot read /data/7; step 2"),
        (["cannot read /data/7", "Saving state"], "cannot read /data/7"),
        (["reading failed, again", *["step"] * 9], ""),
        (["ERROR: one", "ERROR: two"], "ERROR: two"),
        (["ERROR: one", *["step"] * 50], ""),
        (["ERROR: of step 3", "loss is nan"], "ERROR: of step 3"),
        (
            ["ERROR: 2 settings are wrong:", "  rate", "  layers"],
            "ERROR: 2 settings are wrong: rate; layers",
        ),
        (["step 1", "step 2"], ""),
    ],
)
def test_an_error_near_the_end_is_told_with_the_plain_words_after_it(
    texts: list[str], told: str
) -> None:
    assert last_error(texts) == told


def test_a_part_is_told_with_what_it_is_part_of() -> None:
    texts = ["settings are not right:", "  rate: -0.1 is invalid", "  layers: x"]
    assert last_error(texts) == "settings are not right: rate: -0.1 is invalid; layers: x"
    assert last_line(["Key 'a' is not there", "    full_key: o.a"]) == (
        "Key 'a' is not there: full_key: o.a"
    )


def test_rust_and_cpp_announce_a_line() -> None:
    panic = "thread 'main' panicked at src/main.rs:4:5:"
    texts = [panic, "index out of bounds", NOISE["of Rust"]]
    assert last_error(texts) == f"{panic} index out of bounds"


def test_who_says_nothing_but_goodbye_is_quoted_so() -> None:
    assert last_line(["INFO: step 1", "bye", "===="]) == "bye"
    assert last_line(["===="]) == last_line([]) == ""


@pytest.mark.parametrize(
    ("header", "more", "told"),
    [
        ("E: 1 validation error for S", ["rate", "  must be > 0 [x]"], "; rate: must be > 0 [x]"),
        (
            "E: Key 'a' is not there",
            ["    full_key: o.a", "    type=dict"],
            ": full_key: o.a; type=dict",
        ),
        ("E: 2 problems:", ["- rate", "- layers"], " - rate; - layers"),
        ("E:", ["", "Not equal to tolerance"], " Not equal to tolerance"),
        ("E: shapes differ", ["  got 3", "  expected 4"], ": got 3; expected 4"),
        ("E: no", ["step 2"], ""),
        ("E: no", ["", "  step 2"], ""),
        ("E: no:", ["a", "b"], " a"),
        ("E: no", ["  a", "frame #0: x"], ": a"),
        ("E: no", ["  a", "    For further information visit https://x/y"], ": a"),
        ("E: no", [f"  {n}{n}a" for n in range(9)], ": 00a; 11a; 22a; 33a; 44a"),
        ("E: " + "long " * 40, ["  a"], ""),
    ],
)
def test_a_message_has_its_first_telling_lines(header: str, more: list[str], told: str) -> None:
    assert message(header, more) == header.rstrip() + told


def test_after_a_prefix_that_only_tracebacks_have_all_lines_are_of_the_message() -> None:
    assert message("E: no", ["while reading 7"], whole=True) == "E: no; while reading 7"


RULE = "-" * 74
USUAL = """ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH

*  compilation of the orted with dynamic libraries when static are required
  (e.g., on Cray). Please check your configure cmd line""".splitlines()
FAILED = "[h0:14021] plm:rsh: execv of /logs/rdzv-rsh failed with errno=Permission denied(13)"
NO_SLOTS = """There are not enough slots available in the system to satisfy the 4
slots that were requested by the application:

  ./solve

Either request fewer procs for your application, or make more slots
available for use.""".splitlines()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([FAILED, RULE, *USUAL, RULE], FAILED),
        ([RULE, *USUAL, RULE], "ORTE was unable to reliably start one or more daemons."),
        (
            ["working", RULE, *NO_SLOTS, RULE],
            (
                "There are not enough slots available in the system to satisfy the 4 slots that "
                "were requested by the application: ./solve"
            ),
        ),
        (["[h0:1] all is well", RULE, "It failed.", "", "Or not found.", RULE], "It failed."),
        (["step 1", "", FAILED, RULE, *USUAL, RULE], FAILED),
        (
            [FAILED, "[h0:1] all is well", RULE, "It failed.", "", "Or not found.", RULE],
            "It failed.",
        ),
        (["or not found.", RULE, FAILED, RULE, *USUAL, RULE], FAILED),  # cut off above
        ([RULE, "It failed.", RULE, "ValueError: 7"], "ValueError: 7"),
    ],
)
def test_of_a_message_of_open_mpi_what_has_happened_counts_and_not_what_usually_has(
    texts: list[str], said: str
) -> None:
    assert last_error(texts) == said

"""The two streams of a rank, and what it said after a traceback, by value."""

from __future__ import annotations

import pytest

from rendezvous.cause.clues import LOGGED, Line, find_clues
from rendezvous.cause.lines import last_error, last_line
from rendezvous.wire.evidence import Clue

HEAD = ["Traceback (most recent call last):", '  File "/opt/train.py", line 88, in main']
SOURCE = '    batch["labels"]'
RAISED = [*HEAD, SOURCE, "KeyError: 'labels'"]
EPOCH = "Epoch: [0]  [10/14786]  lr: 0.000100  loss: 20.2318"
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 336.00 MiB."


def clues(*said: tuple[str, str], rank: int | None = 2, at: float | None = None) -> list[Clue]:
    """What is found in the lines, each with its stream."""
    return find_clues(Line(text, rank, at, stream=stream) for stream, text in said)


def err(*texts: str) -> list[tuple[str, str]]:
    return [("stderr", text) for text in texts]


def out(*texts: str) -> list[tuple[str, str]]:
    return [("stdout", text) for text in texts]


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("printed", [EPOCH, "Done", "step 3: loss 0.2", "ValueError: no", SOURCE])
@pytest.mark.parametrize("rank", [2, None])
def test_what_the_other_stream_says_meanwhile_is_not_of_the_traceback(
    printed: str, place: int, rank: int | None
) -> None:
    found = clues(*err(*RAISED[:place]), *out(printed), *err(*RAISED[place:]), rank=rank)
    (clue,) = (one for one in found if one.raised)
    assert (clue.line, clue.where) == ("KeyError: 'labels'", "train.py:88 in main")
    assert clue.last == (place < 4 or printed == SOURCE)


def test_a_message_of_several_lines_is_of_one_stream() -> None:
    texts = ["RuntimeError: sizes do not fit:", "  a: 3", "  b: 4"]
    said = [*err(*HEAD, texts[0]), *out("  epoch 3"), *err(texts[1]), *out("Done"), *err(texts[2])]
    assert [one.line for one in clues(*said)] == ["RuntimeError: sizes do not fit: a: 3; b: 4"]


def test_each_stream_may_have_a_traceback_and_the_later_one_counts() -> None:
    first = [*HEAD, "    go()", "ValueError: first"]
    said = [pair for each in zip(out(*first), err(*RAISED), strict=True) for pair in each]
    assert [one.line for one in clues(*said)] == ["ValueError: first", "KeyError: 'labels'"]


def test_what_went_on_is_seen_in_both_streams() -> None:
    went_on = out(*(f"layer {number} is {number}" for number in range(50)))
    assert clues(*err(*RAISED), *went_on) == []
    assert [one.id for one in clues(*err(*RAISED), *went_on[:9])] == ["exception"]


def test_the_prefix_of_torch_is_a_stream_of_its_own() -> None:
    """In merged logs, too: what has it is never said by somebody who has it not."""
    prefixed = [f"[rank2]: {text}" for text in RAISED]
    said = [Line(text) for text in (*prefixed[:3], "[rank2]:[W1123 00:52:57.6 x.cpp:1] Warning: x")]
    found = find_clues([*said, Line(EPOCH, 2), Line(prefixed[3])])
    assert [(one.line, one.rank, one.last) for one in found] == [("KeyError: 'labels'", 2, True)]


@pytest.mark.parametrize("printed", [EPOCH, "[10/14786] loss: 20.2", "saved", "loss: 0.3"])
@pytest.mark.parametrize("place", [2, 3])
def test_in_one_stream_progress_between_the_lines_of_a_traceback_is_no_exception(
    printed: str, place: int
) -> None:
    (clue,) = clues(*err(*RAISED[:place], printed, *RAISED[place:]))
    assert (clue.line, clue.where) == ("KeyError: 'labels'", "train.py:88 in main")


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("Boom: the batch is odd", ["  File is odd: 3"]),
        ("Boom", []),
        ("Boom: x", ["", "RuntimeError: in a summary"]),
        ("Boom: x", [*RAISED[:1], "    ..."]),
        ("acme.Boom: the batch is odd", ["ValueError: is told again"]),
        ("ValueError: the batch is odd", ["KeyError: is told again"]),
    ],
)
def test_an_exception_may_have_any_name(line: str, after: list[str]) -> None:
    found = clues(*err(*HEAD, SOURCE, line, *after))
    assert found[0].line.startswith(line)


def test_memory_is_told_whatever_was_printed_meanwhile() -> None:
    said = [
        *err(*HEAD, SOURCE),
        *out("Status: failed, rank 2 gives up after epoch 0"),
        *err(MEMORY),
    ]
    assert [(one.id, one.line) for one in clues(*said)] == [("cuda_memory", MEMORY)]
    assert LOGGED not in [one.id for one in clues(*said)]


TRACKER = [
    *HEAD,
    "    wandb.log(values)",
    '  File "/opt/lib/python3.11/site-packages/wandb/sdk/wandb_run.py", line 5, in log',
    "    self._send(values)",
    '  File "/opt/lib/python3.11/site-packages/requests/adapters.py", line 700, in send',
    "    raise ConnectionError(e)",
    "ConnectionError: Max retries exceeded with api.wandb.ai",
]
IN_THREAD = [
    "Exception in thread NetStatThr:",
    HEAD[0],
    '  File "/usr/lib/python3.11/threading.py", line 1016, in _bootstrap_inner',
    "    self.run()",
    "BrokenPipeError: [Errno 32] Broken pipe",
]
IN_TASK = [
    "Task exception was never retrieved",
    "future: <Task finished name='Task-2' coro=<beat() done> exception=BrokenPipeError()>",
    *IN_THREAD[1:],
]
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:5"
NAN = "Loss is nan, stopping training"
STEP = "Epoch: [0]  [{}0/14786]  loss: {}.2318"


def timed(*said: tuple[float, str]) -> list[str]:
    """The rows and lines of what is found, each line with its time."""
    lines = [Line(part, 2, at) for at, text in said for part in text.split("\n")]
    return [one.line for one in find_clues(lines)]


def steps(*times: float, form: str = STEP) -> list[tuple[float, str]]:
    return [(at, form.format(n, 9 - n)) for n, at in enumerate(times)]


@pytest.mark.parametrize("traceback", [RAISED, TRACKER])
@pytest.mark.parametrize(
    "went_on",
    [
        steps(1.5, 2.0, 2.5, 3.0, 3.5),
        [(5.0, " 45%|####      | 45/100 [00:04<00:05, 9.9it/s]")],
        steps(1.5, 2.0, 3.5, form="INFO:train:step {} of 9, loss 0.{}"),
        steps(1.5, 2.0, 3.5, form="{{'loss': 0.{}, 'epoch': {}}}"),
    ],
)
def test_a_traceback_that_was_got_over_loses_against_the_last_error(
    traceback: list[str], went_on: list[tuple[float, str]]
) -> None:
    assert timed((1.0, "\n".join(traceback)), *went_on, (5.0, NAN)) == [NAN]


@pytest.mark.parametrize(
    "went_on",
    [
        steps(1.1, 1.2, 1.3, 1.4),  # at once, as by a thread
        steps(1.5, 3.5),  # twice is no progress
        steps(1.5, 2.5, 3.5, form="Saving shard {} of {}"),
        steps(1.5, 2.5, 3.5, form="upload of part {} failed, {} are left"),
        [(3.5, "cleaning up"), (3.6, "cleaning up")],
    ],
)
def test_what_is_tidied_up_after_a_traceback_is_no_progress(
    went_on: list[tuple[float, str]],
) -> None:
    found = timed((1.0, "\n".join(RAISED)), *went_on, (4.0, NAN))
    assert found == ["KeyError: 'labels'"]


def test_without_any_later_word_what_was_got_over_is_all_that_is_known() -> None:
    went_on = steps(1.5, 2.0, 3.0, 4.0)
    assert timed((1.0, "\n".join(RAISED)), *went_on) == ["KeyError: 'labels'"]
    # What ended a rank was not got over, whatever a thread still says.
    prefixed = "\n".join(f"[rank2]: {text}" for text in RAISED)
    assert timed((1.0, prefixed), *went_on, (5.0, NAN)) == ["KeyError: 'labels'"]
    # What was said with it is of it.
    assert timed((1.0, "\n".join([*RAISED, "bad batch, going on"])), *went_on) == [RAISED[-1]]


@pytest.mark.parametrize(("caught", "told"), [("main", [LOST]), ("<module>", [RAISED[-1], LOST])])
def test_only_what_was_caught_loses_against_a_consequence(caught: str, told: list[str]) -> None:
    first = "\n".join(RAISED).replace("in main", f"in {caught}")
    last = f"{HEAD[0]}\n{LOST}"
    assert timed((1.0, first), *steps(1.5, 2.0, 3.0, 4.0), (5.0, last)) == told


@pytest.mark.parametrize("helper", [TRACKER, IN_THREAD, IN_TASK])
@pytest.mark.parametrize("own", [RAISED[-1], LOST])
def test_what_a_helper_raises_after_its_program_has_failed_is_no_reason(
    helper: list[str], own: str
) -> None:
    raised = [*HEAD, SOURCE, own]
    (clue,) = clues(*err(*raised, *helper))
    assert (clue.line, clue.last) == (own, True)
    assert [one.line for one in clues(*err(*helper, *raised))] == [helper[-1], own]
    # Of which the program knew more than that.
    long_ago = [f"layer {n}" for n in range(20)]
    assert [one.line for one in clues(*err(*raised, *long_ago, *helper))] == [helper[-1]]


@pytest.mark.parametrize("helper", [TRACKER, IN_THREAD, IN_TASK])
@pytest.mark.parametrize(
    ("later", "told"),
    [
        (NAN, [NAN]),
        ("[Errno 28] No space left on device", ["[Errno 28] No space left on device"]),
        ("INFO: bye", []),
        ("ERROR: the reader thread has failed", []),
    ],
)
def test_a_helper_loses_against_an_error_that_is_written_later(
    helper: list[str], later: str, told: list[str]
) -> None:
    found = timed((1.0, "\n".join(helper)), (1.2, later))
    assert found[-1:] == (told or helper[-1:])


def test_a_tracker_below_which_the_users_code_fails_is_no_reason_to_doubt() -> None:
    own = ['  File "/opt/train.py", line 9, in step', "    go()", "KeyError: 'x'"]
    assert timed((1.0, "\n".join([*TRACKER[:-1], *own])), (1.2, NAN)) == ["KeyError: 'x'"]


NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils"
    ".cpp:77, {} (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5"
)
FAILED = "ncclUnhandledCudaError: Call to CUDA function failed."
SAYS = "torch.distributed.DistBackendError: NCCL error: "


@pytest.mark.parametrize("prefix", ["", "[rank2]: "])
@pytest.mark.parametrize(
    ("below", "row", "told"),
    [
        (
            ["Last error:", "Cuda failure 802 'system not yet initialized'"],
            "fabric_manager",
            f"{SAYS}Cuda failure 802 'system not yet initialized'",
        ),
        (
            ["Last error:", "Cuda failure 2 'out of memory'", "", "Exception raised from x.cpp:1"],
            "cuda_memory",
            f"{SAYS}Cuda failure 2 'out of memory'",
        ),
        (
            ["Last error:", "Bootstrap : no socket interface found", "tried eth0, ib0"],
            "net_interface",
            f"{SAYS}Bootstrap : no socket interface found; tried eth0, ib0",
        ),
        (
            ["Last error: socketProgress: Connection closed by remote peer gpu-18<51159>"],
            "peer_gone",
            f"{SAYS}socketProgress: Connection closed by remote peer gpu-18<51159>",
        ),
        (["Last error:"], "communication", NCCL.format("unhandled cuda error")),
        (["Last error:", "", "Exception raised from x.cpp:1"], "communication", None),
    ],
)
def test_what_stands_below_last_error_is_the_reason(
    prefix: str, below: list[str], row: str, told: str | None
) -> None:
    texts = [*HEAD, SOURCE, NCCL.format("unhandled cuda error"), FAILED, *below]
    warning = "[rank2]:[W1123 00:52:57.664949121 x.cpp:1250] Warning: group has NOT been destroyed"
    clue = clues(*err(*(prefix + text for text in texts), warning))[-1]
    assert (clue.id, clue.line) == (row, told or NCCL.format("unhandled cuda error"))
    assert clue.last or not prefix


ASSERTED = (
    "../aten/src/ATen/native/cuda/Indexing.cu:1292: indexSelectLargeIndex: block: [389,0,0], "
    "thread: [{},0,0] Assertion `srcIndex < srcSelectDimSize` failed."
)
SHORT = "Indexing.cu:1292: indexSelectLargeIndex: Assertion `srcIndex < srcSelectDimSize` failed"


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "CUDA error: device-side assert triggered",
        "CUDA error: an illegal memory access was encountered",
        "cuDNN error: CUDNN_STATUS_MAPPING_ERROR",
    ],
)
def test_the_assertion_of_a_kernel_is_told_before_what_cuda_says_of_it(words: str) -> None:
    asserted = [ASSERTED.format(n) for n in range(96, 128)]
    raised = f"RuntimeError: {words}"
    *_, clue = clues(*out(*asserted), *err(*HEAD, SOURCE, raised))
    assert (clue.id, clue.line) == ("cuda_fault", f"{SHORT}; then {raised}")
    *_, clue = clues(*err(*HEAD, SOURCE, raised), *out(*asserted))
    assert clue.line == f"{SHORT}; then {raised}"
    found = clues(*out(*asserted), *err(*HEAD, SOURCE, "KeyError: 'labels'"))
    assert found[-1].line == "KeyError: 'labels'"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            'Loss.cu:242: loss: block: [0,0,0], thread: [4,0,0] Assertion `t < n && "bad"` failed.',
            'Loss.cu:242: loss: Assertion `t < n && "bad"` failed',
        ),
        (
            "IndexKernel.cu:92: block: [1, 0, 0], thread: [2, 0, 0] Assertion `i < n` failed.",
            "IndexKernel.cu:92: Assertion `i < n` failed",
        ),
    ],
)
def test_kernels_assert_in_several_forms(line: str, told: str) -> None:
    what = "  what():  CUDA error: device-side assert triggered"
    found = clues(*err(line, what))
    assert [one.line for one in found if one.id == "cuda_fault"] == [f"{told}; then {what.strip()}"]


@pytest.mark.parametrize(
    "line",
    [
        "[rank3]:[W1123 00:52:57.664949121 x.cpp:1] Warning: process group has NOT been destroyed",
        "[rank3]:[W1106 09:04:12.5 x.cpp:4115] [PG ID 0 Rank 3]  using GPU 3 as none is unknown.",
        "[rank3]:[W reducer.cpp:1400] Warning: find_unused_parameters=True was specified",
        "[W ProcessGroupNCCL.cpp:1012] [PG 0 Rank 3] unknown devices are not expected",
        "[W1123 00:52:57.6 Utils.hpp:166] Warning: Environment variable NCCL_ASYNC_ERROR_HANDLING",
        "[W1123 00:52:57.6 CUDAAllocatorConfig.h:28] TORCH_NCCL_AVOID_RECORD_STREAMS=1 has failed",
        "/x/y.py:83: UserWarning: Guessing device ID can fail\n  self.must_fail = device  # error",
    ],
)
@pytest.mark.parametrize("times", [1, 50])
def test_a_warning_of_torch_is_no_last_word_and_shows_no_progress(line: str, times: int) -> None:
    warned = [text for _ in range(times) for text in line.split("\n")]
    (clue,) = clues(*err(*RAISED, *warned))
    assert (clue.line, clue.last) == ("KeyError: 'labels'", True)
    assert last_line(["need at least 4 GPUs", *warned]) == "need at least 4 GPUs"
    assert last_error(warned) == ""
    assert clues(*err("step 1", *warned)) == []


def test_a_reason_in_a_single_line_is_a_clue_whatever_comes_after_it() -> None:
    blas = (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 10 of 20: Resource "
        "temporarily unavailable"
    )
    nccl = "gpu-18:306303:306603 [1] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'"
    limit = "OpenBLAS blas_thread_init: RLIMIT_NPROC 300 current, 300 max"
    assert [one.id for one in clues(*err(blas, limit))][-1:] == ["threads"]
    for line, row in ((blas, "threads"), (nccl, "cuda_memory")):
        found = clues(*out(line), *err(*HEAD, SOURCE, LOST))
        assert [one.id for one in found] == [row, "peer_gone"]


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.9, [RAISED[-1]]), (1.1, ["ERROR: no cache; epoch 29"])]
)
def test_what_the_other_stream_says_at_once_may_be_older(seconds: float, told: list[str]) -> None:
    """A program's standard output may be kept back until its end."""
    texts = ["ERROR: no cache", *(f"epoch {n}" for n in range(30))]
    raised = [Line(text, 2, 1.0, stream="stderr") for text in RAISED]
    late = [Line(text, 2, 1.0 + seconds, stream="stdout") for text in texts]
    found = find_clues([*raised, *late])
    assert [one.line for one in found] == told
    assert seconds > 1 or found[0].last


def test_what_is_written_behind_an_unfinished_bar_is_a_line_of_its_own() -> None:
    bar = " 98%|#########8| 49/50 [00:04<00:00, 9.9it/s, loss=0.3]"
    assert timed((1.0, "\n".join(RAISED)), (6.0, bar + NAN)) == [NAN]
    assert timed((1.0, "\n".join([bar + HEAD[0], *RAISED[1:]]))) == [RAISED[-1]]
    assert timed((1.0, "\n".join([*RAISED[:3], bar + RAISED[3]]))) == [RAISED[-1]]
    assert timed((1.0, bar)) == []


def test_a_logger_that_fails_ends_nothing() -> None:
    failed = ["--- Logging error ---", *HEAD, SOURCE, "TypeError: not all arguments converted"]
    assert clues(*err(*failed, "Call stack:")) == []
    assert [one.line for one in clues(*err(*RAISED, *failed))] == [RAISED[-1]]

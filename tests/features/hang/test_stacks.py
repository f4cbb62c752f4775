"""What a stack shows, by value."""

from __future__ import annotations

import pytest

from features.hang.rules.stacks import Kind, Place, place_of
from features.hang.wire import Frame, Stack
from tests.features.hang.runs import (
    GATHER,
    IMPORT,
    INIT,
    JOIN,
    LOAD,
    MAIN,
    RECV,
    REDUCE,
    TORCH,
    Frames,
)

LIB = "/opt/venv/lib/python3.11/site-packages"
QUEUE = ("wait", "/usr/lib/python3.11/threading.py", 327)


def place(*frames: tuple[str, str, int]) -> Place:
    return place_of(Stack(frames=[Frame(*frame) for frame in frames]))


@pytest.mark.parametrize(
    ("frames", "kind", "function"),
    [
        (REDUCE, Kind.COLLECTIVE, "all_reduce"),
        (GATHER, Kind.COLLECTIVE, "all_gather_object"),
        (RECV, Kind.MESSAGE, "recv"),
        (INIT, Kind.INIT, "init_process_group"),
        (LOAD, Kind.OTHER, ""),
        (IMPORT, Kind.IMPORTING, "torch"),
        (
            (IMPORT[0], ("<module>", "lib/python3.11/json/a.py", 2), ("<module>", "jax/a.py", 2)),
            Kind.IMPORTING,
            "jax",
        ),
        ((("all_reduce", "distributed_c10d.py", 1),), Kind.COLLECTIVE, "all_reduce"),
        ((("_store_based_barrier", TORCH, 1), MAIN), Kind.INIT, "_store_based_barrier"),
        (
            (("wait_tensor", "/pt/torch/distributed/_functional_collectives.py", 1), MAIN),
            Kind.COLLECTIVE,
            "wait_tensor",
        ),
        (
            (("synchronize", f"{LIB}/torch/cuda/__init__.py", 9), MAIN),
            Kind.DEVICE,
            "synchronize",
        ),
        (
            (("synchronize", f"{LIB}/horovod/torch/mpi_ops.py", 9), MAIN),
            Kind.COLLECTIVE,
            "synchronize",
        ),
        ((("recv", f"{LIB}/mpi4py/util/pkl5.py", 9), MAIN), Kind.MESSAGE, "recv"),
        ((("barrier", f"{LIB}/deepspeed/comm/comm.py", 9), MAIN), Kind.COLLECTIVE, "barrier"),
        ((("barrier", "/home/u/comm.py", 9), MAIN), Kind.OTHER, ""),
        (
            (("sync_global_devices", f"{LIB}/jax/experimental/multihost_utils.py", 9), MAIN),
            Kind.COLLECTIVE,
            "sync_global_devices",
        ),
        (
            (("block_until_ready", f"{LIB}/jax/_src/array.py", 9), MAIN),
            Kind.DEVICE,
            "block_until_ready",
        ),
        ((QUEUE, ("get", f"{LIB}/x/queue.py", 1), MAIN), Kind.OTHER, ""),
        # As a node shortens the files: below a library's own frames the call is found all the same.
        (
            (
                ("wait", "lib/python3.11/threading.py", 327),
                ("all_reduce", "torch/distributed/distributed_c10d.py", 9),
                MAIN,
            ),
            Kind.COLLECTIVE,
            "all_reduce",
        ),
        (JOIN, Kind.CHILDREN, "wait"),
        (
            (("_wait", "lib/python3.11/subprocess.py", 9), ("run", "/home/u/a.py", 3)),
            Kind.CHILDREN,
            "_wait",
        ),
        (
            (
                ("poll", "lib/python3.11/selectors.py", 9),
                ("_try_get_data", "torch/utils/data/dataloader.py", 9),
                MAIN,
            ),
            Kind.CHILDREN,
            "_try_get_data",
        ),
        ((("wait", "/home/u/subprocess.py", 9), MAIN), Kind.OTHER, ""),
        # In a collective of objects the program's own code runs before anything is called.
        ((("__getstate__", "/home/u/a.py", 1), ("all_gather_object", TORCH, 9)), Kind.OTHER, ""),
        ((("_object_to_tensor", TORCH, 1), ("all_gather_object", TORCH, 9)), Kind.OTHER, ""),
        # A program that is itself imported works, as long as it is in its own functions.
        ((("train", "/home/u/t.py", 1), *IMPORT[:1]), Kind.OTHER, ""),
        (
            (("<module>", "/home/u/big.py", 1), *IMPORT[:1], ("<module>", "/home/u/t.py", 1)),
            Kind.IMPORTING,
            "",
        ),
    ],
)
def test_what_a_main_thread_does(frames: Frames, kind: Kind, function: str) -> None:
    found = place(*frames)
    assert (found.kind, found.function) == (kind, function)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (LOAD, "load_batch (hang.py:3)"),
        (REDUCE, "all_reduce (distributed_c10d.py:3252), called by <module> (hang.py:30)"),
        ((QUEUE, *LOAD), "wait (threading.py:327), called by load_batch (hang.py:3)"),
        ((QUEUE,), "wait (threading.py:327)"),
        (
            (("wait", "lib/python3.11/threading.py", 327), *LOAD),
            "wait (threading.py:327), called by load_batch (hang.py:3)",
        ),
        ((("f", "", 0),), "f"),
    ],
)
def test_a_place_has_the_newest_call_and_the_programs_own(frames: Frames, words: str) -> None:
    assert place(*frames).words == words


def test_without_frames_nothing_is_known() -> None:
    assert place_of(None) == place_of(Stack(frames=[])) == Place(Kind.UNKNOWN)


def test_only_some_kinds_wait_for_others() -> None:
    assert {kind for kind in Kind if kind.waits} == {
        Kind.COLLECTIVE,
        Kind.MESSAGE,
        Kind.INIT,
        Kind.DEVICE,
    }

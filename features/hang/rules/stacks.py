"""What a main thread's stack shows: a collective, a message, a start, an import, or other work.

Pure. Only Python's frames are in a stack: what waits in C, such as `Work.wait()` or `loss.item()`,
looks like the line that called it. So a stack may show that a rank waits, and never that it does
not.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from features.hang.wire import Frame, Stack


class Kind(Enum):
    """What a main thread does."""

    COLLECTIVE = "collective"
    MESSAGE = "message"
    """A send or a receive between two ranks."""
    INIT = "init"
    """It makes process groups, together with others."""
    DEVICE = "device"
    """It waits for its device, which may be in a collective."""
    CHILDREN = "children"
    """Waiting for processes that it has started."""
    IMPORTING = "importing"
    OTHER = "other"
    UNKNOWN = "unknown"
    """No stack was read."""

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks, or may."""
        return self in (Kind.COLLECTIVE, Kind.MESSAGE, Kind.INIT, Kind.DEVICE)


class Place(NamedTuple):
    """Where a main thread is.

    `function` is the collective or the call that waits; of an import, the package; else empty.
    """

    kind: Kind
    words: str = ""
    function: str = ""


class _Row(NamedTuple):
    """Functions of files with this name, below a folder whose name contains `below`."""

    kind: Kind
    below: str
    files: frozenset[str]
    functions: frozenset[str]


def _row(kind: Kind, below: str, files: str, functions: str) -> _Row:
    return _Row(kind, below, frozenset(files.split()), frozenset(functions.split()))


_COLLECTIVES = (
    "all_reduce all_reduce_coalesced all_gather all_gather_coalesced all_gather_object "
    "all_gather_into_tensor all_gather_single all_to_all all_to_all_single barrier broadcast "
    "broadcast_object_list gather gather_object monitored_barrier reduce reduce_scatter "
    "reduce_scatter_single reduce_scatter_tensor scatter scatter_object_list "
    "_all_gather_base _reduce_scatter_base"
)
_MESSAGES = "send recv isend irecv batch_isend_irecv send_object_list recv_object_list"
_FRAMES = (
    _row(Kind.COLLECTIVE, "", "distributed_c10d.py", _COLLECTIVES),
    _row(Kind.MESSAGE, "", "distributed_c10d.py", _MESSAGES),
    _row(
        Kind.INIT,
        "",
        "distributed_c10d.py rendezvous.py",
        "init_process_group new_group split_group _store_based_barrier "
        "_new_process_group_helper _create_c10d_store _tcp_rendezvous_handler "
        "_env_rendezvous_handler",
    ),
    _row(
        Kind.COLLECTIVE,
        "",
        "_functional_collectives.py _functional_collectives_impl.py",
        f"{_COLLECTIVES} wait_tensor all_gather_tensor",
    ),
    _row(
        Kind.COLLECTIVE,
        "deepspeed",
        "comm.py torch.py ccl.py",
        f"{_COLLECTIVES} inference_all_reduce all_gather_fn reduce_scatter_fn",
    ),
    _row(Kind.MESSAGE, "deepspeed", "p2p.py comm.py torch.py", "send recv wait"),
    _row(
        Kind.COLLECTIVE,
        "horovod",
        "mpi_ops.py functions.py __init__.py",
        "allgather allreduce alltoall barrier broadcast grouped_allgather grouped_allreduce "
        "join reducescatter synchronize broadcast_object allgather_object",
    ),
    _row(
        Kind.COLLECTIVE,
        "mpi4py",
        "pkl5.py comm.py",
        "allgather allreduce alltoall barrier bcast gather reduce scatter",
    ),
    _row(Kind.MESSAGE, "mpi4py", "pkl5.py", "send recv ssend sendrecv mprobe wait"),
    _row(
        Kind.COLLECTIVE,
        "jax",
        "multihost_utils.py",
        "sync_global_devices broadcast_one_to_all process_allgather assert_equal",
    ),
    _row(Kind.INIT, "jax", "distributed.py", "initialize"),
    _row(Kind.DEVICE, "jax", "array.py api.py", "block_until_ready _value"),
    _row(Kind.COLLECTIVE, "tensorflow", "collective_ops.py", "all_reduce all_gather"),
    _row(Kind.COLLECTIVE, "torch_xla", "xla_model.py", "rendezvous mark_step all_reduce"),
    _row(Kind.COLLECTIVE, "torch", "nccl.py", _COLLECTIVES),
    _row(Kind.DEVICE, "torch", "streams.py", "synchronize"),
    _row(Kind.DEVICE, "cuda", "__init__.py", "synchronize"),
    _row(
        Kind.CHILDREN,
        "multiprocessing",
        "process.py popen_fork.py popen_spawn_posix.py connection.py pool.py queues.py",
        "join wait poll get map starmap next",
    ),
    _row(Kind.CHILDREN, "multiprocessing", "spawn.py", "join start_processes spawn"),
    _row(
        Kind.CHILDREN,
        "lib/python3",
        "subprocess.py",
        "wait _wait communicate _communicate _try_wait",
    ),
    _row(Kind.CHILDREN, "utils/data", "dataloader.py", "_try_get_data _get_data"),
)
_BY_NAME: dict[str, list[_Row]] = {}
for _one in _FRAMES:
    for _name in _one.functions:
        _BY_NAME.setdefault(_name, []).append(_one)

_IMPORTS = re.compile(r"^<frozen importlib|importlib/_bootstrap")
_PACKAGE = re.compile(r"(?:^(?!lib/python3)|(?:site|dist)-packages/)([A-Za-z0-9_]+)/")
"""A node shortens an installed package's file to `torch/random.py`."""
_LIBRARY = re.compile(
    r"(?:site|dist)-packages/|(?:^|/)lib/python3[.\d]*t?/|^<frozen "
    r"|/(?:torch|jax|deepspeed|horovod)/|^[A-Za-z_]\w*/"
)
_PICKLING = ("_object_to_tensor", "_tensor_to_object")
"""In a collective of objects, before and after it waits for others."""


def place_of(stack: Stack | None) -> Place:
    """Where a main thread with this stack is."""
    if stack is None or not stack.frames:
        return Place(Kind.UNKNOWN)
    words = _words(stack.frames)
    for frame in stack.frames:
        for row in _BY_NAME.get(frame.function, ()):
            if _fits(row, frame.file):
                return Place(row.kind, words, frame.function)
        if _IMPORTS.search(frame.file):
            return Place(Kind.IMPORTING, words, _imported(stack.frames))
        if _is_own_call(frame):
            break
    return Place(Kind.OTHER, words)


def _is_own_call(frame: Frame) -> bool:
    """Whether it is in the program's own function, which then is what it does."""
    own = frame.function != "<module>" and not _LIBRARY.search(frame.file)
    return own or frame.function in _PICKLING


def _fits(row: _Row, file: str) -> bool:
    folder, _, name = file.rpartition("/")
    return name in row.files and row.below in folder


def _imported(frames: list[Frame]) -> str:
    """The package whose import came first; empty where none is known."""
    for frame in reversed(frames):
        if frame.function == "<module>" and (found := _PACKAGE.search(frame.file)):
            return found[1]
    return ""


def frame_words(frame: Frame) -> str:
    """`load_batch (data.py:3)`."""
    name = frame.file.rpartition("/")[2]
    return f"{frame.function} ({name}:{frame.line})" if name else frame.function


def _words(frames: list[Frame]) -> str:
    """The newest frame, and if that is in a library, the program's own one that led there."""
    newest = frames[0]
    if _LIBRARY.search(newest.file):
        for frame in frames[1:]:
            if not _LIBRARY.search(frame.file):
                return f"{frame_words(newest)}, called by {frame_words(frame)}"
    return frame_words(newest)

"""What answers in a rank where it is: a thread, from when torch is imported until the end.

It is run by the hook in the user's interpreter, of any version from 3.8, under no name that could
be imported, so it imports the interpreter's own modules alone. It reads what is in `sys.modules`,
imports nothing of torch, calls no Python code of it, and never prints. What it does it does with
the GIL, so that nothing moves meanwhile: 0.1 ms for `status`; `entries` takes 30 ms where the
flight recorder is full.

One request a connection, a line: `status` or `entries`. The answer is a line of words, and then as
many bytes as it says of each of these parts:

    STAGE NOW GROUPS STACKS RECORDER RECORDER

    STAGE     importing, imported, or groups: torch
    NOW       nanoseconds of the clock that stamps entries
    GROUPS    lines NAME, a tab, and the ranks of a process group; empty for `status`
    STACKS    of all threads, as faulthandler writes them, the main thread last; for `entries`
    RECORDER  JSON of torch's flight recorders, the general one and NCCL's; without entries for
              `status`, and where these would be too many
"""

import _signal  # type: ignore[import-not-found]
import _socket
import _thread
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
MOST_GROUPS, MOST_THREADS, MOST_FRAMES, MOST_LETTERS = 512, 64, 100, 400
MOST_RECORDER, MOST_STACKS = 7 << 18, 1 << 18
"""Bytes: of a recorder with more, the entries are left out; of stacks, the first, so that an answer
keeps below 4 MiB."""

MOST_PATH = 100
"""Bytes of a socket's path; more than 107 do not fit into its address."""
_CLIENT_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
_SYNCHRONOUS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT")


def start(folder: str, rank: str, main_thread: int, put_high: "Callable[[int, int], int]") -> None:
    """Listen on the rank's socket, and answer by a thread that `threading` does not know.

    No signal is its business: a program may block one to wait for it.

    Args:
        folder: What RDZV_LOOK_FOLDER names.
        rank: The local rank.
        main_thread: Its identifier.
        put_high: The hook's, by which an open file keeps out of the program's way.
    """
    listener = put_high(_listen(folder, f"{rank}.socket"), 1)
    own = os.fstat(listener).st_ino
    os.register_at_fork(after_in_child=lambda: _close(listener, own))
    others = {getattr(_signal, name) for name in _SYNCHRONOUS}
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() - others)
    try:
        _thread.start_new_thread(_serve, (listener, own, main_thread))
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)


def _listen(folder: str, name: str) -> int:
    path, opened = os.path.join(folder, name), -1
    if os.path.lexists(path):
        os.unlink(path)
    try:
        if len(os.fsencode(path)) > MOST_PATH:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{opened}/{name}"
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(8)
        return listener.detach()
    finally:
        if opened >= 0:
            os.close(opened)


def _close(listener: int, own: int) -> None:
    """In a child that was forked: its copy would keep the socket open."""
    if _is_ours(listener, own):
        os.close(listener)


def _is_ours(listener: int, own: int) -> bool:
    """Who closes all files may have something else under this number now."""
    try:
        return os.fstat(listener).st_ino == own
    except OSError:
        return False


def _serve(listener: int, own: int, main_thread: int) -> None:
    # Who waits in `accept` keeps the lowest number of a file from the program meanwhile.
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        try:
            poll.poll()
            if not _is_ours(listener, own):
                return
            _serve_next(listener, main_thread)
        except Exception:  # noqa: BLE001 (the user's program is more important)
            time.sleep(_PAUSE_SECONDS)  # such as when all files are in use


def _serve_next(listener: int, main_thread: int) -> None:
    waiting = _socket.socket(fileno=listener)
    try:
        waiting.settimeout(_CLIENT_SECONDS)
        client = _socket.socket(fileno=waiting._accept()[0])  # type: ignore[attr-defined]
    finally:
        waiting.detach()
    try:
        client.settimeout(_CLIENT_SECONDS)
        request = client.recv(32)
        # Without the flag a program that does not ignore SIGPIPE would die of it.
        client.sendall(answer(request.strip(), main_thread), _socket.MSG_NOSIGNAL)
    except OSError:  # nobody waits for it any more
        pass
    finally:
        client.close()


def answer(request: bytes, main_thread: int) -> bytes:
    """The whole answer to a request."""
    everything = request == b"entries"
    parts = [_groups(), stacks(main_thread)] if everything else ["", ""]
    found = [part.encode("utf-8", "backslashreplace") for part in parts]
    module = sys.modules.get("torch._C._distributed_c10d")
    for name in DUMPS:
        try:
            found.append(_dump(getattr(module, name), everything))
        except Exception:  # noqa: BLE001 (there is none, or of another form)
            found.append(b"")
    sizes = " ".join(str(len(part)) for part in found)
    head = f"{_stage()} {time.time_ns()} {sizes}\n"  # noqa: TID251 (the recorder's clock)
    return head.encode() + b"".join(found)


def _dump(dump: "Callable[[bool, bool], bytes]", entries: bool) -> bytes:
    data = bytes(dump(entries, False))
    return data if len(data) <= MOST_RECORDER else bytes(dump(False, False))


def _stage() -> str:
    spec = getattr(sys.modules.get("torch"), "__spec__", None)
    if spec is None or getattr(spec, "_initializing", False):
        return "importing"
    try:
        return "imported" if _world().default_pg is None else "groups"
    except Exception:  # noqa: BLE001 (private, and of another form)
        return "imported"


def _world() -> "Any":
    return getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)


def _groups() -> str:
    try:
        world = _world()
        names, ranks = list(world.pg_names.items())[:MOST_GROUPS], world.pg_group_ranks
        return "".join(f"{name}\t{ranges(ranks[group])}\n" for group, name in names)
    except Exception:  # noqa: BLE001 (private, and of another form)
        return ""


def ranges(ranks: "dict[int, int]") -> str:
    """`0-3,8`; empty where it would be too long."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
            if len(spans) > MOST_LETTERS // 2:
                return ""
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return text if len(text) <= MOST_LETTERS else ""


def stacks(main_thread: int) -> str:
    """What each thread is in, but this one."""
    frames = sys._current_frames()
    frames.pop(_thread.get_ident(), None)
    kept = sorted(frames, key=lambda ident: ident == main_thread)[-MOST_THREADS:]
    # Quickly and first: what a frame holds is not to be freed by this thread.
    taken = [(ident, _calls(frames.pop(ident))) for ident in kept]
    frames.clear()
    return "\n".join(_stack(ident, calls) for ident, calls in taken)[-MOST_STACKS:]


def _calls(frame: "Any") -> "list[tuple[Any, int]]":
    calls: list[tuple[Any, int]] = []
    while frame is not None and len(calls) <= MOST_FRAMES:
        calls.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return calls


def _stack(ident: int, calls: "list[tuple[Any, int]]") -> str:
    lines = [f"Thread 0x{ident:016x} (most recent call first):"]
    for code, line in calls[:MOST_FRAMES]:
        text = f'  File "{code.co_filename[-500:]}", line {line} in {code.co_name[:500]}'
        lines.append(text.replace("\n", "?"))
    if len(calls) > MOST_FRAMES:
        lines.append("  ...")
    return "\n".join([*lines, ""])

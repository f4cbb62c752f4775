"""How a process that was forked becomes what Python would be started as: `python -u WORDS`.

It has what a fresh interpreter has: a session, signals and files of its own, the environment, the
words and variables that `ps` shows, the search path, seeds that no other process has, `sys.argv`,
and a `__main__` of its own. docs/warm.md lists what differs.
"""

from __future__ import annotations

import builtins
import ctypes
import faulthandler
import importlib.machinery
import io
import os
import runpy
import signal
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from worker.look.site.sitecustomize import install

ROOM_VARIABLE = "RDZV_WARM_ROOM"
"""Makes room for what `ps` is to show, which may be longer than what the zygote began with."""
ROOM = "." * 8_192
SHOWN_FIRST = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID")
"""What the agent reads of a process's environment from outside."""
_MODULE = "-m"
_CAUGHT_BY_PYTHON: Mapping[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGPIPE: signal.SIG_IGN,
    signal.SIGXFSZ: signal.SIG_IGN,
}
"""What Python sets at its start, of signals that it finds as they are by default."""
_IMPORTS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
"""Where a script is compiled."""
_ADDED_BY_PYTHON = "LC_CTYPE"
"""Where the locale is C."""

_ROOT = str(Path(__file__).resolve().parents[3])

Handlers = Mapping[int, Any]


class Become(BaseException):
    """Ends all that the forked process was within; then its program is executed.

    Args:
        program: What is executed.
    """

    def __init__(self, program: Callable[[], object]) -> None:
        super().__init__()
        self.program = program


def forget_ours() -> None:
    """Take this project's modules from where a program would find them by their names."""
    sys.path.remove(_ROOT)  # once: it may be the user's as well
    for name in [name for name in sys.modules if name.partition(".")[0] == "worker"]:
        del sys.modules[name]


def handle_as_at_start() -> None:
    """Handle signals as Python does where whoever started it has changed nothing."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, _CAUGHT_BY_PYTHON.get(number, signal.SIG_DFL))


def handlers_now() -> Handlers:
    """How signals are handled, as far as Python knows."""
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    del found[signal.SIGKILL], found[signal.SIGSTOP]
    return {number: handler for number, handler in found.items() if handler is not None}


def search_from(words: Sequence[str]) -> None:
    """Import from where `python WORDS` does: the script's folder, or the working directory."""
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        is_module = words[0] == _MODULE
        sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.realpath(words[0]))


def become(
    words: Sequence[str],
    environ: Mapping[str, str],
    handlers: Handlers,
    let_go: Callable[[], None],
) -> None:
    """Be `python -u WORDS`. Raises Become, or SystemExit without a script.

    Args:
        words: The script, or `-m` and a module, with arguments.
        environ: The environment.
        handlers: How signals are handled.
        let_go: Called when all is ready, before anything of the program begins.
    """
    signal.set_wakeup_fd(-1)
    handle_as_at_start()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    if faulthandler.is_enabled():  # its handlers are not Python's
        faulthandler.disable()
        faulthandler.enable()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if _ADDED_BY_PYTHON in os.environ:
        environ = {_ADDED_BY_PYTHON: os.environ[_ADDED_BY_PYTHON], **environ}
    os.environ.clear()  # so that none of it lies where `ps` looks for it
    os.environ.update(environ)
    show([sys.executable, "-u", *words], environ)
    seed()
    search_from(words)
    sys.argv[:] = words if words[0] != _MODULE else [_MODULE, *words[2:]]
    sys.orig_argv[:] = [sys.executable, "-u", *words]
    let_go()
    install()
    raise Become(_module(words[1]) if words[0] == _MODULE else _script(words[0]))


def seed() -> None:
    """Draw seeds: what is forked from one process has those of that one. Python's own does it."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy.random")
    if torch is not None:
        torch.default_generator.seed()  # torch.seed() would remember one for CUDA as well
    if numpy is not None:
        numpy.seed()


# --- what others see ------------------------------------------------------------------------------


def show(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Let /proc tell these words and variables, as far as there is room for them."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        places = [int(field) for field in fields[45:49]]  # see proc_pid_stat(5): arg_start ...
    except (OSError, ValueError):
        return
    names = [*[name for name in SHOWN_FIRST if name in environ], *environ.keys() - {*SHOWN_FIRST}]
    _fill(places[0], places[1], [os.fsencode(word) for word in words])
    _fill(places[2], places[3], [os.fsencode(f"{name}={environ[name]}") for name in names])


def _fill(start: int, end: int, items: Sequence[bytes]) -> None:
    room = bytearray(end - start)
    used = 0
    for item in items:
        if used + len(item) < len(room):
            room[used : used + len(item)] = item
            used += len(item) + 1
    if start:
        ctypes.memmove(start, bytes(room), len(room))


# --- the program ----------------------------------------------------------------------------------


def _module(name: str) -> Callable[[], object]:
    """Python's own `-m`."""
    _new_main()
    return partial(runpy._run_module_as_main, name)  # type: ignore[attr-defined]


def _script(path: str) -> Callable[[], object]:
    """A script, in a `__main__` of its own; raises SystemExit where it cannot be read."""
    path = os.path.abspath(path)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        words = f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        sys.stderr.write(f"{sys.executable}: {words}\n")
        raise SystemExit(2) from None
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    names = _new_main(__file__=path, __loader__=loader, __cached__=None)
    return partial(_execute, loader, source, names)


def _execute(
    loader: importlib.machinery.SourceFileLoader, source: bytes, names: dict[str, Any]
) -> None:
    exec(loader.source_to_code(source, loader.path), names)  # noqa: S102


def _new_main(**names: object) -> dict[str, Any]:
    """The names of a fresh `__main__`."""
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={}, **names)
    sys.modules["__main__"] = main
    return main.__dict__


def run(program: Callable[[], object], ours: Sequence[str]) -> None:
    """Run it to its end. Raises what Python is to end with; a traceback is told as Python tells it.

    Args:
        program: What is executed.
        ours: The files whose frames are above the program's.
    """
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename in (*ours, *_IMPORTS):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.excepthook = lambda *told: None
        raise

"""The door of rdzv: a clean interpreter, whatever is in the user's folder.

`worker` and `launcher` are common words. With `PYTHONPATH=.` and a user's own `worker.py` in the
working directory, a plain console script would import the user's file in our place. So the console
script, `rdzv/__main__.py`, imports nothing of ours but loads this file by its path; and this file
starts the interpreter again with `-E` (no PYTHON* variables), by its own path: then the folder that
Python puts first on its path is the one that holds our packages, and none is the user's.
The environment itself is passed on as it is, since the training process must see it untouched.

`RDZV_JOIN` and the other secrets are the exception: each goes on in a file without a name; see
`rendezvous/secret_variables.py`, which is loaded by its path as well.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_DOOR = os.path.realpath(__file__)
_HERE = os.path.dirname(_DOOR)
_SECRETS = os.path.join(_HERE, "rendezvous", "secret_variables.py")
_PROGRAMS = os.path.join(_HERE, "worker", "programs")
# Programs in the user's scripts, which have to start quickly.
_QUICK = {"rsh": "rsh.py", "wait-for": "wait_for.py"}

# Processes of ours that are no commands: what each imports, it alone pays for.
_PARTS = {
    "_clerk": "launcher.ui.clerk_process",
    "_registry": "rendezvous.registry.process",
    "_replay": "rendezvous.registry.replay",
    "_torchrun": "launcher.torchrun.node_process",
    "_torchrun_host": "launcher.torchrun.host_process",
}

# What is imported stays: to look for cycles in it took a tenth of a command's start.
_GC_AT_START = 10_000


def _hide_secrets() -> bool:
    """See `secret_variables.hide`."""
    from importlib.machinery import SourceFileLoader

    module = ModuleType("secret_variables")
    SourceFileLoader(module.__name__, _SECRETS).exec_module(module)
    return bool(module.hide(os.environ))


def _leave(number: int, _: FrameType | None) -> None:
    """End immediately and without a traceback: nothing has begun."""
    os._exit(128 + number)


def _is_isolated() -> bool:
    """Whether this interpreter was started as below; it may have been given more options."""
    started = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]
    return sys.flags.ignore_environment == 1 and started[-1:] == [_DOOR]


def install_features() -> None:
    """Hand the features of this installation to the core, which imports none of them."""
    from features import FEATURES
    from rendezvous.feature import install

    install(FEATURES)


def main() -> None:
    """Run `rdzv` in an interpreter that ignores PYTHONPATH and the working directory."""
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not by nohup, &
    if interruptible:
        signal.signal(signal.SIGINT, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    if sys.argv[1:] and sys.argv[1] in _QUICK and sys.argv[2:3] != ["--help"]:
        program = os.path.join(_PROGRAMS, _QUICK[sys.argv[1]])
        os.execv(sys.executable, [sys.executable, "-I", "-S", program, *sys.argv[2:]])  # noqa: S606
    if _hide_secrets() or not _is_isolated():
        # A Ctrl-C waits until the new interpreter is here: before, it would show a traceback.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        os.execv(  # noqa: S606
            sys.executable, [sys.executable, "-E", _DOOR, *sys.argv[1:]]
        )
    gc.set_threshold(_GC_AT_START)
    if sys.argv[1:2] and sys.argv[1] in _PARTS:
        _be(sys.argv[1], interruptible=interruptible)
    else:
        _command(interruptible=interruptible)


def become(word: str) -> Callable[[], None]:
    """Import what a word of `rdzv` needs; what comes back runs it, with `sys.argv`.

    For a process that was forked from a command, and is to be another one.
    """
    if word not in _PARTS:
        import launcher.cli  # noqa: F401

        return lambda: _command(interruptible=False)  # Ctrl-C stays what it was
    from importlib import import_module

    process = import_module(_PARTS[word])

    def run() -> None:
        sys.argv.pop(1)
        process.main()

    return run


def _be(part: str, *, interruptible: bool) -> None:
    """Run one of our processes, which handles its signals and its exit code itself."""
    if part != "_clerk":  # which imports next to nothing
        install_features()
    run = become(part)
    # It lets a Ctrl-C through again where it is ready for one.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    if interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _cannot_load(error: Exception) -> None:
    """Say so in a line and exit like a node that cannot prepare: a limit of the machine does not
    even let our modules be read, and so not the one that names it."""
    words = f"rdzv: its own modules cannot be loaded: {type(error).__name__} {error}".strip()
    fix = "raise the limit of memory or of open files: ulimit -v, ulimit -d, ulimit -n, pids.max"
    os.write(2, f"{words}\n      {fix}\n".encode("utf-8", "replace"))
    os._exit(82)


def _command(*, interruptible: bool) -> None:
    try:
        install_features()
        from launcher.cli import main as command
        from launcher.cli.streams import name_standard_output
    except (MemoryError, SystemError, OSError) as exc:
        _cannot_load(exc)

    name_standard_output()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command(prog_name="rdzv", obj=become)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:  # the exit code is known: a late Ctrl-C shall not change it
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        gc.freeze()  # the interpreter ends: to look for cycles in all that it holds takes 0.1 s


if __name__ == "__main__":
    main()

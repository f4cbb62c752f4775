"""A process that has imported torch and waits: a node's processes are forked from it.

    agent -> zygote                                         one for a node, from its join on
    agent -> keeper -> starter -> processes, and the store  forked from it, for each epoch

    PYTHON -u zygote.py MODULES PROGRAM [ARGUMENT ...] < LINK

LINK is a socket to the agent, of whole messages. The zygote imports torch and the MODULES (with
commas) and never computes: a lock that a library's thread holds while a process is forked is never
released in the child. Then it says `{"ready": SECONDS}`, or `{"unfit": WHY}` and ends. For each
`{"grace": SECONDS, "port": PORT}` that comes with the open files LIFELINE, ORDERS, STDOUT and
STDERR it forks a keeper, which the kernel gives to the agent as the keeper's parent ends, and says
`{"keeper": PID}`. What is below that keeper: `worker.programs.warm.starter`. The end of LINK is its
own end, and so is the agent's.

PROGRAM and its ARGUMENTs say from where modules are imported, and to people whose this is.

It is run by its path on the user's interpreter, Python 3.10 or later, imports the standard library
and modules of this project that do the same, and leaves none of these for the user's program to
find by its name.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

if not __package__:  # run by its path; a user's modules may have our modules' names
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from worker.program.keeper import PR_SET_PDEATHSIG, Keeper, complain, fork, prctl, settle
from worker.programs.warm.rank import (
    ROOM_VARIABLE,
    Become,
    Handlers,
    forget_ours,
    handle_as_at_start,
    handlers_now,
    run,
    search_from,
)
from worker.programs.warm.starter import start_node

MODULES = ("torch", "torch.distributed.run")
"""What is imported always."""
_FILES, _MESSAGE_BYTES = 4, 4096


def import_all(modules: Sequence[str]) -> str:
    """Import these; why nothing can be forked afterwards, or nothing."""
    collects = gc.isenabled()
    gc.disable()  # an import leaves no garbage, and looking for it takes a tenth of the time
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 (a module may end its process)
            return f"the import of {name} failed with {type(error).__name__}: {error}"
    if collects:
        gc.enable()
    return what_is_in_the_way()


def what_is_in_the_way() -> str:
    """Why nothing may be forked from this process; empty where it may."""
    cuda = sys.modules["torch"].cuda
    if cuda.is_initialized() or getattr(cuda, "_is_in_bad_fork", lambda: False)():
        return "the imports have initialised CUDA"
    # OpenBLAS, for one, ends its threads itself where a process is forked.
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    if (count := len(os.listdir("/proc/self/task"))) > 1:
        return f"the imports have left {count - 1} threads running"
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return ""
    return "the imports have left a process running"


class Zygote:
    """Answers the agent until that is gone.

    Args:
        link: To the agent.
        said: What the imports have printed, to be read.
        handlers: How signals were handled after the imports.
    """

    def __init__(self, link: socket.socket, said: int, handlers: Handlers) -> None:
        self._link = link
        self._said = said
        self._handlers = handlers

    def say(self, **words: object) -> None:
        """Say something to the agent; without it, this is over."""
        try:
            self._link.send(json.dumps(words).encode())
        except OSError:
            os._exit(0)

    def serve(self) -> None:
        """Fork what is asked for. Raises Become in a process of the node."""
        while True:
            try:
                asked, files, _, _ = socket.recv_fds(self._link, _MESSAGE_BYTES, _FILES)
            except OSError:
                return
            if not asked:
                return
            pid = self._fork_keeper(json.loads(asked), files)
            for fd in files:
                os.close(fd)
            self.say(keeper=pid)

    def _fork_keeper(self, asked: dict[str, float], files: Sequence[int]) -> int:
        """A grandchild, whose parent ends; 0: it could not be forked."""
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            child = os.fork()
            if child == 0:
                for fd in (told, tell):
                    os.close(fd)
                self._link.close()  # not by its number, which may be the program's by the time
                self._keep(asked, *files)
            os.write(tell, b"%d" % child)
            os._exit(0)
        os.close(tell)
        with open(told, "rb") as file:
            pid = int(file.read() or b"0")
        os.waitpid(between, 0)
        return pid

    def _keep(
        self, asked: dict[str, float], lifeline: int, orders: int, stdout: int, stderr: int
    ) -> NoReturn:
        """Be the keeper of one epoch. Raises Become in a process of the node, far below."""
        os.setsid()
        for fd, place in ((stdout, 1), (stderr, 2)):
            os.dup2(fd, place)
            os.close(fd)
        port = int(asked["port"]) or None

        def begin(command: list[str]) -> int:
            pid = fork(start)
            for fd in (orders, self._said):
                os.close(fd)
            return pid

        def start(parent: int) -> NoReturn:
            keeper.let_go()
            code = 126
            try:
                if settle(parent):
                    line = socket.socket(fileno=orders)
                    code = start_node(line, port, self._said, self._handlers)
            except OSError as error:
                complain(f"cannot start {sys.argv[2]!r}: {error.strerror}")
            os._exit(code)

        keeper = Keeper(lifeline, asked["grace"], begin)
        os._exit(keeper.run(sys.argv[2:]))


def main(modules: str, *words: str) -> None:
    """Run as the module's docstring says. Raises Become in a process of the node."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.pop(ROOM_VARIABLE, None)
    link = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.close(empty)
    with tempfile.TemporaryFile(buffering=0) as file:
        said = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)
        for place in (1, 2):
            os.dup2(file.fileno(), place)
    handle_as_at_start()
    forget_ours()
    search_from(words)
    began = time.monotonic()
    why = import_all([*MODULES, *filter(None, modules.split(","))])
    zygote = Zygote(link, said, handlers_now())
    if why:
        zygote.say(unfit=why)
        return
    gc.collect()
    gc.freeze()  # a collection would write to every page that is shared
    zygote.say(ready=time.monotonic() - began)
    zygote.serve()


if __name__ == "__main__":
    programs = []
    try:
        main(*sys.argv[1:])
    except Become as found:
        programs.append(found.program)
    if programs:
        # What is named here would not be taken apart at the end, as a program's own names are.
        run(programs.pop(), (__file__, run.__code__.co_filename))

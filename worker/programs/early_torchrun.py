"""torchrun, which imports torch before it is told how it is called.

    PYTHON [FLAG] early_torchrun.py TORCHRUN [ARGUMENT ...] < ORDER

TORCHRUN is the script that pip installs, PYTHON and FLAG are what its first line names. Nearly all
of a torchrun's start is the import of torch, which needs nothing that the nodes still have to agree
on: it comes first, then ORDER is read, one JSON object:

    argv   the words that torchrun is called with, its path the first of them
    set    what is set in the environment, name by name, and `unset` what is taken out of it

Words are bytes, written as Latin-1. No ORDER means that nobody wants a torchrun any more. The
arguments of this program say nothing to it: they are for people who look for their own by `ps`.

From the order on this is torchrun: its script is executed as Python would, or started anew where
torch could not be imported. Its own errors go where the hook (`worker.look.site`) would send those
of a torchrun, and a node that hosts torchrun's store stays until the others need it no longer: the
last that comes to torchrun's barrier at the end asks the store once more after it has let all
others go, and would fail with a traceback. Two things are quicker:

- A node that does not host torchrun's store dials it when it is there. torch's own client waits
  half a second and more once it has been refused.
- When torchrun is over, and all that waits for its end has run, the process ends at once. Python
  would take torch apart first, piece by piece, which takes nearly half a second.

It is run by its path on the user's interpreter, so it imports nothing else, and keeps to what
Python 3.9 knows.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import json
import logging
import os
import random
import runpy
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn

STORE_SECONDS = 60.0
"""Within which a store that refuses is dialled again; then torch's own client takes over."""

STAY_SECONDS = 20.0
"""For which the host of the store waits for the others to leave."""

_LEAST_PAUSE_SECONDS = 0.01
_MOST_DIALS_A_SECOND = 20_000
"""Of all nodes together."""


def look_like(script: str) -> None:
    """Import from where `script` would, and have its name, as `top` and `pkill` show it."""
    here = os.path.dirname(os.path.realpath(__file__))
    if sys.path and os.path.realpath(sys.path[0]) == here:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as file:
        file.write(os.path.basename(script))


def read_order() -> dict[str, Any] | None:
    """Wait for the order; standard input is empty from then on, as a program's is."""
    with open(0, "rb", closefd=False) as file:
        said = file.read()
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.close(empty)
    order: dict[str, Any] | None = json.loads(said) if said else None
    return order


def follow(order: Mapping[str, Any]) -> None:
    """Take on the arguments and the environment of the order."""
    for name in order["unset"]:
        os.environb.pop(name.encode("latin-1"), None)
    for name, value in order["set"].items():
        os.environb[name.encode("latin-1")] = value.encode("latin-1")
    argv = [os.fsdecode(word.encode("latin-1")) for word in order["argv"]]
    whole = getattr(sys, "orig_argv", [])  # since Python 3.10
    if sys.argv[0] in whole:
        whole[whole.index(sys.argv[0]) :] = argv
    sys.argv[:] = argv


def use_hook() -> None:
    """Have rdzv's hook do here what it does in a torchrun from its start: a look may ask where this
    waits, and Python's errors go where no rank writes."""
    here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    path = os.path.join(here, "look", "site", "sitecustomize.py")
    before = sys.stderr
    spec: Any = importlib.util.spec_from_file_location("rdzv_hook", path)
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    hook.install()
    for known in [*logging._handlerList]:  # type: ignore[attr-defined]  # torch has made some
        handler = known()
        if getattr(handler, "stream", None) is before:
            handler.setStream(sys.stderr)


def await_store(environ: Mapping[str, str]) -> None:
    """Wait until node 0's torchrun listens. What else is wrong with it torchrun is to say."""
    if environ.get("NODE_RANK", "0") == "0":
        return
    place = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    pause = max(_LEAST_PAUSE_SECONDS, int(environ["NNODES"]) / _MOST_DIALS_A_SECOND)
    deadline = time.monotonic() + STORE_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(place, timeout=1.0).close()
        except ConnectionRefusedError:
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
        except OSError:
            return
        else:
            return


def stay_at_barrier(environ: Mapping[str, str]) -> None:
    """Have the node that hosts torchrun's store come last out of its barrier."""
    if environ.get("NODE_RANK", "0") != "0" or environ.get("NNODES", "1") == "1":
        return
    port = int(environ["MASTER_PORT"])
    from torch.distributed.elastic.utils import store  # as torchrun finds it there

    barrier: Any = store.barrier

    def stay(*args: Any, **named: Any) -> None:
        barrier(*args, **named)
        await_clients(port)

    store.barrier = stay


def await_clients(port: int) -> None:
    """Wait until no other process has a connection to what listens on `port` in this one."""
    deadline = time.monotonic() + STAY_SECONDS
    while time.monotonic() < deadline and has_clients(port):
        time.sleep(_LEAST_PAUSE_SECONDS)


def has_clients(port: int) -> bool:
    """Return whether another process is connected to `port` of this one."""
    own, theirs = set[Any](), set[Any]()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # gone, or not connected
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as found:
                here, there = found.getsockname(), found.getpeername()
            if isinstance(here, tuple):
                own.add(here[1])
                theirs |= {there[1]} if here[1] == port else set()
    return bool(theirs - own)


def execute(script: str) -> int:
    """Execute a script as Python does; its exit code. Raises what Python is to end with instead."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code is not None and not isinstance(ended.code, int):
            raise
        return ended.code or 0
    except Exception as error:  # noqa: BLE001 (told as Python tells it)
        frame = error.__traceback__
        while frame is not None and frame.tb_frame.f_code.co_filename != script:
            frame = frame.tb_next
        error.__traceback__ = frame
        sys.excepthook(type(error), error, frame)
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """End this process as Python does, but for its modules: they end with it."""
    if "LD_PRELOAD" in os.environ:  # of a tool that may write its report at the very end
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):  # Python 3.9 tells of one that fails, and raises it too
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


def has_torch() -> bool:
    """Import what torchrun will, if that can be."""
    collects = gc.isenabled()
    gc.disable()  # an import leaves no garbage, and looking for it takes a tenth of the time
    try:
        import torch.distributed.run  # noqa: F401
    except Exception:  # noqa: BLE001
        return False
    finally:
        if collects:
            gc.enable()
    return True


def main(script: str) -> None:
    """Run as the module's docstring says; raises SystemExit."""
    look_like(script)
    can_run = has_torch()
    if (order := read_order()) is None:
        return
    follow(order)
    if not can_run:
        os.execv(sys.argv[0], sys.argv)  # noqa: S606 (its own words for what is wrong)
    with contextlib.suppress(Exception):  # then it does without
        use_hook()
    await_store(os.environ)
    with contextlib.suppress(Exception):  # a torch that has none
        stay_at_barrier(os.environ)
    leave(execute(sys.argv[0]))


if __name__ == "__main__":
    main(sys.argv[1])

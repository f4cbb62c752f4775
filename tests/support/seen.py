"""What a process can see of itself, to be compared with another that is to be its equal.

It imports nothing but the standard library: tests copy it to where other interpreters find it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_PR_GET_PDEATHSIG = 2
_STATUS = ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "NoNewPrivs")


def seen() -> dict[str, Any]:
    """All of it that JSON can hold, but for numbers that no two processes share."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    umask = os.umask(0)
    os.umask(umask)
    return {
        "argv": sys.argv,
        "orig_argv": getattr(sys, "orig_argv", []),  # since Python 3.10
        "path": sys.path,
        "executable": sys.executable,
        "flags": str(sys.flags),
        "environ": dict(os.environ),
        "c environ": sorted(subprocess.check_output(["env"]).decode("latin-1").splitlines()),
        "status": {name: status[name] for name in _STATUS},
        "handlers": [str(signal.getsignal(number)) for number in (2, 10, 13, 15, 17)],
        "files": _files(),
        "stdin": [sys.stdin.read(), sys.stdin.isatty()],
        "streams": [
            (one.encoding, one.errors, one.line_buffering) for one in (sys.stdout, sys.stderr)
        ],
        "folder": os.getcwd(),
        "umask": umask,
        "limits": [resource.getrlimit(number) for number in range(16)],
        "leads": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()],
        "priority": [os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))],
        "threads": threading.active_count(),
        "collector": [gc.isenabled(), gc.get_threshold()],
        "dumpable": os.stat("/proc/self").st_uid,
        "death signal": _death_signal(),
    }


def _files() -> dict[str, list[str]]:
    """Each open file by its number: what it is, and how it was opened."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}").partition(":[")[0]
            found[name] = [target, Path(f"/proc/self/fdinfo/{name}").read_text().split()[3]]
        except OSError:  # that of the list
            continue
    return found


def _death_signal() -> int:
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value

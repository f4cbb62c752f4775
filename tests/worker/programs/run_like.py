"""In the place of torch.distributed.run: shows what it can see of itself, or ends as it is told to.

A test puts it there. The first argument of `torchrun` names what it does.
"""

import atexit
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

BEGAN = dict(os.environ)


def show() -> None:
    """All that a process can see of itself, as JSON."""
    main = sys.modules["__main__"]
    status = Path("/proc/self/status").read_text().splitlines()
    masks = [line for line in status if line.startswith(("Sig", "Shd"))]
    seen = {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "executable": sys.executable,
        "flags": str(sys.flags),
        "main": {name: str(getattr(main, name, None)) for name in ("__name__", "__file__")},
        "helpers": sorted({"execute", "leave"} & vars(main).keys()),
        "environ": {**os.environ},
        "in_c": sorted(subprocess.check_output("env", encoding="latin-1").splitlines()),
        "stdin": [os.readlink("/proc/self/fd/0"), sys.stdin.read(), sys.stdin.isatty()],
        "files": {
            fd: [os.readlink(f"/proc/self/fd/{fd}").split("[")[0], flags(fd)]
            for fd in range(64)
            if os.path.exists(f"/proc/self/fd/{fd}")
        },
        "comm": Path("/proc/self/comm").read_text(),
        "masks": masks,
        "folder": os.getcwd(),
        "umask": os.umask(0o22),
        "limits": [resource.getrlimit(number) for number in range(12)],
        "group": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()],
        "nice": os.nice(0),
        "collector": [gc.isenabled(), gc.get_threshold()],
        "threads": threading.active_count(),
        "handlers": [str(signal.getsignal(number)) for number in (2, 10, 13, 15, 17)],
        "streams": [sys.stdout.encoding, sys.stdout.errors, sys.stdout.line_buffering],
    }
    print(json.dumps(seen))


def flags(fd: int) -> str:
    return Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()[1]


def late() -> None:
    """What an end waits for."""
    atexit.register(print, "the first that was registered")
    atexit.register(sys.stdout.write, "without a line's end")

    def works() -> None:
        time.sleep(0.2)
        print("a thread has worked to its end")

    threading.Thread(target=works).start()


def below() -> None:
    raise RuntimeError("boom")


def main() -> object:
    how, *more = sys.argv[1:]
    if how == "show":
        show()
    elif how == "early":
        print(BEGAN.get("NODE_RANK"), os.environ["NODE_RANK"])
    elif how == "returns":
        return {"none": None, "number": 7, "words": "a word", "large": 300}[more[0]]
    elif how == "exits":
        sys.exit(int(more[0]))
    elif how == "raises":
        below()
    elif how == "interrupted":
        raise KeyboardInterrupt
    elif how == "killed":
        os.kill(os.getpid(), int(more[0]))
        time.sleep(60)
    elif how == "late":
        late()
    elif how == "waits":
        print("pid", os.getpid(), flush=True)
        time.sleep(60)
    else:
        raise ValueError(how)
    return None

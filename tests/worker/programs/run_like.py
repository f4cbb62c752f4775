"""In the place of torch.distributed.run: shows what it can see of itself, or ends as it is told to.

A test puts it there. The first argument of `torchrun` names what it does.
"""

import atexit
import json
import os
import sys
import threading
import time
from pathlib import Path

from seen import seen  # type: ignore[import-not-found]  # a test puts tests/support/seen.py there

BEGAN = dict(os.environ)


def show() -> None:
    """All that a process can see of itself, as JSON."""
    main = sys.modules["__main__"]
    names = {name: str(getattr(main, name, None)) for name in ("__name__", "__file__")}
    names["comm"] = Path("/proc/self/comm").read_text()
    names["ours"] = str({"execute", "leave"} & vars(main).keys())
    print(json.dumps([seen(), names]))


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

"""Starts one of our modules in an interpreter that sees neither PYTHON* nor the working directory.

    python -E .../rendezvous/isolated.py MODULE [ARGUMENT ...]

`python -P` does the same from Python 3.11 on; `-I` would lose what `pip install --user` has put
where it was told. This file is run by its path, so the only folder that Python adds is its own.
"""

import gc
import os
import sys

# What is imported stays: to look for cycles in it took a tenth of a command's start.
_AT_START = 10_000
_AT_WORK = 700, 10, 10
"""Python's own, to 3.12."""


def isolated(module: str, *arguments: str) -> list[str]:
    """How the module is started: an argv."""
    return [sys.executable, "-E", os.path.abspath(__file__), module, *arguments]


def begin_work() -> None:
    """All is imported: from now on the collector looks at what is new, as usual."""
    gc.freeze()
    gc.set_threshold(*_AT_WORK)


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    import runpy

    gc.set_threshold(_AT_START)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)

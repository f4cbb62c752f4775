"""How rdzv starts itself again: an interpreter that sees neither PYTHON* nor the working directory.

    python -E .../rdzv_command.py WORD [ARGUMENT ...]

`python -P` does the same from Python 3.11 on; `-I` would lose what `pip install --user` has put
where it was told. The door is run by its path, so the only folder that Python adds is the one that
holds our packages: that of a checkout, or `rdzv/_app` in a wheel.
"""

import gc
import sys
from pathlib import Path

_DOOR = Path(__file__).resolve().parents[1] / "rdzv_command.py"

_AT_WORK = 700, 10, 10
"""Python's own, to 3.12."""


def own_command(*words: str) -> list[str]:
    """How a part of rdzv is started: an argv. `rdzv_command` names the hidden parts."""
    return [sys.executable, "-E", str(_DOOR), *words]


def begin_work() -> None:
    """All is imported: from now on the collector looks at what is new, as usual."""
    gc.freeze()
    gc.set_threshold(*_AT_WORK)

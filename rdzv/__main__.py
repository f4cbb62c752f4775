"""The `rdzv` command, and `python -m rdzv`: goes through the door, which is loaded by its path."""

import os
from importlib.machinery import SourceFileLoader
from types import ModuleType

_PLACE = os.path.dirname(os.path.abspath(__file__))
_DOORS = (
    os.path.join(_PLACE, "_app", "rdzv_command.py"),
    os.path.join(os.path.dirname(_PLACE), "rdzv_command.py"),
)
"""Where an installed wheel has it, and a checkout."""


def main() -> None:
    """Run `rdzv`."""
    door = next(filter(os.path.isfile, _DOORS))
    module = ModuleType("rdzv_command")
    module.__file__ = door
    SourceFileLoader("rdzv_command", door).exec_module(module)
    module.main()


if __name__ == "__main__":
    main()

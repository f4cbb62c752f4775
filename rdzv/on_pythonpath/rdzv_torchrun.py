"""rdzv's rendezvous for a torchrun whose Python has no rdzv: this folder is on its PYTHONPATH.

The package `rdzv` is loaded from the folder above, where it is not to be found otherwise.
"""

import importlib.util
import os
import sys

if "rdzv" not in sys.modules and importlib.util.find_spec("rdzv") is None:
    _place = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _spec = importlib.util.spec_from_file_location(
        "rdzv", os.path.join(_place, "__init__.py"), submodule_search_locations=[_place]
    )
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules["rdzv"] = _module = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_module)

from rdzv.torchrun import handler

__all__ = ["handler"]

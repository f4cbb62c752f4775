"""Which rdzv this is."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version


@functools.cache
def rdzv_version() -> str:
    """The installed version, or "unknown"; looked up once, since every dial is answered with it."""
    try:
        return version("rdzv")
    except PackageNotFoundError:
        return "unknown"

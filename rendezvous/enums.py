"""`StrEnum`, which Python 3.10 lacks: to be deleted with the support of 3.10."""

from __future__ import annotations

import sys
from enum import Enum

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:

    class StrEnum(str, Enum):
        """An enumeration whose members are their values, in every format."""

        __str__ = str.__str__


__all__ = ["StrEnum"]

"""What Python 3.10 lacks, from its backports: to be deleted with the support of 3.10."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from asyncio import TaskGroup, timeout, timeout_at
    from builtins import BaseExceptionGroup

    import tomllib
else:
    import tomli as tomllib
    from exceptiongroup import BaseExceptionGroup
    from taskgroup import TaskGroup, timeout, timeout_at

__all__ = ["BaseExceptionGroup", "TaskGroup", "timeout", "timeout_at", "tomllib"]

"""VESSL's API: the stand-in of tests/vessl."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

COMMANDS: list[str] = []
SET = {
    "CLUSTER": "gpu-cluster",
    "PRESET": "gpu-h100-80g-xlarge",
    "REPOSITORY": "git://github.com/acme/training.git",
}


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """The variables of an account there."""
    from tests.vessl.service import Vessl

    with Vessl() as vessl:
        yield vessl.environ()

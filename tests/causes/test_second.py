"""The second corpus and later ones in `rdzv launch`: the result names who is to blame, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.causes.second import Fault
from tests.causes.second_record import FOLDERS, marks_of, objections, start

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(150)]


def _marks(fault: Fault) -> list[pytest.MarkDecorator]:
    torch = [pytest.mark.torch] if fault.framework == "torchrun" else []
    return [*torch, *marks_of(fault)]


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=fault.name, marks=_marks(fault)) for fault in FOLDERS]
)
def test_the_result_names_who_and_why(fault: Fault, tmp_path: Path) -> None:
    result = start(fault, tmp_path)
    assert result["status"] == "failed", result
    assert not objections(fault, result), result

"""Tables of text as a test's parameters: a row is `id | cell | cell`, all of them strings."""

from __future__ import annotations

import re

import pytest


def rows(names: str, text: str) -> pytest.MarkDecorator:
    """A test of each row; an indented line goes on with the row before it."""
    lines = re.sub(r"\n +", " ", text.strip()).splitlines()
    cells = [re.split(r" \|(?= |$)", line) for line in lines]
    return pytest.mark.parametrize(
        names.split(), [pytest.param(*map(str.strip, own), id=name) for name, *own in cells]
    )

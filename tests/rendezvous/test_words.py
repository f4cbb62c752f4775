"""Text as people read it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from rendezvous.wire.types import ShortWords
from rendezvous.wire.words import printable
from tests.support.driver import FEW

WORDS: TypeAdapter[str] = TypeAdapter(ShortWords)


@pytest.mark.parametrize(
    ("text", "limit", "clean"),
    [
        ("plain", 10, "plain"),
        ("a\tb\r\n\x1b[31mred", 20, "a?b???[31mred"),
        ("0123456789", 10, "0123456789"),
        ("0123456789a", 10, "012345678…"),
        ("\u202egnp.exe", 20, "?gnp.exe"),
        ("\udc80", 5, "?"),
    ],
)
def test_printable_text_is_clean_and_short(text: str, limit: int, clean: str) -> None:
    assert printable(text, limit) == clean


@FEW
@given(st.text(st.characters(codec=None)), st.integers(1, 50))
def test_whatever_is_made_printable_is_accepted_and_can_be_sent(text: str, limit: int) -> None:
    clean = printable(text, limit)
    assert len(clean) <= limit
    assert WORDS.validate_python(clean) == clean
    clean.encode()

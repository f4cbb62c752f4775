"""A template is written by libyaml where that is there, and to the same values without it."""

from __future__ import annotations

import pytest
import yaml

from launcher.plan.template import Form, render
from tests.launcher.test_template import UGLY


@pytest.mark.parametrize("has_libyaml", [True, False])
def test_words_are_the_same_whoever_writes_them(
    monkeypatch: pytest.MonkeyPatch, has_libyaml: bool
) -> None:
    if not has_libyaml:
        monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    text = render("argv: [<<ARGV>>]\n", {"ARGV": UGLY}, source="spec", form=Form.YAML)
    assert yaml.load(text, Loader=yaml.BaseLoader) == {"argv": UGLY}


def test_what_is_empty_stays_as_it_was_written() -> None:
    template = """env: {QUOTED: "", NOTHING: , TILDE: ~, FILLED: <<X>>}\n"""
    text = render(template, {"X": ""}, source="spec", form=Form.YAML)
    values = {"QUOTED": "", "NOTHING": None, "TILDE": None, "FILLED": ""}
    assert yaml.safe_load(text) == {"env": values}

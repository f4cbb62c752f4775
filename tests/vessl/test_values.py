"""What the command `vessl` makes of a spec's values, and which specs are refused for it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from launcher.plan.template import Form, render
from launcher.schedulers.vessl_values import check_values
from rendezvous.wire.errors import TemplateError
from tests.vessl.service import environment_of, read_spec

HEAD = "name: worker\nimage: i\nresources: {cluster: c}\n"
LOSES_QUOTES = (
    "the vessl command sends this text without quotes, and VESSL may "
    "read it as a number or a truth value, as it would 12e4567, 08 or y"
)
HAS_NONE = (
    "the vessl command changes this value before it sends it, since it has no quotes: 010 would "
    "be 8, and yes true"
)


def sent(text: str) -> str:
    """What the command sends for a spec: the same calls as in its code."""
    loaded = yaml.safe_load(text.replace("\t", "  "))
    return yaml.dump(loaded, default_flow_style=False, sort_keys=False)


def filled(value: str) -> str:
    """A spec whose variable VALUE came from a template's placeholder."""
    template = HEAD + "run: echo\nenv:\n  VALUE: <<VALUE>>\n"
    return render(template, {"VALUE": value}, source="worker.yaml", form=Form.YAML)


def arrives(value: str) -> bool:
    """Whether a value is sent, and then as it was given; False when it is refused."""
    try:
        text = filled(value)
        check_values(text, "worker.yaml")
    except TemplateError:
        return False
    assert environment_of(read_spec(sent(text)))["VALUE"] == value
    return True


QUOTED = ['it\'s "quoted"', "a: b", "- a", "abc #def", "{a}", "a|b&c", "@home %d `id`", "a\tb"]
QUOTED += ["two\nlines\n", " padded ", "학습 작업", "训练任务", "🚀", "\x85\u2028", "0123"]
QUOTED += ["1.10", "yes", "NO", "12:30:45", "2026-09-05", "1_000", "0x1F", "null", "~", ""]
QUOTED += ["10.0.0.1", "1.2.3", "rdzv-12e4567", "1.0e-5", "20261120", "long " * 60]


@pytest.mark.parametrize("value", QUOTED)
def test_a_value_arrives_as_it_was_given(value: str) -> None:
    assert arrives(value)


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12))
@example("12e4567")
@example("0o17")
def test_whatever_is_not_refused_arrives_as_it_was_given(value: str) -> None:
    arrives(value)


def refused(text: str) -> TemplateError:
    """What is said of a spec."""
    with pytest.raises(TemplateError) as caught:
        check_values(text, "worker.yaml")
    return caught.value


@pytest.mark.parametrize("value", ["12e4567", "1e3", "0o17", "08", "0099", "-1e5", "y", "N"])
def test_a_value_that_would_lose_its_quotes_is_refused_with_its_field(value: str) -> None:
    error = refused(filled(value))
    assert error.message == f"worker.yaml: env.VALUE: {LOSES_QUOTES}"
    assert "--scheduler vessl-http" in error.hint


@pytest.mark.parametrize(
    ("written", "arriving"),
    [("010", 8), ("0755", 493), ("yes", True), ("12:30", 750), ("1.10", 1.1), ("~", None)],
)
def test_a_variable_that_a_template_leaves_unquoted_is_refused_when_it_would_change(
    written: str, arriving: object
) -> None:
    text = f"{HEAD}env:\n  MODE: {written}\n"
    assert read_spec(sent(text))["env"]["MODE"] == arriving
    assert refused(text).message == f"worker.yaml: env.MODE: {HAS_NONE}"


MERGED = f"{HEAD}more: &more {{A: b, B: 1}}\nenv:\n  <<: *more\n  C: d\n  B: %s\n"


@pytest.mark.parametrize("written", ["2", "true", "null", "'2'", "2026-09-05", "{secret: NAME}"])
def test_a_variable_that_stays_the_same_may_stand_without_quotes(written: str) -> None:
    check_values(f"{HEAD}env:\n  MODE: {written}\n", "worker.yaml")
    check_values(MERGED % 2, "worker.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}env:\n  NO: x\n", f"worker.yaml: env.NO: {HAS_NONE}"),
        (f"{HEAD}env:\n  Y: x\n", f"worker.yaml: env.Y: {LOSES_QUOTES}"),
        (f"{HEAD}tags: [good, '1e3']\n", "worker.yaml: tags[1]: "),
        (f"{HEAD}run: [{{command: ls, workdir: '08'}}]\n", "worker.yaml: run[0].workdir: "),
        (MERGED % "010", f"worker.yaml: env.B: {HAS_NONE}"),
        ("a: [", "worker.yaml is not one YAML document"),
        ("a\n", "worker.yaml is not a VESSL spec: it is not a mapping"),
        ("", "worker.yaml is not a VESSL spec: it is not a mapping"),
        ("resources: {}\n", "worker.yaml is not a VESSL spec: it has no 'image'"),
        ("image: i\n", "worker.yaml is not a VESSL spec: it has no 'resources'"),
        ("a: 1\n---\nb: 2\n", "worker.yaml is not one YAML document"),
        ("image: i\nresources: {}\nwhen: 2026-99-99\n", "worker.yaml is not one YAML document"),
    ],
)
def test_what_would_not_arrive_or_is_no_spec_is_refused_by_field(text: str, message: str) -> None:
    assert refused(text).message.startswith(message)


def test_a_tab_in_the_text_would_become_two_spaces() -> None:
    message = refused(f"{HEAD}run: |\n  a\tb\n").message
    assert message.startswith("worker.yaml: run: ")
    assert "since a tab becomes two spaces" in message


@pytest.mark.parametrize("value", ["'775e42'", "7_75", "!odd '775e42'"])
def test_no_error_shows_a_value(value: str) -> None:
    assert "775" not in str(refused(f"{HEAD}env: {{KEY: {value}}}\n")).replace("_", "")

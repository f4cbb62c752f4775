"""What the command `vessl` makes of a spec's values, and which specs are refused for it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.plan.template import Form, render
from launcher.schedulers.vessl_values import check_values
from rendezvous.wire.errors import TemplateError
from tests.vessl.service import environment_of, read_spec

HEAD = "name: worker\nimage: i\nresources: {cluster: c}\n"


def sent(text: str) -> str:
    """What the command sends for a spec: the same calls as in its code."""
    loaded = yaml.safe_load(text.replace("\t", "  "))
    return yaml.dump(loaded, default_flow_style=False, sort_keys=False)


def filled(value: str) -> str:
    """A spec whose variable VALUE came from a template's placeholder."""
    template = HEAD + "run: echo\nenv:\n  VALUE: <<VALUE>>\n"
    return render(template, {"VALUE": value}, source="worker.yaml", form=Form.YAML)


@pytest.mark.parametrize(
    "value",
    [
        'it\'s "quoted"',
        "a: b",
        "- a",
        "abc #def",
        "{a}",
        "a|b&c",
        "@home %d `id`",
        "a\tb",
        "two\nlines\n",
        " padded ",
        "학습 작업",
        "训练任务",
        "🚀",
        "\x85\u2028",
        "0123",
        "20261120",
        "1.10",
        "yes",
        "NO",
        "12:30:45",
        "2026-09-05",
        "1_000",
        "0x1F",
        "null",
        "~",
        "",
        "10.0.0.1",
        "1.2.3",
        "rdzv-12e4567",
        "1.0e-5",
        "long " * 60,
    ],
)
def test_a_value_arrives_as_it_was_given(value: str) -> None:
    text = filled(value)
    check_values(text, "worker.yaml")
    assert environment_of(read_spec(sent(text)))["VALUE"] == value


@pytest.mark.parametrize("value", ["12e4567", "1e3", "0o17", "08", "0099", "-1e5", "y", "N"])
def test_a_value_that_would_lose_its_quotes_is_refused_with_its_field(value: str) -> None:
    with pytest.raises(TemplateError) as caught:
        check_values(filled(value), "worker.yaml")
    assert caught.value.message == (
        "worker.yaml: env.VALUE: the vessl command sends this text without quotes, and VESSL may "
        "read it as a number or a truth value, as it would 12e4567, 08 or y"
    )
    assert "--scheduler vessl-http" in caught.value.hint


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12))
@example("12e4567")
@example("0o17")
def test_whatever_is_not_refused_arrives_as_it_was_given(value: str) -> None:
    try:
        text = filled(value)
        check_values(text, "worker.yaml")
    except TemplateError:
        return
    assert environment_of(read_spec(sent(text)))["VALUE"] == value


@pytest.mark.parametrize(
    ("written", "arrives"),
    [
        ("010", "8"),
        ("0755", "493"),
        ("yes", "true"),
        ("12:30", "750"),
        ("1.10", "1.1"),
        ("~", "null"),
    ],
)
def test_a_variable_that_a_template_leaves_unquoted_is_refused_when_it_would_change(
    written: str, arrives: str
) -> None:
    text = f"{HEAD}env:\n  MODE: {written}\n"
    assert str(environment_of(read_spec(sent(text)))["MODE"]) in (arrives, "None")
    with pytest.raises(TemplateError) as caught:
        check_values(text, "worker.yaml")
    assert caught.value.message == (
        "worker.yaml: env.MODE: the vessl command sends something else than stands here, since it "
        "has no quotes: 010 would be 8, and yes true"
    )


@pytest.mark.parametrize("written", ["2", "true", "null", "'2'", "2026-09-05", "{secret: NAME}"])
def test_a_variable_that_stays_the_same_may_stand_without_quotes(written: str) -> None:
    check_values(f"{HEAD}env:\n  MODE: {written}\n", "worker.yaml")


def test_a_variables_name_is_a_text_too() -> None:
    with pytest.raises(TemplateError, match=r"worker.yaml: env.NO: .*has no quotes"):
        check_values(f"{HEAD}env:\n  NO: x\n", "worker.yaml")
    with pytest.raises(TemplateError, match=r"worker.yaml: env.Y: .*without quotes"):
        check_values(f"{HEAD}env:\n  Y: x\n", "worker.yaml")


def test_a_text_anywhere_in_the_spec_is_looked_at() -> None:
    with pytest.raises(TemplateError, match=r"worker.yaml: tags\[1\]: "):
        check_values(f"{HEAD}tags: [good, '1e3']\n", "worker.yaml")
    with pytest.raises(TemplateError, match=r"worker.yaml: run\[0\].workdir: "):
        check_values(f"{HEAD}run: [{{command: ls, workdir: '08'}}]\n", "worker.yaml")


def test_no_error_shows_a_value() -> None:
    for spec in (
        f"{HEAD}env: {{KEY: '775e42'}}\n",
        f"{HEAD}env: {{KEY: 7_75}}\n",
        f"{HEAD}env: {{KEY: !odd '775e42'}}\n",
    ):
        with pytest.raises(TemplateError) as caught:
            check_values(spec, "worker.yaml")
        assert "775" not in str(caught.value).replace("_", "")


def test_a_tab_in_the_text_would_become_two_spaces() -> None:
    with pytest.raises(TemplateError, match=r"run: .* since a tab becomes two spaces"):
        check_values(f"{HEAD}run: |\n  a\tb\n", "worker.yaml")


def test_anchors_and_merges_are_no_obstacle() -> None:
    text = f"{HEAD}more: &more {{A: b, B: 1}}\nenv:\n  <<: *more\n  C: d\n  B: %s\n"
    check_values(text % 2, "worker.yaml")
    with pytest.raises(TemplateError, match=r"env.B: .* has no quotes"):
        check_values(text % "010", "worker.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "worker.yaml is not one YAML document"),
        ("a\n", "worker.yaml is not a VESSL spec: it is no mapping"),
        ("", "worker.yaml is not a VESSL spec: it is no mapping"),
        ("resources: {}\n", "worker.yaml is not a VESSL spec: it has no 'image'"),
        ("image: i\n", "worker.yaml is not a VESSL spec: it has no 'resources'"),
        ("a: 1\n---\nb: 2\n", "worker.yaml is not one YAML document"),
        ("image: i\nresources: {}\nwhen: 2026-99-99\n", "worker.yaml is not one YAML document"),
    ],
)
def test_what_is_no_spec_is_refused_before_the_command_ends_with_0(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        check_values(text, "worker.yaml")
    assert caught.value.message.startswith(message)

"""What is a placeholder in a template of any form, and what only looks like one."""

from __future__ import annotations

import json

import pytest

from launcher.plan.template import Form, placeholders, render
from tests.launcher.test_template import refusal, render_shell

SOURCES = ["spec.yaml", "spec.json", "job.sh", "notes.txt"]


def in_form(source: str, text: str) -> str:
    """A template of that form with `text` in its third line."""
    plain = f"a\nb\n{text}\n"
    forms = {"spec.yaml": f"a: 1\nb: |\n  {text}\n", "spec.json": '[1,\n2,\n"' + text + '"]'}
    return forms.get(source, plain)


@pytest.mark.parametrize("source", SOURCES)
def test_what_has_no_value_or_no_utf8_is_refused_in_every_form(source: str) -> None:
    template = in_form(source, "<<NNODES>> <<NODE_RNAK>>")
    assert refusal(template, source, NODE_RANK=1, NNODES=2) == (
        f"{source}:3: <<NODE_RNAK>> has no variable of that name; known are NNODES, NODE_RANK\n"
        "did you mean <<NODE_RANK>>?"
    )
    none = "<<V>> has no variable of that name; no variables are known here"
    assert refusal(in_form(source, "<<V>>"), source) == f"{source}:3: {none}"
    said = refusal(in_form(source, "<<V>>"), source, V=["ok", "\udcff"])
    assert said.startswith(f"{source}:3: the value of V has bytes in it that are not UTF-8")


@pytest.mark.parametrize("source", SOURCES)
def test_what_only_looks_like_a_placeholder_is_refused(source: str) -> None:
    for written in (
        *("<<node_rank>>", "<<Node_Rank>>", "<< NODE_RANK >>", "<<NODE_RANK >>", "<< NODE_RANK>>"),
        *("<<NODE_RANK>", "<NODE_RANK>>", "<<NODE_RANK", "<<NODE-RANK>>", "<<NODE RANK>>"),
        *("<<node.rank>>", "<<${NODE_RANK}>>", "<<<NODE_RANK>>>", "<<_NODE_RANK>>"),
        "<<1NODE_RANK>>",
    ):
        said = refusal(in_form(source, f"echo {written} x"), source, NODE_RANK=1)
        shown = written.removesuffix(">") if written.endswith(">>>") else written
        assert said.startswith(f"{source}:3: {shown} looks like a placeholder and is none: ")
        assert said.endswith("known are NODE_RANK\ndid you mean <<NODE_RANK>>?")


@pytest.mark.parametrize("source", SOURCES)
def test_heredocs_here_strings_and_shifts_are_no_placeholders(source: str) -> None:
    for text in (
        *("cat <<EOF", "cat <<EOF >x", "cat <<-EOF | tee y", "cat <<<word >>x", "cat <<< $x"),
        *("cat <<'EOF' >>x", "x=$((1<<N)) $((y << 2 >> 1))", "(x << n) | (y >> m)"),
        *("std::cout << x << y", "Map<K,Set<T>> x<y>z", "a <b >>c", "<< <>> >> <<>>"),
    ):
        rendered = render(in_form(source, text), {"NODE_RANK": 1}, source=source)
        assert text in (rendered if source != "spec.json" else json.loads(rendered)[2])


@pytest.mark.parametrize("opening", ["cat <<EOF >> x", "cat << EOF >> x", "cat <<-EOF>x"])
def test_a_heredoc_with_a_redirection_is_known_by_the_line_that_ends_it(opening: str) -> None:
    script = f"{opening}\n<<V>>\nEOF\n"
    assert render_shell(script, V="v") == f"{opening}\nv\nEOF\n"
    assert "looks like a placeholder" in refusal("cat <<EOF >> x\n<<V>>\n", "job.sh", V="v")


def test_placeholders_are_listed_with_their_lines() -> None:
    template = "# <<IN_COMMENT>>\na: <<A>>\nb: |\n  x\n  <<B>> <<A>>\n  <<EOF\n"
    in_text = [("IN_COMMENT", 1), ("A", 2), ("B", 5), ("A", 5)]
    assert placeholders(template) == in_text
    assert placeholders(template, form=Form.YAML) == in_text[1:]

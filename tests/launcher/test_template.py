"""Strict templates: what each form makes of a value, what it refuses, and in which words."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from launcher.plan.template import Form, Value, form_of, placeholders, render
from rendezvous.wire.errors import TemplateError

ANY_TEXT = st.text(max_size=40)
SHELL_TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40)

UGLY = [
    *("", " ", "a: b", "abc #def", "- x", "@x", "%x", "`x`", "a|b&c", 'it\'s "quoted"'),
    *("C:\\temp", "two\nlines", "\n", "\n\nx\n\n", " lead\ntrail ", "tab\there", "\r\n", "---"),
    *("... ", "*a", "&a", "!!int 3", "<<", "=", "~", "null", "yes", "on", "NO", "1:30"),
    *("12:30:45", "0755", "0o17", "1e3", "12e4567", "1_000", "0x1F", ".inf", "2026-09-05"),
    *("{a: b}", "[a]", "\x85\u2028\u2029\ufeff\xa0", "\x00\x01\x7f", "노드 😀", "<<NAME>>"),
]


def render_yaml(template: str, **variables: Value) -> str:
    return render(template, variables, source="spec.yaml")


def yaml_of(template: str, **variables: Value) -> Any:
    return yaml.safe_load(render_yaml(template, **variables))


def json_of(template: str, **variables: Value) -> Any:
    return json.loads(render(template, variables, source="spec.json"))


def render_shell(template: str, **variables: Value) -> str:
    return render(template, variables, source="job.sh")


def refusal(template: str, source: str, **variables: Value) -> str:
    with pytest.raises(TemplateError) as caught:
        render(template, variables, source=source)
    return str(caught.value)


FORMS = {
    Form.YAML: "worker.yaml specs/worker.YML worker.yaml.tpl",
    Form.JSON: "job.json job.json.tpl",
    Form.SHELL: "run.sh run.sbatch.tpl run.slurm",
    Form.TEXT: "notes.txt hosts.env yaml some.yaml/README",
}


@pytest.mark.parametrize(("form", "names"), FORMS.items())
def test_form_follows_the_file_name_unless_it_is_given(form: Form, names: str) -> None:
    assert [form_of(name) for name in names.split()] == [form] * len(names.split())
    assert render("echo <<X>>", {"X": "a b"}, source="job.txt", form=Form.SHELL) == "echo 'a b'"


@given(ANY_TEXT | st.sampled_from(UGLY))
@settings(max_examples=50)
def test_yaml_reads_back_any_string_from_every_place(value: str) -> None:
    rendered = yaml_of(
        "bare: <<V>>\n"
        'double: "<<V>>"\n'
        "single: '<<V>>'\n"
        "longer: rank-<<V>>.x\n"
        "flow: {a: [<<V>>, 1]}\n"
        "folded: >\n  one\n  <<V>>\n"
        "block: |\n  first\n  <<V>>\n  last\n"
        "block start: |-\n  <<V>>\n"
        "nested:\n- - |+\n    <<V>>\n\n"
        "key:\n  <<V>>: value\n",
        V=value,
    )
    assert rendered == {
        "bare": value,
        "double": value,
        "single": value,
        "longer": f"rank-{value}.x",
        "flow": {"a": [value, 1]},
        "folded": f"one {value}\n",
        "block": f"first\n{value}\nlast\n",
        "block start": value,
        "nested": [[f"{value}\n\n"]],
        "key": {value: "value"},
    }


@pytest.mark.parametrize("value", ["12e4567", "1e3", "0o17", "yes", "1:30", "0x1F", "2", "~"])
def test_yaml_quotes_every_string_for_all_versions_of_yaml(value: str) -> None:
    assert render_yaml("a: <<V>>\nb: '<<V>>'\n", V=value) == f'a: "{value}"\nb: "{value}"\n'


def test_yaml_keeps_an_integer_where_the_placeholder_is_bare_unless_a_tag_says_otherwise() -> None:
    rendered = render_yaml("a: <<N>>\nb: '<<N>>'\nc: n<<N>>\nd: 1<<N>>\n? <<N>>\n: [<<N>>]\n", N=4)
    assert rendered == 'a: 4\nb: "4"\nc: "n4"\nd: "14"\n4:\n- 4\n'
    template = "a: !!str <<N>>\nb: &x !!str <<N>>\nc: !!int <<S>>\nd: &y <<N>>\ne: <<B>>\n"
    found = yaml_of(template, N=4, S="5", B=-(10**30))
    assert found == {"a": "4", "b": "4", "c": 5, "d": 4, "e": -(10**30)}


def test_yaml_splices_a_list_into_a_sequence_and_writes_one_quoted_line_elsewhere() -> None:
    command = ["python", "a b.py", "it's", ""]
    line = shlex.join(command)
    spliced = "flow: [rdzv, --, <<C>>]\nblock:\n- sh\n- <<C>>\n- '<<C>>'\n- end\n"
    assert yaml_of(spliced, C=command) == {
        "flow": ["rdzv", "--", *command],
        "block": ["sh", *command, *command, "end"],
    }
    template = "run: <<C>>\nitem: [exec <<C>>]\nscript: |\n  cd /x\n  rdzv worker -- <<C>>\n"
    assert yaml_of(template, C=command) == {
        "run": line,
        "item": [f"exec {line}"],
        "script": f"cd /x\nrdzv worker -- {line}\n",
    }
    shared = "first: &c <<C>>\nsecond: [x, *c]\nthird: *c\n"  # by each of its places
    spread = {"first": "a b", "second": ["x", "a", "b"], "third": "a b"}
    assert yaml_of(shared, C=["a", "b"]) == spread


def test_yaml_leaves_an_optional_key_out_where_a_list_in_it_is_empty() -> None:
    text = "a: !optional {x: [{in: [<<AVOID>>]}], y: 1}\nb: !optional [<<NAME>>]\nc: [1, <<AVOID>>]"
    assert yaml_of(text, AVOID=[], NAME="n") == {"b": ["n"], "c": [1]}
    assert yaml_of(text, AVOID=["n1", "n2"], NAME="n") == {
        "a": {"x": [{"in": ["n1", "n2"]}], "y": 1},
        "b": ["n"],
        "c": [1, "n1", "n2"],
    }


def test_yaml_never_expands_a_value_again() -> None:
    template = "a: <<X>>\nb: [<<L>>]\nc: <<M>>-<<X>>\n"
    rendered = yaml_of(template, X="<<Y>>", Y="no", L=["<<X>>", "<<nope>>"], M="<<")
    assert rendered == {"a": "<<Y>>", "b": ["<<X>>", "<<nope>>"], "c": "<<-<<Y>>"}


def test_yaml_keeps_what_is_no_placeholder() -> None:
    template = """\
octal: 0755
time: 12:30
times: [12:30, 12:30:45, {on}, ~, "on", '1e3', 0o17]
nothing:
? [a, b]
: complex
keep: |+
  a	b

custom: !Ref [x, !Sub "${y}"]
"""
    rendered = render_yaml(template)
    assert tree(rendered) == tree(template)
    assert "time: 12:30\n" in rendered
    assert "- 12:30:45\n" in rendered


def tree(text: str) -> list[Any]:
    """The documents with tags and text, as a parser sees them before it makes objects."""

    def of(node: yaml.Node) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return (node.tag, "null" if node.tag.endswith(":null") else node.value)
        items = node.value if isinstance(node, yaml.SequenceNode) else sum(node.value, ())
        return (node.tag, [of(item) for item in items])

    return [of(node) for node in yaml.compose_all(text, Loader=yaml.SafeLoader)]


NO_BRACKET = st.text(st.characters(exclude_characters="<", codec="utf-8"), max_size=40)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.dates()
DATA = st.recursive(
    SCALARS | NO_BRACKET,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NO_BRACKET, inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(DATA, min_size=1, max_size=3), st.sampled_from([None, True, False]), st.booleans())
@example(data=[None, None], flow=None, unicode=True)
@settings(max_examples=50)
def test_yaml_keeps_any_data_of_any_documents(
    data: list[Any], flow: bool | None, unicode: bool
) -> None:
    template = yaml.safe_dump_all(data, default_flow_style=flow, allow_unicode=unicode, width=20)
    assert list(yaml.safe_load_all(render_yaml(template))) == list(yaml.safe_load_all(template))


def test_yaml_keeps_scripts_anchors_merge_keys_order_and_documents() -> None:
    script = 'run: |\n  cat > x <<EOF\n  <<A>>: "q"\n  EOF\n  sh x\n'
    assert render_yaml(script, A="노드") == script.replace("<<A>>", "노드")
    template = """
base: &base {image: <<IMAGE>>, env: {N: <<N>>}}
one:
  <<: *base
  name: one
two:
  <<: [*base, {extra: <<IMAGE>>}]
  image: other
"""
    base = {"image": "a: b", "env": {"N": 2}}
    two = {**base, "image": "other", "extra": "a: b"}
    rendered = yaml_of(template, IMAGE="a: b", N=2)
    assert rendered == {"base": base, "one": {**base, "name": "one"}, "two": two}
    itself = yaml_of("&a [<<X>>, *a]", X="x")
    assert itself[0] == "x"
    assert itself[1] is itself
    several = "# <<NOT_A_VARIABLE>>\nz: <<A>>\na: 1 # <<x>>\n---\nkind: Service\n---\n- <<A>>\n"
    assert render_yaml(several, A="v") == 'z: "v"\na: 1\n---\nkind: Service\n---\n- "v"\n'


NO_YAML = "the template is not YAML: "


@pytest.mark.parametrize(
    ("template", "said"),
    [
        # as it is written: the value may be a secret
        ("env:\n  A: 1\n  <<K>>: 2\n", ":3: the key '<<K>>' appears twice in one mapping"),
        ("name: x\nrun: a: b\n", f":2:7: {NO_YAML}mapping values are not allowed here"),
        ("name: x\nrun: a\x01\n", f":2:7: {NO_YAML}the character '\\x01'"),
        ('a: "\\U00110000"', f": {NO_YAML}"),
        pytest.param("[" * 600, f": {NO_YAML}", id="deep"),
    ],
)
def test_yaml_refusals_name_the_place(template: str, said: str) -> None:
    assert refusal(template, "spec.yaml", K="A").startswith(f"spec.yaml{said}")


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("a: 1\nb: <<X>>\n", 2),
        ("a: |\n  one\n  <<X>>\n", 3),
        ("a: >\n  one\n  two\n\n  three <<X>>\n", 5),
        ('a: "one\n  two\n  <<X>>"\n', 3),
        ("a: 1\n---\nb: [1,\n  <<X>>]\n", 4),
        ("a: &x !!str\n  <<X>>\n", 2),
        ('a: "\\x3c<X>>"\n', 1),
        ("\ufeffa: 1\r\nb: <<X>>\r\n", 2),
    ],
)
def test_yaml_errors_name_the_line_of_the_template(template: str, line: int) -> None:
    said = refusal(template, "spec.yaml", A="value")
    assert said == f"spec.yaml:{line}: <<X>> has no variable of that name; known are A"


# JSON


@given(ANY_TEXT, st.lists(ANY_TEXT, max_size=3))
@settings(max_examples=40)
def test_json_reads_back_any_value_from_every_place(value: str, command: list[str]) -> None:
    template = '{"a": "<<V>>", "b": <<V>>, "c": "x <<V>> y", "d": ["<<V>>"], "e": {"<<V>>": 1}}'
    each = {"a": value, "b": value, "c": f"x {value} y", "d": [value], "e": {value: 1}}
    assert json_of(template, V=value) == each
    template = '{"a": ["rdzv", "<<C>>", [<<C>>]], "b": "<<C>>", "c": ["exec <<C>>"]}'
    line = shlex.join(command)
    rendered = json_of(template, C=command)
    assert rendered == {"a": ["rdzv", *command, command], "b": line, "c": [f"exec {line}"]}


def test_json_keeps_order_and_an_integer_where_the_placeholder_is_bare() -> None:
    template = '{"a": <<N>>, "b": "<<N>>", "c": "\\"<<N>>\\"", "d": [<<N>>, 1.5, null, true]}'
    assert json_of(template, N=4) == {"a": 4, "b": "4", "c": '"4"', "d": [4, 1.5, None, True]}
    rendered = render('{"z": "<<A>>", "a": []}', {"A": "노드"}, source="job.json")
    assert rendered == '{\n  "z": "\\ub178\\ub4dc",\n  "a": []\n}\n'


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ('{"a": 1,\n "a": 2}', ":2: the key 'a' appears twice in one object"),
        ('{"a": {"b": 1},\n "b": 2,\n "<<K>>": 3}', ":3: the key '<<K>>' appears twice in"),
        ('{"a": <<K>>,\n "b": <<K>> 2}', ":2:13: the template is not JSON: Expecting ','"),
        ('{"a": NaN}', ": the template is not JSON: NaN is not a number in JSON"),
        ('{"a": 1e999}', ": the template is not JSON: Out of range"),
        ('{"a": "b', ":1:7: the template is not JSON: Unterminated string"),
        ('{\n"a": [1,\n"\\"<<X>>"]}', ":3: <<X>> has no variable"),
        ('{\n"a": [1,\n<<X>>]}', ":3: <<X>> has no variable"),
        ('{\n"<<X>>": 1}', ":2: <<X>> has no variable"),
        ('{"a": "< <X>>",\n"b": "<<k>>"}', ":1: <X>> looks like a placeholder"),
    ],
)
def test_json_refusals_name_the_place(template: str, said: str) -> None:
    assert refusal(template, "job.json", K="b").startswith(f"job.json{said}")


# Shell


@given(SHELL_TEXT, st.lists(SHELL_TEXT, max_size=3))
@example(value="$(echo no) `no` \\ ' \"", command=["a b", "$HOME", "", "a\nb"])
@settings(max_examples=25, deadline=None)
def test_shell_reads_back_any_value_where_the_placeholder_stands_alone(
    value: str, command: list[str]
) -> None:
    script = render_shell(
        "#!/bin/bash\n"
        "A=<<V>> B=<<C>>\n"
        'D="$(dirname "/x y/z")" # it\'s\n'
        "cat >/dev/null <<-EOF\n  it's \"open\n\tEOF\n"
        'printf \'%s\\0\' "$A" "$B" <<V>> --name=<<V>> \\\n'
        "  $'it\\'s' <<C>> $((1<<3)) `echo x`\n"
        "printf '%s\\0' end\n",
        V=value,
        C=command,
    )
    output = subprocess.run(["bash", "-c", script], check=True, capture_output=True).stdout
    words = [value, shlex.join(command), value, f"--name={value}", "it's", *command]
    assert output.decode().split("\0") == [*words, "8", "x", "end", ""]


DIRECTIVE, INSIDE, GLUED = "a comment or a directive", "inside quotes, a comment", "next to"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("#SBATCH --job-name=<<V>>", DIRECTIVE),
        ("echo # see <<V>>", INSIDE),
        ('echo "<<V>>"', INSIDE),
        ("echo 'a <<V>> b'", INSIDE),
        ("echo $'\\' <<V>> b'", INSIDE),
        ("echo `echo <<V>> b`", INSIDE),
        ('bash -c "\necho \\"\n<<V>>\n"', INSIDE),
        ('A="$(echo "\n<<V>>\n")"', INSIDE),
        ("cat <<EOF\n <<V>>\nEOF\n", INSIDE),
        ("cat <<'E-F' >x <<-\"Q\"\nE-F\n <<V>>\n\tQ\n", INSIDE),
        ("echo '<<V>>", INSIDE),
        ("echo x<<V>>", GLUED),
        ("echo $(<<V>>)", GLUED),
        ("echo --<<V>>=3", GLUED),
    ],
)
def test_shell_inserts_only_harmless_values_where_it_cannot_quote(template: str, why: str) -> None:
    said = refusal(template, "job.sbatch", V="a b")
    line = template[: template.index("<<V>>")].count("\n") + 1
    assert said.startswith(f"job.sbatch:{line}: the value of V contains the character ' ', and")
    assert why in said
    assert "V=<<V>> on its own line" in said
    assert "a b" not in said
    harmless = "_Az09./:@%+=,-"
    assert render_shell(template, V=harmless) == template.replace("<<V>>", harmless)


@pytest.mark.parametrize(
    ("template", "items", "said"),
    [
        ('echo "<<V>>"', ["a", "$b"], "contains the character '$'"),
        ('echo "<<V>>"', ["a", ""], "is empty"),
        ('echo "<<V>>"', [], "is empty"),
        ("#SBATCH --x=<<V>>", ["a\nrm"], "contains the character '\\n'"),
        ("echo <<V>>", ["a", "b\0"], "contains a NUL byte, which a shell cannot use"),
        ("#SBATCH --x=<<V>>", ["a", "b\0"], "contains a NUL byte, which a shell cannot use"),
    ],
)
def test_shell_refuses_a_list_that_it_cannot_write(
    template: str, items: list[str], said: str
) -> None:
    assert f"job.sh:1: the value of V {said}" in refusal(template, "job.sh", V=items)


def test_shell_joins_a_list_behind_a_directives_equals_sign_by_commas() -> None:
    text = "#SBATCH --exclude=<<AVOID>>\necho\n"
    assert render_shell(text, AVOID=["n1"]) == "#SBATCH --exclude=n1\necho\n"
    assert render_shell(text, AVOID=["n1", "n2.local"]) == "#SBATCH --exclude=n1,n2.local\necho\n"
    assert render_shell(text, AVOID=[]) == "echo\n"


@pytest.mark.parametrize(
    "line", ["#SBATCH --exclude=<<AVOID>> --mem=8G", "#SBATCH --mem=8G --exclude=<<AVOID>>"]
)
def test_shell_takes_no_line_away_that_says_more(line: str) -> None:
    assert render_shell(line, AVOID=["n1"]) == line.replace("<<AVOID>>", "n1")
    with pytest.raises(TemplateError, match="AVOID is empty") as caught:
        render_shell(line, AVOID=[])
    assert caught.value.hint.startswith("leave nothing else on its line")


def test_shell_treats_lists_of_other_things_in_a_directive_as_ever() -> None:
    line = "#SBATCH --export=<<PASS_ENV>>"
    assert render_shell(line, PASS_ENV=["A=1", "B=2"]) == "#SBATCH --export=A=1 B=2"
    with pytest.raises(TemplateError, match="PASS_ENV is empty"):
        render_shell(line, PASS_ENV=[])


def test_shell_puts_nothing_into_a_directive_that_could_be_more_than_a_host() -> None:
    with pytest.raises(TemplateError, match="the character ' '"):
        render_shell("#SBATCH --exclude=<<AVOID>>", AVOID=["n1", "n2 --wrap=x"])


def test_shell_takes_placeholders_again_after_quotes_comments_and_heredocs_end() -> None:
    template = """\
#SBATCH --job-name=<<NAME>>
# don't
cat <<EOF >> log
it's "open
EOF
if [ "$((1<<4))" = 16 ]; then (exec "$VENV/bin/rdzv" worker --id='x' -- <<C>> ); fi
"""
    expected = template.replace("<<NAME>>", "job-1").replace("<<C>>", "'a b'")
    assert render_shell(template, NAME="job-1", C=["a b"]) == expected
    assert render_shell("echo <<L>> <<S>>", L=[], S="") == "echo  ''"
    assert render_shell('echo "<<L>>"', L=["a", "-b"]) == 'echo "a -b"'
    assert render_shell("echo <<A>> <<B>>", A="<<B>>", B="$x") == "echo '<<B>>' '$x'"


def test_text_takes_values_as_they_are() -> None:
    template = "a = <<V>>;<<N>> <<L>>\r\n"
    rendered = render(template, {"V": "'$x\" #", "N": 3, "L": ["a b", "c"]}, source="x.conf")
    assert rendered == "a = '$x\" #;3 'a b' c\r\n"


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\0", "a\tb", "\x1b[0m", "a\u2028b", "\x85"])
def test_text_refuses_control_characters(value: str) -> None:
    said = refusal("one\ntwo <<V>>\n", "x.conf", V=value)
    assert said.startswith("x.conf:2: the value of V contains the character '\\")


# What is a placeholder in a template of any form, and what only looks like one


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
    assert said.startswith(f"{source}:3: the value of V contains bytes that are not UTF-8")


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
        assert said.startswith(f"{source}:3: {shown} looks like a placeholder but is not: ")
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

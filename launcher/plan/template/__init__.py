"""Strict rendering of spec templates: a template text and variables give a spec, or an error.

A *placeholder* is `<<NAME>>`, NAME in capitals, digits and `_`. A *variable* gives it a string, an
integer or a list of strings. What a value becomes depends on the *form* of the template:

    yaml    the scalars of the parsed text are filled and the text is written anew, so that no
            value can break it. `n: <<N>>` keeps an integer an integer; `"<<N>>"` is a string. A key
            whose value has the tag `!optional` is left out where a list in it is empty.
    json    the same; `<<N>>` may stand without quotes there too, and then keeps its type.
    shell   quoted where it stands alone; elsewhere only values that need no quoting. In a
            directive a list behind a = is joined by commas, and an empty one takes its line
            away: `#SBATCH --exclude=<<AVOID>>`.
    text    as it is; control characters and line breaks are refused.

In YAML and JSON a list spliced into a sequence (`[rdzv, worker, --, <<COMMAND>>]`) gives its items;
anywhere else a list is one line in the shell's quoting, as `shlex.join` writes it.

A placeholder without a variable is an error, and so is what looks like one and is none (`<<name>>`,
`<< NAME >>`, `<<NAME>`). YAML merge keys (`<<: *base`), heredocs and here-strings stay. Values are
never looked into for further placeholders. No error shows a value: it may be a secret.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from launcher.plan.template.json_form import render_json
from launcher.plan.template.placeholder import (
    PLACEHOLDER,
    Spot,
    Value,
    Variables,
    line_at,
    one_line,
)
from launcher.plan.template.shell_form import render_shell
from launcher.plan.template.yaml_form import render_yaml, yaml_scalars
from rendezvous.enums import StrEnum

__all__ = [
    "PLACEHOLDER",
    "Form",
    "Value",
    "Variables",
    "form_of",
    "line_at",
    "one_line",
    "placeholders",
    "render",
]


class Form(StrEnum):
    """What a template is written in."""

    YAML = "yaml"
    JSON = "json"
    SHELL = "shell"
    TEXT = "text"


_FORMS = {
    "yaml": Form.YAML,
    "yml": Form.YAML,
    "json": Form.JSON,
    "sh": Form.SHELL,
    "sbatch": Form.SHELL,
    "slurm": Form.SHELL,
}


def form_of(filename: str) -> Form:
    """The form that a file name stands for; a last `.tpl` does not count."""
    stem, dot, suffix = filename.lower().removesuffix(".tpl").rpartition(".")
    return _FORMS.get(suffix, Form.TEXT) if stem and dot else Form.TEXT


def render(
    text: str, variables: Mapping[str, Value], *, source: str, form: Form | None = None
) -> str:
    """Fill a template.

    Args:
        text: The template.
        variables: What the placeholders stand for; those that the template does not use are fine.
        source: The name of the template's file, for errors.
        form: Taken from `source` when not given.

    Raises:
        TemplateError: It does not parse, a placeholder has no variable or is misspelt, or a value
            cannot stand where its placeholder stands. Begins with `source:line`.
    """
    known = Variables(variables, source)
    match form or form_of(source):
        case Form.YAML:
            return render_yaml(text, known)
        case Form.JSON:
            return render_json(text, known)
        case Form.SHELL:
            return render_shell(text, known)
        case Form.TEXT:
            return _render_text(text, known)


def placeholders(
    text: str, *, source: str = "template", form: Form = Form.TEXT
) -> list[tuple[str, int]]:
    """Name and line of every placeholder, in order; in YAML those in comments do not count.

    Raises:
        TemplateError: The template is not YAML, and `form` says that it should be.
    """
    if form is Form.YAML:
        pieces = yaml_scalars(text, source)
    else:
        pieces = [(text, lambda offset: line_at(text, offset))]
    return [
        (spot["name"], line_of(spot.start()))
        for piece, line_of in pieces
        for spot in PLACEHOLDER.finditer(piece)
    ]


def _render_text(text: str, variables: Variables) -> str:
    def insert(spot: Spot) -> str:
        value = one_line(spot.value)
        for character in value:
            if unicodedata.category(character) in {"Cc", "Zl", "Zp"}:
                raise variables.error(
                    spot.line,
                    f"the value of {spot.name} contains the character {character!r}, which plain "
                    f"text cannot have in place of <<{spot.name}>>",
                    hint=f"give {spot.name} a value of one line, without control characters",
                )
        return value

    return variables.fill(text, lambda offset: line_at(text, offset), insert)

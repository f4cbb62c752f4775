"""What becomes of a spec's values when the command `vessl` sends it. Pure.

The command replaces each tab by two spaces, loads the text with PyYAML, dumps it again and sends
that. PyYAML reads YAML 1.1; who reads what it has written may read 1.2, where 12e4567 and 0o17 are
numbers, and where 08 is one. Quotes do not help, since PyYAML drops those that it finds needless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from rendezvous.wire.errors import TemplateError

_NUMBER_OR_TRUTH = re.compile(
    r"""
      [-+]? (?: [0-9][0-9_]* (?:\.[0-9_]*)? | \.[0-9][0-9_]* ) (?: [eE][-+]?[0-9_]+ )?
    | [-+]? 0 (?: [xX][0-9a-fA-F_]+ | [oO][0-7_]+ | [bB][01_]+ )
    | [-+]? [0-9][0-9_]* (?: :[0-9]+ )+ (?: \.[0-9_]* )?
    | [-+]? \.(?i:inf|nan)
    | (?i: y | n | yes | no | on | off | true | false | null )
    | ~ |
    """,
    re.VERBOSE,
)
_NO_NUMBER = "write it so that it is neither (v12e4567, 1.0e-5 in quotes)"
_AS_IT_IS = "or use --scheduler vessl-http, which sends the spec as it is"


def check_values(text: str, source: str) -> None:
    """Refuse a spec whose values the command `vessl` would change.

    Args:
        text: The rendered spec, which is YAML.
        source: Its template's name, for errors.

    Raises:
        TemplateError: It names the first field that would reach VESSL as something else.
    """
    meant = load_spec(text, source)
    sent_text = yaml.dump(
        load_spec(text.replace("\t", "  "), source), default_flow_style=False, sort_keys=False
    )
    for field, value, node in _strings(meant, yaml.compose(sent_text, Loader=yaml.SafeLoader)):
        if node.value != value:
            why = "a tab becomes two spaces" if "\t" in value else "it rewrites the YAML"
            raise _changed(source, field, why)
        if node.style is None and _NUMBER_OR_TRUTH.fullmatch(value):
            raise TemplateError(
                f"{source}: {field}: the vessl command sends this text without quotes, and VESSL "
                "may read it as a number or a truth value, as it would 12e4567, 08 or y",
                hint=f"{_NO_NUMBER}, {_AS_IT_IS}",
            )
    for field, written, sent in _environment(text, sent_text):
        if written != sent:
            raise _changed(source, field, "it has no quotes: 010 would be 8, and yes true")


def _changed(source: str, field: str, why: str) -> TemplateError:
    """The field and the cause; never the value, which may be a secret."""
    return TemplateError(
        f"{source}: {field}: the vessl command changes this value before it sends it, since {why}",
        hint=f"put it in double quotes, {_AS_IT_IS}",
    )


def load_spec(text: str, source: str) -> dict[str, Any]:
    """A rendered spec as PyYAML reads it; raises TemplateError when it is none of VESSL's."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as exc:
        why = exc.problem if isinstance(exc, yaml.MarkedYAMLError) else exc
        raise TemplateError(f"{source} is not one YAML document: {why}") from exc
    if not isinstance(found, dict):
        raise TemplateError(
            f"{source} is not a VESSL spec: it is not a mapping",
            hint="a spec has 'image', 'resources' and 'run'; see specs/worker.yaml.tpl",
        )
    for key in ("image", "resources"):
        if key not in found:
            raise TemplateError(
                f"{source} is not a VESSL spec: it has no '{key}'",
                hint=(
                    "VESSL does not make a run from it, but its command still ends with exit code 0"
                ),
            )
    return found


def _strings(
    value: Any, node: yaml.Node | None, field: str = ""
) -> Iterator[tuple[str, str, yaml.ScalarNode]]:
    """Every text of a loaded document, keys too, beside the node that is sent for it."""
    if isinstance(value, str) and isinstance(node, yaml.ScalarNode):
        yield field, value, node
    elif isinstance(value, dict) and isinstance(node, yaml.MappingNode):
        for (key, inner), (key_node, inner_node) in zip(value.items(), node.value, strict=True):
            name = f"{field}.{key}" if field else str(key)
            yield from _strings(key, key_node, name)
            yield from _strings(inner, inner_node, name)
    elif isinstance(value, list) and isinstance(node, yaml.SequenceNode):
        for number, (inner, inner_node) in enumerate(zip(value, node.value, strict=True)):
            yield from _strings(inner, inner_node, f"{field}[{number}]")


def _environment(text: str, sent_text: str) -> Iterator[tuple[str, str, str]]:
    """Names and values of `env` as they are written, and as they are sent: all of it is text."""
    written, sent = (_env_of(yaml.compose(t, Loader=yaml.SafeLoader)) for t in (text, sent_text))
    if "<<" in dict(written):  # what is merged in changes the order, not the names
        sent_values = dict(sent)
        sent = [(name, sent_values.get(name)) for name, _ in written]
    for (name, value), (sent_name, sent_value) in zip(written, sent, strict=True):
        yield f"env.{name}", name, sent_name
        if value is not None and sent_value is not None:
            yield f"env.{name}", value, sent_value


def _env_of(root: yaml.Node | None) -> list[tuple[str, str | None]]:
    """The variables, with the text of their values where these are plain."""
    for key, value in root.value if isinstance(root, yaml.MappingNode) else []:
        if key.value == "env" and isinstance(value, yaml.MappingNode):
            return [(str(k.value), _text_of(v)) for k, v in value.value]
    return []


def _text_of(node: yaml.Node) -> str | None:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None

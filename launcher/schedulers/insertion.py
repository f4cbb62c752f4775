"""Setting a value in a rendered spec whose template does not mention it."""

from __future__ import annotations

import json
import sys
from typing import Any

import yaml

from launcher.plan.template import Form
from rendezvous.wire.errors import TemplateError

_STR = "tag:yaml.org,2002:str"


def insert_value(text: str, form: Form, keys: list[str], value: str, source: str) -> str:
    """The rendered spec with the value at a path of its own."""
    if form is Form.YAML:
        return _insert_in_yaml(text, keys, value, source)
    if form is Form.JSON:
        tree = json.loads(text)
        _set(tree, keys, value, source)
        return json.dumps(tree, indent=2) + "\n"
    raise TemplateError(
        f"{source}: {'.'.join(keys)} cannot be set, since it is neither YAML nor JSON",
        hint="use <<RDZV_JOIN>> and <<NAME>> in the template",
    )


def _set(tree: Any, keys: list[str], value: str, source: str) -> None:
    for key in keys[:-1]:
        tree = tree.setdefault(key, {}) if isinstance(tree, dict) else None
    if not isinstance(tree, dict):
        raise _no_mapping(keys, source)
    tree[keys[-1]] = value


def _no_mapping(keys: list[str], source: str) -> TemplateError:
    return TemplateError(f"{source}: {'.'.join(keys)} cannot be set: its parent is not a mapping")


def _insert_in_yaml(text: str, keys: list[str], value: str, source: str) -> str:
    """On the node graph: what is not ours stays as it is written."""
    roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    leaf: yaml.Node = yaml.ScalarNode(_STR, value, style='"')
    if not roots or not _set_node(roots[0], keys, leaf):
        raise _no_mapping(keys, source)
    return yaml.serialize_all(roots, Dumper=yaml.SafeDumper, width=sys.maxsize, allow_unicode=True)


def _set_node(node: yaml.Node, keys: list[str], leaf: yaml.Node) -> bool:
    if not isinstance(node, yaml.MappingNode):
        return False
    key, rest = keys[0], keys[1:]
    found = next((value for name, value in node.value if name.value == key), None)
    if found is None or not rest:
        found = yaml.MappingNode("tag:yaml.org,2002:map", []) if rest else leaf
        node.value = [pair for pair in node.value if pair[0].value != key]
        node.value.append((yaml.ScalarNode(_STR, key), found))
    return _set_node(found, rest, leaf) if rest else True

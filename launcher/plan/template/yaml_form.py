"""Filling a YAML template: its node graph is filled and written again.

The graph, and not Python objects: tags, anchors, merge keys, key order and the written form of what
is no placeholder (0755, 12:30, on) all stay. Comments and the choice of quotes are lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from launcher.plan.template.placeholder import PLACEHOLDER, LineOf, Variables, line_at
from rendezvous.wire.errors import TemplateError

_WIDTH = 2**31 - 1
_STR = "tag:yaml.org,2002:str"
_INT = "tag:yaml.org,2002:int"
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
_OPTIONAL = "!optional"
_TAGS = {
    yaml.ScalarNode: _STR,
    yaml.SequenceNode: "tag:yaml.org,2002:seq",
    yaml.MappingNode: "tag:yaml.org,2002:map",
}


def render_yaml(text: str, variables: Variables) -> str:
    """Fill a YAML template of one or more documents.

    Raises:
        TemplateError: See `launcher.plan.template.render`; also for a key twice in one mapping.
    """
    roots = _parse(text, variables.source)
    _drop_unneeded(list(_nodes(roots)), variables)
    nodes = list(_nodes(roots))
    # Sequences first: a scalar that is shared through an alias is a list here and one line there.
    for node in nodes:
        if isinstance(node, yaml.SequenceNode):
            node.value = [new for item in node.value for new in _spliced(item, variables)]
    for node in nodes:
        if isinstance(node, yaml.ScalarNode):
            _fill(node, text, variables)
    for node in nodes:
        if isinstance(node, yaml.MappingNode):
            _refuse_twice(node, text, variables)
        if isinstance(node, yaml.CollectionNode):
            # In a flow, 12:30 cannot stand plain: it would be written with a tag that YAML 1.2
            # has no number for.
            node.flow_style = False
    # Where libyaml is there: a COMMAND of 1.7 MB takes 10 s in Python, for each node.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.serialize_all(roots, Dumper=dumper, width=_WIDTH, allow_unicode=True, encoding=None)


def yaml_scalars(text: str, source: str) -> list[tuple[str, LineOf]]:
    """Every scalar's value, with a function that gives the template's line of an offset in it."""
    return [
        (node.value, _line_of(node, text))
        for node in _nodes(_parse(text, source))
        if isinstance(node, yaml.ScalarNode)
    ]


def _parse(text: str, source: str) -> list[yaml.Node]:
    try:
        return list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        said = " ".join(part for part in (exc.context, exc.problem) if part)
        raise _broken(source, where, said) from exc
    except yaml.reader.ReaderError as exc:
        line_start = text.rfind("\n", 0, exc.position) + 1
        where = f":{line_at(text, exc.position)}:{exc.position - line_start + 1}"
        raise _broken(source, where, f"the character {text[exc.position]!r}") from exc
    except (ValueError, RecursionError) as exc:  # "\U00110000" and a thousand brackets: no mark
        raise _broken(source, "", str(exc)) from exc


def _broken(source: str, where: str, said: str) -> TemplateError:
    return TemplateError(
        f"{source}{where}: the template is not YAML: {said}",
        hint="a template must be valid YAML before values are filled in; quote text with ': '",
    )


def _nodes(roots: list[yaml.Node]) -> Iterator[yaml.Node]:
    """All nodes in the order of the text, each once, however often it is an alias's target."""
    seen: set[int] = set()
    waiting = roots[::-1]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(reversed(node.value))
        elif isinstance(node, yaml.MappingNode):
            waiting.extend(part for pair in reversed(node.value) for part in reversed(pair))


def _drop_unneeded(nodes: list[yaml.Node], variables: Variables) -> None:
    """Leave out each key whose value is tagged `!optional` and has no item for a list in it."""
    for node in nodes:
        if isinstance(node, yaml.MappingNode):
            kept = [(key, value) for key, value in node.value if not _is_unneeded(value, variables)]
            node.value = kept
        if node.tag == _OPTIONAL:
            node.tag = _TAGS[type(node)]


def _is_unneeded(node: yaml.Node, variables: Variables) -> bool:
    scalars = (one for one in _nodes([node]) if isinstance(one, yaml.ScalarNode))
    return node.tag == _OPTIONAL and any(
        variables.exact(one.value, one.start_mark.line + 1) == [] for one in scalars
    )


def _spliced(item: yaml.Node, variables: Variables) -> list[yaml.Node]:
    if isinstance(item, yaml.ScalarNode):
        value = variables.exact(item.value, item.start_mark.line + 1)
        if isinstance(value, list):
            return [yaml.ScalarNode(_STR, part, style='"') for part in value]
    return [item]


def _fill(node: yaml.ScalarNode, text: str, variables: Variables) -> None:
    line_of = _line_of(node, text)
    if _is_bare(node, text):
        value = variables.exact(node.value, line_of(0))
        if isinstance(value, int):
            node.tag, node.value = _INT, str(value)
            return
    filled = PLACEHOLDER.search(node.value) is not None
    node.value = variables.fill(node.value, line_of)
    if node.tag == _NULL and not node.value:
        node.value = "null"
    node.style = _style(node, filled=filled)


def _style(node: yaml.ScalarNode, *, filled: bool) -> str | None:
    """How to write a scalar so that every reader, of YAML 1.1 or 1.2, takes it for the same.

    Whatever came from a variable is quoted: 1e3, yes and 0o17 are numbers or truths to some.
    Blocks stay where they need no indentation number and no break that only YAML 1.1 knows.
    """
    if node.style in {"|", ">"}:
        plain_start = not node.value[:1].isspace()
        return "|" if plain_start and not set(node.value) & set("\x85\u2028\u2029") else '"'
    return '"' if filled or node.style or "\n" in node.value else None


def _is_bare(node: yaml.ScalarNode, text: str) -> bool:
    """Whether it stands without quotes and without a tag of its own (`!!str <<N>>`)."""
    before_value = _written(node, text).partition("<")[0]
    return node.style is None and "!" not in before_value


def _written(node: yaml.Node, text: str) -> str:
    return text[node.start_mark.index : node.end_mark.index]


def _line_of(node: yaml.ScalarNode, text: str) -> LineOf:
    """Lines of a scalar, found by the brackets: folding and escapes move all other offsets."""

    def line_of(offset: int) -> int:
        written = _written(node, text)
        position = -1
        for _ in range(node.value.count("<", 0, offset) + 1):
            position = written.find("<", position + 1)
            if position < 0:
                return int(node.start_mark.line) + 1
        return line_at(text, node.start_mark.index + position)

    return line_of


def _refuse_twice(node: yaml.MappingNode, text: str, variables: Variables) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
            continue
        if (key.tag, key.value) in seen:
            line = key.start_mark.line + 1
            written = _written(key, text)  # what is filled in may be a secret
            raise variables.error(line, f"the key {written!r} appears twice in one mapping")
        seen.add((key.tag, key.value))

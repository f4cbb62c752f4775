"""Messages are plain English: what foreign hands write, and what to write in place, is listed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rendezvous.cause.table import CAUSES
from rendezvous.compat import tomllib
from tests.support.sources import nodes, tree_of
from tests.test_packages import ROOT

FOLDERS = ("rendezvous", "worker", "launcher")
"""The packages whose messages are read."""

PROFILES = "launcher/schedulers/profiles"
"""The folder of the scheduler profiles, whose texts people read as well."""

WORDS = {
    r"told|tell(s|ing)?": "report, notify, send, show",
    r"(some|no|every)body|whoever": "name the role: the node that, another program, no node",
    r"stands?": "is, is in, is behind; means",
    r"(is|are|was|were|has|have|had) to be|(has|have) to": "must",
    r"(leave|leaves|leaving|left)\b[^.;]* away": "remove, omit",
    r"so many|as many\b(?! as)": "the number of, the same number of",
    r"(?<!there )(?<!there's )(is|are|was|were) (no|none)\b(?! longer| more)": "is not a",
    r"else than": "other than; or name it",
    r"(come|comes|came) back on": "restarted from",
    r"of (its|their|your|our|one's) own|of (yours|ours)": "its own",
    r"at once": "immediately; at a time; at the same time",
    r"never called": "has not contacted the registry",
    r"mend(s|ed|ing)?": "fix, repair",
    r"may not": "cannot, must not, or might not",
    r"(go|goes|going|went) on": "continue",
    r"a fault in rdzv": "an internal error in rdzv",
    r"without a word": "silently",
    r"anew|once more": "again",
    r"(put|puts) (it |them )?back": "restore",
    r"all the same": "anyway",
    r"made up": "generated",
    r"(a|no) further": "another, an additional; no more",
    r"leads? (back )?(to|elsewhere)|led to": "resolves to, maps to",
    r"heard (of|since)": "heard from; has not reported since",
    r"prov(e|es|ed|en)": "verify; passed",
    r"be had": "be fetched, be obtained",
    r"beside": "next to, with, in addition to",
    r"look after": "check",
    r"the like": "the same",
    r"shall": "must, will",
    r"die|dies|died": "end, exit, fail",
    r"(is|are|was|were) over": "has ended",
    r"says? of": "reports about",
}
"""Words that no message has, as regular expressions of whole words; and what to write in place."""

LATER: dict[str, str] = {}
"""Files whose messages are not read, and why."""

_LISTED = {
    re.compile(rf"\b(?:{words})\b", re.IGNORECASE): better for words, better in WORDS.items()
}
_QUOTED = re.compile(r'"([^"]*)"')
_LEAST_WORDS = 3
"""What has fewer is a name or a key, and no message."""


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The line and text of each constant that a person may read; {} is in place of a value.

    Docstrings are for those who read the code; what is looked up or matched is not told apart, and
    keeps to the words as well.
    """
    seen: set[int] = set()
    for node in nodes(tree):
        if id(node) in seen:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            seen.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            pieces = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            seen.update(map(id, node.values))
            yield node.lineno, "".join(map(str, pieces))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The key and text of each string of a TOML file: hints, and what its shell commands print."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from texts(each, f"{key}.{name}".strip("."))
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, key)


def listed_in(text: str) -> Iterator[tuple[str, str]]:
    """Each listed word of a text, and what to write in place."""
    if len(re.findall(r"[A-Za-z]{2,}", text)) >= _LEAST_WORDS:
        for pattern, better in _LISTED.items():
            yield from ((found.group(), better) for found in pattern.finditer(text))


def listed_words(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Each listed word of a message: its line, itself, and what to write in place."""
    for line, text in messages(tree):
        yield from ((line, word, better) for word, better in listed_in(text))


def listed_words_of_profile(source: str) -> Iterator[tuple[str, str, str]]:
    """Each listed word of a profile: its key, itself, and what to write in place."""
    for key, text in texts(tomllib.loads(source)):
        yield from ((key, word, better) for word, better in listed_in(text))


def listed_words_of_shell(source: str) -> Iterator[tuple[int, str, str]]:
    """Each listed word of what a shell script says, between double quotes on one line."""
    for number, line in enumerate(source.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            for text in _QUOTED.findall(line):
                yield from ((number, word, better) for word, better in listed_in(text))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("f('the nodes are told of it')", ["told"]),
        ("f(f'{path} is no TOML file')", ["is no"]),
        ("f('there is no run of that name')", []),
        ("f('it is no longer in the table')", []),
        ("f('leave ' '--loopback ' 'away')", ["leave --loopback away"]),
        ("f(f'leave {name} and then' f' {other} away')", ["leave {} and then {} away"]),
        ("def f():\n    '''Whoever is told.'''\n    return 1", []),
        ("x = 1\n'''What has to be told.'''", []),
        ("f('told')  # is told of it", []),
        ("HELP: str = 'Whoever has to wait'", ["Whoever", "has to"]),
    ],
)
def test_listed_words_are_found_in_messages(source: str, found: list[str]) -> None:
    assert [word for _, word, _ in listed_words(ast.parse(source))] == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("hint = 'the engine is to be told'", [("hint", "told"), ("hint", "is to be")]),
        ("[hints]\n'no room' = 'try it at once'", [("hints.no room", "at once")]),
        ("argv = ['sh', '-c', 'echo it was started anew']", [("argv", "anew")]),
        ("find = { argv = ['x', 'the host died here'] }", [("find.argv", "died")]),
        ("gone = 'told'\nneeds = ['HOST']\n# told of it, at once", []),
    ],
)
def test_listed_words_are_found_in_profiles(source: str, found: list[tuple[str, str]]) -> None:
    assert [(key, word) for key, word, _ in listed_words_of_profile(source)] == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('echo "the node is told of it" >&2', [(1, "told")]),
        ('x=1\n  [ -n 1 ] || refuse "$host: it was started anew"', [(2, "anew")]),
        ('# it is "told of it by somebody"', []),
        ("echo told of it", []),
    ],
)
def test_listed_words_are_found_in_shell_scripts(source: str, found: list[tuple[int, str]]) -> None:
    assert [(line, word) for line, word, _ in listed_words_of_shell(source)] == found


def test_every_listed_word_has_another_in_place_that_is_not_listed() -> None:
    sources = (f"f('it is now: {better}')" for better in WORDS.values())
    assert [found for source in sources for found in listed_words(ast.parse(source))] == []


def _read(folder: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name not in LATER:
            yield name, tree_of(path)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_message_has_a_listed_word(folder: str) -> None:
    found = [
        f"{name}:{line}: {word!r}; write: {better}"
        for name, tree in _read(folder)
        for line, word, better in listed_words(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("folder", "files", "listed"),
    [
        (PROFILES, "*.toml", listed_words_of_profile),
        ("specs", "*.sh", listed_words_of_shell),
        ("specs", "*.sbatch", listed_words_of_shell),
    ],
)
def test_no_profile_and_no_script_has_a_listed_word(
    folder: str, files: str, listed: Callable[[str], Iterator[tuple[object, str, str]]]
) -> None:
    paths = sorted((ROOT / folder).rglob(files))
    found = [
        f"{path.relative_to(ROOT)}: {place}: {word!r}; write: {better}"
        for path in paths
        for place, word, better in listed(path.read_text("utf-8"))
    ]
    assert paths
    assert found == []


def test_what_is_left_out_is_there() -> None:
    assert [name for name in LATER if not (ROOT / name).is_file()] == []


def test_no_cause_has_a_listed_word() -> None:
    """Only what people read: patterns hold what others say."""
    texts = [text for row in CAUSES for text in (row.says, row.shown_by, row.hint)]
    assert [found for text in texts for found in listed_in(text)] == []

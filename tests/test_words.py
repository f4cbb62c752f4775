"""Messages are plain English: what foreign hands write, and what to write in place, is listed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_packages import ROOT

FOLDERS = ("rendezvous", "worker", "launcher")
"""The packages whose messages are read."""

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
_LEAST_WORDS = 3
"""What has fewer is a name or a key, and no message."""


def messages(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of each constant that a person may read; {} is in place of a value.

    Docstrings are for those who read the code; what is looked up or matched is not told apart, and
    keeps to the words as well.
    """
    tree = ast.parse(source)
    seen: set[int] = set()
    for node in ast.walk(tree):
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


def listed_words(source: str) -> Iterator[tuple[int, str, str]]:
    """Each listed word of a message: its line, itself, and what to write in place."""
    for line, text in messages(source):
        if len(re.findall(r"[A-Za-z]{2,}", text)) < _LEAST_WORDS:
            continue
        for pattern, better in _LISTED.items():
            yield from ((line, found.group(), better) for found in pattern.finditer(text))


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
    assert [word for _, word, _ in listed_words(source)] == found


def test_every_listed_word_has_another_in_place_that_is_not_listed() -> None:
    sources = (f"f('it is now: {better}')" for better in WORDS.values())
    assert [found for source in sources for found in listed_words(source)] == []


def _read(folder: str) -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name not in LATER:
            yield name, path.read_text("utf-8")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_message_has_a_listed_word(folder: str) -> None:
    found = [
        f"{name}:{line}: {word!r}; write: {better}"
        for name, source in _read(folder)
        for line, word, better in listed_words(source)
    ]
    assert found == []


def test_what_is_left_out_is_there() -> None:
    assert [name for name in LATER if not (ROOT / name).is_file()] == []

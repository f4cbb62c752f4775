"""Every table of names is as it was: an entry that is left out or misspelt shows in no other test.

A table is a constant of a module or a class that holds several names, numbers or patterns: signals,
exit codes, variables, checks, files, phases; or a row of the causes. `tests/tables.txt` has one
line for each, and `tests/features/NAME/tables.txt` for those of a feature. Who changes a table
writes them anew (`make reference`), and reads in the diff what else has changed.
"""

from __future__ import annotations

import ast
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from rendezvous.compat import tomllib
from rendezvous.feature import declared
from tests.support.sources import tree_of

ROOT = Path(__file__).parents[1]
TESTS = Path(__file__).parent
CAUSES = "rendezvous/cause/rows.toml"
WORDS = "rendezvous/cause/words.toml"
PACKAGES = ("rendezvous", "worker", "launcher", "rdzv")
_LONGEST = 40
"""Letters of an entry that is shown itself; of a longer one its checksum, of a sentence nothing."""


_NO_TABLES = ("TypeVar", "Path", "logging.getLogger", "TypeAdapter")
_ALONE = (ast.BinOp, ast.JoinedStr, ast.Name)


def tables() -> dict[Path, list[str]]:
    """All of them: where each is, and its entries in their order; by the file that has them."""
    found = {TESTS / "tables.txt": [*_tables_in(*PACKAGES), *_rows()]}
    for feature in declared():
        known = TESTS / "features" / feature.name / "tables.txt"
        found[known] = [*_tables_in(f"features/{feature.name}")]
    return found


def _tables_in(*folders: str) -> Iterator[str]:
    for path in sorted(path for name in folders for path in (ROOT / name).rglob("*.py")):
        yield from _tables_of(path)


def _rows() -> Iterator[str]:
    """The fragments and the rows of the table of causes, and the words of others."""
    table = tomllib.loads((ROOT / CAUSES).read_text("utf-8"))
    for row in (table["fragments"], *table["cause"]):
        yield f"{CAUSES}: {' '.join(_entries(ast.parse(repr(row))))}"
    for key, words in tomllib.loads((ROOT / WORDS).read_text("utf-8")).items():
        yield f"{WORDS} {key}: {' '.join(_entries(ast.parse(repr(words))))}"


def _tables_of(path: Path) -> Iterator[str]:
    place = path.relative_to(ROOT).as_posix()
    for name, value in _constants(tree_of(path), ""):
        entries = [*_entries(value)]
        if len(entries) > 1 and entries[0] not in _NO_TABLES and not isinstance(value, _ALONE):
            yield f"{place} {name}: {' '.join(entries)}"


def _constants(tree: ast.Module | ast.ClassDef, of: str) -> Iterator[tuple[str, ast.expr]]:
    """The constants of a module, of its classes, and the members of its enumerations."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from _constants(node, f"{of}{node.name}.")
            members = [part for part in node.body if isinstance(part, ast.Assign)]
            if any("Enum" in ast.unparse(base) for base in node.bases):
                yield f"{of}{node.name}", ast.Tuple([m.value for m in members])
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = ast.unparse(target)
            if name.replace("_", "").isalpha() and (name.isupper() or not _is_plain(node.value)):
                yield f"{of}{name}", node.value


def _is_plain(value: ast.expr) -> bool:
    """Whether it is no `Literal` of several words."""
    return not (isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal")


def _entries(value: ast.AST) -> Iterator[str]:
    """What it is made of: names, numbers and texts, in their order."""
    if isinstance(value, ast.Constant):
        yield _shown(repr(value.value))
    elif isinstance(value, ast.Name | ast.Attribute):
        yield ast.unparse(value)
    elif isinstance(value, ast.keyword):
        yield f"{value.arg}="
        yield from _entries(value.value)
    elif isinstance(value, ast.Dict):
        for key, each in zip(value.keys, value.values, strict=True):
            yield from _entries(key) if key is not None else ("**",)
            yield from _entries(each)
    else:
        for part in ast.iter_child_nodes(value):
            yield from _entries(part)


def _shown(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    if re.search("[a-z] [a-z]", text) and not re.search(r"[\\\\|(]", text):
        return "'…'"
    return f"{text[:24]}…{zlib.crc32(text.encode()):08x}"


def test_every_table_is_as_it_was() -> None:
    for file, found in tables().items():
        known = file.read_text("utf-8").splitlines()
        gone, new = sorted({*known} - {*found}), sorted({*found} - {*known})
        assert (gone, new) == ([], []), "if that is as it should be: make reference"


if __name__ == "__main__":  # make reference
    for file, lines in tables().items():
        file.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    sys.exit()

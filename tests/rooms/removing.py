"""A copy of the checkout in which a feature was never there, and what of it a reader could meet."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from rendezvous.channel import Lazy, Published
from rendezvous.feature import Feature

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Names:
    """Names of a feature that nothing else may show.

    Attributes:
        commands: Of `rdzv`: those of its own, and any that has its name.
        flags: Views of `rdzv status`, and options.
        paths: The ends of routes.
        models: Their schemas.
    """

    commands: tuple[str, ...]
    flags: tuple[str, ...]
    paths: tuple[str, ...]
    models: tuple[str, ...]


def names_of(gone: Iterable[Feature]) -> Names:
    """Those of these features, by their declarations."""
    gone = tuple(gone)
    topics = [topic for feature in gone for topic in feature.topics]
    ends, models = set[str](), set[str]()
    for topic in topics:
        ends.add(topic.name)
        lazy: tuple[Lazy | None, ...]
        if isinstance(topic, Published):
            ends.add(f"nodes/{{node}}/{topic.path}")
            lazy = (topic.message, topic.response, topic.query, topic.reply)
        else:
            lazy = (topic.answer,)
        models |= {
            one.path.partition(":")[2]
            for one in lazy
            if one and ".wire" in one.path and _is_own(one, gone)
        }
    import_module("launcher.cli")  # it loads the features' commands, which import parts of it
    commands = {feature.name for feature in gone} | {
        str(command.load().name) for feature in gone for command in feature.commands.values()
    }
    flags = {f"--{name}" for feature in gone for name in (feature.name, *feature.views)} | {
        f"--{name.replace('_', '-')}"
        for feature in gone
        if feature.options is not None
        for name in feature.options.load().model_fields
    }
    return Names(*(tuple(sorted(found)) for found in (commands, flags, ends, models)))


def _is_own(one: Lazy, features: Iterable[Feature]) -> bool:
    return any(one.path.startswith(f"features.{feature.name}.") for feature in features)


def with_dependents(name: str, features: Iterable[Feature]) -> list[Feature]:
    """A feature, and those that cannot be without it."""
    gone = {name}
    while more := {f.name for f in features if gone & {*f.needs}} - gone:
        gone |= more
    return [feature for feature in features if feature.name in gone]


def copy_checkout(to: Path) -> None:
    """Copy what git knows, or would; compiled modules too, which are valid there."""
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    for folder in {path.parent for path in files if path.suffix == ".py"}:
        files += (folder / "__pycache__").glob("*.pyc")
    for path in files:
        if path.is_file() or path.is_symlink():
            copy = to / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)


def make_python(copy: Path, venv: Path) -> Path:
    """The interpreter of an environment with our packages, whose rdzv is the copy alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    own = sysconfig.get_path("purelib", "venv", {"base": f"{venv}", "platbase": f"{venv}"})
    ours = sysconfig.get_path("purelib")  # whose .pth files, which name the checkout, do not count
    Path(own, "copy.pth").write_text(f"{copy}\n{ours}\n", encoding="utf-8")
    python, command = venv / "bin" / "python", venv / "bin" / "rdzv"
    command.write_text(f"#!{python}\nimport rdzv.__main__ as it\nraise SystemExit(it.main())\n")
    command.chmod(0o755)
    return python


def remove(gone: list[Feature], features: Iterable[Feature], copy: Path) -> list[str]:
    """Remove these features; returns what was removed, and what should be there and is not."""
    kept_docs = {feature.doc for feature in features if feature not in gone}
    removed = []
    for feature in gone:
        docs = [f"docs/{feature.doc}"] if feature.doc and feature.doc not in kept_docs else []
        tests = f"tests/features/{feature.name}"
        for name in (f"features/{feature.name}", tests, *docs, *feature.files):
            removed.append(name if (copy / name).exists() else f"{name} (is not there)")
            if (copy / name).is_dir():
                shutil.rmtree(copy / name)
            else:
                (copy / name).unlink(missing_ok=True)
        for doc in docs:
            _without_lines(copy / "docs" / "index.md", f"]({doc.removeprefix('docs/')})")
        undeclare(feature.name, copy / "features" / "__init__.py")
    return removed


def _without_lines(path: Path, words: str) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if words not in line), encoding="utf-8")


def undeclare(name: str, path: Path) -> None:
    """Take a feature's import and its entry out of `features/__init__.py`."""
    text = path.read_text(encoding="utf-8")
    [alias] = re.findall(rf"^from features\.{name} import FEATURE as (\w+)$", text, re.M)
    _without_lines(path, f"from features.{name} import ")
    text = path.read_text(encoding="utf-8")
    head, inside, tail = re.split(
        r"(?<=^FEATURES: tuple\[Feature, \.\.\.\] = )\(([^)]*)\)", text, flags=re.M
    )
    entries = [entry for entry in re.findall(r"\w+", inside) if entry != alias]
    path.write_text(f"{head}({''.join(f'{entry}, ' for entry in entries)}){tail}", encoding="utf-8")

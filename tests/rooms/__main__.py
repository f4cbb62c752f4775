"""The delete test: a feature is removed from a copy of the checkout, and all else works on.

    python -m tests.rooms [NAME...]

removes each feature that is declared (or those named), with those that need it, its tests, its page
and its files. In the copy every module can be imported, and no source names the feature; a launch
of two nodes succeeds; help and the references, written anew, do not name it; the core's tests and
those of the other features pass. Prints what was removed and what failed; returns how many
features cannot be removed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rendezvous.feature import Feature, declared
from tests.rooms.removing import (
    Names,
    copy_checkout,
    make_python,
    names_of,
    remove,
    with_dependents,
)

PRODUCT = ("rendezvous", "worker", "launcher", "features", "rdzv")
REFERENCES = ("tests.test_docs", "tests.worker.test_frameworks_page")
"""The modules that write the generated lists (`make reference`)."""
HELP = (
    *(("--help",), ("launch", "--help"), ("launch", "--help-all"), ("status", "--help")),
    *(("worker", "--help-all"), ("serve", "--help-all")),
)
BLOCK = re.compile(r"<!-- [\w ]+ -->\n(.*?)<!-- end -->", re.S)
_IMPORTS = """
import importlib, pkgutil, sys
import rdzv_command

rdzv_command.install_features()
for name in sys.argv[1:]:
    for found in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
        if found.name.endswith((".__main__", ".sitecustomize")) or ".programs." in found.name:
            continue
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in ("asyncpg", "matplotlib", "torch"):
                print(f"{found.name}: {error}")
"""


@dataclass(frozen=True)
class Room:
    """A copy without a feature."""

    copy: Path
    python: Path
    gone: list[Feature]
    names: Names

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a Python there, and never in the checkout."""
        unset = ("PYTHONPATH", "RDZV_REGISTRY", "RDZV_STATE_DIR")
        env = {key: value for key, value in os.environ.items() if key not in unset}
        return subprocess.run(
            [self.python, *words], cwd=self.copy, env=env, capture_output=True, text=True
        )


def imports(room: Room) -> Iterator[str]:
    """Modules that cannot be imported, and lines that name the feature's modules."""
    done = room.run("-c", _IMPORTS, *PRODUCT)
    yield from done.stdout.splitlines()
    if done.returncode:
        yield last_line(done.stderr)
    for feature in room.gone:
        named = re.compile(
            rf"\bfeatures[./]{feature.name}\b|from features import .*\b{feature.name}\b"
        )
        for path in sorted(path for name in PRODUCT for path in (room.copy / name).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if named.search(line):
                    yield f"{path.relative_to(room.copy)}:{number}: {line.strip()}"


def launch(room: Room) -> Iterator[str]:
    """What goes wrong in a launch of two nodes on this machine."""
    with tempfile.TemporaryDirectory(prefix="rdzv-rooms-") as state:
        words = ("launch", "--scheduler", "local", "--state-dir", state, "--nnodes", "2")
        program = "import os; print('node', os.environ['NODE_RANK'], 'was here')"
        last = ("--framework", "command", "--", f"{room.python}", "-c", program)
        done = room.run("-m", "rdzv", *words, *last)
        if done.returncode:
            yield f"exit code {done.returncode}: {last_line(done.stderr)}"
        for node in (0, 1):
            if f"node {node} was here" not in done.stdout:
                yield f"node {node} printed nothing"
        logs = [path for path in sorted(Path(state).rglob("*.log")) if path.is_file()]
        texts = {"output": done.stderr, **{path.name: path.read_text() for path in logs}}
        for name, text in texts.items():
            for line in text.splitlines():
                if re.search(r"Traceback|\b(?:Import|ModuleNotFound|Attribute|Key)Error\b", line):
                    yield f"{name}: {line}"


def references(room: Room) -> Iterator[str]:
    """Help and generated references that name the feature."""
    names = room.names
    with ThreadPoolExecutor(2) as pool:
        helps = pool.map(lambda words: room.run("-m", "rdzv", *words), HELP)
        written = pool.map(lambda name: room.run("-m", name), REFERENCES)
        document = room.run("-m", "tests.rendezvous.test_openapi")
        for words, done in zip(HELP, helps, strict=True):
            shown = " ".join(("rdzv", *words))
            if done.returncode:
                yield f"{shown}: {last_line(done.stderr)}"
            for name in names.flags:
                if re.search(rf"(?<![\w-]){name}(?![\w-])", done.stdout):
                    yield f"{shown} names {name}"
            for name in names.commands:
                if re.search(rf"(?:^ +|rdzv ){name}(?![\w-])", done.stdout, re.M):
                    yield f"{shown} names {name}"
        for name, done in zip(REFERENCES, written, strict=True):
            if done.returncode:
                yield f"{name}: {last_line(done.stderr)}"
    if document.returncode:
        yield f"OpenAPI: {last_line(document.stderr)}"
        return
    (room.copy / "docs" / "openapi.json").write_text(document.stdout, encoding="utf-8")
    openapi = json.loads(document.stdout)
    yield from (
        f"OpenAPI has the path {p}"
        for p in openapi["paths"]
        if p.endswith(tuple(f"{{run}}/{end}" for end in names.paths))
    )
    models = openapi["components"]["schemas"].keys() & {*names.models}
    yield from (f"OpenAPI has the model {name}" for name in sorted(models))
    for page in sorted((room.copy / "docs").rglob("*.md")):
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for name in (*(f"rdzv {command}" for command in names.commands), *names.flags):
                if re.search(rf"{name}(?![\w-])", block):
                    yield f"a list in docs/{page.name} names {name}"


def tests(room: Room) -> Iterator[str]:
    """Tests of the core and of the other features that fail."""
    others = sorted(
        path
        for path in (room.copy / "tests" / "features").glob("*")
        if any(path.rglob("test_*.py"))
    )
    paths = [f"{path.relative_to(room.copy)}" for path in others]
    done = room.run("-m", "tests.core", "-n", "2", "-p", "no:cacheprovider", *paths)
    print(f"  {(done.stdout.strip().splitlines() or [''])[-1]}")
    if done.returncode:
        found = [
            line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))
        ]
        yield from found or [last_line(done.stdout + done.stderr)]


def last_line(text: str) -> str:
    """The last one, or a word in its place."""
    return (text.strip().splitlines() or ["nothing is said"])[-1]


def without(name: str, features: tuple[Feature, ...]) -> int:
    """Remove it and look; returns how many things are wrong."""
    gone = with_dependents(name, features)
    print(f"{name}: removed with {', '.join(f.name for f in gone if f.name != name) or 'no other'}")
    with tempfile.TemporaryDirectory(prefix="rdzv-rooms-") as folder:
        copy = Path(folder, "checkout")
        copy_checkout(copy)
        for each in remove(gone, features, copy):
            print(f"  {each}")
        room = Room(copy, make_python(copy, Path(folder, "venv")), gone, names_of(gone))
        count = 0
        for check in (imports, launch, references, tests):
            began = time.monotonic()
            wrong = list(dict.fromkeys(check(room)))
            count += len(wrong)
            said = f"{len(wrong)} wrong" if wrong else "ok"
            print(f"  {check.__name__}: {said}, {time.monotonic() - began:.0f} s")
            for line in wrong:
                print(f"    {line}")
            sys.stdout.flush()
    return count


def main(words: list[str]) -> int:
    """Remove each; returns how many cannot be removed."""
    features = declared()
    known = [feature.name for feature in features]
    if unknown := [name for name in words if name not in known]:
        print(f"no feature: {', '.join(unknown)}; there are: {', '.join(known)}")
        return 64
    return sum(without(name, features) > 0 for name in words or known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

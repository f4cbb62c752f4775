"""What `import rdzv` gives, and what it costs a rank that imports it beside torch."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rdzv
from tests.test_packages import OF_THE_LAUNCHER, PACKAGES
from tests.test_sizes import too_large

FOLDER = Path(rdzv.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))
PUBLIC = [
    *("launch", "attach", "Run", "Status", "Result", "Node", "RdzvError", "RunFailed"),
    *("current", "Rank"),
]
OF_A_RANK = ("__init__", "inside", "metrics")
LOADED = """
import json, sys
before = set(sys.modules)
exec(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def loaded_by(code: str) -> list[str]:
    """The modules that this code loads in a fresh interpreter."""
    words = [sys.executable, "-I", "-c", LOADED, code]
    found: list[str] = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    return found


def test_these_names_are_public() -> None:
    assert rdzv.__all__ == PUBLIC
    assert len(PUBLIC) <= 10
    assert all(getattr(rdzv, name).__doc__ for name in PUBLIC)
    assert set(PUBLIC) < set(dir(rdzv))
    with pytest.raises(AttributeError, match="module 'rdzv' has no attribute 'lunch'"):
        rdzv.lunch  # type: ignore[attr-defined]  # noqa: B018


def test_a_rank_pays_for_what_it_uses() -> None:
    assert loaded_by("import rdzv") == ["rdzv"]
    of_a_rank = loaded_by("import rdzv; rdzv.current()")
    assert "rdzv.inside" in of_a_rank
    assert not {"rdzv.run", "subprocess", "threading"} & set(of_a_rank)


def test_it_needs_nothing_but_the_standard_library() -> None:
    loaded = loaded_by("import rdzv.metrics\nfrom rdzv import *")
    assert {"rdzv.run", "rdzv.launching", "rdzv.command", "rdzv.inside"} < set(loaded)
    top = {name.partition(".")[0] for name in loaded}
    assert not top & {*OF_THE_LAUNCHER, *PACKAGES}
    assert top - sys.stdlib_module_names == {"rdzv"}


@pytest.mark.parametrize("name", OF_A_RANK)
def test_what_a_rank_imports_is_syntax_of_python_3_8(name: str) -> None:
    ast.parse((FOLDER / f"{name}.py").read_text("utf-8"), feature_version=(3, 8))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_part_of_it_is_too_large(path: Path) -> None:
    assert too_large(path.read_text("utf-8")) == []


def test_its_types_are_there_for_others() -> None:
    assert (FOLDER / "py.typed").is_file()

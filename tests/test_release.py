"""What a release is made of: exact versions of the runtime packages, within the stated ranges."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from rendezvous.compat import tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = [
    Requirement(line)
    for line in (*PROJECT["dependencies"], *EXTRAS["launcher"], *EXTRAS["postgres"])
]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    exact = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines if line[0] != "#"]
    return {canonicalize_name(found[1]): found[2] for found in exact if found}


@pytest.mark.parametrize("needed", NEEDED, ids=str)
def test_a_runtime_package_is_pinned_within_its_range(needed: Requirement) -> None:
    assert needed.specifier.contains(pins()[canonicalize_name(needed.name)])


def test_every_line_of_the_constraints_is_an_exact_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert len(pins()) == len([line for line in lines if line[0] != "#"])


def test_every_python_of_the_classifiers_is_one_that_may_install_it() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named[0] == PROJECT["requires-python"].removeprefix(">=")


def test_every_spec_installs_this_version() -> None:
    files = [*(ROOT / "specs").rglob("*"), *(ROOT / "examples").rglob("*")]
    texts = {path: path.read_text("utf-8", "replace") for path in files if path.is_file()}
    named = {path: re.findall(r"rdzv\[launcher\]==([\d.]+)", text) for path, text in texts.items()}
    assert len([path for path, found in named.items() if found]) >= 8
    assert {one for found in named.values() for one in found} == {PROJECT["version"]}

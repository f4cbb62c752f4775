"""The Kubernetes specs against the published schemas, strictly: no key that they do not know."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launcher.schedulers.shipped import specs_folder
from tests.support.vendor_specs import UGLY, rendered, worker_run
from tests.support.vendors import KUBERNETES, python_with

pytestmark = [pytest.mark.schedulers, pytest.mark.timeout(300)]

VERSIONS = ["1.27", "1.29", "1.31", "1.33", "1.35", "1.37"]
CHECK = str(Path(__file__).parent / "check_schema.py")
FOLDER = specs_folder() / "kubernetes"
RUN = worker_run(UGLY, passed=UGLY)


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that has the schemas."""
    return python_with(KUBERNETES)


def faults(python: str, manifest: str, versions: list[str]) -> list[str]:
    argv = [python, CHECK, *versions]
    done = subprocess.run(argv, input=manifest, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_rendered_worker_run_fits_the_schemas(python: str, tmp_path: Path) -> None:
    assert faults(python, rendered(tmp_path, RUN), VERSIONS) == []


@pytest.mark.parametrize(
    ("name", "versions"),
    [("launcher.yaml", VERSIONS), ("symmetric.yaml", VERSIONS[1:])],
)
def test_a_shipped_manifest_fits_the_schemas(python: str, name: str, versions: list[str]) -> None:
    assert faults(python, (FOLDER / name).read_text(encoding="utf-8"), versions) == []


def test_the_schemas_do_find_faults(python: str, tmp_path: Path) -> None:
    wrong = rendered(tmp_path, RUN).replace("backoffLimit:", "backofLimit:", 1)
    (fault,) = faults(python, wrong, ["1.37"])
    assert "backofLimit" in fault
    # What the symmetric Job needs came with 1.28, and is on by itself since 1.29.
    text = (FOLDER / "symmetric.yaml").read_text(encoding="utf-8")
    (fault,) = faults(python, text, ["1.27"])
    assert "backoffLimitPerIndex" in fault

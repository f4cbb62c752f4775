"""What is missing on a node is named, with what installs it, and without importing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.test_user_python import interpreter, script
from worker.contracts import Need
from worker.machine.user_python import has_module
from worker.needs import missing_of

LIGHTNING = Need(
    "lightning", "pip install lightning", "python3", ("lightning", "pytorch_lightning")
)


def site(prefix: Path) -> Path:
    return prefix / "lib/python3.12/site-packages"


def missing(*needs: Need, path: Path, **environ: str) -> str:
    return missing_of(needs, {"PATH": str(path), **environ})


def test_a_launcher_that_is_not_on_the_path_is_named_with_what_installs_it(tmp_path: Path) -> None:
    need = Need("accelerate", "pip install accelerate", program="accelerate")
    assert missing(need, path=tmp_path) == (
        f"'accelerate' is not on this node's PATH ({tmp_path}); install accelerate in the job's "
        "environment (pip install accelerate), or activate that environment before rdzv is started"
    )
    script(tmp_path / "accelerate", "#!/bin/sh")
    assert missing(need, path=tmp_path) == ""


def test_a_program_of_the_users_own_is_not_to_be_installed(tmp_path: Path) -> None:
    assert missing(Need("./x", "", program="./x"), path=tmp_path) == (
        f"'./x' of COMMAND is not on this node's PATH ({tmp_path})"
    )
    (tmp_path / "x").write_text("")
    program = str(tmp_path / "x")
    assert missing(Need(program, "", program=program), path=tmp_path) == (
        f"'{program}' of COMMAND is not executable (chmod +x, or name its interpreter)"
    )


def test_a_package_that_the_programs_python_does_not_have_is_named(tmp_path: Path) -> None:
    python = interpreter(tmp_path)
    assert missing(LIGHTNING, path=tmp_path / "bin") == (
        f"lightning is not installed for '{python}' on this node; install it in the job's "
        "environment (pip install lightning), or put that environment first on PATH"
    )


@pytest.mark.parametrize(
    "entry",
    [
        "lightning/__init__.py",
        "pytorch_lightning/__init__.py",
        "lightning.py",
        "lightning.cpython-312-x86_64-linux-gnu.so",
        "lightning-2.6.6.dist-info/direct_url.json",  # installed for editing
    ],
)
def test_a_package_is_found_in_every_form_in_which_it_may_lie_there(
    tmp_path: Path, entry: str
) -> None:
    interpreter(tmp_path)
    file = site(tmp_path) / entry
    file.parent.mkdir(exist_ok=True)
    file.touch()
    assert missing(LIGHTNING, path=tmp_path / "bin") == ""


def test_a_package_is_found_where_pythonpath_or_a_link_of_the_environment_leads(
    tmp_path: Path,
) -> None:
    interpreter(tmp_path / "env")
    (tmp_path / "elsewhere/lightning").mkdir(parents=True)
    path = tmp_path / "env/bin"
    assert missing(LIGHTNING, path=path, PYTHONPATH=f"x:{tmp_path / 'elsewhere'}") == ""
    (site(tmp_path / "env") / "more.pth").write_text(f"import os\n\n{tmp_path / 'elsewhere'}\n")
    assert missing(LIGHTNING, path=path) == ""


def test_nothing_is_said_of_a_program_that_is_no_python_or_of_an_unknown_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin/python3", "#!/bin/sh")  # a shim: who knows where it leads
    assert missing(LIGHTNING, path=tmp_path / "bin") == ""
    environ = {"PATH": str(tmp_path / "bin")}
    assert has_module("sh", environ, ["lightning"]) is None
    assert has_module("python3", environ, ["lightning"]) is None


def test_a_python_without_any_folder_of_packages_is_not_judged(tmp_path: Path) -> None:
    interpreter(tmp_path)
    site(tmp_path).rmdir()
    assert missing(LIGHTNING, path=tmp_path / "bin") == ""

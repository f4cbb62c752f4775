"""What the tests install, and with which settings."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import venvs
from tests.support.venvs import CannotInstall, as_uv_has_it, install, make

LISTED = """
:env:.find-links='/wheels'
:env:.no-index='1'
global.find-links='/other /third'
global.index-url='https://index.example/simple'
global.extra-index-url='https://a.example/simple\\nhttps://b.example/simple'
global.disable-pip-version-check='1'
install.constraint='/pins.txt'
"""


def test_uv_has_what_is_configured_of_pip() -> None:
    assert as_uv_has_it(LISTED) == {
        "UV_FIND_LINKS": "/wheels",
        "UV_NO_INDEX": "1",
        "UV_DEFAULT_INDEX": "https://index.example/simple",
        "UV_INDEX": "https://a.example/simple https://b.example/simple",
        "UV_CONSTRAINT": "/pins.txt",
    }
    two = as_uv_has_it(LISTED.replace(":env:.find-links", ":env:.other"))
    assert two["UV_FIND_LINKS"] == "/other,/third"


@pytest.mark.nightly
def test_what_uv_cannot_install_pip_tries_and_both_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an index: a folder of wheels is all there is."""
    python = tmp_path / "venv" / "bin" / "python"
    make(tmp_path / "venv", sys.executable)
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    with pytest.raises(CannotInstall, match=r"^pip --python .* fails here: .*no-such-package"):
        install(python, "no-such-package")
    assert "no-such-package" in capsys.readouterr().err


def test_a_package_is_installed_by_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("a.py", "")
        about = "a-1.dist-info"
        packed.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: a\nVersion: 1\n")
        packed.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{about}/RECORD", "")
    make(tmp_path / "venv", sys.executable)
    monkeypatch.setattr(venvs, "pip_for", lambda _: ["false", "-m"])
    python = tmp_path / "venv" / "bin" / "python"
    install(python, str(wheel))
    subprocess.run([python, "-c", "import a"], check=True)

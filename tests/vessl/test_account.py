"""Where the account comes from: the order of VESSL's own client."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.schedulers.vessl_account import Account, find_account, known_project
from rendezvous.wire.errors import UsageError


def config(path: Path, who: str) -> str:
    """A configuration file, every value of which names it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'[user]\naccess_token = "token-{who}"\ndefault_organization = "org-{who}"\n'
        f'default_project = "project-{who}"\nworkspace = 3\n'
    )
    return str(path)


def account(who: str, project: str = "", token: str = "") -> Account:
    """The account of one source."""
    project, token = project or f"project-{who}", token or f"token-{who}"
    return Account("https://api.vessl.ai", f"org-{who}", project, token)


def test_each_source_counts_where_no_earlier_one_speaks(tmp_path: Path) -> None:
    newest = tmp_path / "token_file"
    environ = {"HOME": str(tmp_path)}
    environ["VESSL_RUN_INITIAL_CONFIG"] = config(tmp_path / "run", "run")
    assert find_account(environ, newest) == account("run")
    newest.write_text("token-newest\n")  # inside a run the token is renewed, and only the run's
    assert find_account(environ, newest) == account("run", token="token-newest")
    given = environ | {"VESSL_ACCESS_TOKEN": "token-var"}
    assert find_account(given, newest) == account("run", token="token-var")
    config(tmp_path / ".vessl" / "config", "home")
    assert find_account(environ, newest) == account("home")
    environ["VESSL_CONFIG_PATH"] = config(tmp_path / "config", "config")
    assert find_account(environ, newest) == account("config")
    environ["VESSL_PROJECT_NAME"] = "project-name"
    assert find_account(environ, newest) == account("config", project="project-name")
    environ["VESSL_DEFAULT_PROJECT"] = "project-var"
    assert find_account(environ, newest) == account("config", project="project-var")
    environ["VESSL_CREDENTIALS_FILE"] = config(tmp_path / "credentials", "credentials")
    assert find_account(environ, newest) == account("credentials")
    environ |= {"VESSL_ACCESS_TOKEN": "token-var", "VESSL_DEFAULT_ORGANIZATION": "org-var"}
    assert find_account(environ, newest) == account("var", project="project-credentials")


def test_what_is_missing_is_named_with_how_to_set_it(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "VESSL_DEFAULT_ORGANIZATION": "acme"}
    with pytest.raises(UsageError) as caught:
        find_account(environ, tmp_path / "none")
    assert caught.value.message == (
        "rdzv cannot use VESSL without the access token (VESSL_ACCESS_TOKEN) and the project "
        "(VESSL_DEFAULT_PROJECT)"
    )
    assert "vessl configure" in caught.value.hint
    assert known_project(environ, tmp_path / "none") is None


def test_a_file_that_is_no_toml_is_named_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("secret: token-of-somebody\n")
    with pytest.raises(UsageError) as caught:
        find_account({"VESSL_CONFIG_PATH": str(path)}, tmp_path / "none")
    assert str(path) in caught.value.message
    assert "token-of-somebody" not in str(caught.value)
    assert known_project({"VESSL_CONFIG_PATH": str(path)}, tmp_path / "none") is None


def test_the_token_is_not_in_what_an_account_shows(tmp_path: Path) -> None:
    environ = {"VESSL_CONFIG_PATH": config(tmp_path / "config", "home")}
    environ["VESSL_API_HOST"] = "http://127.0.0.1:8080/"
    found = find_account(environ, tmp_path / "none")
    assert "token-home" not in repr(found)
    assert found.host == "http://127.0.0.1:8080"

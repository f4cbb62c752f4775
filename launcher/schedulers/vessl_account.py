"""Where VESSL is, and who we are there: found as VESSL's own client finds it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rendezvous.compat import tomllib
from rendezvous.wire.errors import UsageError

RUN_TOKEN_FILE = Path("/opt/vessl/access_token/token_file")
"""Inside a run, the newest token of the run itself."""

_TOKEN, _ORGANIZATION, _PROJECT = "access_token", "default_organization", "default_project"
_KEYS = (_TOKEN, _ORGANIZATION, _PROJECT)
_HOW_TO_SET = {
    _TOKEN: "the access token (VESSL_ACCESS_TOKEN)",
    _ORGANIZATION: "the organization (VESSL_DEFAULT_ORGANIZATION)",
    _PROJECT: "the project (VESSL_DEFAULT_PROJECT)",
}


@dataclass(frozen=True, slots=True)
class Account:
    """Where requests go, and in whose name."""

    host: str
    organization: str
    project: str
    token: str = field(repr=False)


def find_account(environ: Mapping[str, str], run_token_file: Path = RUN_TOKEN_FILE) -> Account:
    """The account that VESSL's client would use.

    The first that says it: variables; the file that VESSL_CREDENTIALS_FILE names (for the project,
    this file and then the variables); `~/.vessl/config` or the file that VESSL_CONFIG_PATH names;
    inside a run, the run's own.

    Raises:
        UsageError: Nothing says who we are; or a file cannot be read.
    """
    found = _found(environ, run_token_file)
    missing = [_HOW_TO_SET[key] for key in _KEYS if not found.get(key)]
    if missing:
        raise UsageError(
            f"rdzv cannot use VESSL without {' and '.join(missing)}",
            hint=(
                "set it, or run 'vessl configure' once; inside a VESSL run, rdzv uses the run's own"
            ),
        )
    host = environ.get("VESSL_API_HOST") or "https://api.vessl.ai"
    return Account(host.rstrip("/"), found[_ORGANIZATION], found[_PROJECT], found[_TOKEN])


def known_project(environ: Mapping[str, str], run_token_file: Path = RUN_TOKEN_FILE) -> str | None:
    """The project that is meant, where anything says so."""
    try:
        return _found(environ, run_token_file).get(_PROJECT)
    except UsageError:
        return None


def _found(environ: Mapping[str, str], run_token_file: Path) -> dict[str, str]:
    credentials = _file(environ.get("VESSL_CREDENTIALS_FILE"))
    variables = {
        _TOKEN: environ.get("VESSL_ACCESS_TOKEN", ""),
        _ORGANIZATION: environ.get("VESSL_DEFAULT_ORGANIZATION", ""),
    }
    project = environ.get("VESSL_DEFAULT_PROJECT") or environ.get("VESSL_PROJECT_NAME", "")
    config = environ.get("VESSL_CONFIG_PATH") or f"{environ.get('HOME', '')}/.vessl/config"
    run = _file(environ.get("VESSL_RUN_INITIAL_CONFIG"))
    if run and os.path.exists(run_token_file):
        run[_TOKEN] = _read(run_token_file).strip()
    found: dict[str, str] = {}
    for source in (variables, credentials, {_PROJECT: project}, _file(config), run):
        found |= {key: value for key, value in source.items() if value and key not in found}
    return found


def _file(path: str | None) -> dict[str, str]:
    """What a file in the client's format says; nothing when it is not there."""
    if not path or not os.path.isfile(path):
        return {}
    try:
        user = tomllib.loads(_read(Path(path))).get("user", {})
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f"{path}, VESSL's configuration, is not TOML") from exc
    return {key: str(user[key]) for key in _KEYS if isinstance(user, dict) and user.get(key)}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path}, VESSL's configuration, cannot be read: {exc}") from exc

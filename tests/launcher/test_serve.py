"""What `rdzv serve` refuses before anything is made."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from rendezvous.registry.membership import BEAT_SECONDS, JUDGE_SECONDS
from rendezvous.talk.credentials import new_secret
from rendezvous.talk.join_string import group_token_text
from rendezvous.wire.errors import ExitCode
from tests.launcher.command import rdzv

URL = "postgresql://rdzv@db1,db2/rdzv"
HUSH = "canary-PASSWORD"
JUDGES_AFTER = JUDGE_SECONDS + BEAT_SECONDS
"""Seconds after its start in which a replica replaces nobody."""


# ---- what is refused, before anything is made ---------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--advertise", "n1"], "--advertise is for one of several replicas"),
        (["--journal", "db1"], "--journal is not the URL of a PostgreSQL database"),
        (["--journal", "mysql://db1/rdzv"], "--journal is not the URL of a PostgreSQL database"),
        (["--journal", "postgresql://db1"], "--journal is not the URL of a PostgreSQL database"),
        (["--journal", "postgresql://[::1/x"], "--journal is not the URL of a PostgreSQL"),
        (["--journal", f"postgresql://rdzv:{HUSH}@db1/rdzv"], "--journal has a password"),
        (["--journal", f"postgresql://db1/rdzv?password={HUSH}"], "--journal has a password"),
        (["--journal", f"{URL}?ssl=on&sslpassword={HUSH}"], "--journal has a password"),
        (["--journal", URL], "neither RDZV_TOKEN nor RDZV_TOKEN_FILE is set"),
    ],
)
def test_what_cannot_be_is_refused_without_a_word_of_a_password(
    tmp_path: Path, options: list[str], words: str
) -> None:
    result = rdzv("serve", *options, state=tmp_path / "s")
    assert result.exit_code == ExitCode.USAGE
    assert words in result.stderr
    assert HUSH not in result.output
    assert len(result.stderr.splitlines()) == 2
    assert not (tmp_path / "s").exists()


def test_without_the_extra_it_is_said_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "asyncpg" else find(name)
    )
    result = rdzv("serve", "--journal", URL, state=tmp_path / "s")
    assert result.exit_code == ExitCode.USAGE
    assert "needs asyncpg" in result.stderr
    assert "[postgres]'" in result.stderr


def test_a_group_token_that_was_cut_is_refused(tmp_path: Path) -> None:
    token = group_token_text(new_secret())
    result = rdzv("serve", "--journal", URL, state=tmp_path, env={"RDZV_TOKEN": token[:-9]})
    assert result.exit_code == ExitCode.USAGE
    assert "RDZV_TOKEN is damaged" in result.stderr
    assert token[9:-9] not in result.output


# ---- replicas, as an operator starts them -------------------------------------------------------

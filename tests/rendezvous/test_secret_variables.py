"""The files in which the values of secret variables go on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rendezvous.secret_variables import (
    SECRET_VARIABLES,
    anonymous_file,
    descriptor_of,
    hide,
    path_of,
)


def test_an_anonymous_file_is_read_from_its_start_and_inherited_by_nobody_unasked() -> None:
    with anonymous_file("name", b"content") as file:
        assert file.read() == b"content"
        assert not os.get_inheritable(file.fileno())
        with open(path_of(file.fileno()), "rb") as again:
            assert again.read() == b"content"


@pytest.mark.parametrize(
    ("path", "fd"), [("/proc/self/fd/7", 7), ("/run/secrets/join", None), ("", None)]
)
def test_a_file_without_a_name_is_known_by_its_path(path: str, fd: int | None) -> None:
    assert descriptor_of(path) == fd


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    """An environment; what it names by a descriptor is closed."""
    given = {"PATH": "/bin"}
    yield given
    for path in given.values():
        if (fd := descriptor_of(path)) is not None:
            os.close(fd)


def test_a_secret_goes_on_in_a_file_that_the_next_program_inherits(environ: dict[str, str]) -> None:
    environ["RDZV_TOKEN"] = "s\udcffcret"
    environ["RDZV_TOKEN_FILE"] = "/older"
    assert hide(environ)
    assert [*environ] == ["PATH", "RDZV_TOKEN_FILE"]
    fd = descriptor_of(environ["RDZV_TOKEN_FILE"])
    assert fd is not None
    assert os.get_inheritable(fd)
    with open(environ["RDZV_TOKEN_FILE"], "rb") as file:
        assert file.read() == b"s\xffcret"


def test_a_secret_that_is_set_to_nothing_is_only_taken_away(environ: dict[str, str]) -> None:
    environ |= {"RDZV_JOIN": "", "RDZV_JOIN_FILE": "/a/file"}
    assert hide(environ)
    assert environ == {"PATH": "/bin", "RDZV_JOIN_FILE": "/a/file"}
    assert not hide(environ)


def test_each_secret_may_come_in_a_file() -> None:
    assert (
        *("RDZV_JOIN", "RDZV_JOIN_FILE"),
        *("RDZV_TOKEN", "RDZV_TOKEN_FILE"),
        *("RDZV_REGISTRY", "RDZV_REGISTRY_FILE"),
        *("RDZV_UI_KEY", "RDZV_UI_KEY_FILE"),
        *("RDZV_VIEW", "RDZV_VIEW_FILE"),
    ) == SECRET_VARIABLES

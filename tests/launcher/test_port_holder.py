"""Who has a port: a run of this user, a standing registry, or some other process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from launcher.state.port_holder import CREDENTIAL, STANDING, STANDING_RUN, holder_of
from launcher.state.state_dir import JOURNAL, LaunchRecord, StateDir
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import RegistryPlace, RegistryString


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which this process listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as busy:
        yield int(busy.getsockname()[1])


def record(port: int, host: str) -> LaunchRecord:
    place = RegistryPlace(("10.0.0.1",), port, "plain", b"")
    return LaunchRecord(
        run="llama", launch_id="abcdefgh", scheduler="ssh", place=place.to_json(), host=host
    )


def test_a_run_is_named_with_what_shows_and_ends_it(tmp_path: Path, port: int) -> None:
    state = StateDir(tmp_path, "llama")
    state.acquire()
    state.write_record(record(port, socket.gethostname()))
    found = holder_of(port, tmp_path)
    assert found.words == "the registry of your run 'llama' uses it"
    assert found.hint == "look at it with 'rdzv status llama', end it with 'rdzv cancel llama'"
    state.release()  # of a launch that has ended
    assert "llama" not in holder_of(port, tmp_path).words


def test_a_run_of_another_host_with_the_same_state_folder_is_not_meant(
    tmp_path: Path, port: int
) -> None:
    state = StateDir(tmp_path, "llama")
    state.acquire()
    state.write_record(record(port, "elsewhere"))
    assert "llama" not in holder_of(port, tmp_path).words
    state.release()


def test_a_standing_registry_is_named_with_how_to_use_it(tmp_path: Path, port: int) -> None:
    state = StateDir(tmp_path / STANDING, STANDING_RUN)
    state.acquire()
    place = RegistryPlace(("10.0.0.1",), port, "plain", b"")
    text = RegistryString(place, registry_credential(b"s" * 32)).text()
    state.write(CREDENTIAL, text.encode())
    found = holder_of(port, tmp_path)
    assert found.words == "your standing registry ('rdzv serve') uses it"
    assert found.hint == f"launch with RDZV_REGISTRY_FILE={state.path / CREDENTIAL} to use it"
    state.release()


def test_a_process_is_named_and_the_run_whose_journal_it_has_open(
    tmp_path: Path, port: int
) -> None:
    assert holder_of(port, tmp_path).words.startswith(f"process {os.getpid()}: ")
    (tmp_path / "mistral").mkdir()
    with (tmp_path / "mistral" / JOURNAL).open("wb"):
        words = holder_of(port, tmp_path).words
    assert words.startswith(f"the registry of run 'mistral' uses it (process {os.getpid()}: ")


def test_of_a_free_port_nothing_is_said(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        free = int(sock.getsockname()[1])
    assert holder_of(free, tmp_path).words == ""

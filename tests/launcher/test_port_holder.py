"""Who has a port: a run of this user, a standing registry, or some other process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from launcher.state import port_holder
from launcher.state.launch_record import LaunchRecord
from launcher.state.port_holder import CREDENTIAL, STANDING, STANDING_RUN, Holder, holder_of
from launcher.state.state_dir import JOURNAL, StateDir
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


def test_only_a_registry_of_a_launch_that_lives_is_meant_and_at_its_own_port(
    tmp_path: Path, port: int
) -> None:
    states = [StateDir(tmp_path, name) for name in ("nearby", "standing-one", "older", "newer")]
    for state, at, owns, since in zip(
        states,
        (port + 1, port, port, port),
        (True, False, True, True),
        (40, 30, 10, 20),
        strict=True,
    ):
        state.acquire()
        own = record(at, socket.gethostname())
        known = {"run": state.run, "owns_registry": owns, "started_at": float(since)}
        state.write_record(own.model_copy(update=known))
    words = "the registry of your run '{}' uses it"
    assert holder_of(port, tmp_path).words == words.format("newer")
    states[3].release()
    assert holder_of(port, tmp_path).words == words.format("older")
    for state in states[:3]:
        state.release()
    assert "your run" not in holder_of(port, tmp_path).words


def test_a_process_of_another_user_is_named_with_him_as_far_as_it_may_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, seen = os.getuid() + 7_777, [("process 4711: nc -l", "llama")]
    monkeypatch.setattr(port_holder, "_sockets", lambda port: iter([(user, "88"), (0, "89")]))
    monkeypatch.setattr(port_holder, "user_name", lambda number: f"u{number - os.getuid()}")

    def process(inodes: set[str]) -> tuple[str, str]:
        assert inodes == {"88", "89"}
        return seen[0]

    monkeypatch.setattr(port_holder, "_process", process)
    for found, words in (
        (
            ("process 4711: nc -l", "llama"),
            "the registry of run 'llama' of user u7777 uses it (process 4711: nc -l)",
        ),
        (("process 4711: nc -l", ""), "process 4711: nc -l of user u7777 uses it"),
        (("", ""), "a process of user u7777 uses it"),
    ):
        seen[0] = found
        assert holder_of(29_600, tmp_path) == Holder(words)


def test_a_socket_is_found_in_the_kernels_tables_by_its_port_and_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of both families; what is only connected there, or from there, does not count."""
    row = "{}: {}:{:04X} {}:{:04X} {} 0:0 00:0 0 {} 0 {} 1 x"
    tables = {
        "/proc/net/tcp": [
            row.format(0, "0" * 8, 29_600, "0" * 8, 0, "0A", 33, 701),
            row.format(1, "0" * 8, 29_600, "0A000001", 40_000, "01", 34, 702),
            row.format(2, "0" * 8, 29_601, "0" * 8, 29_600, "0A", 35, 703),
        ],
        "/proc/net/tcp6": [row.format(0, "0" * 32, 29_600, "0" * 32, 0, "0A", 36, 704)],
    }
    monkeypatch.setattr(
        Path, "read_text", lambda self: "\n".join(["  sl  local_address", *tables[str(self)]])
    )
    assert list(port_holder._sockets(29_600)) == [(33, "701"), (36, "704")]


def test_of_a_free_port_nothing_is_said(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        free = int(sock.getsockname()[1])
    assert holder_of(free, tmp_path).words == ""

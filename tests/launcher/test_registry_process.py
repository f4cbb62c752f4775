"""The port, the certificate and the last words of a registry that a launch starts."""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from launcher.run.registry_process import last_words, listen, write_config
from launcher.state.state_dir import StateDir
from rendezvous.wire.errors import ExitCode, UsageError
from tests.launcher.command import rdzv

SECRET = b"s" * 32


def test_a_registry_takes_the_next_port_when_its_own_is_busy_unless_its_workers_know_it() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as busy:
        port = busy.getsockname()[1]
        with closing(listen(port, address="127.0.0.1", exact=False)) as sock:
            assert port < sock.getsockname()[1] < port + 100
        with pytest.raises(UsageError) as caught:
            listen(port, address="127.0.0.1", exact=True)
    message = f"the registry cannot listen on port {port} of 127.0.0.1: Address already in use"
    assert caught.value.message.startswith(f"{message}; process {os.getpid()}: ")
    assert caught.value.hint == "wait until it has ended; or choose another with --port"


def test_the_last_port_of_all_has_no_next_one_and_no_address_is_another_machines() -> None:
    with closing(listen(65_535, address="127.0.0.1", exact=True)), pytest.raises(UsageError):
        listen(65_535, address="127.0.0.1", exact=False)
    with pytest.raises(UsageError, match=r"port 29600 of 192\.0\.2\.1: Cannot assign requested"):
        listen(29_600, address="192.0.2.1", exact=True)


def test_a_registry_listens_on_both_families_and_its_words_fit_the_packets_of_every_path() -> None:
    with closing(listen(0, exact=True)) as sock:
        port = sock.getsockname()[1]
        has_ipv6 = Path("/proc/net/if_inet6").exists()
        for address in ("127.0.0.1", "::1")[: 1 + has_ipv6]:
            with (
                socket.create_connection((address, port), timeout=5) as node,
                sock.accept()[0] as own,
            ):
                sizes = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) for s in (node, own)]
            assert max(sizes) + 60 <= 1280  # with the headers of IPv6 and TCP


def test_30_a_registrys_certificate_is_made_once_and_lives_as_long_as_its_launch(
    tmp_path: Path,
) -> None:
    state = StateDir(tmp_path, "llama")
    state.acquire()
    first, resumed = (write_config(state, SECRET, tls=True) for _ in range(2))
    config = json.loads((state.path / "registry.json").read_text())
    assert first == resumed
    assert first.trust == "certificate"
    assert first.proof == (state.path / "certificate.der").read_bytes()
    assert config["journal"] == str(state.journal)
    assert config["certificate"] == str(state.path / "certificate.pem")
    state.forget_launch()
    alone = write_config(state, SECRET, tls=False)
    assert (alone.trust, alone.proof) == ("plain", b"")
    assert "certificate" not in json.loads((state.path / "registry.json").read_text())
    assert write_config(state, SECRET, tls=True).proof != first.proof
    state.release()


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("launch --nnodes 3 --framework command -- true", "67 for 3 nodes"),
        ("serve", "65 for 1 node"),
    ],
)
def test_a_limit_of_open_files_that_is_too_low_is_refused_with_what_is_needed(
    words: str, needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (12, 12))
    monkeypatch.setattr("os.execv", lambda *_: pytest.fail("it was started"))
    refused = rdzv(*words.split(), env={"RDZV_STATE_DIR": str(tmp_path)})
    assert refused.exit_code == ExitCode.USAGE
    assert refused.stderr.splitlines()[0] == (
        f"rdzv: this process may open 12 files (ulimit -n), but a registry needs {needed}"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "none"),
        ("first\nthe port is taken\n", "the port is taken"),
        (f"first\n{'/folder' * 100} cannot be opened\n", f"…{'/folder' * 100} cannot be opened"),
    ],
)
def test_the_last_words_of_a_registry_are_the_end_of_what_it_said(
    text: str, words: str, tmp_path: Path
) -> None:
    log = tmp_path / "registry.log"
    log.write_text(text)
    shown = last_words(log)
    assert shown == (words if len(words) < 301 else f"…{words[-300:]}")

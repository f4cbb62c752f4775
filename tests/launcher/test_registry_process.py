"""The port, the certificate and the last words of a registry that a launch starts."""

from __future__ import annotations

import errno
import json
import os
import socket
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.prepare import registry_process
from launcher.prepare.registry_process import (
    check_machine,
    last_words,
    listen,
    own_addresses,
    server_command,
    write_config,
)
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import hkdf, registry_credential
from rendezvous.wire.errors import AddressError, ArmingFailed, ExitCode, UsageError
from rendezvous.wire.node import Candidate, LinkKind
from tests.launcher.command import rdzv
from worker.machine.shortage import Kind, Limit

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


def test_28_a_hundred_ports_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[int]()

    def bind(port: int, address: str) -> socket.socket:
        tried.append(port)
        raise OSError(errno.EADDRINUSE, "it is taken")

    monkeypatch.setattr(registry_process, "_bind", bind)
    with pytest.raises(UsageError, match="any of the ports 29600 to 29699 of this machine"):
        listen(29_600, exact=False)
    assert tried == [*range(29_600, 29_700)]


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


class Socket:
    """One whose maximum segment cannot be set, as in some containers."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._told.append(f"segment {value}")
        raise OSError(errno.ENOPROTOOPT, "Protocol not available")


@pytest.mark.parametrize(
    ("address", "dual", "fails", "told"),
    [
        ("", True, [], ["29711 of '' IPv6 both", "segment 1200"]),
        ("", False, [], ["29711 of '' IPv4", "segment 1200"]),
        (
            "",
            True,
            [errno.EAFNOSUPPORT],  # IPv6 was taken out of this kernel
            ["29711 of '' IPv6 both", "29711 of '' IPv4", "segment 1200"],
        ),
        (
            "",
            True,
            [errno.EADDRINUSE] * 2,
            [*(f"{29_711 + n} of '' IPv6 both" for n in range(3)), "segment 1200"],
        ),
        ("fd00::7", True, [], ["29711 of 'fd00::7' IPv6", "segment 1200"]),
        ("127.0.0.7", True, [], ["29711 of '127.0.0.7' IPv4"]),
    ],
)
def test_where_a_registry_listens_whatever_the_kernel_lacks(
    monkeypatch: pytest.MonkeyPatch, address: str, dual: bool, fails: list[int], told: list[str]
) -> None:
    tried, left = list[str](), list(fails)

    def create_server(at: tuple[str, int], *, family: int, backlog: int, **how: bool) -> Any:
        assert backlog == 4_096
        kind = {socket.AF_INET6: "IPv6", socket.AF_INET: "IPv4"}[socket.AddressFamily(family)]
        tried.append(f"{at[1]} of {at[0]!r} {kind}" + " both" * how.get("dualstack_ipv6", False))
        if left:
            raise OSError(left.pop(0), "it cannot")
        return Socket(tried)

    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: dual)
    monkeypatch.setattr(socket, "create_server", create_server)
    listen(29_711, address=address, exact=False)
    assert tried == told


def test_a_machine_too_small_for_a_registry_and_its_nodes_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    limits = [Limit(Kind.FILE_SIZE, 256 << 10)]

    def too_few(count: int) -> tuple[str, str] | None:
        counted.append(count)
        return ("ulimit -u is 9", "raise that") if count > 9 else None

    monkeypatch.setattr(registry_process, "byte_limits", lambda status: limits)
    monkeypatch.setattr(registry_process, "too_few", too_few)
    check_machine(4)
    with pytest.raises(ArmingFailed) as caught:
        check_machine(5)
    words = "the registry and 5 nodes need processes: ulimit -u is 9"
    assert (caught.value.message, caught.value.hint) == (words, "raise that")
    assert counted == [9, 11]
    for kind, value, least in (
        (Kind.FILE_SIZE, (256 << 10) - 1, "the run's journal needs 256 KiB or more"),
        (Kind.ADDRESS_SPACE, (96 << 20) - 1, "a registry needs 96 MiB or more"),
        (Kind.DATA, (72 << 20) - 1, "a registry needs 72 MiB or more"),
    ):
        limits[:] = [limit := Limit(kind, value)]
        with pytest.raises(ArmingFailed) as caught:
            check_machine(0)
        assert caught.value.message == f"{limit.words}, but {least}"
        assert caught.value.hint == limit.hint


def test_where_a_machine_may_be_reached_its_vpns_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(name: str, address: str) -> Candidate:
        return Candidate(name, address, 24, LinkKind.ETHERNET)

    choice = SimpleNamespace(
        candidates=[offered("eth1", "10.0.7.4"), offered("eth0", "10.0.7.5")],
        left_out=[offered("tailscale0", "100.64.0.9")],
    )
    found: list[Any] = [choice]

    def choose(looked: str, *, route_source: None) -> Any:
        assert looked == "seen"
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    monkeypatch.setattr(registry_process, "look", lambda: "seen")
    monkeypatch.setattr(registry_process, "choose_candidates", choose)
    assert own_addresses() == ["10.0.7.4", "10.0.7.5", "100.64.0.9"]
    found[0] = AddressError("there is none")
    assert own_addresses() == []


def test_replicas_share_one_certificate_and_the_process_reads_all_that_it_is_given(
    tmp_path: Path,
) -> None:
    proofs = []
    for name in ("a", "b"):
        state = StateDir(tmp_path, name)
        state.acquire()
        for _ in range(2):
            proof = write_config(state, SECRET, tls=True, shared=True, journal=None, max_runs=7)
        proofs.append(proof)
        config = json.loads((state.path / "registry.json").read_text())
        assert (config["journal"], config["max_runs"]) == (None, 7)
        assert config["certificate_key"] == str(state.path / "key.pem")
        assert config["admin_sha256"] == registry_credential(SECRET).sha256()
        assert config["key"] == hkdf(SECRET, "registry key for node credentials").hex()
        command = server_command(state, 33)
        assert command[-4:] == ["_registry", str(state.path / "registry.json"), "--fd", "33"]
        state.release()
    assert proofs[0].proof == (tmp_path / "b" / "certificate.der").read_bytes()

"""`rdzv doctor` at a standing registry: real ones, ports where none is, and what it makes of it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.show.registry import Proven, judge
from rendezvous.talk.credentials import Credential
from rendezvous.talk.failures import Fault, NetworkFailure
from rendezvous.talk.join_string import RegistryPlace, RegistryString
from rendezvous.version import rdzv_version
from rendezvous.wire.protocol import PROTOCOL
from tests.launcher.command import rdzv
from tests.support.launching import RDZV, environment
from tests.support.waiting import until
from worker.preflight.checks import NODE_CHECKS
from worker.preflight.verdict import Verdict

pytestmark = pytest.mark.usefixtures("bare")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[RegistryString]:
    """A standing registry with TLS and a file; gives what launchers get of it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = [RDZV, "serve", "--port", port, "--registry-address", "127.0.0.1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment(folder))
    try:
        assert process.stderr is not None
        file = Path(process.stderr.readline().rsplit("RDZV_REGISTRY_FILE=", 1)[1].strip())
        registry = RegistryString.parse(file.read_text())
        env = {"RDZV_REGISTRY_FILE": str(file)}
        until(lambda: rdzv("doctor", *ONLY, env=env).exit_code == 0)
        yield registry
    finally:
        process.terminate()
        process.communicate(timeout=30)


ONLY = [word for check in NODE_CHECKS for word in ("--skip", check.id)]


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RegistryString]]:
    """Two, with a key each."""
    folder = tmp_path_factory.mktemp("registries")
    with serving(folder / "one") as one, serving(folder / "other") as other:
        yield [one, other]


def found_at(registry: RegistryString | str, code: int) -> list[dict[str, Any]]:
    """What doctor finds, by address; and that it exits so."""
    text = registry if isinstance(registry, str) else registry.text()
    result = rdzv("doctor", "--json", *ONLY, env={"RDZV_REGISTRY": text})
    assert (result.exit_code, result.stderr) == (code, "")
    checks = json.loads(result.stdout)["checks"]
    return [check for check in checks if check["check"] == "D01"]


def at(registry: RegistryString, *addresses: str, replicas: bool = True) -> RegistryString:
    place = replace(registry.place, addresses=addresses, replicas=replicas)
    return replace(registry, place=place)


def test_a_registry_that_is_there_is_ready(registries: list[RegistryString]) -> None:
    [one] = found_at(registries[0], 0)
    assert one["subject"] == f"127.0.0.1:{registries[0].place.port}"
    assert (one["level"], one["cause"], one["fix"]) == ("ok", "", "")
    assert one["value"] == f"ready, rdzv {rdzv_version()}, TLS, with the right key"


def test_the_page_shows_it_below_the_other_checks(registries: list[RegistryString]) -> None:
    result = rdzv("doctor", *ONLY, env={"RDZV_REGISTRY": registries[0].text()})
    [line] = [line for line in result.stdout.splitlines() if " D01 " in line]
    assert line.startswith(
        f"  ok    D01  registry           127.0.0.1:{registries[0].place.port}: "
    )
    assert registries[0].text() not in result.output


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of one who accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


@pytest.fixture
def refusing() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
    return port


def test_each_address_is_told_of_with_its_cause_and_what_to_do(
    registries: list[RegistryString], silent: int, refusing: int
) -> None:
    one, other = registries
    ports = (one.place.port, refusing, other.place.port, silent)
    names = [*(f"127.0.0.1:{port}" for port in ports), "no-such-host.invalid:29600"]
    found = found_at(at(one, *names), 0)
    assert [check["subject"] for check in found] == names
    assert [check["level"] for check in found] == ["ok", "warn", "warn", "warn", "warn"]
    _, refused, foreign, quiet, unknown = found
    assert refused["value"] == "connection refused (no registry is listening)"
    assert refused["fix"].startswith("start 'rdzv serve' there")
    assert "it holds another key" in foreign["value"]
    assert "'rdzv token registry'" in foreign["fix"]
    assert quiet["value"] == "no answer (filtered, or the host is down)"
    assert f"nc -vz 127.0.0.1 {silent};" in quiet["fix"]
    assert unknown["value"].startswith(("its name cannot be resolved", "no name server"))
    assert "getent hosts" in unknown["fix"]
    assert {check["cause"] for check in found[1:]} == {
        "launches use the others; a run that is there is missed when those go"
    }


def test_where_no_launch_could_start_it_fails(
    registries: list[RegistryString], refusing: int
) -> None:
    one, other = registries
    found = found_at(at(one, f"127.0.0.1:{refusing}", f"127.0.0.1:{other.place.port}"), 1)
    assert [check["level"] for check in found] == ["fail", "fail"]
    [one_alone] = found_at(at(one, f"127.0.0.1:{other.place.port}", replicas=False), 1)
    assert one_alone["cause"] == "a launch with this RDZV_REGISTRY cannot start"


def test_of_one_machines_addresses_one_is_enough(
    registries: list[RegistryString], refusing: int
) -> None:
    names = (f"127.0.0.1:{refusing}", f"127.0.0.1:{registries[0].place.port}")
    found = found_at(at(registries[0], *names, replicas=False), 0)
    assert [check["level"] for check in found] == ["ok", "ok"]
    assert found[0]["value"].endswith("the registry answers at another of its addresses")


def test_a_credential_that_the_registry_does_not_know_fails(
    registries: list[RegistryString],
) -> None:
    stranger = replace(registries[0], credential=Credential("tenant", bytes(32)))
    [one] = found_at(stranger, 1)
    assert one["value"].startswith("ready, but it refuses the credential: ")
    assert "rdzv tenant list" in one["fix"]


def test_what_cannot_be_read_is_said_without_showing_it(
    registries: list[RegistryString], tmp_path: Path
) -> None:
    text = registries[0].text()
    [cut] = found_at(text[:-9], 1)
    assert cut["value"].startswith("RDZV_REGISTRY is damaged")
    assert "RDZV_REGISTRY_FILE" in cut["fix"]
    [other] = found_at("rdzvtok1-abc", 1)
    assert other["value"].startswith("RDZV_REGISTRY does not begin with 'rdzvreg1-'")
    missing = rdzv("doctor", *ONLY, env={"RDZV_REGISTRY_FILE": str(tmp_path / "no")})
    assert missing.exit_code == 1
    assert "which cannot be read" in missing.stdout
    assert text[:-9] not in json.dumps(cut)


def test_it_can_be_skipped_and_is_no_check_of_a_run(registries: list[RegistryString]) -> None:
    damaged = {"RDZV_REGISTRY": "rdzvreg1-x"}
    assert rdzv("doctor", *ONLY, "--skip", "D01", env=damaged).exit_code == 0
    assert "there is no such check" in rdzv("launch", "--skip", "D01", "--", "true").stderr


# --- what it means


PLACE = RegistryPlace(("n1", "n2"), 29600, "certificate", b"x", replicas=True)
READY = Proven("1.0", 200)
AWAY = Proven("1.0", 503, why_not="this replica of the registry cannot reach its journal: ...")


def test_a_registry_whose_journal_is_away_fails_unless_another_one_is_ready() -> None:
    alone = judge(PLACE, {"n1": AWAY, "n2": AWAY})
    assert {one.level for one in alone} == {"fail"}
    away, ready = judge(PLACE, {"n1": AWAY, "n2": READY})
    assert (away.level, ready.level) == ("warn", "ok")
    assert away.value == (
        "the right registry, but not ready: this replica of the registry cannot reach its "
        "journal: ..."
    )
    assert "the log of 'rdzv serve'" in away.fix


def test_one_without_readyz_may_be_a_proxy() -> None:
    [one] = judge(PLACE, {"n1": Proven("", 404, why_not="status 404")})
    assert (one.level, one.fix) == ("warn", "check the proxy or ingress in front of it")


def test_one_of_another_protocol_fails_by_name() -> None:
    other = Proven("0.9", 200, protocol=PROTOCOL + 1)
    [one] = judge(PLACE, {"n1": other})
    assert one.level == "fail"
    assert one.value == (
        f"the right registry, but it speaks protocol {PROTOCOL + 1} (rdzv 0.9), and this rdzv "
        f"speaks protocol {PROTOCOL} (rdzv {rdzv_version()})"
    )
    assert one.fix.endswith("Try: pip install rdzv==0.9")
    assert [each.level for each in judge(PLACE, {"n1": other, "n2": READY})] == ["warn", "ok"]


def test_a_place_without_addresses_fails() -> None:
    assert judge(replace(PLACE, addresses=()), {}) == [
        Verdict("fail", "RDZV_REGISTRY names no address", expected="a registry that is ready")
    ]


def test_every_failure_has_something_to_do() -> None:
    for fault in Fault:
        [one] = judge(PLACE, {"n1": NetworkFailure(fault, "2")})
        assert (one.level, one.subject) == ("fail", "n1:29600")
        assert one.fix, fault
    [plain] = judge(replace(PLACE, trust="plain"), {"n1": NetworkFailure(Fault.NOT_HTTP)})
    assert plain.value.endswith("it may speak TLS")
    assert "--behind-ingress" in plain.fix
    [six] = judge(PLACE, {"[fd00::1]:7": NetworkFailure(Fault.FILTERED)})
    assert "nc -vz fd00::1 7;" in six.fix

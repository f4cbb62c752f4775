"""`rdzv tenant` at a real registry: what is printed, kept, replaced and refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.run.tenants import table_lines
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import RegistryPlace, RegistryString
from rendezvous.wire.errors import ExitCode
from rendezvous.wire.run import RunStatus
from rendezvous.wire.tenant import TenantLimits, TenantStatus, Usage
from tests.launcher.command import rdzv
from tests.support.registry import Launch, Registry, running

PLACE = RegistryPlace(("127.0.0.1",), 1)


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A standing one."""
    with running(tmp_path_factory.mktemp("standing")) as one:
        yield one


@pytest.fixture
def registry(
    standing: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Registry]:
    """That one, whose operator's file is named in the environment; a test's tenants go with it."""
    path = tmp_path / "credential"
    path.write_text(RegistryString(standing.place, standing.operator).text() + "\n")
    monkeypatch.setenv("RDZV_REGISTRY_FILE", str(path))
    yield standing
    monkeypatch.delenv("RDZV_REGISTRY", raising=False)
    for one in listed():
        assert rdzv("tenant", "revoke", str(one["name"])).exit_code == 0


def added(*words: str) -> RegistryString:
    """What `rdzv tenant add` has printed."""
    result = rdzv("tenant", "add", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    return RegistryString.parse(result.stdout)


def listed() -> list[dict[str, object]]:
    result = rdzv("tenant", "list", "--json")
    assert result.exit_code == 0
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def create(registry: Registry, shown: RegistryString, run: str) -> RunStatus:
    async def ask() -> RunStatus:
        async with registry.client(shown.credential) as client:
            return await client.create(run, Launch(run).spec(2))

    return asyncio.run(ask())


def test_a_tenant_is_added_changed_rotated_and_revoked(registry: Registry) -> None:
    assert rdzv("tenant", "list").stdout.startswith("no tenants; 'rdzv tenant add")
    first = added("vision", "--prefix", "vision-", "--max-runs", "3", "--max-nodes", "8")
    assert (first.place, first.credential.kind) == (registry.place, "tenant")
    create(registry, first, "vision-a")

    kept = rdzv("tenant", "add", "vision", "--max-runs", "unlimited", "--creates-per-minute", "9")
    assert (kept.exit_code, kept.stdout) == (0, "")
    assert "keeps its credential" in kept.stderr
    (found,) = listed()
    assert found["limits"] == {"max_runs": None, "max_nodes": 8, "creates_per_minute": 9}
    create(registry, first, "vision-b")
    assert rdzv("tenant", "list").stdout.splitlines()[1].split()[:5] == [
        "vision", "vision-", "2", "4", "of",
    ]  # fmt: skip

    second = added("vision", "--rotate")
    assert second.credential != first.credential
    create(registry, second, "vision-c")
    (found,) = listed()
    assert found["limits"] == {"max_runs": None, "max_nodes": 8, "creates_per_minute": 9}

    revoked = rdzv("tenant", "revoke", "vision")
    assert revoked.stdout == "tenant 'vision' is revoked; runs in progress, which continue: 3\n"
    assert listed() == []
    again = rdzv("tenant", "revoke", "vision")
    assert again.exit_code == ExitCode.REFUSED
    assert "there is no tenant 'vision' here" in again.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nlp",), ExitCode.USAGE, "for example: rdzv tenant add nlp --prefix nlp-"),
        (("nlp", "--prefix", "vision-2-"), ExitCode.FAILED, "that of tenant 'vision'"),
        (("vision", "--prefix", "v-"), ExitCode.FAILED, "which cannot be changed"),
        (("nlp", "--prefix", "nlp"), ExitCode.USAGE, "try 'nlp-'"),
        (("nlp", "--prefix", "-nlp-"), ExitCode.USAGE, "is not a prefix of run IDs"),
        (("n/p", "--prefix", "nlp-"), ExitCode.USAGE, "is not a name"),
        (("nlp", "--prefix", "nlp-", "--max-runs", "0"), ExitCode.USAGE, "from 1 to 1000000"),
        (("nlp", "--prefix", "nlp-", "--max-nodes", "x"), ExitCode.USAGE, "'unlimited'"),
    ],
)
def test_what_cannot_be_added_is_refused_with_what_to_do(
    registry: Registry, words: tuple[str, ...], code: ExitCode, said: str
) -> None:
    added("vision", "--prefix", "vision-")
    result = rdzv("tenant", "add", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in " ".join(result.stderr.split())
    assert [one["name"] for one in listed()] == ["vision"]


COMMANDS = (("add", "nlp", "--prefix", "nlp-"), ("list",), ("revoke", "vision"))


@pytest.mark.parametrize("words", COMMANDS)
def test_a_tenant_manages_no_tenants(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("RDZV_REGISTRY", added("vision", "--prefix", "vision-").text())
    result = rdzv("tenant", *words)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert "RDZV_REGISTRY is that of a tenant" in result.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_without_a_registry_they_say_how_to_name_one(words: tuple[str, ...]) -> None:
    result = rdzv("tenant", *words)
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert "set RDZV_REGISTRY_FILE to the path that 'rdzv serve' printed" in result.stderr


def test_the_table_has_what_is_used_of_what_may_be_used() -> None:
    most = TenantLimits(max_runs=10, creates_per_minute=30)
    usage = Usage(runs=3, nodes=24, creates=2)
    assert table_lines(
        [
            TenantStatus(name="vision", prefix="vision-", limits=most, usage=usage),
            TenantStatus(name="a", prefix="a."),
        ]
    ) == [
        "TENANT  PREFIX   RUNS     NODES  MADE IN 60 S",
        "vision  vision-  3 of 10  24     2 of 30",
        "a       a.       0        0      0",
    ]


def test_there_is_no_metrics_token_for_a_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = registry_credential(bytes(32))
    tenant = RegistryString(PLACE, type(operator)("tenant", operator.secret))
    monkeypatch.setenv("RDZV_REGISTRY", tenant.text())
    result = rdzv("token", "metrics")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert "which cannot read the registry's /metrics" in " ".join(result.stderr.split())

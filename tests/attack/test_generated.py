"""Generated requests to a real registry, and generated inputs to every parser.

The everyday share is what hypothesis makes of the contracts in `tests.attack.fuzz.targets`, which
`python -m tests.attack.fuzz` tries under atheris.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rendezvous.serving.limiter import BURST
from rendezvous.talk.credentials import SERVER_NAME, Credential, parse_credential
from rendezvous.wire.types import Problem
from tests.attack.fuzz.targets import TARGETS
from tests.support.driver import FEW
from tests.support.mangle import mangled_text
from tests.support.nightly import ROUNDS, examples
from tests.support.registry import Launch, Node, Registry, running

OPENAPI = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
OPERATIONS = [f"{m.upper()} {p}" for p, item in OPENAPI["paths"].items() for m in item]
CASES = examples(12) * ROUNDS
"""Of each operation, with and without a credential, by the rules and against them."""
MOST_CPU_SECONDS = 2.0
"""Of the registry, for one request; how long its answer takes depends on what runs beside it."""
HANG_SECONDS = 40.0
"""However busy this machine is, there is an answer by then."""
MOST_GROWTH_MB = 20.0


# Parsers


@pytest.mark.parametrize("name", TARGETS)
def test_every_seed_keeps_the_contract(name: str) -> None:
    seeds = TARGETS[name].seeds()
    assert seeds
    for seed in seeds:
        TARGETS[name].check(seed)


@pytest.mark.parametrize("name", TARGETS)
@FEW
@given(noise=st.binary(max_size=300), number=st.integers(0, 2**32))
def test_whatever_comes_keeps_the_contract(name: str, noise: bytes, number: int) -> None:
    target, dice = TARGETS[name], random.Random(number)
    seed = dice.choice(target.seeds())
    at = dice.randrange(len(seed))
    for data in (
        noise,
        seed[:at] + noise[:5] + seed[at + dice.randrange(5) :],
        mangled_text(dice, seed),
    ):
        target.check(data)


# Requests


class Crowd:
    """A registry with a run for each operation, and the credentials that open it."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.launches: dict[str, Launch] = {}
        self.nodes: dict[str, Credential | None] = {}
        self.statuses: Counter[int] = Counter()
        self.numbers = itertools.count()
        self.requests = itertools.count()
        self.source: Any = contextlib.ExitStack()

    async def make(self, operation: str) -> None:
        """A run with one of its nodes in; that of the stream of events is over, so that it ends."""
        launch = self.launches[operation] = Launch(f"run-{next(self.numbers)}")
        await self.registry.create(launch, 3, lease_seconds=3600)
        if operation.endswith("/events"):
            async with self.registry.client(launch.keys.admin) as client:
                await client.cancel(launch.run, "over")
            return
        async with Node(self.registry.place, launch, 0) as node:
            self.nodes[operation] = parse_credential((await node.join()).credential)

    def credential(self, operation: str) -> Credential | None:
        """The right one."""
        launch = self.launches[operation]
        if operation.endswith("/nodes"):
            return launch.token(0)
        if "/nodes/" in operation:
            return self.nodes[operation]
        operators = "{run}" not in operation or operation.startswith("PUT")
        return self.registry.operator if operators else launch.keys.admin

    def session(self) -> Any:
        """Connections of one source, and of another before it has failed too often."""
        count = next(self.requests)
        if count % (BURST - 5) == 0:
            adapters = pytest.importorskip("requests.adapters")
            adapter = adapters.HTTPAdapter()
            source = f"127.{1 + count // 60_000}.{count // 250 % 250}.{1 + count % 250}"
            adapter.init_poolmanager(1, 1, source_address=(source, 0))
            self.source.close()
            self.source = pytest.importorskip("requests").Session()
            self.source.trust_env = False
            self.source.mount("http://", adapter)
        return self.source

    def send(self, operation: str, case: Any, *, welcome: bool, here: bool) -> None:
        """Send a generated request, and check the answer against the OpenAPI."""
        if here:
            case.path_parameters = _here(case.path_parameters, self.launches[operation].run)
            if operation.endswith("/nodes") and isinstance(case.body, dict):
                case.body |= {"slot": 0, "generation": 1}
        case.query = _short(case.query)
        # On one connection a stranger is answered twice at once, and then once a second.
        headers = {"Host": SERVER_NAME, "Connection": "close"}
        credential = self.credential(operation)
        if welcome and credential is not None:
            headers["Authorization"] = f"Bearer {credential.text()}"
        process = psutil.Process(self.registry.pid)
        before = _cpu_seconds(process)
        answer = case.call(
            base_url=f"http://127.0.0.1:{self.registry.port}",
            session=self.session(),
            headers=headers,
            timeout=HANG_SECONDS,
        )
        assert _cpu_seconds(process) - before < MOST_CPU_SECONDS
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            assert answer.status_code in (503, 507)
        if answer.status_code >= 400:
            assert Problem.model_validate_json(answer.content).code
        case.validate_response(answer, checks=_checks())


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _here(parameters: dict[str, Any], run: str) -> dict[str, Any]:
    """The path of what is there, in place of the generated one."""
    real = {"run": run, "node": 0, "slot": 0}
    return {name: real.get(name, value) for name, value in parameters.items()}


def _short(query: dict[str, Any] | None) -> dict[str, Any]:
    """Without the long waits that may be asked for."""
    query = dict(query or {})
    if isinstance(query.get("wait"), int | float) and 0 <= query["wait"] <= 25:
        query["wait"] = 0.01
    if isinstance(query.get("after"), int) and query["after"] > 0:
        query["after"] = -query["after"]
    return query


def _checks() -> list[Any]:
    from schemathesis import checks
    from schemathesis.specs.openapi import checks as openapi

    return [
        checks.not_a_server_error,
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_schema_conformance,
    ]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """One registry for all generated requests."""
    # A closed connection says nothing here: the nodes of these runs have none.
    with running(tmp_path_factory.mktemp("registry"), trust_close=False) as registry:
        crowd = Crowd(registry)
        yield crowd
        crowd.source.close()


@pytest.mark.fuzz
@pytest.mark.timeout(60 + 20 * ROUNDS)
@pytest.mark.parametrize("welcome", [True, False], ids=["welcome", "stranger"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_generated_requests_get_the_answers_of_the_openapi(
    crowd: Crowd, operation: str, welcome: bool
) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    asyncio.run(crowd.make(operation))
    memory = psutil.Process(crowd.registry.pid).memory_info
    before = memory().rss
    method, _, path = operation.partition(" ")
    described = schemathesis.openapi.from_dict(OPENAPI)[path][method]
    for mode in schemathesis.GenerationMode:
        if path in ("/healthz", "/readyz") and mode.is_negative:
            continue  # there is nothing that could be wrong with it

        @settings(
            max_examples=CASES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(described.as_strategy(generation_mode=mode), st.booleans())
        def attack(case: Any, here: bool) -> None:
            crowd.send(operation, case, welcome=welcome, here=here)

        attack()
    growth = (memory().rss - before) / 2**20
    print(f"{operation}: {sum(crowd.statuses.values())} requests so far, {dict(crowd.statuses)}")
    assert growth < MOST_GROWTH_MB
    assert "Traceback" not in crowd.registry.log

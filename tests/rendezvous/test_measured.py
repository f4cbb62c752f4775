"""What a registry measures, and who may read it."""

from __future__ import annotations

import asyncio
import functools

import pytest
from prometheus_client import Metric
from pydantic_core import to_json

from rendezvous.registry import prometheus
from rendezvous.registry.app import asks_what_is_wrong, make_app
from rendezvous.registry.counters import COUNTERS
from rendezvous.registry.prometheus import FAMILIES, metrics_text
from rendezvous.talk.credentials import SERVER_NAME, metrics_credential
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import StorageFull
from rendezvous.wire.reports import AckReport, ExitReport, ProgressReport
from rendezvous.wire.run import Phase
from tests.support.driver import make_probe
from tests.support.exposition import parsed, value
from tests.support.registry import Launch
from tests.support.served import OPERATOR, Served, ask, scope_of, serving
from tests.support.topics import TOPICS

served = pytest.fixture(serving)
CREDENTIAL = metrics_credential(OPERATOR.sha256())
DEMO = Launch("demo")


def measured(served: Served) -> dict[str, Metric]:
    return parsed(metrics_text(served.service), FAMILIES)


COUNTED = COUNTERS.keys() | {topic.name for topic in TOPICS if topic.counts}
"""Those of the core, and of what features publish and ask."""


async def started(served: Served, launch: Launch = DEMO) -> None:
    """A start that gathers for 20 s, verifies for 2 s and arms for 1 s."""
    await served.create(launch, 2, max_restarts=1)
    served.let_pass(20.0)
    await asyncio.gather(*(served.join(launch, slot) for slot in (0, 1)))
    served.let_pass(2.0)
    await verified_and_armed(served, launch)


async def verified_and_armed(served: Served, launch: Launch) -> None:
    host = served.host(launch)
    if host.run.phase is Phase.VERIFYING:
        probes = [make_probe(host.run.epoch, slot, [0, 1]) for slot in (0, 1)]
        await asyncio.gather(*(served.report(launch, slot, probes[slot]) for slot in (0, 1)))
    served.let_pass(1.0)
    ack = AckReport(epoch=host.run.epoch, digest=host.run.digest)
    await asyncio.gather(*(served.report(launch, slot, ack) for slot in (0, 1)))
    assert host.run.phase is Phase.RUNNING


# --- what is measured -----------------------------------------------------------------------------


async def test_every_series_of_the_table_is_there_once_programs_have_started(
    served: Served,
) -> None:
    await started(served)
    found = measured(served)
    assert [*found] == [family.name for family in FAMILIES]
    assert value(found, "rdzv_build_info", version=rdzv_version()) == 1


def test_each_counter_of_the_service_has_a_help() -> None:
    names = {family.name for family in FAMILIES if family.kind == "counter"}
    assert names == {f"rdzv_{name}_total" for name in COUNTED} | {"rdzv_run_ends_total"}


async def test_the_counters_are_those_of_the_service(served: Served) -> None:
    await served.create(DEMO)
    await served.join(DEMO, 0)
    assert served.service.counters.keys() == COUNTED
    found = measured(served)
    for name, count in served.service.counters.items():
        assert value(found, f"rdzv_{name}_total") == count
    assert value(found, "rdzv_joins_total") == 1


async def test_a_start_is_measured_by_phase_and_as_a_whole(served: Served) -> None:
    await started(served)
    found = measured(served)
    for phase, seconds in (("gathering", 20.0), ("verifying", 2.0), ("arming", 1.0)):
        at = {"phase": phase, "start": "first"}
        assert value(found, "rdzv_start_seconds_count", **at) == 1
        assert value(found, "rdzv_start_seconds_sum", **at) == pytest.approx(seconds, abs=0.5)
    assert value(found, "rdzv_gang_start_seconds_count", start="first") == 1
    assert value(found, "rdzv_gang_start_seconds_sum", start="first") == pytest.approx(23, abs=1)
    assert value(found, "rdzv_gang_start_seconds_count", start="again") == 0


async def test_a_restart_is_measured_apart(served: Served) -> None:
    await started(served)
    host = served.host(DEMO)
    await served.service.restart(host, "new data")
    end = ExitReport(epoch=1, exit_code=143, age_seconds=0.0, stopped=True)
    for slot in (0, 1):
        await served.report(DEMO, slot, end)
    await verified_and_armed(served, DEMO)
    found = measured(served)
    assert value(found, "rdzv_gang_start_seconds_count", start="first") == 1
    assert value(found, "rdzv_gang_start_seconds_count", start="again") == 1
    assert value(found, "rdzv_gang_start_seconds_sum", start="again") == pytest.approx(1, abs=0.5)


async def test_a_registry_that_starts_again_counts_no_start_twice(served: Served) -> None:
    await started(served)
    await served.restart()
    found = measured(served)
    assert value(found, "rdzv_gang_start_seconds_count", start="first") == 0
    assert value(found, "rdzv_runs", phase="running") == 1


async def test_a_start_that_a_registry_takes_over_is_measured_from_its_beginning(
    served: Served,
) -> None:
    await served.create(DEMO, 2)
    served.let_pass(20.0)
    await served.join(DEMO, 0)
    await served.restart()
    await served.join(DEMO, 1)
    served.let_pass(2.0)
    await verified_and_armed(served, DEMO)
    at = {"phase": "gathering", "start": "first"}
    assert value(measured(served), "rdzv_start_seconds_sum", **at) == pytest.approx(20, abs=0.5)


async def test_a_start_that_could_not_be_written_is_counted_once_it_is(served: Served) -> None:
    await served.bring_to(Phase.ARMING, DEMO, 2)
    host = served.host(DEMO)
    ack = AckReport(epoch=1, digest=host.run.digest)
    await served.report(DEMO, 0, ack)
    served.journal.is_full = True
    with pytest.raises(StorageFull):
        await served.report(DEMO, 1, ack)
    assert value(measured(served), "rdzv_gang_start_seconds_count", start="first") == 0
    served.journal.is_full = False
    await served.report(DEMO, 1, ack)
    assert value(measured(served), "rdzv_gang_start_seconds_count", start="first") == 1


async def test_how_runs_ended_is_counted(served: Served) -> None:
    for name in ("one", "two"):
        await served.create(launch := Launch(name))
        await served.service.cancel(served.host(launch), "asked for")
    found = measured(served)
    assert value(found, "rdzv_run_ends_total", status="cancelled") == 2
    assert value(found, "rdzv_run_ends_total", status="ok") == 0
    assert value(found, "rdzv_runs", phase="finished") == 2
    assert "rdzv_run_phase_seconds" not in found


async def test_runs_have_series_of_their_own_only_so_many_those_that_wait_longest_first(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "MOST_RUNS", 2)
    await started(served, Launch("running"))
    for name in ("first", "second", "third"):
        await served.create(Launch(name), 3)
        served.let_pass(5.0)
    found = measured(served)
    waits = {s.labels["run"]: s.value for s in found["rdzv_run_phase_seconds"].samples}
    assert waits == pytest.approx({"first": 15.0, "second": 10.0}, abs=0.5)
    assert value(found, "rdzv_run_missing_nodes", run="first") == 3


async def test_of_a_watch_the_time_from_the_news_counts_and_not_that_before(
    served: Served,
) -> None:
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    await served.create(DEMO, 2)
    served.poll_long(DEMO)
    reply = await served.join(DEMO, 0)
    seq = served.host(DEMO).news_seq
    asks = functools.partial(ask, app, "GET", credential=reply.credential)
    watch = asyncio.create_task(asks(f"/v1/runs/demo/nodes/0/watch?after={seq}"))
    while not served.service.counters["watches"]:
        await asyncio.sleep(0.005)
    served.let_pass(5.0)
    await served.join(DEMO, 1)
    assert (await watch).status == 200
    found = measured(served)
    assert value(found, "rdzv_watch_seconds_count") == 1
    assert value(found, "rdzv_watch_seconds_sum") < 1.0
    served.let_pass(5.0)  # who comes late has not waited
    assert (await asks("/v1/runs/demo/nodes/0/watch?after=0")).status == 200
    assert value(measured(served), "rdzv_watch_seconds_count") == 2
    assert value(measured(served), "rdzv_watch_seconds_sum") < 1.0


async def test_a_slow_disk_shows_in_commits_and_in_what_waits_for_them(served: Served) -> None:
    app = make_app(served.service, allowed_hosts=[SERVER_NAME])
    await served.create(DEMO, 2)
    before = value(measured(served), "rdzv_journal_commit_seconds_count")
    served.journal.open.clear()
    body = to_json(DEMO.join(0))
    join = asyncio.create_task(ask(app, "POST", "/v1/runs/demo/nodes", DEMO.token(0), body))
    while len(served.journal.batches) == before:
        await asyncio.sleep(0.005)
    served.clock.seconds += 0.3
    served.journal.open.set()
    assert (await join).status == 200
    found = measured(served)
    assert value(found, "rdzv_journal_commit_seconds_count") == before + 1
    assert value(found, "rdzv_journal_commit_seconds_sum") == pytest.approx(0.3)
    assert value(found, "rdzv_journal_commit_rows_sum") == 2
    assert value(found, "rdzv_join_seconds_bucket", le="0.1") == 0
    assert value(found, "rdzv_join_seconds_bucket", le="0.5") == 1
    assert value(found, "rdzv_join_seconds_sum") == pytest.approx(0.3)


async def test_a_loop_that_was_held_up_shows_how_long(served: Served) -> None:
    while not value(measured(served), "rdzv_loop_lag_seconds_count"):
        await asyncio.sleep(0.005)
    await served.clock.jump(4.0)
    while not (lag := value(measured(served), "rdzv_loop_lag_seconds_sum")):
        await asyncio.sleep(0.005)
    assert lag == pytest.approx(4.0, abs=0.1)


# --- who may read it ------------------------------------------------------------------------------


async def test_it_opens_this_and_nothing_else_and_by_any_host_name(served: Served) -> None:
    asks = functools.partial(
        ask, make_app(served.service, allowed_hosts=["registry"]), credential=CREDENTIAL
    )
    answer = await asks("GET", "/metrics")  # the name is not among the allowed ones
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert parsed(answer.body.decode(), FAMILIES)
    assert (await asks("GET", "/v1/runs")).problem == (400, "bad_request")
    asks = functools.partial(
        ask, make_app(served.service, allowed_hosts=[SERVER_NAME]), credential=CREDENTIAL
    )
    assert (await asks("GET", "/v1/runs")).problem == (403, "forbidden")


async def test_without_a_credential_any_host_name_learns_nothing(served: Served) -> None:
    app = make_app(served.service, allowed_hosts=["registry"])
    assert (await ask(app, "GET", "/metrics")).problem == (401, "unauthorized")
    page = [(b"origin", b"https://example.com")]
    answer = await ask(app, "GET", "/metrics", CREDENTIAL, headers=page)
    assert answer.problem == (403, "forbidden")


def test_a_scrape_passes_where_there_is_no_room_for_a_node(served: Served) -> None:
    passes = asks_what_is_wrong(served.service)

    def shown(text: str) -> bool:
        header = (b"authorization", f"Bearer {text}".encode())
        return passes(scope_of("GET", "/metrics", [header], "10.0.0.1"))

    other = metrics_credential(DEMO.keys.admin.sha256())
    assert [shown(one.text()) for one in (CREDENTIAL, OPERATOR, other)] == [True, True, False]


async def test_what_happens_twice_counts_twice(served: Served) -> None:
    await started(served)
    counters = served.service.counters
    counted = {name: counters[name] for name in ("joins", "reports", "refusals")}
    assert counted == {"joins": 2, "reports": 4, "refusals": 0}
    commits, events = counters["commits"], counters["events"]
    assert commits > 2
    assert events == len(await served.journal.read(DEMO.run))


async def test_a_run_that_is_read_again_counts_no_start_twice(served: Served) -> None:
    await started(served)
    served.journal.is_full = True
    report = ProgressReport(epoch=1, words="loading")
    for _ in range(2):
        with pytest.raises(StorageFull):
            await served.report(DEMO, 1, report)
    served.journal.is_full = False
    await served.report(DEMO, 1, report)
    assert value(measured(served), "rdzv_gang_start_seconds_count", start="first") == 1

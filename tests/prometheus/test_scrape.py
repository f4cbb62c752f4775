"""A real Prometheus reads a real registry, by the job that the documentation shows."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.ui import prometheus as of_page
from rendezvous.prometheus import Family, Histogram
from rendezvous.registry import prometheus as of_registry
from tests.support.exposition import queries_of_dashboard
from tests.support.launching import Launched, launching, rdzv, shell
from tests.support.nightly import at_night
from tests.support.page_process import page_of
from tests.support.waiting import until

pytestmark = [pytest.mark.schedulers("prometheus", "promtool"), pytest.mark.timeout(120)]

PAGE = (Path(__file__).parents[2] / "docs" / "prometheus.md").read_text(encoding="utf-8")
JOB, ALERTS, OF_PAGE = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
[QUESTIONS] = re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
QUERIES = [line for line in QUESTIONS.splitlines() if not line.startswith("#")]
OFTEN = "global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n"
PLAIN = re.sub(r"    tls_config:\n(      .*\n)+", "", JOB).replace("https", "http")

RUN = "llama-7b"
STARTED = 'rdzv_gang_start_seconds_count{start="first"}'


class Prometheus:
    """One that runs, asked as a dashboard asks it."""

    def __init__(self, port: int, log: Path) -> None:
        self._port = port
        self._log = log

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that a query gives; raises HTTPError for one that cannot be read."""
        words = urllib.parse.urlencode({"query": query})
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{words}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def value(self, query: str) -> float | None:
        """The value of the one series; None while there is none, or nobody answers."""
        try:
            found = self.ask(query)
        except OSError:
            return None
        return float(found[0]["value"][1]) if found else None

    def wait_for(self, query: str, value: float) -> None:
        """Until the query has this value."""
        try:
            until(lambda: self.value(query) == value)
        except AssertionError:
            raise AssertionError(
                f"{query} is {self.value(query)}:\n{self._log.read_text()}"
            ) from None


@contextmanager
def prometheus(folder: Path, job: str) -> Iterator[Prometheus]:
    """A Prometheus with this job, in the folder of its files."""
    config, log = folder / "prometheus.yml", folder / "log"
    config.write_text(OFTEN + job)
    subprocess.run(["promtool", "check", "config", config], check=True, stdout=subprocess.DEVNULL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*argv, f"--web.listen-address=127.0.0.1:{port}"], stdout=said, stderr=said
        )
    try:
        yield Prometheus(port, log)
    finally:
        process.terminate()
        process.wait(20)


def of_registry_of(launched: Launched, job: str, folder: Path) -> str:
    """The job with the launch's target; its files are put where the documentation has them put."""
    place = json.loads((launched.folder / "launch.json").read_text())["place"]
    assert "10.0.0.1:29600" in job
    (folder / "rdzv-token").write_text(rdzv(launched.state, "token", "metrics", RUN))
    if (certificate := launched.folder / "certificate.pem").exists():
        (folder / "rdzv.pem").write_bytes(certificate.read_bytes())
    return job.replace("10.0.0.1:29600", f"{place['a'][0]}:{place['p']}")


@pytest.mark.parametrize(
    ("scheduler", "job"), [("manual", JOB), at_night("local", PLAIN)], ids=["tls", "plain"]
)
def test_a_launch_is_scraped_by_its_address_with_the_token(
    scheduler: str, job: str, tmp_path: Path
) -> None:
    options = ("--nnodes", "1", "--framework", "command", "--scheduler", scheduler)
    state = tmp_path / "state"
    with launching(state, *options, run=RUN, command=shell("sleep 100")) as launched:
        launched.wait_for_phase("running")
        assert (launched.folder / "certificate.pem").exists() == (scheduler == "manual")
        with prometheus(tmp_path, of_registry_of(launched, job, tmp_path)) as one:
            one.wait_for('up{job="rdzv"}', 1)
            one.wait_for(STARTED, 1)
            [start] = one.ask('sum by (start) (rdzv_start_seconds_sum{phase="gathering"})')
            assert start["metric"] == {"start": "first"}
            assert 0 < float(start["value"][1]) < 60
            [running] = one.ask("rdzv_run_phase_seconds")
            assert (running["metric"]["run"], running["metric"]["phase"]) == (RUN, "running")
            assert (one.value("rdzv_connections") or 0) >= 2  # its own, and the node's
            for query in (*QUERIES, *queries_of_dashboard()):
                one.ask(query)
        rdzv(state, "cancel", RUN)
        launched.finish()


@pytest.mark.nightly
def test_a_page_is_scraped_with_the_key_in_its_state_folder(tmp_path: Path) -> None:
    options = ("--nnodes", "1", "--framework", "command")
    state = tmp_path / "state"
    with launching(state, *options, run=RUN, command=shell("sleep 100")) as launched:
        launched.wait_for_phase("running")
        with page_of(state, run=RUN) as page:
            assert "localhost:29610" in OF_PAGE
            job = OF_PAGE.replace("localhost:29610", urllib.parse.urlsplit(page.base).netloc)
            (tmp_path / "ui-metrics-key").write_bytes((state / "ui-metrics-key").read_bytes())
            with prometheus(tmp_path, job) as one:
                one.wait_for('up{job="rdzv-runs"}', 1)
                one.wait_for(f'rdzv_run_phase{{run="{RUN}",phase="running"}}', 1)
                one.wait_for(f'sum(rdzv_run_phase{{run="{RUN}"}})', 1)
                one.wait_for(f'rdzv_nodes{{run="{RUN}",state="running"}}', 1)
        rdzv(state, "cancel", RUN)
        launched.finish()


@pytest.mark.parametrize(
    "families",
    [of_registry.FAMILIES, (*of_page.FAMILIES, *of_page.FAMILIES_BY_RANK)],
    ids=["registry", "page"],
)
def test_the_names_are_as_prometheus_wants_them(families: tuple[Family, ...]) -> None:
    text = "".join(f.text([(("x",) * len(f.labels), value_of(f))]) for f in families)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


QUIET = {"rdzv_replicas": 3.0, "rdzv_replica_silent_seconds": 0.2, "rdzv_commit_wait_seconds": 0.0}
"""What three replicas show while all is well."""
FIRES = {
    "RdzvReplicaMissing": ("rdzv_replicas", 2.0),
    "RdzvJournalAway": ("rdzv_replica_silent_seconds", 12.0),
    "RdzvNothingCommitted": ("rdzv_commit_wait_seconds", 4.0),
}


@pytest.mark.parametrize("alert", [*FIRES, ""])
def test_each_alert_of_the_page_fires_for_its_own_fault_alone(alert: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(ALERTS)
    values = QUIET | dict([FIRES[alert]] if alert else [])
    series = [
        {"series": f'{name}{{instance="{one}"}}', "values": f"{number}x20"}
        for name, number in values.items()
        for one in "abc"
    ]
    tests = [
        {"eval_time": "5m", "alertname": name, "exp_alerts": [{}] if name == alert else []}
        for name in FIRES
    ]
    case = {"interval": "15s", "input_series": series, "alert_rule_test": tests}
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": [case]}))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def value_of(family: Family) -> float | Histogram:
    """Any value that such a family may have."""
    return Histogram((1.0,)) if family.kind == "histogram" else 1

"""Prometheus' text, read by Prometheus' own client."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rendezvous.prometheus import Family

DASHBOARD = Path(__file__).parents[2] / "specs" / "grafana.json"


def parsed(text: str, declared: Iterable[Family] = ()) -> dict[str, Metric]:
    """The families by name, as a table calls them; each has a type and a help, and stands once.

    With a table: they are as it declares them, labels included.
    """
    assert text.endswith("\n")
    found = {}
    for metric in text_string_to_metric_families(text):
        name = metric.name + "_total" * (metric.type == "counter")
        assert metric.type in ("counter", "gauge", "histogram"), name
        assert metric.documentation, name
        assert name not in found
        assert metric.samples, name
        keys = [(one.name, *sorted(one.labels.items())) for one in metric.samples]
        assert len(keys) == len(set(keys)), name
        found[name] = metric
    assert text.count("# HELP ") == text.count("# TYPE ") == len(found)
    known = {family.name: family for family in declared}
    for name, metric in found.items() if known else ():
        family = known[name]
        assert (metric.type, metric.documentation) == (family.kind, family.help)
        for one in metric.samples:
            assert one.labels.keys() - {"le"} == {*family.labels}, name
    return found


def value(found: dict[str, Metric], sample: str, **labels: str) -> float:
    """The one value with these labels; the name is a sample's, as `rdzv_join_seconds_count`."""
    [one] = [
        one.value
        for metric in found.values()
        for one in metric.samples
        if one.name == sample and one.labels == labels
    ]
    return one


def queries_of_dashboard() -> list[str]:
    """What the dashboard asks Prometheus, as Grafana would send it."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    return [query.replace("$__rate_interval", "1m") for query in queries]

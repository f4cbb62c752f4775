"""Metrics: values that a run's program sends, such as its step and its loss."""

from __future__ import annotations

from rendezvous.feature import Feature, Lazy, Published

FILE = "metrics.jsonl"
"""What the programs have sent, in the run's folder, a row a line."""

TOPIC = Published(
    name="metrics",
    path="metrics",
    message=Lazy("features.metrics.wire:MetricBatch"),
    reply=Lazy("features.metrics.wire:MetricReply"),
    query=Lazy("features.metrics.registry:MetricQuery"),
    response=Lazy("features.metrics.wire:RunMetrics"),
    store=Lazy("features.metrics.registry:Store"),
    interval=1.0,
    rate=500,
    counts="Rows of metrics that programs sent.",
)

FEATURE = Feature(
    name="metrics",
    doc="metrics.md",
    files=("rdzv/metrics.py", "examples/rdzv_metrics.py"),
    topics=(TOPIC,),
    node=Lazy("features.metrics.node:run"),
    run_files=(FILE,),
    launcher=Lazy("features.metrics.launcher:run"),
    commands={"replay": Lazy("features.metrics.command:metrics")},
    status=Lazy("features.metrics.view:Status"),
    page=Lazy("features.metrics.page:Part"),
    script="page.js",
)

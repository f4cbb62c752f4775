"""Hang: where the ranks are when nothing moves, and which of them the others wait for."""

from __future__ import annotations

from rendezvous.feature import Asked, Feature, Lazy, Published

LOOKS = Asked(
    name="looks",
    answer=Lazy("features.hang.wire:LookReport"),
    response=Lazy("features.hang.wire:RunLook"),
    scope="look",
    noun="look",
    counts="Requests to look where all ranks of a run are.",
)
QUIET = Published(
    name="quiet",
    path="quiet",
    message=Lazy("features.hang.wire:QuietReport"),
    store=Lazy("features.hang.registry:Quiet"),
    interval=30.0,
    between_watches=True,
)

FEATURE = Feature(
    name="hang",
    doc="look.md",
    topics=(LOOKS, QUIET),
    options=Lazy("features.hang.options:Options"),
    spec=Lazy("features.hang.options:spec"),
    switch="stall",
    judge=Lazy("features.hang.judge:Judge"),
    node=Lazy("features.hang.node:run"),
    page=Lazy("features.hang.page:Part"),
    script="page.js",
    commands={"ui": Lazy("features.hang.command:look")},
    codes={89: "nothing moved any more on any node for as long as '--stall-timeout' allows"},
    locates="rdzv look {run}",
)

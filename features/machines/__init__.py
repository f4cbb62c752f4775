"""Machines: what each node's machine is, and how busy it is while the program runs."""

from __future__ import annotations

from rendezvous.channel import Published
from rendezvous.feature import Feature, Lazy, View

FILE = "machines.json"
"""The machines as they were last, in the run's folder."""

TOPIC = Published(
    name="machines",
    sent="machine",
    message=Lazy("features.machines.wire:MachineSample"),
    shown=Lazy("features.machines.wire:RunMachines"),
    keep=Lazy("features.machines.registry:Kept"),
    every=30.0,
    a_second=30,
    between_watches=True,
)

FEATURE = Feature(
    name="machines",
    topics=(TOPIC,),
    keeps=(FILE,),
    node=Lazy("features.machines.node:run"),
    launcher=Lazy("features.machines.launcher:run"),
    views={
        "machines": View(
            help="Show each node's machine: CPUs, memory, disks, GPUs and versions.",
            show=Lazy("features.machines.view:show_machines"),
        )
    },
    page=Lazy("features.machines.page:Part"),
    script="page.js",
)

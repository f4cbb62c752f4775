"""Machines: what each node's machine is, and how busy it is while the program runs."""

from __future__ import annotations

from rendezvous.feature import Feature, Lazy, Published, View

FILE = "machines.json"
"""The machines as they were last, in the run's folder."""

TOPIC = Published(
    name="machines",
    path="machine",
    message=Lazy("features.machines.wire:MachineSample"),
    response=Lazy("features.machines.wire:RunMachines"),
    store=Lazy("features.machines.registry:Store"),
    interval=30.0,
    rate=30,
    between_watches=True,
)

FEATURE = Feature(
    name="machines",
    topics=(TOPIC,),
    run_files=(FILE,),
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

"""A driver of Ray: waits for all nodes, and has a task run on each."""

from __future__ import annotations

import os
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(log_to_driver=False)
while len(nodes := [one for one in ray.nodes() if one["Alive"]]) < int(os.environ["NNODES"]):
    time.sleep(0.1)


def where() -> str:
    return os.environ["RDZV_NODE_ADDRESS"]


task = ray.remote(where)
on = [NodeAffinitySchedulingStrategy(one["NodeID"], soft=False) for one in nodes]
found = [task.options(num_cpus=1, scheduling_strategy=one).remote() for one in on]
print("RAY", *sorted(ray.get(found)))

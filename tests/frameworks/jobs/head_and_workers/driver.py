"""A driver of Ray: waits for all nodes, and has a task run on each."""

import os
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(log_to_driver=False)
while len(nodes := [one for one in ray.nodes() if one["Alive"]]) < int(os.environ["NNODES"]):
    time.sleep(0.1)


@ray.remote(num_cpus=1)
def where():
    return os.environ["RDZV_NODE_ADDRESS"]


on = [NodeAffinitySchedulingStrategy(one["NodeID"], soft=False) for one in nodes]
print("RAY", *sorted(ray.get([where.options(scheduling_strategy=one).remote() for one in on])))

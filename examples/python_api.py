"""Launch runs from Python, and follow them: two learning rates at once, each on two nodes.

    python examples/python_api.py

All nodes are on this machine. Elsewhere add scheduler="slurm", or hostlist=["n1", "n2"]. Needs rdzv
and nothing else; docs/python.md has all that is used here.
"""

import sys
import time

import rdzv
from rdzv import metrics

STEPS = 20


def train(me: rdzv.Rank, rate: float) -> None:
    """What each rank does, in place of a model: it finds the least of (x - rank) squared."""
    if me.restarts:
        print(f"restart {me.restarts} of {me.max_restarts}: {me.last_failure}", flush=True)
    x = 10.0
    for step in range(STEPS):
        if me.notice:  # this machine, or another of the run, is taken away
            sys.exit("save a checkpoint here")
        x -= rate * 2 * (x - (me.rank or 0))
        metrics.send(step, loss=(x - (me.rank or 0)) ** 2)  # rdzv metrics RUN --plot loss.png
        time.sleep(0.01)
    print(f"loss {(x - (me.rank or 0)) ** 2:.6f}", flush=True)


def main() -> None:
    """What you start: it launches this same file on the nodes."""
    runs = {
        rate: rdzv.launch(
            [__file__, rate],
            nnodes=2,
            framework="env",  # one process for each rank; without it, torchrun
            max_restarts=1,
            options={"join_timeout": 60},
            on_output=lambda line: None,  # the logs keep it
        )
        for rate in (0.01, 0.3)
    }
    for rate, run in runs.items():
        result = run.wait(timeout=120, check=True)  # raises rdzv.RunFailed, with the first cause
        print(f"rate {rate}: {result.message}")
        for node in run.table():
            (loss,) = run.logs(node=node.node, lines=1)
            print(f"  node {node.node} at {node.address}: {loss}")


if __name__ == "__main__":
    rank = rdzv.current()  # None outside of a run
    if rank:
        train(rank, float(sys.argv[1]))
    else:
        main()

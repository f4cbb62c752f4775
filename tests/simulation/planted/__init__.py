"""Bugs that are planted in the product, each of which the simulator must catch.

`python -m tests.simulation --bugs` looks for a schedule that shows each of them, and writes it into
`seeds.json`, where `test_planted` finds it. Each file has those of a part of the product.
"""

from __future__ import annotations

from tests.simulation.planted import launcher, nodes, registry, run_arming, run_ending, run_joining
from tests.simulation.planting import by_name

BUGS = by_name(
    *launcher.BUGS,
    *nodes.BUGS,
    *registry.BUGS,
    *run_joining.BUGS,
    *run_arming.BUGS,
    *run_ending.BUGS,
)

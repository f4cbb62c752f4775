"""A seeded simulator: the real registry on a virtual clock, among nodes that die and come back.

    python -m tests.simulation --schedules 5000

What is real: `rendezvous.server.service` with everything under it (sequencer, journal commits,
recovery, leases, admission, the state machine, the views) and the parsing and access checks of the
calls of nodes. What is simulated: clock, network, disk, nodes, launchers, schedulers.

Words
  schedule    An explicit list of plain values: what is launched, and which faults happen when. It
              is made from a seed, can be written down as JSON, shortened, and run again.
  machine     A process: it can be paused (and then goes on, not knowing), or killed at any await.
  history     What really happened, written down by the simulator: the registry is judged by it.
  invariant   A sentence that must hold; a schedule fails with the name of the one that did not.
"""

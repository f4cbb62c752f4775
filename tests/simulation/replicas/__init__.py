"""A seeded simulator of a registry's replicas on one journal, on a virtual clock, among faults.

    python -m tests.simulation.replicas --schedules 5000

What is real: service, sequencer, replica, membership, doors, retention, recovery and the state
machine. What is simulated: the engine that they share and the way to it, their clocks, the network
between them and the nodes, and the nodes themselves, which say what an agent would say.

Words (see also `tests.simulation`)
  host        A place with an address; one process of a replica after the other is on it.
  shadow      What the journal implies of a run at the moment: what is told is judged by it.
"""

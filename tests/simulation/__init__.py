"""A seeded simulator: the registry and the agents that ship, on a virtual clock, among faults.

    python -m tests.simulation --schedules 5000

What is real: the registry from its ASGI application on (guard, routes, access, service, journal
commits, recovery, leases, the state machine), the client with its dialling and repeated requests,
and the agent and the launch with their machines and shells. What is simulated: clock, randomness,
network, disk, sensors, hosts file, ports, programs, schedulers.

Words
  schedule    An explicit list of plain values: what is launched, and which faults happen when. It
              is made from a seed, can be written down as JSON, shortened, and run again.
  machine     A process: it can be paused (and then goes on, not knowing), or killed at any await.
  epoch       The programs of one go, and what was decided of them; a schedule may have several.
  history     What really happened, written down by the simulator: the registry is judged by it.
  invariant   A sentence that must hold; a schedule fails with the name of the one that did not.
"""

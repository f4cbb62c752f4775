"""What the nodes' facts and probes show, and who is to blame where something is wrong.

It judges values, and knows no run: `rendezvous.run.rounds` and `rendezvous.protocol` act on it.
"""

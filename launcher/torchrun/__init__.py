"""torchrun's rendezvous: the helper of a torchrun whose backend is rdzv, and the registry's host.

`rdzv.torchrun` is what torchrun loads. It starts `node_process`, which takes part in the run as any
node's agent does, but starts no program: the torchrun that runs already is it (`program`). Where
the endpoint is on this machine it starts `host_process`, a launch without nodes of its own, which
outlives the torchrun that has started it.
"""

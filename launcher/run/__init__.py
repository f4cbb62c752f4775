"""Commands of `rdzv` that start, serve, ask or end something.

command          `rdzv launch`: prepare, take the run's folder, launch, say how it ended
bench            `rdzv bench`: a launch that measures the networks
serve, tenants   `rdzv serve`: a standing registry, and its teams
requests         a restart or a drain that a person asks of a run
cancel           `rdzv cancel`: a run of this machine, and what a killed launcher has left
at_registry      the same, and status and logs, of a run that was launched elsewhere
try_scheduler    `rdzv try-scheduler`: whether a profile does what a launch needs
"""

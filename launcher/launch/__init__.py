"""The live launch, from what a former one left behind to the last worker run's end.

launch         the way of a launch, from top to bottom: start reading here
recovery       what a former launch left: taken up again, or ended
context_maker  what it begins on: the former registry, or a new one with new keys
registry       the registry's process, and requests that are repeated until it answers
following      the run's status and events, from its creation until its nodes have left
run_files      what is kept of a run for when its registry is gone
worker_runs    which worker runs are wanted, replaced and ended
slot_run       the worker runs that are known, and of which slot each is
run_view       which slots the run goes without (pure)
lifecycle      one worker run: announced, submitted or adopted, described until it is over
hosts          the host on which each worker run starts
background     tasks that live no longer than their launch
"""

"""The live launch, from what a former one left behind to the last worker run's end.

launch        the way of a launch, from top to bottom: start reading here
recovery      what a former launch left: taken up again, or ended
context       one launch as its registry and its worker runs know it: place, keys, plan
registry      the registry's process, and requests that are repeated until it answers
following     the run's status and events, from its creation until its nodes have left
keeping       what is kept of a run for when its registry is gone
worker_runs   which worker runs are wanted, replaced and ended
run_view      which slots the run goes without (pure)
lifecycle     one worker run: announced, submitted or adopted, described until it is over
hosts         the host on which each worker run starts
ending        the end of a worker run, confirmed by its scheduler
result        the result, with what only the launcher knows
background    tasks that live no longer than their launch
environment   the outer world, which the simulator replaces
port          the launch as the parts of features see it
"""

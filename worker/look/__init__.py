"""What rdzv brings into the user's own Python processes, so that each rank can be seen by itself,
and what asks it.

`site` is a folder on the program's PYTHONPATH, in front of the user's; nothing else of rdzv is
there. `answering` is run by it in a rank. The others are the agent's: `ranks` finds the processes
of a node's ranks and asks them, for the core and for features.
"""

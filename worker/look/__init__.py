"""What rdzv brings into the user's own Python processes, so that each rank can be seen by itself,
and what asks it.

`site` is a folder on the program's PYTHONPATH, in front of the user's; nothing else of rdzv is
there. `answering` and `noting` are run by it in a rank. The others are the agent's: `asking` asks
the ranks of its node, for the core and for features, and `worlds` reads what they have noted.
"""

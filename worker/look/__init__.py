"""What rdzv brings into the user's own Python processes, so that each rank can be seen by itself,
and what sees it.

`site` is a folder on the program's PYTHONPATH, in front of the user's; nothing else of rdzv is
there. `answering` is run by it in a rank. The others are the agent's: `collect` looks at all ranks
of a node, and a look is one report.
"""

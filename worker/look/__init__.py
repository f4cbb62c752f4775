"""What rdzv brings into the user's own Python processes, so that each rank can be seen by itself.

`site` is a folder on the program's PYTHONPATH, in front of the user's; nothing else of rdzv is
there.
"""

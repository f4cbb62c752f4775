"""What a node looks at when a rank of its program has failed: its kernel, files and devices.

`look.look_before` notes the counters when the program starts, and `look.look_after` tells the facts
at its failure. What cannot be read is not told.
"""

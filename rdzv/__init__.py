"""rdzv brings the nodes of one training job together; `rdzv --help` is its command.

What a training program may import lives here: standard library only, and nothing of the rest.
"""

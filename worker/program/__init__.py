"""A program and all that it started, until nothing of it is left."""

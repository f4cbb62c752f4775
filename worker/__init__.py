"""One node of a run: what it offers, checks, writes and starts, and how it ends all of it."""

"""The run as a state machine: its state, what happens to it, and what it looks like. Pure."""

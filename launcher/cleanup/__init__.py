"""The end of worker runs: of a launch's own, and of those that a former launch has left.

endings  the end of a worker run, confirmed by its scheduler
orphans  what a former launch has left, by its ledger
"""

"""The page on which people see a run, and the process that serves it."""

"""What a failure came of, told from what the nodes have seen.

- *Evidence* is what a node has seen of the end of its program: how its ranks ended, *clues* (lines
  of their output) and *facts* (what the kernel, a file system or a device says).
- A *cause* is a row of one table, with what is said of it and what to do.
- A *consequence* is what a rank suffers when another one has failed or does not come. It is never
  the cause as long as something else may be.
"""

"""Remote commands: `rdzv rsh HOST COMMAND`, from the agents' side.

    program -> rsh -> its agent -> registry -> the agent of HOST -> sh -c COMMAND

- `names` says which node is meant by HOST.
- `exchange` carries frames between agents: the registry's relay, asked by long polls.
- `calls` is the caller's side of a command, `served` the target's.
- `remote` holds both for one node and knows what is allowed.

A frame may get lost, when the registry is started again, and may come twice. So a command has a
number, a piece of output its place, and who is not answered tells again: nothing is run twice, and
no output is doubled or missing.
"""

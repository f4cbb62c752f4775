"""The registry of a run, and how to talk to it.

Words:

- A *run* is one training job, named by its RDZV_ID; its *launch id* tells two launches apart.
- A *slot* is a place in the run that a worker run fills; its *generation* counts submissions.
- A *node* is the machine that fills a slot; its *incarnation* counts the slot's accepted joins.
- The *endpoint table* lists number, slot, hostname, address and processes of each node. It is
  sealed once in an *epoch* and named by its SHA-256 *digest*.

Guarantees:

- *All or none.* No node starts its program before every node of the table has acknowledged the
  digest of that same table.
- *One holder.* A slot has one live incarnation; what an older one says changes nothing.
- *Durable before told.* What anybody was answered, or told, survives a crash of the registry.
- *Nobody dies of our downtime.* A registry that was stopped or restarted gives every lease a full
  term again.
- *An end, with its first cause.* Every run ends, and every wait has a reason in words.
"""

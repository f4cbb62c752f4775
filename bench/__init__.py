"""How fast a run comes together, beside the peers: `python -m bench` (= `make bench`).

`last_to_all`
    n-1 nodes wait; from the moment the last one arrives until every node has its result.
`assembly`
    All n nodes arrive together; from that moment until every node has its result.
`verify`
    As `last_to_all`, with real probes among all nodes: until all have a table of proven addresses.
`go`
    The last node arrives, until every node has heard that all have acknowledged (rdzv alone).

A round's figure is the slowest node's. A node of rdzv *has its result* when it has received the
table and checked it against its digest; it acknowledges at once, as an agent does, so that the
acknowledgements of the first nodes compete with the tables of the last. A node of c10d has its
result when torchrun would start its workers; one of the bare TCPStore when it has read all rows.
In all systems connections are open before the clock starts, where a row does not say otherwise.
"""

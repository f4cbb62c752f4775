"""How fast a run comes together, beside the peers: `python -m bench` (= `make bench`).

`table`
    n-1 nodes wait; from the moment the last one arrives until every node has the table.
`go`
    The same, until every node has heard that all have acknowledged (rdzv alone).
`verify`
    As `table`, with real probes among all nodes: until all have a table of proven addresses.
`assembly`
    All n nodes arrive together, with connections that they open then.

A round's figure is the slowest node's. A node of rdzv has the table when it has received it and
checked it against its digest; it acknowledges immediately, as an agent does, so that the
acknowledgements of the first nodes compete with the tables of the last. A node of c10d has it when
torchrun would start its workers; one of the bare TCPStore when it has read all rows. In all systems
connections are open before the clock starts, where a row does not say otherwise.
"""

from rdzv_command import install_features

install_features()

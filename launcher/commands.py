"""What each node of a planned run would start: for the dry run, and to refuse what cannot be.

The nodes' addresses and the port come with the sealed table; until then they are <words>. Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from launcher.plan import Plan, loopback_address
from rendezvous.schema import EndpointTable, TableRow, printable
from worker.contracts import BENCH_PROGRAM, Contract, Paths, make_contract
from worker.variables import Wishes

# What stands for the words until the line is made: quoting leaves these as they are.
_ADDRESS, _PORT, _LOGS, _PYTHON = "198.18.0.0", 990_000_000, "/-logs-", "-python-"
_PLACED = re.compile(r"198\.(?P<high>1[89])\.(?P<mid>\d+)\.(?P<low>\d+)|99(?P<port>\d{7})\b")
_RDZV = BENCH_PROGRAM.removesuffix("worker/programs/bandwidth.py")
_MOST_SHOWN = 8
"""Up to so many nodes, the dry run shows each one's command."""


def check_start(plan: Plan) -> None:
    """Refuse what no node could start, before anything is submitted.

    Raises:
        UsageError: COMMAND cannot be started like this, or not on these nodes.
    """
    _contract(plan, _table(plan), 0)


def command_lines(plan: Plan) -> Iterator[str]:
    """The lines of the dry run. Raises UsageError."""
    table, last = _table(plan), plan.max_nodes - 1
    ranks = range(plan.max_nodes) if last < _MOST_SHOWN else (0, 1, last)
    contracts = {rank: _contract(plan, table, rank) for rank in ranks}
    yield "# each node then starts:"
    before = -1
    for rank, contract in contracts.items():
        if rank > before + 1:
            yield f"#   nodes {before + 1} to {rank - 1}: alike"
        words = _shown(shlex.join(contract.argv)) or "nothing: it serves node 0 ('rdzv rsh')"
        yield f"#   node {rank}: {words}"
        before = rank
    for one in contracts[0].explained:
        if one.by_framework and one.kept is None:
            value = printable(_shown(shlex.quote(one.value)), 400)
            yield f"#     {one.name}={value}  # {one.reason}"
    if any(not word.isdigit() for word in plan.settings.nproc_per_node.split(",")):
        yield "# (with 1 process a node: how many there are is counted on the node)"


def _contract(plan: Plan, table: EndpointTable, rank: int) -> Contract:
    settings = plan.settings
    wishes = Wishes(tf_chief=settings.tf_chief, tf_ps=settings.tf_ps, grace_seconds=settings.grace)
    return make_contract(
        plan.command,
        table,
        rank,
        plan.passed,
        framework=settings.framework,
        backend=settings.rdzv_backend,
        wishes=wishes,
        paths=Paths(f"{_LOGS}/node-{rank}", _PYTHON, f"{_LOGS}/node-{rank}/bin"),
    )


def _table(plan: Plan) -> EndpointTable:
    """The table as it may come to be, with what is not known marked."""
    rows = [_row(plan, rank) for rank in range(plan.max_nodes)]
    return EndpointTable(
        run=plan.run,
        launch_id=plan.launch_id,
        epoch=1,
        master_address=rows[0].address,
        master_port=plan.settings.master_port or _PORT,
        rows=rows,
    )


def _row(plan: Plan, rank: int) -> TableRow:
    nproc = plan.nproc_per_node(rank)
    mark = f"198.{18 + (rank >> 16)}.{rank >> 8 & 255}.{rank & 255}"
    return TableRow(
        rank=rank,
        slot=rank,
        hostname=f"slot {rank}",
        address=loopback_address(rank) if plan.loopback else mark,
        interface="-interface-",
        prefix_length=15,
        nproc_per_node=int(nproc) if nproc.isdigit() else 1,
        mac="",
    )


def _shown(text: str) -> str:
    """A line with the words in place."""
    text = text.replace(_LOGS, "<logs>").replace(_PYTHON, "python3").replace(_RDZV, "<rdzv>/")
    text = text.replace("-interface-", "<interface>").replace("198.18.0.0/15", "<network>")
    return _PLACED.sub(_word, text)


def _word(mark: re.Match[str]) -> str:
    if mark["port"] is not None:
        ahead = int(mark["port"])
        return f"<port+{ahead}>" if ahead else "<port>"
    rank = (int(mark["high"]) - 18) << 16 | int(mark["mid"]) << 8 | int(mark["low"])
    return f"<address of node {rank}>"

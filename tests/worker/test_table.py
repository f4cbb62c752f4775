"""Which tables a node may start on; what a lying registry makes of it is in tests/attack."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rendezvous.talk.credentials import RunKeys
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.talk.macs import row_mac
from rendezvous.wire.table import EndpointTable, TableRow
from tests.worker.test_hosts_plan import row as bare_row
from worker.agent.table import problem_of

KEYS = RunKeys(bytes(32), "llama", "launch0001")
ADDRESSES = ("10.0.0.4", "10.0.0.5", "10.0.0.6")


def join(slot: int = 1) -> JoinString:
    """What the node of a slot joined with."""
    place = RegistryPlace(("10.0.0.4",), 29_600)
    token = KEYS.join_token(slot, 1)
    return JoinString(place, KEYS.run, KEYS.launch_id, slot, 1, token, KEYS.row_key, KEYS.probe_key)


RANKS = (0, 2, 1)
"""By slot, and the slots by rank: what is of the one is not taken for the other."""


def row(slot: int, address: str, prefix_length: int = 24, *, node: int | None = None) -> TableRow:
    """A genuine row; its number is its slot where none is given."""
    made = bare_row(slot if node is None else node, f"n{slot}", address, slot=slot)
    return sealed(replace(made, prefix_length=prefix_length, nproc_per_node=8 - 3 * slot))


def sealed(row: TableRow, key: bytes = KEYS.row_key, generation: int | None = None) -> TableRow:
    mac = row_mac(row, key, run=KEYS.run, launch_id=KEYS.launch_id, generation=generation)
    return replace(row, mac=mac)


def table(*addresses: str, **changes: Any) -> EndpointTable:
    """A table of genuine rows, as a registry makes it."""
    addresses = addresses or ADDRESSES
    rows = [row(slot, addresses[slot], node=rank) for rank, slot in enumerate(RANKS)]
    ids = {"run": KEYS.run, "launch_id": KEYS.launch_id, "epoch": 1, "master_port": 29_500}
    return EndpointTable(**{**ids, "master_address": rows[0].address, "rows": rows, **changes})


def problem(
    given: EndpointTable, nnodes: str | None = "3", former: Any = None, **options: Any
) -> str:
    """What the node of slot 1 says of a table."""
    own = given.row_of_slot(1)
    offered = {own.mac if own else "", "another candidate"}
    return problem_of(given, join(), offered=offered, nnodes=nnodes, former=former, **options)


@pytest.mark.parametrize(
    ("given", "former"),
    [
        (table(), None),
        (table("fd00::4", "fd00::5", "fd00::6"), None),
        (table("127.0.0.1", "127.0.0.2", "127.0.0.3"), None),
        (table(epoch=2), table()),
        (table(), table()),
    ],
)
def test_a_table_as_a_registry_makes_it_is_taken(given: EndpointTable, former: Any) -> None:
    assert problem(given, former=former) == ""


@pytest.mark.parametrize(
    ("nnodes", "fits"),
    [(None, True), ("3", True), ("2:3", True), ("3:9", True), ("2", False), ("4:9", False)],
)
def test_a_table_has_as_many_rows_as_the_run_has_nodes(nnodes: str | None, fits: bool) -> None:
    said = problem(table(), nnodes)
    assert said == (
        "" if fits else f"the table has 3 rows, but this node was started with --nnodes {nnodes}"
    )


@pytest.mark.parametrize("slot", RANKS)
def test_the_own_row_is_that_of_the_own_slot_wherever_it_stands(slot: int) -> None:
    for other, made in ((one.slot, one.mac) for one in table().rows):
        said = problem_of(table(), join(slot), offered={made}, nnodes="3", former=None)
        assert bool(said) == (other != slot)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.5.5.5"])
def test_the_loopback_address_of_another_machine_is_refused(address: str) -> None:
    """It would lead this node to itself."""
    words = "the row of slot 0 and this node's are not both loopback addresses"
    assert problem(table(address, "10.0.0.5", "10.0.0.6")) == words


@pytest.mark.parametrize(
    "later", [table(master_port=29_501), table(epoch=0), table("10.0.0.7", "10.0.0.5", "10.0.0.6")]
)
def test_a_table_does_not_change_within_its_epoch(later: EndpointTable) -> None:
    assert problem(later, former=table()) == (
        f"the table of epoch {later.epoch} arrived after a different one of epoch 1"
    )


# ---- what no honest registry sends, in the words of the refusal ---------------------------------


def signed(key: bytes = KEYS.row_key, **changes: Any) -> TableRow:
    """A row of slot 0, whatever it says, signed with a key."""
    return sealed(replace(row(0, "10.0.0.4"), **changes), key)


def of_rows(*rows: TableRow) -> EndpointTable:
    return table(rows=list(rows), master_address=rows[0].address)


OWN = row(1, "10.0.0.5")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"run": "other"}, "the table belongs to run 'other', or to another launch of this run"),
        ({"run": "a\nb"}, "the table belongs to run 'a?b', or to another launch of this run"),
        (
            {"run": "r" * 64},
            f"the table belongs to run '{'r' * 62}…', or to another launch of this run",
        ),
        (
            {"launch_id": "launch02"},
            "the table belongs to run 'llama', or to another launch of this run",
        ),
        ({"master_address": "10.0.0.5"}, "the master is not node 0 of the table"),
        ({"master_port": 0}, "master port 0 is not a valid port"),
        ({"master_port": 65_536}, "master port 65536 is not a valid port"),
        *(({"master_port": port}, "") for port in (1, 65_535)),
    ],
)
def test_a_table_of_something_else_is_refused(changes: dict[str, Any], words: str) -> None:
    assert problem(table(**changes)) == words


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (signed(KEYS.probe_key), "was not written by its node"),
        (replace(signed(), address="6.6.6.6"), "was not written by its node"),
        (signed(hostname="a\nb"), "has no valid hostname: control characters are not allowed"),
        (signed(address="node0"), "has no valid address: not an IPv4 or IPv6 address"),
        (signed(address="FD00::1"), "has an address that is not in its usual form"),
        (signed(interface="e" * 254), "has no valid interface: String should have at most 253"),
        (signed(prefix_length=-1), "has no valid prefix_length: Input should be greater than"),
        (signed(prefix_length=129), "has no valid prefix_length: Input should be less than"),
        (signed(nproc_per_node=0), "has no valid nproc_per_node: Input should be greater than"),
        (signed(nproc_per_node=4097), "has no valid nproc_per_node: Input should be less than"),
        *((signed(prefix_length=n), "") for n in (0, 128)),
        *((signed(nproc_per_node=n), "") for n in (1, 4096)),
    ],
)
def test_a_row_that_no_node_can_have_made_is_refused(forged: TableRow, words: str) -> None:
    said = problem(of_rows(forged, OWN), "2")
    assert said.startswith(f"the row of slot 0 {words}") if words else said == ""


@pytest.mark.parametrize("ranks", [(1, 0), (0, 0), (0, 2), (1, 2)])
def test_ranks_that_are_not_each_once_and_in_order_are_refused(ranks: tuple[int, int]) -> None:
    rows = [replace(given, node=rank) for given, rank in zip((signed(), OWN), ranks, strict=True)]
    assert problem(of_rows(*rows), "2") == (
        "the ranks of the table are not 0 to 1, each once and in order"
    )


def test_a_slot_or_an_address_that_stands_there_twice_is_refused() -> None:
    again = replace(OWN, node=2)
    assert problem(of_rows(signed(), OWN, again)) == "the table contains a slot twice"
    twin = signed(address=OWN.address)
    assert problem(of_rows(twin, OWN), "2") == "the table contains an address twice"


def test_a_table_without_a_row_that_this_node_signed_is_refused() -> None:
    words = "the table does not contain this node as it joined"
    assert problem(of_rows(signed()), "1") == words
    assert problem(of_rows(signed(), replace(row(2, "10.0.0.6"), node=1))) == words
    assert problem_of(table(), join(), offered={"x"}, nnodes="3", former=None) == words


# ---- nodes that take each other's places --------------------------------------------------------


def replaced(*generations: int, epoch: int = 1, **changes: Any) -> EndpointTable:
    """A table whose rows are of these worker runs, in order of rank."""
    bare = table(epoch=epoch)
    rows = [sealed(row, generation=g) for row, g in zip(bare.rows, generations, strict=True)]
    made = bare.model_copy(update={"rows": rows, "generations": [*generations]} | changes)
    return EndpointTable.model_validate_json(made.canonical())


UNNAMED = "the table does not name the worker run of each row"
OLDER = "the table contains an older worker run of slot 2"


@pytest.mark.parametrize(
    ("given", "former", "words"),
    [
        (replaced(1, 1, 1), None, ""),
        (replaced(1, 2, 1, epoch=2), replaced(1, 1, 1), ""),
        (replaced(1, 2, 1, epoch=2), replaced(1, 2, 1), ""),
        (replaced(1, 2, 1, epoch=2), table(), ""),
        # Of one that was replaced nothing comes back, even where it was genuine once.
        (replaced(1, 1, 1, epoch=2), replaced(1, 2, 1), OLDER),
        (replaced(3, 4, 1, epoch=2), replaced(2, 5, 1), OLDER),
        (replaced(1, 1, 1, generations=[1, 2, 1]), None, "the row of slot 2 was not written by"),
        (replaced(1, 1, 2, rows=table().rows), None, "the row of slot 0 was not written by"),
        (replaced(1, 1, 2, generations=[1, 1]), None, UNNAMED),
        (replaced(1, 1, 2, generations=[]), None, UNNAMED),
        (replaced(1, 1, 2, generations=[1, 1, 2, 1]), None, UNNAMED),
    ],
)
def test_a_worker_run_that_was_replaced_does_not_come_back(
    given: EndpointTable, former: EndpointTable | None, words: str
) -> None:
    for fenced in (False, True):
        said = problem(given, former=former, of_generations=fenced)
        assert said.startswith(words) if words else said == ""


@pytest.mark.parametrize("former", [None, replaced(1, 1, 2, epoch=0)])
def test_a_table_as_older_registries_make_it_names_no_worker_run(former: Any) -> None:
    """It is taken as ever, but in a run that may replace nodes: it could hold a dead one."""
    older = EndpointTable.model_validate_json(table().canonical())
    assert b"generations" not in older.canonical()
    assert problem(older, former=former) == ""
    assert problem(older, former=former, of_generations=True) == UNNAMED
    without = replaced(1, 1, 2, generations=None)
    assert problem(without, former=former) == "the row of slot 0 was not written by its node"

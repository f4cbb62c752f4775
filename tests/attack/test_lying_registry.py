"""A registry that holds the true certificate and lies: real agents, real TLS, hostile tables.

Each lie is told to an agent of slot 1 (of two). Whatever becomes of its refusal, the registry then
says that the run goes on this table. The agent must start nothing, and leave its hosts file alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rendezvous.talk.certificate import make_certificate
from rendezvous.talk.credentials import RunKeys, new_secret
from rendezvous.talk.join_string import JoinString, RegistryPlace
from rendezvous.talk.macs import row_mac
from rendezvous.wire.node import JoinReply
from rendezvous.wire.run import Phase, Result
from rendezvous.wire.table import TableRow, canonical_json
from rendezvous.wire.watch import NodeView
from tests.attack.server import Request, serving, tls
from worker.hosts.text import is_valid_label

pytestmark = pytest.mark.real_time

PROGRAM = Path(__file__).parent / "programs" / "lied_to.py"
HOSTS = b"127.0.0.1 localhost\n# somebody's own line\n10.9.9.9 storage"
LAUNCH_ID = "launch0001"
ARMING_FAILED = 82
_MOST_POLLS = 100  # after a view that was read, and before its report

Table = dict[str, Any]
Row = dict[str, Any]


@dataclass
class Story:
    """One run of the lying registry: what its agent is told, and what it does."""

    run: str
    folder: Path
    secret: bytes
    views: Callable[[Story], list[bytes]]
    offered: Row = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    hosts_seen: list[bytes] = field(default_factory=list)
    made: list[bytes] = field(default_factory=list)
    told: int = 0
    polls: int = 0

    @property
    def keys(self) -> RunKeys:
        """The keys of the run, as its nodes have them."""
        return RunKeys(self.secret, self.run, LAUNCH_ID)

    def signed(self, keys: RunKeys | None = None, **values: Any) -> Row:
        """A row of slot 0, as a node that holds the row key would make it."""
        row: Row = {
            "rank": 0,
            "slot": 0,
            "hostname": "good",
            "address": "127.0.0.77",
            "interface": "lo",
            "prefix_length": 8,
            "nproc_per_node": 1,
        } | values
        keys = keys or self.keys
        made = TableRow.model_construct(**row)
        mac = row_mac(made, keys.row_key, run=keys.run, launch_id=keys.launch_id)
        return row | {"mac": mac}

    def table(self, *rows: Row, **changes: Any) -> Table:
        """A table; of an honest row of slot 0 and the agent's own, when no rows are given."""
        given = list(rows) or [self.signed(), self.offered]
        return {
            "run": self.run,
            "launch_id": LAUNCH_ID,
            "epoch": 1,
            "master_address": given[0]["address"],
            "master_port": 29_500,
            "rows": given,
        } | changes

    def hear(self, request: Request) -> bytes:
        """The answer to a request of the agent."""
        self.hosts_seen.append((self.folder / "hosts").read_bytes())
        if request.path.endswith("/nodes"):
            return self._joined(json.loads(request.body))
        if request.path.endswith("/reports"):
            self.reports.append(json.loads(request.body))
            self.told, self.polls = self.told + 1, 0
            return b'{"seq": 1}'
        if self.reports and self.reports[-1]["kind"] == "exit":
            return over()
        views = self.made
        self.polls += 1
        was_read = request.path.endswith(f"after={self.told + 1}")
        if self.polls > (_MOST_POLLS if was_read else 1):  # nothing will be reported
            self.told, self.polls = self.told + 1, 0
        if self.told >= len(views):  # whatever it was: the go
            return go(views[-1])
        if was_read and self.polls > 1:
            return quiet(self.told + 1)
        return views[self.told]

    def _joined(self, request: dict[str, Any]) -> bytes:
        candidate = request["candidates"][0]
        names = ("address", "interface", "prefix_length", "mac")
        self.offered = {name: candidate[name] for name in names} | {
            "rank": 1,
            "slot": 1,
            "hostname": request["hostname"],
            "nproc_per_node": request["nproc_per_node"],
        }
        # Now, as it may take its time: a poll whose answer is late is sent again.
        self.made = self.made or self.views(self)
        reply = JoinReply(
            credential="n.1.1." + "A" * 43,
            incarnation=1,
            epoch=1,
            seq=0,
            poll_seconds=0.1,
            nnodes=2,
            join_timeout_seconds=60,
            arm_timeout_seconds=60,
        )
        return reply.model_dump_json().encode()


def arming(table: Any, digest: str | None = None, seq: int = 1) -> bytes:
    """A view with a table that wants to be acknowledged; the digest fits, if none is given."""
    epoch = table.get("epoch", 1) if isinstance(table, dict) else 1
    view = {
        "seq": seq,
        "phase": "arming",
        "epoch": epoch if isinstance(epoch, int) else 1,
        "reason": "arming",
        "digest": digest or hashlib.sha256(_canonical(table)).hexdigest(),
        "table": table,
        "poll_seconds": 0.1,
    }
    return json.dumps(view).encode()


def _canonical(table: Any) -> bytes:
    return json.dumps(table, sort_keys=True, separators=(",", ":")).encode()


def go(view: bytes) -> bytes:
    """The go on the table of a view, whether it can be read or not."""
    try:
        digest = json.loads(view)["digest"]
    except (ValueError, RecursionError):
        digest = "0" * 64
    made = NodeView(
        seq=9, phase=Phase.RUNNING, epoch=1, reason="go", digest=str(digest), poll_seconds=0.1
    )
    return made.model_dump_json().encode()


def quiet(seq: int) -> bytes:
    """No news."""
    made = NodeView(seq=seq, phase=Phase.ARMING, epoch=1, reason="arming", poll_seconds=0.1)
    return made.model_dump_json().encode()


def over() -> bytes:
    """The end of a run."""
    result = Result(status="ok", exit_code=0, message="all ended")
    made = NodeView(seq=10, phase=Phase.FINISHED, epoch=1, reason="over", result=result)
    return made.model_dump_json().encode()


@dataclass(frozen=True)
class Lie:
    """What the registry says, and the words with which the agent refuses."""

    name: str
    words: str
    views: Callable[[Story], list[bytes]]


LIES: list[Lie] = []


def signed_row(**values: Any) -> Callable[[Story], Table]:
    """A table whose row of slot 0 says this, and is signed."""
    return lambda story: story.table(story.signed(**values), story.offered)


def changed_row(**values: Any) -> Callable[[Story], Table]:
    """A table whose row of slot 0 was changed after it had been signed."""
    return lambda story: story.table(story.signed() | values, story.offered)


def changed_table(**values: Any) -> Callable[[Story], Table]:
    """A table of genuine rows with other values around them."""
    return lambda story: story.table(**values)


def showing(make: Callable[[Story], Table]) -> Callable[[Story], list[bytes]]:
    """This table, once."""
    return lambda story: [arming(make(story))]


def once(make: Callable[[Story], bytes]) -> Callable[[Story], list[bytes]]:
    """This view, once."""
    return lambda story: [make(story)]


def lie(name: str, words: str) -> Callable[[Callable[[Story], Table]], None]:
    """The decorated function makes the table."""
    return lambda make: LIES.append(Lie(name, words, showing(make)))


def _add(name: str, words: str, make: Callable[[Story], Table]) -> None:
    LIES.append(Lie(name, words, showing(make)))


# What a registry can do that does not know the row key

FORGED = "the row of slot {} was not made by its node"

for _field, _value in [
    ("address", "10.6.6.6"),
    ("address", "127.0.0.78"),
    ("address", "169.254.169.254"),
    ("hostname", "storage"),
    ("hostname", "localhost"),
    ("hostname", "good\n6.6.6.6 github.com"),
    ("hostname", "good\t6.6.6.6"),
    ("hostname", "good#"),
    ("hostname", "good\0"),
    ("hostname", "göod"),
    ("interface", "eth0"),
    ("prefix_length", 24),
    ("nproc_per_node", 8),
    ("slot", 7),
    ("mac", ""),
    ("mac", "0" * 64),
    ("mac", "é" * 64),
    ("mac", "0"),
]:
    _add(
        f"a row with another {_field} {_value!r}",
        FORGED.format(_value if _field == "slot" else 0),
        changed_row(**{_field: _value}),
    )


@lie("a MAC in capitals", FORGED.format(0))
def _(s: Story) -> Table:
    row = s.signed()
    return s.table(row | {"mac": row["mac"].upper()}, s.offered)


@lie("the MAC of the agent's own row on the other row", FORGED.format(0))
def _(s: Story) -> Table:
    return s.table(s.signed() | {"mac": s.offered["mac"]}, s.offered)


@lie("a row that was signed with the key of another run", FORGED.format(0))
def _(s: Story) -> Table:
    return s.table(s.signed(RunKeys(s.secret, "other", LAUNCH_ID)), s.offered)


@lie("a row that was signed with the key of another launch of this run", FORGED.format(0))
def _(s: Story) -> Table:
    return s.table(s.signed(RunKeys(s.secret, s.run, "launch0002")), s.offered)


@lie("a row that was signed with a key of the registry's own", FORGED.format(0))
def _(s: Story) -> Table:
    return s.table(s.signed(RunKeys(new_secret(), s.run, LAUNCH_ID)), s.offered)


@lie("the row of another slot, under the number of this one", FORGED.format(0))
def _(s: Story) -> Table:
    return s.table(s.signed(slot=5) | {"slot": 0}, s.offered)


@lie("an invented third row", FORGED.format(2))
def _(s: Story) -> Table:
    third = s.signed() | {"rank": 2, "slot": 2, "address": "127.0.0.79"}
    return s.table(s.signed(), s.offered, third)


@lie("the agent's own row with another address", FORGED.format(1))
def _(s: Story) -> Table:
    return s.table(s.signed(), s.offered | {"address": "127.0.0.80"})


# What it can do together with a node that holds the row key

for _address, _why in [
    ("169.254.169.254", "link-local"),
    ("169.254.0.1", "link-local"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "zone"),
    ("fd00::1%1", "zone"),
    ("224.0.0.1", "multicast"),
    ("ff02::1", "multicast"),
    ("0.0.0.0", "unspecified"),
    ("::", "unspecified"),
    ("255.255.255.255", "broadcast"),
    ("::ffff:10.0.0.1", "::ffff:"),
    ("10.0.0.1\n6.6.6.6", "not an IPv4 or IPv6 address"),
    ("10.0.0.1 github.com", "not an IPv4 or IPv6 address"),
    ("10.0.0.1/8", "not an IPv4 or IPv6 address"),
    ("010.0.0.1", "not an IPv4 or IPv6 address"),
    ("localhost", "not an IPv4 or IPv6 address"),
    ("", "not an IPv4 or IPv6 address"),
    ("1" * 46, "at most 45 characters"),
    ("FD00::1", "not in its usual form"),
    ("fd00:0:0::1", "not in its usual form"),
    ("10.0.0.1", "not both loopback"),
    ("fd00::1", "not both loopback"),
]:
    _add(
        f"a signed row with the address {_address!r}",
        _why,
        signed_row(address=_address),
    )

for _name in ["a\nb", "a\tb", "a\0b", "a\x1b[2J", "a\u202eb", "a\u2028b", "a\x85b"]:
    _add(
        f"a signed row with the hostname {_name!r}",
        "has no valid hostname: control characters are not allowed",
        signed_row(hostname=_name),
    )

_add(
    "a signed row with a very long hostname",
    "has no valid hostname: String should have at most 253 characters",
    signed_row(hostname="a" * 300),
)
_add(
    "a signed row with a control character in the interface",
    "has no valid interface: control characters",
    signed_row(interface="lo\n"),
)

for _number in (0, -1, 10**9):
    _add(
        f"a signed row with {_number} processes",
        "has no valid nproc_per_node",
        signed_row(nproc_per_node=_number),
    )


@lie("a forged row of the agent itself", "does not hold this node as it joined")
def _(s: Story) -> Table:
    return s.table(s.signed(), s.signed(slot=1, rank=1, address="127.0.0.81"))


@lie("the agent's row with its address and other processes", "does not hold this node as it joined")
def _(s: Story) -> Table:
    same = {name: s.offered[name] for name in ("address", "interface", "prefix_length", "hostname")}
    return s.table(s.signed(), s.signed(slot=1, rank=1, nproc_per_node=64, **same))


# What it can do with genuine rows

RANKS = "the ranks of the table are not 0 to"

_add("no rows", "does not hold this node", lambda s: s.table(s.signed()) | {"rows": []})
_add("without the agent", "does not hold this node", lambda s: s.table(s.signed()))
_add(
    "only the agent: it would train alone",
    "the table has 1 rows, and this node was started with --nnodes 2",
    lambda s: s.table(s.offered | {"rank": 0}),
)
_add(
    "more nodes than the run has",
    "the table has 3 rows",
    lambda s: s.table(s.signed(), s.offered, s.signed(slot=2, rank=2, address="127.0.0.9")),
)
_add(
    "twenty thousand rows",
    "the table has 20000 rows",
    lambda s: s.table(
        s.signed(),
        s.offered,
        *(
            s.signed(slot=n, rank=n, address=f"127.1.{n // 250}.{n % 250}")
            for n in range(2, 20_000)
        ),
    ),
)
_add("a rank twice", RANKS, lambda s: s.table(s.signed(), s.offered | {"rank": 0}))
_add("a rank left out", RANKS, lambda s: s.table(s.signed(), s.offered | {"rank": 2}))
_add("a negative rank", RANKS, lambda s: s.table(s.signed(rank=-1), s.offered | {"rank": 0}))
_add("ranks out of order", RANKS, lambda s: s.table(s.offered, s.signed()))
_add(
    "a slot twice",
    "the table holds a slot twice",
    lambda s: s.table(s.offered | {"rank": 0}, s.offered),
)
_add(
    "an address twice",
    "the table holds an address twice",
    lambda s: s.table(s.signed(address=s.offered["address"]), s.offered),
)
_add(
    "a master that is not rank 0",
    "the master is not rank 0 of the table",
    lambda s: s.table(master_address=s.offered["address"]),
)
_add(
    "a master of nobody's",
    "the master is not rank 0 of the table",
    changed_table(master_address="6.6.6.6"),
)
for _port in (0, -1, 65_536, 70_000, 10**12):
    _add(f"master port {_port}", "is none", changed_table(master_port=_port))
_add("the table of another run", "the table is of run 'other'", changed_table(run="other"))
_add(
    "the table of another launch",
    "or of another launch of it",
    changed_table(launch_id="launch0002"),
)

LIES.append(
    Lie(
        "an epoch that was over",
        "the table of epoch 1 comes after another one of epoch 2",
        lambda s: [arming(s.table(epoch=2)), arming(s.table(), seq=2)],
    )
)
LIES.append(
    Lie(
        "another table in the same epoch",
        "",  # it is not even looked at
        lambda s: [arming(s.table()), arming(s.table(master_port=29_501), seq=2)],
    )
)

# What does not even pass the client

for _words, _make in [
    ("has digest", lambda s: arming(s.table(), digest="0" * 64)),
    ("has digest", lambda s: arming(s.table(), digest=" ")),
    (
        "has digest",
        lambda s: arming(
            s.table(),
            digest=hashlib.sha256(canonical_json(s.table(master_port=1))).hexdigest(),
        ),
    ),
    ("no NodeView", lambda s: arming(s.table(s.signed(rank="0"), s.offered))),
    ("no NodeView", lambda s: arming(s.table(s.signed(rank=0.5), s.offered))),
    ("no NodeView", lambda s: arming(s.table(s.signed(rank=True), s.offered))),
    ("no NodeView", lambda s: arming(s.table(s.signed(rank=None), s.offered))),
    ("no NodeView", lambda s: arming(s.table(s.signed() | {"address": 1}, s.offered))),
    ("no NodeView", lambda s: arming(s.table(s.signed() | {"hostname": ["a"]}, s.offered))),
    ("no NodeView", lambda s: arming(s.table(master_port="29500"))),
    ("no NodeView", lambda s: arming(s.table() | {"rows": {}})),
    ("no NodeView", lambda s: arming([s.table()])),
    ("no NodeView", lambda s: arming(s.table())[:-20]),
    ("no NodeView", lambda s: b"<html>"),
    ("no NodeView", lambda s: b"[" * 100_000),
]:
    LIES.append(Lie(f"unreadable {len(LIES)}", _words, once(_make)))


# The stage


@dataclass(frozen=True)
class Told:
    """What became of one story."""

    story: Story
    code: int
    error: str
    said: list[str]

    @property
    def started(self) -> bool:
        """Whether the program was started."""
        return (self.story.folder / "started").exists()

    @property
    def refusals(self) -> list[dict[str, Any]]:
        """The refusals that the agent sent."""
        return [report for report in self.story.reports if report["kind"] == "refuse"]


async def tell(folder: Path, views: Sequence[Callable[[Story], list[bytes]]]) -> list[Told]:
    """Tell each story to an agent of its own."""
    secret, certificate = new_secret(), make_certificate(new_secret())
    stories = {}
    for number, each in enumerate(views):
        story = Story(f"run-{number}", folder / str(number), secret, each)
        story.folder.mkdir()
        (story.folder / "hosts").write_bytes(HOSTS)
        stories[story.run] = story

    async def answer(request: Request) -> tuple[int, bytes]:
        if request.path == "/healthz":
            return 200, b"ok"
        await asyncio.sleep(0.01 * request.path.endswith(("after=1", "after=2")))
        return 200, stories[request.path.split("/")[3]].hear(request)

    async with serving(answer, context=tls(certificate)) as server:
        place = RegistryPlace(("127.0.0.1",), server.port, "certificate", certificate.der)
        joins = [_join(place, story) for story in stories.values()]
        done = await asyncio.create_subprocess_exec(
            *(sys.executable, str(PROGRAM), str(folder)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        out, _ = await done.communicate("".join(joins).encode())
    ends = [json.loads(line) for line in out.splitlines()]
    assert len(ends) == len(stories)
    return [Told(story, **end) for story, end in zip(stories.values(), ends, strict=True)]


def _join(place: RegistryPlace, story: Story) -> str:
    keys, token = story.keys, story.keys.join_token(1, 1)
    made = JoinString(place, story.run, LAUNCH_ID, 1, 1, token, keys.row_key, keys.probe_key)
    return made.text() + "\n"


# A batch is one process and one registry; a lie takes some 50 ms.
BATCH = 24
BATCHES = [LIES[at : at + BATCH] for at in range(0, len(LIES), BATCH)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch[0].name} and on")
async def test_no_lie_starts_a_program_or_reaches_the_hosts_file(
    tmp_path: Path, batch: list[Lie]
) -> None:
    for lie, told in zip(batch, await tell(tmp_path, [lie.views for lie in batch]), strict=True):
        assert not told.started, lie.name
        assert (told.story.folder / "hosts").read_bytes() == HOSTS, lie.name
        if len(told.story.made) == 1:
            assert set(told.story.hosts_seen) == {HOSTS}, lie.name
        assert told.code == ARMING_FAILED, (lie.name, told)
        assert "which this node has not acknowledged" in told.error, lie.name
        assert any(lie.words in line for line in told.said), (lie.name, told.said)
        assert [r["code"] for r in told.refusals] == ["bad_table"] * len(told.refusals), lie.name
        assert told.refusals or lie.words in ("", "has digest", "no NodeView"), lie.name


def test_there_are_enough_lies() -> None:
    assert len({lie.name for lie in LIES}) == len(LIES) >= 60


# Plans of probes, whose rows are not signed


def verifying(story: Story, *places: tuple[str, int]) -> bytes:
    """A view that wants the agent to probe slots 0, 2, 3 ... at these places."""
    own = {"slot": 1, "address": story.offered["address"], "interface": story.offered["interface"]}
    others = [
        {"slot": slot, "address": address, "interface": "eth0", "probe_port": port}
        for slot, (address, port) in zip((0, *range(2, 99)), places, strict=False)
    ]
    peers = [{"hostname": "h", "probe_port": 30_000, "mtu": 1500} | row for row in (own, *others)]
    plan = {"network": "eth0", "peers": peers}
    view = {"seq": 1, "phase": "verifying", "epoch": 1, "reason": "probe", "digest": "0" * 64}
    return json.dumps(view | {"plan": plan, "poll_seconds": 0.1}).encode()


async def test_a_plan_makes_no_node_knock_where_no_node_can_be(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.9", 0)) as trap:
        trap.setblocking(False)
        there = trap.getsockname()
        places = [there, there, ("127.0.0.8", 22), ("192.0.2.1", 30_000)]
        [told] = await tell(tmp_path, [lambda story: [verifying(story, *places)]])
        with pytest.raises(BlockingIOError):
            trap.accept()
    [report] = [report for report in told.story.reports if report["kind"] == "probe"]
    several = f"port {there[1]} is said to be the address of several nodes"
    assert [(pair["slot"], pair["outcome"], pair["detail"]) for pair in report["pairs"]] == [
        (0, "error", f"not visited: 127.0.0.9 {several}"),
        (2, "error", f"not visited: 127.0.0.9 {several}"),
        (3, "error", "not visited: 127.0.0.8 port 22 needs privileges, and no node answers there"),
        (4, "error", "not visited: 192.0.2.1 port 30000 is not loopback"),
    ]


# What is not refused


async def accepted(
    folder: Path, rows: Iterable[Callable[[Story], Row]], **changes: Any
) -> list[list[str]]:
    """The lines that each of these rows of slot 0 puts into its agent's hosts file at the go."""

    def table(row: Callable[[Story], Row]) -> Callable[[Story], Table]:
        return lambda story: story.table(row(story), story.offered, **changes)

    tables = [showing(table(row)) for row in rows]
    added = []
    for told in await tell(folder, tables):
        assert (told.started, told.code, told.refusals) == (True, 0, []), told
        assert (told.story.folder / "hosts").read_bytes() == HOSTS
        text = told.story.hosts_seen[-1].decode()
        assert text.startswith(HOSTS.decode())
        added.append([line for line in text.splitlines()[3:] if not line.startswith("#")])
    return added


def lines(address: str, names: str) -> list[str]:
    """The two lines of a node."""
    return [f"{address} {names}", f"::ffff:{address} {names}"]


def own_lines() -> list[str]:
    """The agent's own lines."""
    name = socket.gethostname()
    return lines("127.0.0.2", f"{name} node-1" if is_valid_label(name) else "node-1")


async def test_an_honest_table_starts_the_program_and_keys_of_a_newer_registry_are_no_lie(
    tmp_path: Path,
) -> None:
    extra = {"fabric": {"kind": "ib"}, "address": ["6.6.6.6 github.com"]}
    [added] = await accepted(
        tmp_path, [lambda s: s.signed() | {"alias": "\n6.6.6.6 github.com"}], **extra
    )
    assert added == [*lines("127.0.0.77", "good node-0"), *own_lines()]


ODD_NAMES = [
    *("localhost", "LOCALHOST", "a.localhost", "ip6-localhost.", "12345", "6.6.6.6", "x" * 64),
    *("trailing.", "-a", "a-", "a b", "good#", "g\u00f6od", "\u0430pple", "a,b", "", "storage"),
]


async def test_names_that_are_not_fit_for_a_hosts_file_are_left_out_of_it(tmp_path: Path) -> None:
    """A machine may have such a hostname; its node is found by address and alias."""

    def row(name: str) -> Callable[[Story], Row]:
        return lambda story: story.signed(hostname=name)

    found = dict(zip(ODD_NAMES, await accepted(tmp_path, map(row, ODD_NAMES)), strict=True))
    nameless = [*lines("127.0.0.77", "node-0"), *own_lines()]
    assert found == dict.fromkeys(ODD_NAMES, nameless)


async def test_a_node_that_holds_the_row_key_could_forge_a_row_of_another(tmp_path: Path) -> None:
    """All nodes of a run share the row key: the README says so, and it is to be known here too."""
    [added] = await accepted(tmp_path, [lambda s: s.signed(hostname="forged")])
    assert added == [*lines("127.0.0.77", "forged node-0"), *own_lines()]
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert "could forge a row of its own run (all nodes share the row key)" in " ".join(
        readme.split()
    )

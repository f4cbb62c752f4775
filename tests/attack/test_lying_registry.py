"""A registry that holds the true certificate and lies: real agents, real TLS, hostile tables.

Each lie is told to an agent of slot 1 (of two). Whatever becomes of its refusal, the registry then
says that the run goes on this table. The agent must start nothing, and leave its hosts file alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
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
from rendezvous.wire.table import TableRow
from rendezvous.wire.watch import NodeView
from tests.attack.server import Request, serving, tls

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


Views = Callable[[Story], list[bytes]]


def showing(make: Callable[[Story], Table]) -> Views:
    """This table, once."""
    return lambda story: [arming(make(story))]


def row(**changes: Any) -> Views:
    """A table whose row of slot 0 was changed after it had been signed."""
    return showing(lambda s: s.table(s.signed() | changes, s.offered))


def signed(**values: Any) -> Views:
    """A table whose row of slot 0 says this, and is signed: by a node that holds the row key."""
    return showing(lambda s: s.table(s.signed(**values), s.offered))


def by_key(run: str | None = None, launch: str = LAUNCH_ID, *, own: bool = False) -> Views:
    """A table whose row of slot 0 is signed with another key than this run's."""

    def table(story: Story) -> Table:
        secret = new_secret() if own else story.secret
        return story.table(story.signed(RunKeys(secret, run or story.run, launch)), story.offered)

    return showing(table)


def table(**changes: Any) -> Views:
    """A table of genuine rows with other values around them."""
    return showing(lambda s: s.table(**changes))


FORGED, OWN = "the row of slot 0 was not made by its node", "does not hold this node as it joined"
RANKS = "the ranks of the table are not 0 to"

# One of each kind, and with which words the agent refuses; tests/worker/test_table.py has the rest.
LIES: dict[str, tuple[str, Views]] = {
    # What a registry can do that does not know the row key
    "another address": (FORGED, row(address="10.6.6.6")),
    "a hostname that is two lines": (FORGED, row(hostname="good\n6.6.6.6 github.com")),
    "more processes": (FORGED, row(nproc_per_node=8)),
    "no MAC": (FORGED, row(mac="")),
    "a MAC that is no text of bytes": (FORGED, row(mac="é" * 64)),
    "the key of another run": (FORGED, by_key("other")),
    "the key of another launch": (FORGED, by_key(launch="launch0002")),
    "a key of the registry's own": (FORGED, by_key(own=True)),
    "the agent's own MAC": (FORGED, showing(lambda s: s.table(row_with_own_mac(s), s.offered))),
    "an invented third row": (
        "the row of slot 2 was not made by its node",
        showing(lambda s: s.table(s.signed(), s.offered, s.signed() | {"rank": 2, "slot": 2})),
    ),
    # What it can do together with a node that holds it
    "a link-local address": ("link-local", signed(address="169.254.169.254")),
    "an address that is two lines": ("not an IPv4 or IPv6", signed(address="10.0.0.1\n6.6.6.6")),
    "an address outside of loopback": ("not both loopback", signed(address="10.0.0.1")),
    "a control character": ("has no valid hostname: control", signed(hostname="a\x1b[2J")),
    "a forged row of the agent itself": (
        OWN,
        showing(lambda s: s.table(s.signed(), s.signed(slot=1, rank=1, address="127.0.0.81"))),
    ),
    # What it can do with genuine rows
    "only the agent: it would train alone": (
        "the table has 1 rows, and this node was started with --nnodes 2",
        showing(lambda s: s.table(s.offered | {"rank": 0})),
    ),
    "without the agent": (OWN, showing(lambda s: s.table(s.signed()))),
    "ranks out of order": (RANKS, showing(lambda s: s.table(s.offered, s.signed()))),
    "a master of nobody's": ("the master is not rank 0", table(master_address="6.6.6.6")),
    "a port that is none": ("is none", table(master_port=70_000)),
    "another run": ("the table is of run 'other'", table(run="other")),
    "an epoch that was over": (
        "the table of epoch 1 comes after another one of epoch 2",
        lambda s: [arming(s.table(epoch=2)), arming(s.table(), seq=2)],
    ),
    "another table in the same epoch": (
        "",  # it is not even looked at
        lambda s: [arming(s.table()), arming(s.table(master_port=29_501), seq=2)],
    ),
    # What does not even pass the client
    "another digest": ("has digest", lambda s: [arming(s.table(), digest="0" * 64)]),
    "a rank that is a word": ("no NodeView", signed(rank="0")),
    "half a view": ("no NodeView", lambda s: [arming(s.table())[:-20]]),
    "no JSON": ("no NodeView", lambda s: [b"[" * 100_000]),
}


def row_with_own_mac(story: Story) -> Row:
    """The row of slot 0 with the MAC of the agent's."""
    return story.signed() | {"mac": story.offered["mac"]}


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


async def tell(folder: Path, views: Sequence[Views]) -> list[Told]:
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


@pytest.mark.timeout(120)
async def test_no_lie_starts_a_program_or_reaches_the_hosts_file(tmp_path: Path) -> None:
    views = [views for _, views in LIES.values()]
    for (name, (words, _)), told in zip(LIES.items(), await tell(tmp_path, views), strict=True):
        assert not told.started, name
        assert (told.story.folder / "hosts").read_bytes() == HOSTS, name
        if len(told.story.made) == 1:
            assert set(told.story.hosts_seen) == {HOSTS}, name
        assert told.code == ARMING_FAILED, (name, told)
        assert "which this node has not acknowledged" in told.error, name
        assert any(words in line for line in told.said), (name, told.said)
        assert {r["code"] for r in told.refusals} <= {"bad_table"}, name
        assert told.refusals or words in ("", "has digest", "no NodeView"), name


async def test_what_is_no_lie_starts_the_program_and_is_in_the_hosts_file_until_its_end(
    tmp_path: Path,
) -> None:
    """Keys of a newer registry are none; a node that holds the row key could forge another's row.

    A hostname that is not fit for a hosts file is left out of it: the node has its alias.
    """
    alias = {"alias": "\n6.6.6.6 github.com"}
    extra = {"fabric": {"kind": "ib"}, "address": ["6.6.6.6 github.com"]}
    rows: dict[str, Views] = {
        "127.0.0.77 good node-0": showing(
            lambda s: s.table(s.signed() | alias, s.offered, **extra)
        ),
        "127.0.0.77 forged node-0": signed(hostname="forged"),
        "127.0.0.77 node-0": signed(hostname="6.6.6.6"),
    }
    for line, told in zip(rows, await tell(tmp_path, list(rows.values())), strict=True):
        assert (told.started, told.code, told.refusals) == (True, 0, []), told
        assert (told.story.folder / "hosts").read_bytes() == HOSTS
        text = told.story.hosts_seen[-1].decode()
        assert text.startswith(HOSTS.decode())
        lines = [line for line in text.splitlines()[3:] if not line.startswith("#")]
        assert lines[:2] == [line, f"::ffff:{line}"]
        assert [line.split()[0] for line in lines[2:]] == ["127.0.0.2", "::ffff:127.0.0.2"]

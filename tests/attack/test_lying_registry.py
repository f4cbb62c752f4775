"""A registry that holds the true certificate and lies: real agents, real TLS, hostile tables.

Each lie is told to an agent of slot 1 (of two). Whatever becomes of its refusal, the registry then
says that the run goes on this table. The agent must start nothing, and leave its hosts file alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
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

    def table(self, row: Row | None = None, **changes: Any) -> Row:
        """The table of both rows, with changes to that of slot 0, after it was signed, or to it."""
        place: Row = {"address": "127.0.0.77", "interface": "lo", "prefix_length": 8}
        good: Row = {"node": 0, "slot": 0, "hostname": "good", "nproc_per_node": 1} | place
        made = TableRow(**good, mac="")
        good["mac"] = row_mac(made, self.keys.row_key, run=self.run, launch_id=LAUNCH_ID)
        head: Row = {"run": self.run, "launch_id": LAUNCH_ID, "epoch": 1, "master_port": 29_500}
        rows = [good | (row or {}), self.offered]
        return head | {"master_address": rows[0]["address"], "rows": rows} | changes

    def hear(self, request: Request) -> bytes:
        """The answer to a request of the agent."""
        self.hosts_seen.append((self.folder / "hosts").read_bytes())
        if request.path.endswith("/nodes"):
            return self._joined(json.loads(request.body))
        if request.path.endswith("/reports"):
            self.reports.append(json.loads(request.body))
            self.told, self.polls = self.told + 1, 0
            return b'{"seq": 1}'
        if request.method == "POST" and "/watch?" in request.path:  # on a slow machine it brings
            self.reports.append({"kind": "exit"} | json.loads(request.body))
        elif "&ack=" in request.path:
            self.told, self.polls = self.told + 1, 0
        if self.reports and self.reports[-1]["kind"] == "exit":
            return OVER
        views = self.made
        self.polls += 1
        was_read = request.path.endswith(f"after={self.told + 1}&wait=0.1")
        if self.polls > (_MOST_POLLS if was_read else 1):  # nothing will be reported
            self.told, self.polls = self.told + 1, 0
        if self.told >= len(views):  # whatever it was: the go
            return go(views[-1])
        if was_read and self.polls > 1:
            return view(self.told + 1, Phase.ARMING)
        return views[self.told]

    def _joined(self, request: dict[str, Any]) -> bytes:
        candidate = request["candidates"][0]
        names = ("address", "interface", "prefix_length", "mac")
        self.offered = {"node": 1, "slot": 1} | {name: candidate[name] for name in names}
        self.offered |= {name: request[name] for name in ("hostname", "nproc_per_node")}
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


def view(seq: int, phase: Phase, **more: Any) -> bytes:
    """A view without a table."""
    made = NodeView(seq=seq, phase=phase, epoch=1, reason=phase, poll_seconds=0.1, **more)
    return made.model_dump_json().encode()


def arming(table: Row, digest: str = "", seq: int = 1) -> bytes:
    """A view with a table that wants to be acknowledged; the digest fits, if none is given."""
    text = json.dumps(table, sort_keys=True, separators=(",", ":")).encode()
    told = {"digest": digest or hashlib.sha256(text).hexdigest(), "table": table}
    return json.dumps(
        json.loads(view(seq, Phase.ARMING)) | {"epoch": table["epoch"]} | told
    ).encode()


def go(shown: bytes) -> bytes:
    """The go on the table of a view, whether it can be read or not."""
    found = re.search(rb'"digest": "(\w+)"', shown)
    return view(9, Phase.RUNNING, digest=found[1].decode() if found else "0" * 64)


OVER = view(10, Phase.FINISHED, result=Result(status="ok", exit_code=0, message="all ended"))
Views = Callable[[Story], list[bytes]]

# One of each way by which a lie comes to the agent, and with which words it refuses; all tables
# that it refuses are in worker/test_table.py, the answers in rendezvous/test_client.py.
LIES: dict[str, tuple[str, Views]] = {
    "another address": (
        "the row of slot 0 was not written by its node",
        lambda s: [arming(s.table({"address": "10.6.6.6"}))],
    ),
    "an epoch that was over": (
        "the table of epoch 1 arrived after a different one of epoch 2",
        lambda s: [arming(s.table(epoch=2)), arming(s.table(), seq=2)],
    ),
    "another table in the same epoch": (
        "",  # it is not even looked at
        lambda s: [arming(s.table()), arming(s.table(master_port=29_501), seq=2)],
    ),
    "another digest": ("has digest", lambda s: [arming(s.table(), digest="0" * 64)]),
    "no JSON": ("not a valid NodeView", lambda s: [b"[" * 100_000]),
}


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
        await asyncio.sleep(0.01 * request.path.endswith(("after=1&wait=0.1", "after=2&wait=0.1")))
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
        assert "that this node has not acknowledged" in told.error, name
        assert any(words in line for line in told.said), (name, told.said)
        assert {r["code"] for r in told.refusals} <= {"bad_table"}, name
        assert told.refusals or words in ("", "has digest", "not a valid NodeView"), name


async def test_what_is_no_lie_starts_the_program_and_is_in_the_hosts_file_until_its_end(
    tmp_path: Path,
) -> None:
    """Keys of a newer registry are none."""
    alias = {"alias": "\n6.6.6.6 github.com"}
    extra = {"fabric": {"kind": "ib"}, "address": ["6.6.6.6 github.com"]}
    [told] = await tell(tmp_path, [lambda s: [arming(s.table(alias, **extra))]])
    assert (told.started, told.code, told.refusals) == (True, 0, []), told
    assert (told.story.folder / "hosts").read_bytes() == HOSTS
    text = told.story.hosts_seen[-1].decode()
    assert text.startswith(HOSTS.decode())
    lines = [line for line in text.splitlines()[3:] if not line.startswith("#")]
    assert lines[:2] == ["127.0.0.77 good node-0", "::ffff:127.0.0.77 good node-0"]
    assert [line.split()[0] for line in lines[2:]] == ["127.0.0.2", "::ffff:127.0.0.2"]

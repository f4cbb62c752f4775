"""What is fuzzed: for each parser its contract, real examples to begin with, and its own words.

A contract takes any bytes and raises when the parser breaks its promise: another exception than
the documented one, a result that does not read back, a secret in a message. That a call ends soon
and keeps nothing is watched from outside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import yaml
from pydantic import TypeAdapter

from launcher.options import read
from launcher.plan.template import Form, Value, placeholders, render
from launcher.settings import LaunchSettings
from rendezvous.registry.journal import Record
from rendezvous.registry.replay import _text as _text_of
from rendezvous.registry.replay import replay
from rendezvous.registry.route import parse
from rendezvous.run.decision import Decision, Outcome, dump_entry
from rendezvous.run.events import Event
from rendezvous.talk.credentials import Credential, parse_credential
from rendezvous.talk.join_string import (
    JoinString,
    RegistryPlace,
    RegistryString,
    Word,
    group_token_text,
    parse_group_token,
)
from rendezvous.wire.errors import ArmingFailed, BadRequest, TemplateError, UsageError
from rendezvous.wire.hostnames import is_valid_label
from rendezvous.wire.last_words import LastWords
from rendezvous.wire.node import JoinRequest
from rendezvous.wire.relay import RelayPost
from rendezvous.wire.reports import Report
from rendezvous.wire.run import Phase, RunSpec, SlotNews
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.verify import PairProbe
from tests.attack.fuzz.door import check_door, door_seeds
from tests.support.driver import in_phase
from tests.support.topics import PUBLISHED
from tests.support.wire_fields import FOLDER, FOLDERS
from worker.counts import read_size
from worker.hosts.plan import plan_hosts
from worker.hosts.text import HostsEntry, remove_blocks, render_hosts
from worker.probe.packets import Hello, Identity, Packets

T = TypeVar("T")

SECRET = "s3cr3t-\x1b[31m\n\"'`$(id)<<N>>"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True)
class Target:
    """A parser under attack.

    Attributes:
        check: The contract.
        seeds: Real examples.
        words: What the parser looks for, as libFuzzer's dictionary.
        is_json: Whether inputs are changed as JSON, part by part, half of the time.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    words: tuple[str, ...] = ()
    is_json: bool = False


def _text(data: bytes) -> str:
    """As a file's or a variable's bytes become text."""
    return data.decode("utf-8", "surrogateescape")


def stored(*names: str) -> list[bytes]:
    """The stored messages whose file names begin so."""
    return [
        path.read_bytes()
        for folder in FOLDERS
        for path in sorted(folder.glob("*.json"))
        if path.name.startswith(names)
    ]


# ---- words of `rendezvous.talk.join_string` -----------------------------------------------------

PLACE = RegistryPlace(("10.0.0.7", "fd00::7", "host-0"), 29600, "certificate", bytes(40))
JOIN = JoinString(
    PLACE, "llama", "k3m9x2p7", 3, 1, Credential("join", bytes(32), 3, 1), bytes(32), bytes(32)
)
REGISTRY = RegistryString(PLACE, Credential("registry", bytes(32)))


def _packed(prefix: str) -> Callable[[bytes], str]:
    """The word around this JSON, with a good checksum; what is a word already stays."""

    def word(data: bytes) -> str:
        if data.startswith(b"rdzv"):
            return _text(data)
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return prefix + _text(data)
        return Word("X", prefix).pack(value)

    return word


def _word(
    prefix: str, parse_word: Callable[[str], T], text: Callable[[T], str], example: T
) -> Target:
    word, shown = _packed(prefix), text(example)

    def check(data: bytes) -> None:
        try:
            value = parse_word(word(data))
        except UsageError:
            return
        assert parse_word(text(value)) == value

    seeds = [shown.encode(), json.dumps(Word("X", prefix).unpack(shown)).encode()]
    return Target(check, lambda: seeds, is_json=True)


def check_credential(data: bytes) -> None:
    """Never raises; what it takes has this text and no other."""
    text = _text(data)
    found = parse_credential(text)
    if found is not None:
        assert found.text() == text
        assert len(found.secret) == 32


# ---- messages -----------------------------------------------------------------------------------


def _message(model: Any, *names: str) -> Target:
    adapter: TypeAdapter[Any] = TypeAdapter(model)

    def check(data: bytes) -> None:
        said = ""
        try:
            message = parse(adapter, data)
            assert parse(adapter, adapter.dump_json(message)) == message
        except BadRequest as error:
            said = error.message
        assert len(said) <= 500
        assert not _CONTROL.search(said)

    return Target(check, lambda: stored(*names), is_json=True)


def check_settings(data: bytes) -> None:
    """Options of `rdzv launch` from a file of settings: UsageError, or a model."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        text = _text(data)
        value = {"nnodes": text, "nproc_per_node": text, "address": [text], "network": [text]}
    if not isinstance(value, dict):
        return
    try:
        settings = read(LaunchSettings, {str(key): item for key, item in value.items()})
    except UsageError:
        return
    if settings.nnodes is not None:
        low, high = read_size(settings.nnodes)
        assert 1 <= low <= high
    assert read(LaunchSettings, settings.model_dump()) == settings


SETTINGS = [
    b'{"nnodes": "2:4", "nproc_per_node": "2,auto,gpu", "address": ["10.0.0.1"]}',
    b'{"nnodes": "4", "network": ["10.0.0.0/8", "fd00::/8"], "grace": 1.5, "port": 29600}',
    b'{"lease": 15, "submit_retries": 1, "node_rank": 0, "verify": "off", "set": ["A=b"]}',
    b"2:4",
]


# ---- journal ------------------------------------------------------------------------------------


def check_journal(data: bytes) -> None:
    """Records with an empty line between them, first the creation of their run: replayed, or
    UsageError."""
    bodies = [CREATED, *data.split(_BETWEEN)]
    records = [Record("llama-7b", n, float(n), body) for n, body in enumerate(bodies, 1)]
    try:
        for run, line in replay(records):
            assert line.reason
            assert not _CONTROL.search(_text_of(run, line, as_json=False))
    except UsageError:
        return


_BETWEEN = b"\n\n"
CREATED, *_DRIVEN = in_phase(Phase.RUNNING).bodies


def journal_seeds() -> list[bytes]:
    """Every kind of event alone, with nothing decided on it, and a run that goes."""
    decided = Decision(Outcome("it happened"), {})
    kinds = get_args(get_args(Event)[0])
    told = [TypeAdapter(kind).validate_json(_stored(kind)) for kind in kinds]
    return [*(dump_entry(event, decided) for event in told), _BETWEEN.join(_DRIVEN)]


def _stored(kind: type[object]) -> bytes:
    return (FOLDER / f"{kind.__name__}.json").read_bytes()


# ---- hosts --------------------------------------------------------------------------------------

ENTRIES = [HostsEntry("10.0.0.4", ["n0", "node-0"]), HostsEntry("fd00::5", ["n1"])]
HOSTS = [
    b"127.0.0.1 localhost\n127.0.1.1 n0.example n0\n::1 ip6-localhost\n\n# own\n10.9.9.9 db",
    b"127.0.0.1\tlocalhost n0\r\n10.0.0.4 n0\r\n",
    b"\xff\xfe\x00 x\n127.0.0.1 N0 #c\n",
]
_ENTRY = re.compile(r"(\S+)((?: [A-Za-z0-9-]{1,63})+)\n")


def check_hosts_file(data: bytes) -> None:
    """The block goes in and comes out, and every other byte is as it was."""
    text = _text(data)
    rest = remove_blocks(text, lambda block: block.run == "llama")
    written = render_hosts(text, ENTRIES, run="llama", own_names={"n0"})
    assert render_hosts(written, ENTRIES, run="llama", own_names={"n0"}) == written
    for again in (written, rest):
        assert remove_blocks(again, lambda block: block.run == "llama") == rest
    assert written.endswith("# END rdzv run=llama\n")


def hosts_seeds() -> list[bytes]:
    """Files without a block, with one, and with those of two runs."""
    blocks = []
    for run in ("llama", "other"):
        text = render_hosts(_text(HOSTS[0]), ENTRIES, run=run, own_names={"n0"})
        blocks.append(text.encode())
    both = render_hosts(blocks[1].decode(), ENTRIES, run="llama", own_names={"n1"})
    return [*HOSTS, *blocks, both.encode()]


def check_hosts_table(data: bytes) -> None:
    """Whatever a table says, only addresses and single labels are written, or nothing."""
    try:
        table = EndpointTable.model_validate_json(data)
    except ValueError:
        return
    current = "127.0.0.1 localhost\n10.0.0.9 db\n"
    try:
        plan = plan_hosts(current, table, 0, run="llama")
        text = render_hosts(current, plan.entries, run="llama", own_names=plan.own_names)
    except ArmingFailed:
        return
    assert not _CONTROL.search(plan.warning)
    head, *lines, end, empty = text.removeprefix(current).split("\n")
    assert head.startswith("# BEGIN rdzv run=llama ")
    assert (end, empty) == ("# END rdzv run=llama", "")
    for line in lines:
        found = _ENTRY.fullmatch(line + "\n")
        assert found is not None
        assert all(is_valid_label(name) for name in found[2].split())
        assert "localhost" not in found[2].lower().split()
        assert "db" not in found[2].lower().split()
    assert remove_blocks(text, lambda block: block.run == "llama") == current


# ---- probes -------------------------------------------------------------------------------------

PEER = Packets(Identity(bytes(32), "llama", "k3m9x2p7", 3))
SAID = Hello(3, 1, bytes(16))


def check_probe(data: bytes) -> None:
    """Unsigned it is nothing; what a node has signed fits into a report, or is nothing."""
    for text in (data, PEER._signed(data)):
        hellos = [PEER.read_hello("tcp", text), PEER.read_hello("udp", text)]
        replies = [PEER.read_reply("tcp", text), PEER.read_reply("udp", text)]
        if text is data:
            assert not any([*hellos, *replies])
        for reply in filter(None, replies):
            PairProbe(slot=1, outcome="ok", skew_seconds=reply.clock, source=reply.source)


def probe_seeds() -> list[bytes]:
    """Each packet, without its signature."""
    packets = [PEER.hello("tcp", 1, SAID.nonce), PEER.hello("udp", 1, SAID.nonce)]
    seen: dict[str, Any] = {"clock": 1.5, "source": "::ffff:10.0.0.7", "size": 64}
    packets += [PEER.reply("tcp", SAID, **seen), PEER.reply("udp", SAID, **seen)]
    return [packet[:-32] for packet in packets]


# ---- templates ----------------------------------------------------------------------------------

VARIABLES: Mapping[str, Value] = {
    "N": 4,
    "NAME": "worker-3",
    "RDZV_JOIN": SECRET,
    "COMMAND": ["train.py", "--name", "a b", "it's"],
    "EMPTY": "",
    "NONE": [],
}
TEMPLATES = {
    Form.YAML: (
        "name: <<NAME>>\nn: <<N>>\ntext: '<<N>>'\nargs: [run, --, <<COMMAND>>]\n"
        "base: &base {a: 0755, b: on}\nmore:\n  <<: *base\n  env: {J: <<RDZV_JOIN>>}\n"
        "run: |\n  cat <<EOF\n  <<NAME>>\n  EOF\n---\n!!str <<N>>: ~\n"
    ),
    Form.JSON: '{"a": <<N>>, "b": ["<<NAME>>", "<<COMMAND>>"], "<<NAME>>": {"c": [1e3, null]}}',
    Form.SHELL: (
        "#!/bin/sh\n#SBATCH -J <<NAME>>\nexport J=<<RDZV_JOIN>>\nrun <<COMMAND>> <<N>>\n"
        'cat <<-"EOF"\n$x `y` <<N>>\nEOF\necho "$(id "<<N>>")" $((1<<2)) \'<<N>>\'\n'
    ),
    Form.TEXT: "job <<NAME>> with <<N>> nodes: <<COMMAND>>\n",
}


def _check_template(form: Form) -> Callable[[bytes], None]:
    def check(data: bytes) -> None:
        text, filled, said = _text(data), "", ""
        try:
            filled = render(text, VARIABLES, source="job.yaml", form=form)
            placeholders(text, form=form)
        except TemplateError as error:
            said = str(error)
        assert said.startswith("job.yaml") or not said
        assert SECRET[:7] not in said or SECRET[:7] in text
        if form is Form.JSON and not said:
            json.loads(filled)
        elif form is Form.YAML:
            list(yaml.compose_all(filled, Loader=yaml.SafeLoader))

    return check


def _template(form: Form) -> Target:
    words = ("<<N>>", "<<NAME>>", "<<COMMAND>>", "<<RDZV_JOIN>>", "<<EMPTY>>", "<<NONE>>", "<<EOF")
    marks = ("<<", ">>", "'", '"', "&a", "*a", "<<: ", "---", "!!str", "|", "$(", "`", "\\", "#")
    return Target(_check_template(form), lambda: [TEMPLATES[form].encode()], words + marks)


HTTP = (
    *("GET ", "POST ", "HEAD ", " HTTP/1.1\r\n", "\r\n\r\n", "Host: rdzv.internal\r\n"),
    *("Content-Length: ", "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n"),
    *("Connection: ", "Upgrade: ", "Origin: x\r\n", "Authorization: Bearer "),
    *("/healthz", "/v1/runs/demo", "%0a"),
)

# ---- all ----------------------------------------------------------------------------------------

TARGETS: dict[str, Target] = {
    "join string": _word("rdzv1-", JoinString.parse, JoinString.text, JOIN),
    "registry string": _word("rdzvreg1-", RegistryString.parse, RegistryString.text, REGISTRY),
    "group token": _word("rdzvtok1-", parse_group_token, group_token_text, bytes(32)),
    "credential": Target(
        check_credential,
        lambda: [c.text().encode() for c in (JOIN.token, REGISTRY.credential)],
        ("j.0.1.", "n.0.1.", "r.", "a.", "g.", "=", "-", "_"),
    ),
    "join request": _message(JoinRequest, "JoinReq"),
    "report": _message(Report, "Ack", "Exit", "Leave", "Probe", "Progress", "Refuse"),
    "relay": _message(RelayPost, "RelayPost"),
    **{
        f"topic {topic.path}": _message(topic.message.load(), topic.message.name)
        for topic in PUBLISHED
    },
    "last words": _message(LastWords, "LastWords."),
    "run spec": _message(RunSpec, "RunSpec"),
    "slot news": _message(SlotNews, "SlotNews"),
    "settings": Target(check_settings, lambda: SETTINGS, ("auto", "gpu", "cpu"), is_json=True),
    "journal": Target(check_journal, journal_seeds, is_json=True),
    "hosts file": Target(
        check_hosts_file,
        hosts_seeds,
        ("# BEGIN rdzv run=", "# END rdzv run=llama", "# was 0: ", "127.0.0.1 ", "own=n0", "n0"),
    ),
    "hosts table": Target(check_hosts_table, lambda: stored("EndpointTable"), is_json=True),
    "probe": Target(check_probe, probe_seeds, ("rdzv-ht1", "rdzv-rt1", "::ffff:", "%eth0")),
    "yaml template": _template(Form.YAML),
    "json template": _template(Form.JSON),
    "shell template": _template(Form.SHELL),
    "text template": _template(Form.TEXT),
    "http": Target(check_door, door_seeds, HTTP),
}

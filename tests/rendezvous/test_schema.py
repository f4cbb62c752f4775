"""What the wire models accept and what they do not, and text as people read it."""

from __future__ import annotations

import ipaddress
import json
import math
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from rendezvous.wire.node import Candidate, Facts, Finding, Job, JoinRequest, RdmaPort
from rendezvous.wire.relay import CommandOutput
from rendezvous.wire.reports import ExitReport
from rendezvous.wire.run import Limits, Phase, RunSpec, SlotNews
from rendezvous.wire.table import EndpointTable, TableRow, canonical_json
from rendezvous.wire.tenant import Tenant
from rendezvous.wire.types import (
    MAX_NODES,
    Address,
    Digest,
    RunId,
    ShortWords,
    subnet_of,
    subnet_text,
)
from rendezvous.wire.verify import PairProbe, ProbeReport
from rendezvous.wire.watch import NodeView, OtherDigest, read_view, write_view
from rendezvous.wire.words import printable
from tests.support.driver import FEW, make_join, make_spec, sha

ADDRESS: TypeAdapter[str] = TypeAdapter(Address)
RUN_ID: TypeAdapter[str] = TypeAdapter(RunId)
WORDS: TypeAdapter[str] = TypeAdapter(ShortWords)
DIGEST: TypeAdapter[str] = TypeAdapter(Digest)


def refused(model: Any, value: Any) -> str:
    """Why the model does not take this as JSON."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(model).validate_json(json.dumps(value))
    return str(caught.value)


# --- addresses, names and words -------------------------------------------------------------------


LONGEST = "2001:0db8:0000:0000:0000:0000:255.255.255.255"
MADE_OF = "a run id has 1 to 63 letters, digits, '.', '_' or '-', and begins with a letter or digit"


@pytest.mark.parametrize(
    ("wire", "written", "kept"),
    [
        *((ADDRESS, same, same) for same in ("10.0.0.1", "127.0.0.2", "2001:db8::1")),
        (ADDRESS, "FD00:0:0::00AB", "fd00::ab"),
        (ADDRESS, LONGEST, "2001:db8::ffff:ffff"),
        *((RUN_ID, same, same) for same in ("r", "7", "llama-7b", "A.b_c-9", "a" * 63)),
        (WORDS, "Größe 日本 ok", "Größe 日本 ok"),
    ],
)
def test_what_is_as_agreed_is_kept_in_its_one_form(
    wire: TypeAdapter[str], written: str, kept: str
) -> None:
    assert wire.validate_python(written, strict=True) == kept


@pytest.mark.parametrize(
    ("wire", "values"),
    [
        (ADDRESS, ["", "node1", "10.0.0", "10.0.0.1/24", "10.0.0.1:80", "010.0.0.1", "10.0.0.1\n"]),
        (ADDRESS, [" 10.0.0.1", "10.0.0.1 evil.example", "\uff11\uff10.0.0.1", "[fd00::1]"]),
        (ADDRESS, ["fe80::1", "fe80::1%eth0", "fd00::1%0\n10.0.0.9 pypi.org", "::ffff:10.0.0.1"]),
        (ADDRESS, ["::", "0.0.0.0", "255.255.255.255", "169.254.169.254", "224.0.0.1", "ff02::1"]),
        (ADDRESS, [167772161, 10.1, None, True, ["10.0.0.1"]]),
        (RUN_ID, ["", "-r", ".", "..", "_r", "a/b", "a b", "a\n", "a" * 64, "ü", "r%2e", "a\x00"]),
        (WORDS, ["a\nb", "\x1b[2J", "a\x00", "\x7f", "\x9b", "\u2028", "\u202e", "\u2066"]),
        (DIGEST, ["A" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n", "g" * 64]),
    ],
)
def test_what_is_not_as_agreed_is_refused(wire: TypeAdapter[str], values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValidationError):
            wire.validate_python(value, strict=True)
        with pytest.raises(ValidationError):
            wire.validate_json(json.dumps(value), strict=True)


@pytest.mark.parametrize(
    ("wire", "value", "why"),
    [
        (ADDRESS, "fd00::1%eth0", "an address with a zone is not reachable from other nodes"),
        (ADDRESS, "node1", "not an IPv4 or IPv6 address"),
        (ADDRESS, "::ffff:10.0.0.1", "write an IPv4 address as IPv4, not as ::ffff:"),
        (ADDRESS, "224.0.0.1", "multicast, unspecified and link-local addresses are not reachable"),
        (ADDRESS, "255.255.255.255", "the broadcast address is not a node's"),
        (ADDRESS, "0" + LONGEST, "String should have at most 45 characters"),
        (RUN_ID, "../x", MADE_OF),
    ],
)
def test_the_refusal_says_what_is_wrong(wire: TypeAdapter[str], value: str, why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        wire.validate_python(value)
    assert caught.value.errors()[0]["msg"].removeprefix("Value error, ") == why


@pytest.mark.parametrize(
    ("address", "prefix"), [("10.0.0.1", 33), ("10.0.0.1", 64), ("fd00::1", 129)]
)
def test_a_prefix_that_is_longer_than_its_address_is_refused(address: str, prefix: int) -> None:
    assert "prefix" in refused(
        Candidate, {"interface": "eth0", "address": address, "prefix_length": prefix}
    )


@pytest.mark.parametrize(("address", "family"), [("10.0.0.1", 4), ("fd00::1", 6)])
def test_a_candidate_knows_its_family(address: str, family: int) -> None:
    assert Candidate(interface="e", address=address, prefix_length=32).family == family


def test_the_last_lines_of_a_program_are_cleaned_not_refused() -> None:
    report = ExitReport(epoch=1, exit_code=1, tail=["\x1b]0;gotcha\x07", "fine"])
    assert report.tail == ["?]0;gotcha?", "fine"]


# --- bounds ---------------------------------------------------------------------------------------

CANDIDATE = {"interface": "eth0", "address": "fd00::1", "prefix_length": 64}
JOIN = json.loads(to_json(make_join(1)))
EXIT = {"epoch": 1, "exit_code": 1}
OUTPUT = {"number": 1, "offset": 0, "stream": "stdout", "data": ""}
SPEC = json.loads(make_spec(2, least=1).model_dump_json())
PAIR = asdict(PairProbe(slot=1, outcome="ok"))
FINDING = asdict(Finding(check="L12", level="fail"))
PORT = asdict(RdmaPort(device="mlx5_0"))
SPEC_OF_MOST = SPEC | {"max_nodes": MAX_NODES}
NAN = math.nan
DIGESTS = [sha("t")] * (MAX_NODES + 1)


@pytest.mark.parametrize(
    ("model", "rest", "field", "taken", "refused"),
    [
        (Candidate, CANDIDATE, "interface", ["", "e" * 253], ["e" * 254]),
        (Candidate, CANDIDATE, "prefix_length", [0, 128], [-1, 129]),
        (Candidate, CANDIDATE, "mtu", [0, 1_000_000], [-1, 1_000_001]),
        (Candidate, CANDIDATE, "speed_mbps", [0, 10**9], [-1]),
        (Candidate, CANDIDATE, "reason", ["", "w" * 600], ["w" * 601]),
        (Candidate, CANDIDATE, "mac", ["", "0" * 64], ["0", "0" * 63, "0" * 65]),
        (Job, {}, "nnodes", ["1", "999999", "1:2", "999999:999999"], ["1:1234567", "1234567:1"]),
        (Job, {}, "nnodes", [], ["", "two", "2:", ":2", "2:3:4", "-1", "2\n", "٤", "1234567"]),
        (Facts, {}, "gpus", [0, 16], [-1]),
        (Facts, {}, "cpus", [0, 4096], [-1]),
        (JoinRequest, JOIN, "slot", [0, 19_999], [-1, 20_000, "1", 1.0, 1.5, True, None, [1]]),
        (JoinRequest, JOIN, "generation", [1, 1_000_000], [0, 1_000_001]),
        (JoinRequest, JOIN, "join_id", ["x" * 16, "-_9" * 20 + "AZaz"], ["x" * 15, "x" * 65]),
        (JoinRequest, JOIN, "join_id", [], ["one-space-in here", " one-in-front-of-it"]),
        (JoinRequest, JOIN, "join_id", [], ["one-behind-it-all ", "the-end-of-a-line\n"]),
        (JoinRequest, JOIN, "hostname", ["", "h" * 253], ["h" * 254]),
        (JoinRequest, JOIN, "nproc_per_node", [1, 4096], [0, 4097]),
        (JoinRequest, JOIN, "candidates", [JOIN["candidates"] * 64], [[], JOIN["candidates"] * 65]),
        (JoinRequest, JOIN, "requested_node", [None, 0, 19_999], [-1, 20_000]),
        (JoinRequest, JOIN, "master_port", [None, 1, 65_535], [0, 65_536]),
        (ProbeReport, {"epoch": 1}, "pairs", [[], [PAIR] * 20_000], [[PAIR] * 20_001]),
        (PairProbe, PAIR, "slot", [0, 19_999], [-1, 20_000]),
        (PairProbe, PAIR, "rtt_ms", [None, 0.0, 1e7], [-0.1, 1.1e7]),
        (PairProbe, PAIR, "skew_seconds", [None, -1e10, 1e10], [-1.1e10, 1.1e10]),
        (PairProbe, PAIR, "path_mtu", [None, 0, 1_000_000], [-1, 1_000_001]),
        (PairProbe, PAIR, "outcome", ["ok", "self"], ["OK", "", 1, None]),
        (PairProbe, PAIR, "detail", ["", "w" * 600], ["w" * 601, "a\nb"]),
        (JoinRequest, JOIN, "probe_port", [None, 1, 65_535], [0, 65_536]),
        (JoinRequest, JOIN, "findings", [[], [FINDING] * 64], [[FINDING] * 65]),
        (Finding, FINDING, "check", ["L01", "X99", "P01"], ["L1", "l01", "L001", "Z01", "L01\n"]),
        (Finding, FINDING, "level", ["ok", "skipped"], ["error"]),
        (Finding, FINDING, "slot", [None, 0, 19_999], [-1, 20_000]),
        (Facts, {}, "rdma", [[], [PORT] * 128], [[PORT] * 129]),
        (Facts, {}, "script_digest", ["", sha("x")], ["x"]),
        (RdmaPort, PORT, "port", [1, 255], [0, 256]),
        (RdmaPort, PORT, "rate_gbps", [0.0, 1e6], [-1.0, 1.1e6]),
        (RunSpec, SPEC, "spares", [0, 5], [-1, 20_000]),
        (RunSpec, SPEC, "skip", [[], ["L01"] * 64], [["L01"] * 65, ["everything"]]),
        (CommandOutput, OUTPUT, "data", ["", "AAAA", "AAA=", "AA=="], ["A", "AA=", "AA", "A==="]),
        (ExitReport, EXIT, "exit_code", [0, 255], [-1, 256, 1.0, "1", True]),
        (ExitReport, EXIT, "age_seconds", [0.0, 10_000_000.0], [-0.001, 10_000_000.5, "1", True]),
        (ExitReport, EXIT, "age_seconds", [], [NAN, math.inf]),
        (SlotNews, {"generation": 1}, "state", ["queued"], ["dreaming"]),
        (RunSpec, SPEC, "master_port", [None, 1], [0]),
        (RunSpec, SPEC, "read_sha256", [sha("x")], ["x"]),
        (ExitReport, EXIT, "tail", [[], ["l" * 400] * 40], [["l"] * 41, ["l" * 401]]),
        (Limits, {}, "join_timeout_seconds", ["600"], [-1, NAN]),
        (Limits, {}, "lease_seconds", [2.0, 3600.0], [1.999, 3600.5, NAN, math.inf]),
        (Limits, {}, "submit_retries", [0, 100, "3"], [-1, 101, 1.5]),
        (RunSpec, SPEC, "launch_id", ["a" * 8, "09az" * 8], ["a" * 7, "A" * 8, "a" * 33]),
        (RunSpec, SPEC, "launch_id", [], ["a" * 8 + "\n"]),
        (RunSpec, SPEC, "min_nodes", [1, 2], [0]),
        (RunSpec, SPEC, "max_nodes", [1, 20_000], [0, 20_001, "2", True]),
        (RunSpec, SPEC_OF_MOST, "min_nodes", [20_000], [20_001]),
        (RunSpec, SPEC_OF_MOST, "token_sha256", [[], DIGESTS[1:]], [DIGESTS]),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
)
def test_a_bound_is_taken_and_what_lies_beyond_it_is_not(
    model: type[Any], rest: dict[str, Any], field: str, taken: list[Any], refused: list[Any]
) -> None:
    wire = TypeAdapter(model)
    for value in taken:
        read = wire.validate_json(json.dumps(rest | {field: value}))
        kept = json.loads(wire.dump_json(read))[field]
        assert kept == (float(value) if model is Limits else value)
    for value in refused:
        with pytest.raises(ValidationError) as caught:
            wire.validate_json(json.dumps(rest | {field: value}))
        assert {error["loc"][0] for error in caught.value.errors()} == {field}


# --- strictness -----------------------------------------------------------------------------------


def test_a_slots_state_may_be_given_as_text_and_messages_do_not_change() -> None:
    assert SlotNews.model_validate({"generation": 1, "state": "queued"}).state == "queued"
    for message, field in ((make_join(1), "slot"), (make_spec(2), "min_nodes"),
                           (Limits(), "submit_retries")):  # fmt: skip
        with pytest.raises((ValidationError, FrozenInstanceError)):
            setattr(message, field, 1)


# --- what a person says ---------------------------------------------------------------------------


def test_a_persons_unknown_keys_are_refused() -> None:
    told = json.loads(make_spec(2).model_dump_json())
    assert "max_node" in refused(RunSpec, told | {"max_node": 3})
    assert "join_timeout" in refused(Limits, {"join_timeout": 3})
    assert "invented" in refused(RunSpec, told | {"limits": {"invented": 1}})


# --- the table and its bytes ----------------------------------------------------------------------


def big_table(nodes: int) -> EndpointTable:
    rows = [
        TableRow(
            node=rank,
            slot=rank,
            hostname=f"ip-10-212-{rank // 250}-{rank % 250}",
            address=f"10.212.{rank // 250}.{rank % 250}",
            interface="enp100s0f0np0",
            prefix_length=20,
            nproc_per_node=8,
            mac=sha(str(rank)),
        )
        for rank in range(nodes)
    ]
    of: dict[str, Any] = {"run": "a-run-of-usual-length", "launch_id": "abcdefgh12345678"}
    return EndpointTable(**of, epoch=1, master_address="10.212.0.0", master_port=29_500, rows=rows)


def test_a_table_of_a_thousand_nodes_is_small() -> None:
    table = big_table(1_000)
    assert len(table.model_dump_json()) < 250_000
    assert len(table.canonical()) < 250_000
    assert table.world_size == 8_000


def test_a_table_is_named_by_all_of_its_content() -> None:
    table = big_table(2)
    again = EndpointTable.model_validate_json(table.model_dump_json())
    assert again.digest() == table.digest()
    row = table.rows[1]
    parts: dict[str, Any] = {"epoch": 2, "run": "other", "launch_id": "other", "master_port": 1}
    others = [{name: value} for name, value in parts.items()] + [{"rows": table.rows[::-1]}]
    others += [
        {"rows": [table.rows[0], other]}
        for other in (
            replace(row, address="10.0.0.9"),
            replace(row, mac=""),
            replace(row, nproc_per_node=9),
        )
    ]
    tables = [table, *(table.model_copy(update=other) for other in others)]
    assert len({each.digest() for each in tables}) == 9


ARMING: Any = {"seq": 2, "phase": Phase.ARMING, "epoch": 1, "reason": "", "poll_seconds": 2.0}


@pytest.mark.parametrize("changes", [{}, {"network": "rés\u0131x"}, {"network": 'a "b" \\ c'}])
def test_a_view_is_read_as_it_was_written_with_its_table_at_any_place(
    changes: dict[str, str],
) -> None:
    table = big_table(3).model_copy(update=changes)
    written = table.canonical()
    assert written == canonical_json(table.model_dump(exclude_none=True))
    digest = table.digest()
    given: dict[str, Any] = ARMING | {"reason": 'a ,"table":{} "b"', "digest": digest}
    view = NodeView(table=table, **given)
    without = view.model_copy(update={"table": None})
    data = write_view(view, written)
    assert data.endswith(b',"table":' + written + b"}")
    plain = view.model_dump_json(exclude_none=True).encode()
    assert read_view(data) == read_view(plain) == view
    assert read_view(write_view(view, b"")) == read_view(write_view(without, b"")) == without


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"master_port":29500', b'"master_port":29501'),
        (b'"node":1', b'"node":0'),
        (b'"digest":"', b'"digest":"","x":"'),
        (b"}]", b"},null]"),
    ],
)
def test_a_table_of_another_digest_is_none(old: bytes, new: bytes) -> None:
    table = big_table(2)
    view = NodeView(**ARMING, digest=table.digest())
    data = write_view(view, table.canonical())
    assert data.count(old) == 1
    with pytest.raises((OtherDigest, ValidationError)):
        read_view(data.replace(old, new))


def test_a_digest_that_is_told_elsewhere_names_no_table() -> None:
    table = big_table(2)
    told = f'"digest":"{table.digest()}"'
    view = NodeView(**ARMING, digest="0" * 64)
    data = write_view(view, table.canonical())
    for other in (b'{"x":{%s},' % told.encode(), b'{"x":[{%s}],' % told.encode()):
        with pytest.raises(OtherDigest):
            read_view(data.replace(b"{", other, 1))


def test_a_table_is_read_from_the_very_bytes_that_its_digest_names() -> None:
    """A second table before it, which a reader of JSON might take, is passed over."""
    table, other = big_table(2), big_table(3)
    view = NodeView(**ARMING, digest=table.digest())
    data = write_view(view, table.canonical())
    assert read_view(data.replace(b"{", b'{"table":' + other.canonical() + b",", 1)).table == table


def test_a_table_that_renews_the_one_before_is_told_by_its_port() -> None:
    former = big_table(2)
    table = former.renewed(former.epoch + 1, 29_501)
    changes = {"seq": 9, "epoch": table.epoch, "digest": table.digest(), "table": table}
    view = NodeView(**(ARMING | changes))
    short = view.model_copy(update={"table": None, "renewed_port": 29_501})
    data = write_view(short, b"")
    assert b"rows" not in data
    assert read_view(data, former) == view
    assert read_view(data, table) == view
    for other in (None, big_table(3)):
        with pytest.raises(OtherDigest):
            read_view(data, other)


def test_canonical_json_has_one_form() -> None:
    assert canonical_json({"b": [1, "ü"], "a": None}) == b'{"a":null,"b":[1,"\\u00fc"]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))


# --- text as people read it -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit", "clean"),
    [
        ("plain", 10, "plain"),
        ("a\tb\r\n\x1b[31mred", 20, "a?b???[31mred"),
        ("0123456789", 10, "0123456789"),
        ("0123456789a", 10, "012345678…"),
        ("\u202egnp.exe", 20, "?gnp.exe"),
        ("\udc80", 5, "?"),
    ],
)
def test_printable_text_is_clean_and_short(text: str, limit: int, clean: str) -> None:
    assert printable(text, limit) == clean


@FEW
@given(st.text(st.characters(codec=None)), st.integers(1, 50))
def test_whatever_is_made_printable_is_accepted_and_can_be_sent(text: str, limit: int) -> None:
    clean = printable(text, limit)
    assert len(clean) <= limit
    assert WORDS.validate_python(clean) == clean
    clean.encode()


@given(st.ip_addresses(), st.integers(0, 128))
def test_a_subnet_is_written_as_ipaddress_writes_it(address: Any, prefix: int) -> None:
    prefix = min(prefix, address.max_prefixlen)
    expected = str(ipaddress.ip_network((str(address), prefix), strict=False))
    assert subnet_text(subnet_of(str(address), prefix)) == expected


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"min_nodes": 3}, "min_nodes is larger than max_nodes"),
        ({"features": {"metrics": "x" * 9_000}}, "at most 8192 bytes"),
        ({"token_sha256": [sha("one")]}, "one entry for each slot"),
        ({"token_sha256": [sha("one")] * 2, "spares": 1}, "one entry for each slot"),
        ({"on_node_loss": "replace"}, "needs fence_timeout_seconds"),
    ],
)
def test_a_run_whose_fields_do_not_fit_each_other_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    assert why in refused(RunSpec, json.loads(make_spec(2).model_dump_json()) | changes)


def test_a_tenants_prefix_has_to_end_with_a_separator() -> None:
    with pytest.raises(ValidationError, match="prefix of run IDs"):
        Tenant(name="team", prefix="team", sha256=sha("t"))

"""Addresses of a registry as people write them: read, or refused with what to write."""

from __future__ import annotations

import pytest

from launcher.plan.endpoints import read_endpoint, read_endpoints, without_program_port
from launcher.symmetric.adopt import adopt
from launcher.symmetric.claim import Host, Value
from rendezvous.talk.join_string import group_token_text
from rendezvous.wire.errors import UsageError
from tests.launcher.command import rdzv


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("10.0.0.4", "10.0.0.4"),
        (" h1 ", "h1"),
        ("h1.", "h1."),
        ("gpu_1", "gpu_1"),
        ("h1:29601", "h1:29601"),
        ("[::1]", "::1"),
        ("FD00::0:7", "fd00::7"),
        ("[fd00::7]:443", "[fd00::7]:443"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_what_can_be_dialled_is_read(text: str, read: str) -> None:
    assert read_endpoint(text, "--registry-address") == read
    assert read_endpoints([text], "--registry-address") == [read]


NEITHER = "which is not a name or an address"
NO_PORT = "and a port is a number from 1 to 65535"
EXAMPLE = "give a name or an address, for example 10.0.0.4"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "A is empty", EXAMPLE),
        ("  ", "A is empty", EXAMPLE),
        ("h:99999", f"A is 'h:99999', {NO_PORT}", "write h, which has the port of --port, or h:"),
        ("h:0", f"A is 'h:0', {NO_PORT}", "write h, which"),
        ("[::1]:70000", f"A is '[::1]:70000', {NO_PORT}", "write [::1], which"),
        ("h:", f"A is 'h:', {NEITHER}", EXAMPLE),
        ("h:abc", f"A is 'h:abc', {NEITHER}", EXAMPLE),
        (":29600", f"A is ':29600', {NEITHER}", EXAMPLE),
        ("a:b:c", f"A is 'a:b:c', {NEITHER}", EXAMPLE),
        ("https://h", f"A is 'https://h', {NEITHER}", "write h"),
        ("https://h:443/path?x", f"A is 'https://h:443/path?x', {NEITHER}", "write h:443"),
        ("tcp://[::1]:5", f"A is 'tcp://[::1]:5', {NEITHER}", "write [::1]:5"),
        ("h/path", f"A is 'h/path', {NEITHER}", "write h"),
        ("https:///x", f"A is 'https:///x', {NEITHER}", EXAMPLE),
        ("ada@h", f"A is 'ada@h', {NEITHER}", "write h"),
        ("a,b", f"A is 'a,b', {NEITHER}", "give one address, or repeat the option"),
        ("a b", f"A is 'a b', {NEITHER}", "write a"),
        ("http://a..b/", f"A is 'http://a..b/', {NEITHER}", EXAMPLE),
        ("a..b", "A: 'a..b' has an empty label", EXAMPLE),
        ("10.0.0.256:1", "A: '10.0.0.256' is not an IPv4 address", EXAMPLE),
        ("29600", "A: '29600' is a number, not a host", EXAMPLE),
        ("-h", "A: '-h' begins with '-'", EXAMPLE),
        ("0.0.0.0", "A is 0.0.0.0: that is every address of a machine", EXAMPLE),
        ("[::]", "A is [::]: that is every address of a machine", EXAMPLE),
        ("h\x1b[2J", "A is 'h?[2J'", EXAMPLE),
    ],
)
def test_what_nobody_could_dial_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_endpoint(text, "A")
    assert caught.value.message.startswith(message)
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("h:29500", "h"),
        ("[::1]", "::1"),
        ("[fd00::1]:29511", "fd00::1"),
        (" 10.0.0.4 ", "10.0.0.4"),
        ("gateway:31600", "gateway:31600"),
        ("a:29500,b", "a,b"),
        ("https://h", "https://h"),
    ],
)
def test_the_port_of_the_program_is_not_the_registrys(text: str, read: str) -> None:
    assert without_program_port(text, ["29500", " 29511 "]) == read
    given = {"master_addr": Value(text, "MASTER_ADDR")}
    found = adopt({"MASTER_PORT": "29511"}, given, Host("h", ""))
    assert found.values["master_addr"].text == read
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": text, "MASTER_PORT": "29511"}
    adopted = adopt(environ, {}, Host("h", "")).values["master_addr"]
    assert adopted.text.strip() == read


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"RANK": "1"}, "RANK is set and WORLD_SIZE is not: set both, or NODE_RANK and NUM_NODES"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set and RANK is not: set both, or NODE_RANK and"),
    ],
)
def test_half_of_pytorchs_names_is_told(environ: dict[str, str], words: str) -> None:
    given = {"master_addr": Value("h", "MASTER_ADDR"), "rdzv_id": Value("r", "RDZV_ID")}
    with pytest.raises(UsageError) as caught:
        adopt(environ, given, Host("h", "")).check()
    assert caught.value.hint.startswith(words)


@pytest.mark.parametrize(
    "words",
    [
        ("launch", "--nnodes", "2", "--dry-run", "--registry-address", "h:0", "--", "train.py"),
        ("serve", "--registry-address", "h:0"),
        ("serve", "--advertise", "h:0"),
        ("token", "registry", "--registry-address", "h:0"),
    ],
)
def test_every_command_checks_them(words: tuple[str, ...]) -> None:
    token = group_token_text(bytes(32))
    found = rdzv(*words, env={"RDZV_TOKEN": token} if words[0] == "token" else None)
    assert found.exit_code == 64
    assert f"{words[-2] if words[0] != 'launch' else '--registry-address'} is 'h:0'" in found.output

"""What a torchrun asks for with its flags."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import rdzv
from launcher.plan.losses import check_losses
from launcher.settings import LaunchSettings
from launcher.torchrun.asked import (
    CONF,
    LEAST_GRACE_SECONDS,
    host_settings,
    node_settings,
    read_asked,
)
from launcher.torchrun.group import read_group
from launcher.torchrun.words import Begin, Next, line_of, read
from rendezvous.talk.credentials import registry_credential
from rendezvous.talk.join_string import RegistryPlace, RegistryString, group_token_text
from rendezvous.version import rdzv_version
from rendezvous.wire.errors import UsageError
from rendezvous.wire.protocol import PROTOCOL
from worker.options import not_observing, observes
from worker.settings import WorkerSettings

SECRET = bytes(range(32))
TOKEN = group_token_text(SECRET)


def begin(endpoint: str = "n0:29700", conf: dict[str, str] | None = None, **other: Any) -> Begin:
    """The first line of a torchrun; torch always puts `timeout` in."""
    words: dict[str, Any] = {
        "protocol": PROTOCOL,
        "version": "0.1",
        "run": "job",
        "nodes": (2, 4),
        "pid": 1,
        "python": "p",
    }
    conf = {"timeout": "900", **(conf or {})}
    return Begin(kind="begin", endpoint=endpoint, conf=conf, **(words | other))


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("n0:29700", "n0", 29700),
        ("n0", "n0", 29600),
        (" 10.0.0.4:1 ", "10.0.0.4", 1),
        ("[fd00::1]:29700", "fd00::1", 29700),
        ("fd00::1", "fd00::1", 29600),
        ("", "", 29600),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str, host: str, port: int) -> None:
    asked = read_asked(begin(endpoint))
    assert (asked.host, asked.port) == (host, port)


@pytest.mark.parametrize("endpoint", ["http://n0:1", "n0:port", "n0:99999", "a,b", "user@n0"])
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        read_asked(begin(endpoint))


def test_the_configuration_is_read() -> None:
    conf = {"join_timeout": "90", "last_call_timeout": "2.5", "standby": "1", "rank": "3"}
    asked = read_asked(begin(conf={**conf, "is_host": "True"}))
    assert (asked.join_timeout, asked.last_call, asked.standby, asked.node) == (90, 2.5, 1, 3)
    assert asked.is_host is True
    assert asked.slots == 5
    assert read_asked(begin(conf={"is_host": "0"})).is_host is False
    assert read_asked(begin()).is_host is None


@pytest.mark.parametrize("key", ["heartbeat_timeout", "store_type", "read_timeout", "standbys"])
def test_a_key_of_another_backend_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=f"--rdzv-conf {key} means nothing") as refused:
        read_asked(begin(conf={key: "1"}))
    assert any(known in refused.value.hint for known in CONF)


@pytest.mark.parametrize(
    ("key", "value"),
    [("token", "abc"), ("x", TOKEN), ("x", "rdzvreg1-abc"), ("rdzv_token_file", "/tmp/x")],
)
def test_a_credential_is_refused_and_not_shown(key: str, value: str) -> None:
    with pytest.raises(UsageError, match="holds a credential") as refused:
        read_asked(begin(conf={key: value}))
    assert value not in refused.value.message + refused.value.hint
    assert "RDZV_TOKEN_FILE" in refused.value.hint


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("standby", "one", "a whole number"),
        ("rank", "1.5", "a whole number"),
        ("join_timeout", "-1", "a number of seconds"),
        ("join_timeout", "nan", "a number of seconds"),
        ("is_host", "perhaps", "neither 1 nor 0"),
    ],
)
def test_a_value_that_cannot_be_is_refused(key: str, value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_asked(begin(conf={key: value}))


@pytest.mark.parametrize("run", ["none", ""])
def test_a_run_has_a_name(run: str) -> None:
    with pytest.raises(UsageError, match="no --rdzv-id"):
        read_asked(begin(run=run))


@pytest.mark.parametrize("changes", [{}, {"nodes": "2 to 4"}, {"kind": "hello"}])
def test_a_plug_in_of_another_protocol_is_refused_by_name(changes: dict[str, Any]) -> None:
    """Also one whose first line has another form."""
    words = begin().model_dump() | {"protocol": PROTOCOL + 1, "version": "0.9", "python": "/py"}
    with pytest.raises(UsageError) as refused:
        read(json.dumps(words | changes).encode())
    assert refused.value.message == (
        f"the rdzv of torchrun's Python (/py) speaks protocol {PROTOCOL + 1} (rdzv 0.9), but the "
        f"rdzv that it has started ({sys.executable}) speaks protocol {PROTOCOL} "
        f"(rdzv {rdzv_version()})"
    )
    assert "RDZV_PYTHON" in refused.value.hint


def test_what_is_no_first_line_is_of_an_unknown_protocol() -> None:
    with pytest.raises(UsageError, match="speaks an unknown protocol"):
        read(b'{"kind": "something else"}\n')


def test_the_plug_in_and_its_helper_speak_the_same() -> None:
    handler = Path(rdzv.__file__).with_name("torchrun.py").read_text(encoding="utf-8")
    assert f"\nPROTOCOL = {PROTOCOL}\n" in handler  # read, and not imported: it imports torch
    said = read(line_of("next", processes=2, role="default"))
    assert said == Next(kind="next", processes=2, role="default")


def test_a_node_has_the_options_of_a_worker() -> None:
    asked = read_asked(begin(conf={"join_timeout": "90"}))
    given = WorkerSettings(interface=["ib0"], grace=60, node_rank=2)
    node = Next(kind="next", processes=8, role="trainer")
    made = node_settings(asked, node, given)
    assert (made.nnodes, made.nproc_per_node, made.interface) == ("2:4", "8", ["ib0"])
    assert (made.join_timeout, made.grace, made.node_rank) == (90, 60, None)
    assert (made.look, made.early_start, made.loopback) == ("off", "off", False)
    assert made.model_dump().items() >= not_observing().items()
    assert not observes(made)
    assert node_settings(asked, node, WorkerSettings()).grace == LEAST_GRACE_SECONDS


@pytest.mark.parametrize(
    "endpoint",
    [
        *("localhost:1", "LOCALHOST:1", "localhost6:1", "ip6-localhost:1", "127.0.0.1:1"),
        *("localhost.localdomain:1", "127.0.1.1:1", "[::1]:1", "0.0.0.0:1", "[::]:1"),
    ],
)
def test_an_endpoint_on_loopback_may_be_that_of_one_node_alone(endpoint: str) -> None:
    """Platforms give it to the first of several nodes, and its name to the others."""
    node = Next(kind="next", processes=1, role="default")
    for nodes, conf, alone in [
        ((1, 1), {}, True),
        ((1, 1), {"standby": "1"}, False),
        ((1, 2), {}, False),
        ((2, 2), {}, False),
    ]:
        asked = read_asked(begin(endpoint, nodes=nodes, conf=conf))
        made = node_settings(asked, node, WorkerSettings())
        assert (asked.loopback, asked.alone) == (True, alone)
        assert (made.loopback, made.hosts) == (alone, "off" if alone else "auto")
        assert read_group(asked, TOKEN, None).place.addresses == ("127.0.0.1",)
        assert host_settings(asked, LaunchSettings()).master_addr == "127.0.0.1"
    assert not read_asked(begin("n0:1", nodes=(1, 1))).loopback


def test_the_host_makes_a_run_that_outlives_its_nodes() -> None:
    asked = read_asked(begin(conf={"standby": "1", "last_call_timeout": "5"}))
    of_launches: dict[str, Any] = {"avoid": ["n7"], "ends_with": "node0", "cwd": Path("/data")}
    given = LaunchSettings(lease=5, node_rank=3, local_node=True, **of_launches)
    made = host_settings(asked, given)
    assert (made.avoid, made.ends_with, made.cwd) == ([], "all", None)
    assert (made.node_rank, made.master_addr, made.port) == (0, "n0", 29700)
    assert (made.on_node_loss, made.standby, made.local_node) == ("replace", 1, False)
    assert (made.last_call, made.lease, made.any_command) == (5, 5, True)
    own = LaunchSettings(join_timeout=500.0)
    assert host_settings(asked, own).join_timeout == 500.0
    asked = read_asked(begin(conf={"join_timeout": "77"}))
    assert host_settings(asked, own).join_timeout == 77.0
    check_losses(made, (2, 4), ["python3"])


def test_all_nodes_make_the_same_keys_from_the_token() -> None:
    asked = read_asked(begin())
    one, other = read_group(asked, TOKEN, None), read_group(asked, TOKEN, None)
    assert one.join(2).text() == other.join(2).text()
    assert one.place.trust == "public_key"
    assert one.place.where() == "port 29700 of n0"
    stranger = read_group(asked, group_token_text(bytes(32)), None)
    assert stranger.place.proof != one.place.proof
    assert stranger.keys.read != one.keys.read


def test_without_a_secret_or_a_place_nobody_meets() -> None:
    with pytest.raises(UsageError, match="RDZV_TOKEN_FILE is not set") as refused:
        read_group(read_asked(begin()), None, None)
    assert "rdzv token new" in refused.value.hint
    with pytest.raises(UsageError, match="no --rdzv-endpoint"):
        read_group(read_asked(begin("")), TOKEN, None)


def test_a_standing_registry_is_a_place_and_a_secret() -> None:
    place = RegistryPlace(("n1", "n2"), 29600, "certificate", b"x")
    word = RegistryString(place, registry_credential(SECRET)).text()
    group = read_group(read_asked(begin("")), None, word)
    assert group.place == place
    assert group.standing is not None
    assert read_group(read_asked(begin("", run="other")), None, word).keys.secret != (
        group.keys.secret
    )
    assert read_group(read_asked(begin("")), TOKEN, word).keys.secret == SECRET
    with pytest.raises(UsageError, match="name two registries"):
        read_group(read_asked(begin()), TOKEN, word)

"""How a node gets ready for a table, as a function of values: a contract, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.table import EndpointTable
from tests.worker.test_table import join, table
from worker.agent import AgentEnvironment
from worker.agent.actions import Arm
from worker.agent.arming import NodeSpec, arm
from worker.agent.inputs import Armed, NotArmed
from worker.agent.notices import Note
from worker.settings import WorkerSettings

TABLE = table()


@dataclass
class Hosts:
    """A hosts file that remembers what was done to it."""

    warning: str | None = None
    error: str = ""
    written: list[EndpointTable] = field(default_factory=list)

    def install(self, given: EndpointTable, own_slot: int, resolved: Any = None) -> str | None:
        if self.error:
            raise ArmingFailed(self.error)
        self.written.append(given)
        return self.warning

    def remove(self) -> None:
        """Nothing here removes anything."""


class Bench:
    """A node on a machine where all is well, but for what a test says.

    Args:
        world: Other answers of the outer world.
        settings: As of `WorkerSettings`, and `slot`, `remote` and `command`.
    """

    def __init__(self, world: Mapping[str, Any] | None = None, **settings: Any) -> None:
        self.slot, remote = settings.pop("slot", 1), settings.pop("remote", False)
        command = settings.pop("command", ["train"])
        values: dict[str, Any] = {"framework": "command", "log_dir": Path("/nowhere")}
        made = WorkerSettings(**({**values, "hosts": "auto"} | settings))
        self.spec = NodeSpec(made, join(self.slot), command, remote=remote)
        self.hosts = Hosts()
        self.files: list[str] = []
        answers: dict[str, Any] = {
            "environ": {"PATH": "/bin"},
            "why_unusable": lambda address, interface: "",
            "is_free": lambda port: True,
            "find_free": lambda port: port + 10,
            "missing_of": lambda needs, environ: "",
            "read_conf": lambda environ: {},
            "write_files": lambda folder, files: self.files.append("files"),
            "write_shims": lambda folder, socket: self.files.append("shims"),
        }
        self.environment = AgentEnvironment(**(answers | dict(world or {})))

    def arm(
        self, given: EndpointTable = TABLE, former: EndpointTable | None = None, socket: str = "/s"
    ) -> Any:
        """What comes of the table."""
        offered = frozenset(row.mac for row in given.rows if row.slot == self.slot)
        asked = Arm(7, given, given.digest(), former, offered)
        return arm(asked, self.spec, self.environment, self.hosts, socket=socket, resolved={})


def refused(answer: Any) -> tuple[str, str, int | None]:
    """Code, reason and free port of a refusal."""
    assert isinstance(answer, NotArmed)
    assert (answer.number, answer.refusal.epoch) == (7, 1)
    return answer.refusal.code, answer.refusal.reason, answer.refusal.free_port


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


GONE = {"why_unusable": lambda address, interface: f"{address} is gone"}
MISSING = {"missing_of": lambda needs, environ: "train is not on PATH"}
TAKEN = {"is_free": lambda port: False}
SCRIPT = {"slot": 0, "framework": "torchrun", "command": ["train.py"]}
NO_SUCH_OPTION = {"framework": "torchrun", "command": ["--no-such-option-of-torchrun"]}


@pytest.mark.parametrize(
    ("settings", "files"), [({}, ["files"]), ({"remote": True}, ["files", "shims"])]
)
def test_where_all_is_well_the_contract_is_made_and_the_hosts_file_written(
    settings: dict[str, Any], files: list[str]
) -> None:
    bench = Bench(**settings)
    answer = bench.arm()
    assert isinstance(answer, Armed)
    assert (answer.contract.argv, answer.notices) == (["train"], ())
    assert (bench.files, bench.hosts.written) == (files, [TABLE])


@pytest.mark.parametrize(
    ("world", "settings", "options", "code", "reason"),
    [
        ({}, {}, {"given": table(master_port=0)}, "bad_table", ""),
        ({}, {}, {"given": table(master_port=29_501), "former": TABLE}, "bad_table", ""),
        (GONE, {}, {}, "address", "10.0.0.5 is gone since it joined"),
        (MISSING, SCRIPT, {}, "contract", "train is not on PATH"),
        ({}, NO_SUCH_OPTION, {}, "contract", ""),
        (TAKEN, SCRIPT, {}, "port_taken", ""),
        ({"write_files": no_space}, {"remote": True}, {}, "contract", ""),
        ({"write_shims": no_space}, {"remote": True}, {}, "contract", "No space left on device"),
        ({}, {"remote": True}, {"socket": ""}, "contract", ""),
    ],
)
def test_a_refusal_leaves_no_trace_in_the_hosts_file(
    world: dict[str, Any], settings: dict[str, Any], options: Any, code: str, reason: str
) -> None:
    bench = Bench(world, **settings)
    found = refused(bench.arm(**options))
    assert (found[0], bench.hosts.written) == (code, [])
    assert found[1].endswith(reason)
    assert code != "bad_table" or bench.files == []


def test_the_table_that_was_acknowledged_may_come_again() -> None:
    assert isinstance(Bench().arm(TABLE, TABLE), Armed)


@pytest.mark.parametrize("framework", ["torchrun", "jax", "tensorflow", "lightning", "accelerate"])
def test_a_free_port_is_told_as_the_masters_less_the_offset_of_the_contracts(
    framework: str,
) -> None:
    bench = Bench(
        {**TAKEN, "find_free": lambda port: port + 4}, **SCRIPT | {"framework": framework}
    )
    _, reason, free = refused(bench.arm())
    port = int(reason.split("port ")[1].split()[0])
    ahead = port - TABLE.master_port
    assert free == port + 5 - ahead == TABLE.master_port + 5


def test_where_no_port_is_free_none_is_told() -> None:
    assert refused(Bench({**TAKEN, "find_free": lambda port: None}, **SCRIPT).arm())[2] is None


def test_files_that_cannot_be_written_are_said_and_the_node_goes_on() -> None:
    answer = Bench({"write_files": no_space}).arm()
    assert isinstance(answer, Armed)
    assert [said.note for said in answer.notices] == [Note.NO_HOSTFILE]


@pytest.mark.parametrize("hosts", [Hosts(error="no right"), Hosts(warning="n2 leads elsewhere")])
def test_a_hosts_file_that_is_not_required_is_a_warning_and_the_node_goes_on(hosts: Hosts) -> None:
    bench = Bench()
    bench.hosts = hosts
    answer = bench.arm()
    assert isinstance(answer, Armed)
    assert [said.note for said in answer.notices] == [Note.WARNED]
    assert not hosts.warning or answer.notices[0].values == (("words", hosts.warning),)


def test_a_hosts_file_that_is_required_and_cannot_be_written_is_a_refusal() -> None:
    bench = Bench(hosts="require")
    bench.hosts.error = "no right to write"
    assert refused(bench.arm())[:2] == ("hosts", "no right to write (--hosts require)")


def test_a_hosts_file_that_is_off_is_not_touched() -> None:
    bench = Bench(hosts="off")
    assert isinstance(bench.arm(), Armed)
    assert bench.hosts.written == []

"""How a node gets ready for a table, as a function of values: a contract, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
        """See `worker.hosts.file.HostsBlock`."""
        assert own_slot == 1
        if self.error:
            raise ArmingFailed(self.error)
        self.written.append(given)
        return self.warning

    def remove(self) -> None:
        """See `worker.hosts.file.HostsBlock`."""


class Bench:
    """A node of slot 1 on a machine where all is well, but for what a test says."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        values: dict[str, Any] = {
            "framework": "command",
            "log_dir": folder,
            "hosts": "auto",
        } | settings
        self.spec = NodeSpec(WorkerSettings(**values), join(), ["train"], remote=False)
        self.hosts = Hosts()
        self.files: list[str] = []
        self.environment = AgentEnvironment(
            environ={"PATH": "/bin"},
            why_unusable=lambda address, interface: "",
            is_free=lambda port: True,
            find_free=lambda port: port + 10,
            missing_of=lambda needs, environ: "",
            read_conf=lambda environ: {},
            write_files=self._write,
            write_shims=lambda folder, socket: self.files.append("shims"),
        )
        self.socket = "/run/agent.sock"

    def _write(self, folder: Path, files: Mapping[str, str]) -> None:
        self.files.append("files")

    def but(self, **changes: Any) -> Bench:
        """With another answer of the outer world."""
        self.environment = replace(self.environment, **changes)
        return self

    def arm(self, given: EndpointTable = TABLE, former: EndpointTable | None = None) -> Any:
        """What comes of the table."""
        offered = frozenset(row.mac for row in given.rows if row.slot == 1)
        asked = Arm(7, given, given.digest(), former, offered)
        return arm(asked, self.spec, self.environment, self.hosts, socket=self.socket, resolved={})


def refused(answer: Any) -> tuple[str, str, int | None]:
    """Code, reason and free port of a refusal."""
    assert isinstance(answer, NotArmed)
    assert answer.number == 7
    assert answer.refusal.epoch == 1
    return answer.refusal.code, answer.refusal.reason, answer.refusal.free_port


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_where_all_is_well_the_contract_is_made_and_the_hosts_file_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    answer = bench.arm()
    assert isinstance(answer, Armed)
    assert (answer.contract.argv, answer.notices) == (["train"], ())
    assert (bench.files, bench.hosts.written) == (["files"], [TABLE])


def test_a_bad_table_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    code, _, _ = refused(bench.arm(table(master_port=0)))
    assert code == "bad_table"
    assert (bench.files, bench.hosts.written) == ([], [])


def test_another_table_of_the_epoch_that_was_acknowledged_is_a_bad_one(tmp_path: Path) -> None:
    assert refused(Bench(tmp_path).arm(table(master_port=29_501), TABLE))[0] == "bad_table"
    assert isinstance(Bench(tmp_path).arm(TABLE, TABLE), Armed)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("contract", {"missing_of": lambda needs, environ: "train is not on PATH"}),
        ("address", {"why_unusable": lambda address, interface: "eth0 is down"}),
        ("port_taken", {"is_free": lambda port: False}),
    ],
)
def test_a_refusal_leaves_no_trace_in_the_hosts_file(
    tmp_path: Path, code: str, changes: dict[str, Any]
) -> None:
    bench = Bench(tmp_path, framework="torchrun", node_rank=0).but(**changes)
    bench.spec = replace(bench.spec, join=join(0), command=["train.py"])
    given = TABLE
    asked = Arm(7, given, given.digest(), None, frozenset({given.rows[0].mac}))
    answer = arm(asked, bench.spec, bench.environment, bench.hosts, socket="", resolved={})
    assert refused(answer)[0] == code
    assert bench.hosts.written == []


def test_an_address_that_was_lost_since_the_join_is_named() -> None:
    bench = Bench(Path("/nowhere")).but(
        why_unusable=lambda address, interface: f"{address} is gone"
    )
    assert refused(bench.arm()) == ("address", "10.0.0.5 is gone since it joined", None)


def test_a_command_that_no_contract_can_be_made_of_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, framework="torchrun")
    bench.spec = replace(bench.spec, command=["--no-such-option-of-torchrun"])
    assert refused(bench.arm())[0] == "contract"


@pytest.mark.parametrize(("found", "told"), [(29_510, 29_510), (None, None)])
def test_a_port_that_is_taken_is_told_with_one_that_is_free(
    found: int | None, told: int | None
) -> None:
    asked: list[int] = []

    def find(port: int) -> int | None:
        asked.append(port)
        return found

    bench = Bench(Path("/nowhere"), framework="torchrun")
    bench.spec = replace(bench.spec, join=join(0), command=["train.py"])
    bench.but(is_free=lambda port: False, find_free=find)
    given = TABLE
    arm_for = Arm(7, given, given.digest(), None, frozenset({given.rows[0].mac}))
    answer = arm(arm_for, bench.spec, bench.environment, bench.hosts, socket="", resolved={})
    code, _, free = refused(answer)
    ahead = asked[0] - 1 - given.master_port
    assert code == "port_taken"
    assert free == (None if told is None else told - ahead)


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "lightning", "accelerate"])
def test_the_free_port_is_told_as_the_masters_less_the_offset_of_the_contracts(
    framework: str,
) -> None:
    bench = Bench(Path("/nowhere"), framework=framework)
    bench.spec = replace(bench.spec, join=join(0), command=["train.py"])
    bench.but(is_free=lambda port: False, find_free=lambda port: port + 4)
    arm_for = Arm(7, TABLE, TABLE.digest(), None, frozenset({TABLE.rows[0].mac}))
    answer = arm(arm_for, bench.spec, bench.environment, bench.hosts, socket="", resolved={})
    code, reason, free = refused(answer)
    port = int(reason.split("port ")[1].split()[0])
    ahead = port - TABLE.master_port
    assert code == "port_taken"
    assert free == port + 5 - ahead == TABLE.master_port + 5


def test_files_that_cannot_be_written_are_said_and_the_node_goes_on(tmp_path: Path) -> None:
    answer = Bench(tmp_path).but(write_files=no_space).arm()
    assert isinstance(answer, Armed)
    assert [said.note for said in answer.notices] == [Note.NO_HOSTFILE]


@pytest.mark.parametrize("lacks", ["files", "socket"])
def test_remote_commands_without_a_place_to_put_them_are_refused(
    tmp_path: Path, lacks: str
) -> None:
    bench = Bench(tmp_path)
    bench.spec = replace(bench.spec, remote=True)
    if lacks == "files":
        bench.but(write_files=no_space)
    else:
        bench.socket = ""
    assert refused(bench.arm())[0] == "contract"
    assert bench.hosts.written == []


def test_shims_that_cannot_be_written_are_a_refusal(tmp_path: Path) -> None:
    bench = Bench(tmp_path).but(write_shims=no_space)
    bench.spec = replace(bench.spec, remote=True)
    code, reason, _ = refused(bench.arm())
    assert code == "contract"
    assert reason.endswith("cannot be written: No space left on device")


def test_shims_are_written_where_commands_of_other_nodes_are_allowed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.spec = replace(bench.spec, remote=True)
    assert isinstance(bench.arm(), Armed)
    assert bench.files == ["files", "shims"]


def test_a_hosts_file_that_is_required_and_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    bench = Bench(tmp_path, hosts="require")
    bench.hosts.error = "no right to write"
    assert refused(bench.arm())[:2] == ("hosts", "no right to write (--hosts require)")


def test_one_that_is_not_required_is_a_warning_and_the_node_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.hosts.error = "no right to write"
    answer = bench.arm()
    assert isinstance(answer, Armed)
    assert [said.note for said in answer.notices] == [Note.WARNED]
    bench = Bench(tmp_path)
    bench.hosts.warning = "n2 leads elsewhere"
    answer = bench.arm()
    assert isinstance(answer, Armed)
    assert [said.values for said in answer.notices] == [(("words", "n2 leads elsewhere"),)]


def test_a_hosts_file_that_is_off_is_not_touched(tmp_path: Path) -> None:
    bench = Bench(tmp_path, hosts="off")
    assert isinstance(bench.arm(), Armed)
    assert bench.hosts.written == []

"""How a node gets ready for a table, as a function of values: a contract, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rendezvous.wire.errors import ArmingFailed
from rendezvous.wire.run import RestartFacts
from rendezvous.wire.table import EndpointTable
from tests.worker.test_table import join, sealed, table
from worker.agent import AgentEnvironment
from worker.agent.actions import Arm
from worker.agent.arming import NodeSpec, arm
from worker.agent.inputs import Armed
from worker.settings import WorkerSettings

TABLE = table()


class Bench:
    """A node on a machine where all is well, but for what a test says.

    Args:
        world: Other answers of the outer world; `file` is the hosts file.
        settings: As of `WorkerSettings`, and `slot`, `remote` and `command`.
    """

    def __init__(self, world: dict[str, Any], **settings: Any) -> None:
        self.slot, remote = settings.pop("slot", 1), settings.pop("remote", False)
        command = settings.pop("command", ["train"])
        values: dict[str, Any] = {"framework": "command", "log_dir": Path("/nowhere")}
        made = WorkerSettings(**({**values, "hosts": "auto"} | settings))
        self.spec = NodeSpec(made, join(self.slot), command, remote=remote)
        self.done: list[str] = []
        self.restarts = RestartFacts()
        answers: dict[str, Any] = {
            "environ": {"PATH": "/bin"},
            "why_unusable": lambda address, interface: "",
            "why_too_few": lambda processes: "",
            "is_free": lambda port: True,
            "find_free": lambda port: port + 10,
            "missing_of": lambda needs, environ: "",
            "read_conf": lambda environ: {},
            "write_files": self._write_files,
            "place_shims": self._place_shims,
            "file": lambda: None,
        } | world
        self._write_hosts = answers.pop("file")
        self.environment = AgentEnvironment(**answers)

    def _write_files(self, folder: Path, files: Mapping[str, str]) -> None:
        [own] = [row.node for row in TABLE.rows if row.slot == self.slot]
        assert folder.name == f"node-{own}"
        self.done.append("files")

    def _place_shims(self, folders: list[Path], *_: Any) -> Path:
        self.done.append("shims")
        return folders[0]

    def install(self, given: EndpointTable, own_slot: int, resolved: Any = None) -> str | None:
        """As of a hosts file."""
        assert own_slot == self.slot
        warning: str | None = self._write_hosts()
        self.done.append("hosts" if given is TABLE else "other hosts")
        return warning

    def remove(self) -> None:
        """Nothing here removes anything."""

    def arm(
        self,
        given: EndpointTable = TABLE,
        former: EndpointTable | None = None,
        socket: str = "/s",
        *,
        of_generations: bool = False,
        secrets: Mapping[str, str] | None = None,
    ) -> Any:
        """What comes of the table."""
        offered = frozenset(row.mac for row in given.rows if row.slot == self.slot)
        asked = Arm(7, given, given.digest(), former, offered, self.restarts, of_generations)
        told: Any = {"socket": socket, "resolved": {}, "secrets": secrets}
        return arm(asked, self.spec, self.environment, self, **told)


def raises(error: Exception) -> Any:
    """What cannot be done."""

    def call(*_: object) -> None:
        raise error

    return call


NO_SPACE = raises(OSError(28, "No space left on device"))
NO_RIGHT = raises(ArmingFailed("no right to write"))
GONE = {"why_unusable": lambda address, interface: f"{address} is gone"}
FULL = {"why_too_few": lambda processes: f"{processes} cannot be: ulimit -u"}
MISSING = {"missing_of": lambda needs, environ: "train is not on PATH"}
TAKEN = {"is_free": lambda port: False}
SCRIPT = {"slot": 0, "framework": "torchrun", "command": ["train.py"]}
NO_SUCH_OPTION = {"framework": "torchrun", "command": ["--no-such-option-of-torchrun"]}
NO_FILES, NO_SHIMS = {"write_files": NO_SPACE}, {"place_shims": NO_SPACE}
NOWHERE = (
    "rdzv-rsh, by which a launcher on one node reaches the others, can be run nowhere: No space "
    "left on device; name a folder in which programs can be run with --log-dir or TMPDIR"
)
NO_HOSTS, WARNS = {"file": NO_RIGHT}, {"file": lambda: "n2 leads elsewhere"}
REQUIRED, OFF, REMOTE = {"hosts": "require"}, {"hosts": "off"}, {"remote": True}
EVEN = table(rows=[sealed(replace(row, nproc_per_node=8)) for row in TABLE.rows])
LOOPBACK = table("127.0.0.1", "127.0.0.2", "127.0.0.3")
NO_PORT, OTHER_PORT = table(master_port=0), table(master_port=29_501)


@pytest.mark.parametrize(
    ("world", "settings", "options", "does", "reason"),
    [
        ({}, {}, {}, "armed files hosts", ""),
        ({}, REMOTE, {}, "armed files shims hosts", ""),
        ({}, {}, {"former": TABLE}, "armed files hosts", ""),  # the same may come again
        ({}, OFF, {}, "armed files", ""),
        (NO_FILES, {}, {}, "armed NO_HOSTFILE hosts", ""),
        (NO_HOSTS, {}, {}, "armed WARNED files", ""),
        (WARNS, {}, {}, "armed WARNED files hosts", ""),
        # A refusal leaves no trace in the hosts file.
        ({}, {}, {"given": NO_PORT}, "bad_table", ""),
        ({}, {}, {"given": OTHER_PORT, "former": TABLE}, "bad_table", ""),
        ({}, {}, {"of_generations": True}, "bad_table", "name the worker run of each row"),
        (GONE, {}, {}, "address files", "10.0.0.5 is gone since it joined"),
        (MISSING, SCRIPT, {}, "contract files", "train is not on PATH"),
        (FULL, SCRIPT, {}, "contract files", "cannot be: ulimit -u"),
        ({}, NO_SUCH_OPTION, {}, "contract files", ""),
        (TAKEN, SCRIPT, {}, "port_taken files", ""),
        (NO_FILES, REMOTE, {}, "contract", ""),
        (NO_SHIMS, REMOTE, {}, "contract files", NOWHERE),
        ({}, REMOTE, {"socket": ""}, "contract files", ""),
        (NO_HOSTS, REQUIRED, {}, "hosts files", "no right to write (--hosts require)"),
    ],
)
def test_what_a_node_makes_of_a_table(
    world: dict[str, Any], settings: dict[str, Any], options: Any, does: str, reason: str
) -> None:
    bench = Bench(world, **settings)
    answer = bench.arm(**options)
    if isinstance(answer, Armed):
        said = ["armed", *(said.note.name for said in answer.notices)]
        assert (answer.contract.argv, answer.number) == (["train"], 7)
    else:
        said = [answer.refusal.code]
        assert (answer.number, answer.refusal.epoch) == (7, 1)
        assert answer.refusal.reason.endswith(reason)
    assert " ".join([*said, *bench.done]) == does


def test_the_warning_of_the_hosts_file_is_said() -> None:
    (said,) = Bench(WARNS).arm().notices
    assert said.values == (("words", "n2 leads elsewhere"),)


def test_the_program_is_told_what_the_registry_says_of_those_before_it() -> None:
    bench = Bench({})
    bench.restarts = RestartFacts(restarts=2, max_restarts=3, last_failure="node 0 failed")
    variables = bench.arm().contract.variables
    assert (variables["RDZV_EPOCH"], variables["RDZV_RESTARTS"]) == ("1", "2")
    assert variables["RDZV_LAST_FAILURE"] == "node 0 failed"


def test_the_program_is_told_of_nodes_that_were_replaced_where_it_never_restarts() -> None:
    bench = Bench({})
    words = "the connection to node 1 was closed"
    bench.restarts = RestartFacts(outlives_nodes=True, replacements=2, last_failure=words)
    variables = bench.arm().contract.variables
    names = ("RDZV_REPLACEMENTS", "RDZV_RESTARTS", "RDZV_MAX_RESTARTS", "RDZV_LAST_FAILURE")
    assert [variables[name] for name in names] == ["2", "0", "0", words]


def test_the_program_and_remote_commands_are_given_the_secrets_and_the_table_counts_more() -> None:
    secrets = {"HF_TOKEN": "hush", "A": "hush", "RDZV_EPOCH": "9", "RDZV_TOKEN": "hush"}
    contract = Bench({}).arm(secrets=secrets).contract
    assert "hush" not in repr(contract)
    for found in (contract.environment({"A": "1"}), contract.served_environment({"A": "1"})):
        assert (found["HF_TOKEN"], found["A"], found["RDZV_EPOCH"]) == ("hush", "hush", "1")
        assert "RDZV_TOKEN" not in found


def test_nccls_log_is_of_its_epoch_in_a_folder_of_its_launch_whatever_the_path_looks_like() -> None:
    made = Bench({}, log_dir=Path("/100%p logs"), nccl_log="on").arm().contract
    assert made.nccl_log == "/100%%p logs/nccl-launch0001/node-2.e1.%p.log"


@pytest.mark.parametrize(
    ("framework", "slot", "ahead"),
    [
        *((name, 0, 0) for name in ("torchrun", "jax", "tensorflow", "lightning", "accelerate")),
        ("tensorflow", 1, 2),  # on one machine each node listens on a port of its own, by its rank
        ("tensorflow", 2, 1),
    ],
)
def test_a_free_port_is_told_as_the_masters_less_the_offset_of_the_contracts(
    framework: str, slot: int, ahead: int
) -> None:
    settings = {**SCRIPT, "framework": framework, "slot": slot}
    bench = Bench({**TAKEN, "find_free": lambda port: port + 4}, **settings)
    told = bench.arm(LOOPBACK if ahead else EVEN).refusal
    port, free = int(told.reason.split("port ")[1].split()[0]), told.free_port
    assert port - TABLE.master_port == ahead
    assert free == port + 5 - ahead == TABLE.master_port + 5
    assert told.reason.startswith("port " if ahead else "master port ")


def test_where_no_port_is_free_none_is_told() -> None:
    bench = Bench({**TAKEN, "find_free": lambda port: None}, **SCRIPT)
    assert bench.arm().refusal.free_port is None


@pytest.mark.parametrize(
    "facts", [RestartFacts(), RestartFacts(cold=True), RestartFacts(mixed=True)]
)
def test_nothing_is_forked_where_torchrun_starts_the_ranks(facts: RestartFacts) -> None:
    bench = Bench({"missing_of": lambda needs, environ: ""}, **SCRIPT, warm="on")
    bench.restarts = facts
    assert (bench.arm().contract.forks is None) is facts.by_torchrun


@pytest.mark.parametrize(("socket", "look"), [("/run/s/agent", "/run/s/look-1"), ("", "")])
def test_what_ranks_use_lies_beside_the_agents_socket_and_is_of_its_epoch(
    socket: str, look: str
) -> None:
    variables = Bench({}, slot=0, framework="command").arm(socket=socket).contract.variables
    assert variables.get("RDZV_LOOK_FOLDER", "") == look
    contract = Bench({}, **SCRIPT).arm(socket=socket).contract
    scratch = [word for word in contract.argv if "torchelastic" in word]
    assert [word.rpartition("=")[2] for word in scratch] == ["/run/s/torchelastic-1"] * bool(socket)

"""How a node gets ready for a table: in a thread, as disks and file systems may hang.

    table judged -> files -> shims -> contract -> needs -> address -> limits -> port -> hosts file

The hosts file is written last: a refusal leaves no new trace there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rendezvous.frozen import frozen
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import ArmingFailed, UsageError
from rendezvous.wire.reports import RefusalCode, RefuseReport
from rendezvous.wire.table import EndpointTable, TableRow
from rendezvous.wire.words import printable
from worker.agent.actions import Arm
from worker.agent.environment import AgentEnvironment, HostsFile
from worker.agent.inputs import Armed, NotArmed
from worker.agent.notices import Note, Notice, notice
from worker.agent.table import problem_of
from worker.contracts import Contract, make_contract
from worker.contracts.files import NOTICE, files_of
from worker.contracts.framework import Paths
from worker.contracts.torchrun import SHUTDOWN, why_killed_early
from worker.contracts.variables import NodeDevices, ProgramOptions
from worker.hosts.resolver import Addresses
from worker.program.state_home import usual_home
from worker.settings import WorkerSettings


@frozen
class NodeSpec:
    """What one agent is, beside the table.

    Attributes:
        settings: What the person said.
        join: What this node joined with.
        command: The COMMAND.
        remote: Whether this run allows commands of other nodes.
        any_slot: Whether it ends where its slot is held, instead of waiting for it.
    """

    settings: WorkerSettings
    join: JoinString
    command: Sequence[str]
    remote: bool
    any_slot: bool = False

    def first_rank(self, table: EndpointTable) -> int:
        """The global rank of this node's first process."""
        return table.first_process(self.row(table).node)

    def row(self, table: EndpointTable) -> TableRow:
        """This node's row of a table that was judged."""
        row = table.row_of_slot(self.join.slot)
        assert row is not None
        return row

    def log_folder(self, environ: Mapping[str, str]) -> Path:
        """Where the logs of this run's nodes are."""
        return self.settings.log_dir or usual_home(environ) / self.join.run / "logs"


_CALLS_IT = "a launcher on one node reaches the others"
_LET_IT_RUN = "name a folder in which programs can be run with --log-dir or TMPDIR"


class CannotArm(Exception):
    """Why this node cannot start on a table."""

    def __init__(self, code: RefusalCode, reason: str, free_port: int | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = printable(reason, 600)
        self.free_port = free_port


def arm(
    asked: Arm,
    spec: NodeSpec,
    environment: AgentEnvironment,
    hosts: HostsFile,
    *,
    socket: str,
    resolved: Mapping[str, Addresses],
    secrets: Mapping[str, str] | None = None,
) -> Armed | NotArmed:
    """Check the table, take it into the hosts file, see that the program can start on it.

    Args:
        asked: Which table, and what this node knows of it.
        spec: What this agent is.
        environment: The outer world.
        hosts: Where names are written.
        socket: The path of the agent's socket; empty when there is none.
        resolved: Where hostnames lead here already.
        secrets: The run's sealed variables.
    """
    work = _Arming(asked, spec, environment, socket, secrets or {})
    try:
        contract = work.prepare()
        work.write_hosts(hosts, resolved)
    except CannotArm as exc:
        report = RefuseReport(
            epoch=asked.table.epoch, code=exc.code, reason=exc.reason, free_port=exc.free_port
        )
        return NotArmed(asked.number, report, tuple(work.notices))
    return Armed(asked.number, contract, tuple(work.notices))


@dataclass
class _Arming:
    """The steps for one table; each raises `CannotArm`."""

    asked: Arm
    spec: NodeSpec
    environment: AgentEnvironment
    socket: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str = ""
    bin: str = ""
    notices: list[Notice] = field(default_factory=list)

    def prepare(self) -> Contract:
        """All that leaves no trace outside this run's own folders."""
        self._judge()
        self._write_files()
        self._write_shims()
        contract = self._contract()
        environ = contract.environment(self.environment.environ)
        if missing := self.environment.missing_of(contract.needs, environ):
            raise CannotArm("contract", missing)
        own = self.spec.row(self.asked.table)
        if problem := self.environment.why_unusable(own.address, own.interface):
            raise CannotArm("address", f"{problem} since it joined")
        if problem := self.environment.why_too_few(own.nproc_per_node):
            raise CannotArm("contract", problem)
        self._check_port(contract)
        return contract

    def _judge(self) -> None:
        problem = problem_of(
            self.asked.table,
            self.spec.join,
            offered=self.asked.offered,
            nnodes=self.spec.settings.nnodes,
            former=self.asked.former,
            of_generations=self.asked.of_generations,
        )
        if problem:
            raise CannotArm("bad_table", problem)

    def _write_files(self) -> None:
        """Write the hostfiles and the table, where that can be."""
        row = self.spec.row(self.asked.table)
        folder = self.spec.log_folder(self.environment.environ) / f"node-{row.node}"
        try:
            self.environment.write_files(folder, files_of(self.asked.table))
            self.environment.remove_file(folder / NOTICE)
        except OSError as exc:
            self.notices.append(notice(Note.NO_HOSTFILE, folder=folder, problem=exc.strerror))
            return
        self.folder = str(folder.resolve())

    def _write_shims(self) -> None:
        """Write what programs call to have a command run on another node."""
        if not self.spec.remote:
            return
        if not self.folder or not self.socket:
            words = "no folder for rdzv-rsh or for the agent's socket, which remote commands need"
            raise CannotArm("contract", words)
        folders = [Path(self.folder, "bin"), Path(self.socket).with_name("bin")]
        environ = self.environment.environ
        try:
            self.bin = str(self.environment.place_shims(folders, self.socket, environ))
        except OSError as exc:
            words = f"rdzv-rsh, by which {_CALLS_IT}, can be run nowhere: {exc.strerror}"
            raise CannotArm("contract", f"{words}; {_LET_IT_RUN}") from exc

    def _paths(self) -> Paths:
        return Paths(
            folder=self.folder,
            python=sys.executable,
            bin=self.bin,
            socket=self.socket,
            # Beside the socket, for this user alone, and removed with it.
            look=str(Path(self.socket).with_name(f"look-{self.asked.table.epoch}"))
            if self.socket
            else "",
            scratch=str(Path(self.socket).with_name(f"torchelastic-{self.asked.table.epoch}"))
            if self.socket
            else "",
        )

    def _contract(self) -> Contract:
        settings, environ = self.spec.settings, self.environment.environ
        options = ProgramOptions.of(settings, self._nccl_file())
        if self.asked.restarts.by_torchrun:
            options = replace(options, warm="off")
        try:
            contract = make_contract(
                self.spec.command,
                self.asked.table,
                self.spec.join.slot,
                environ,
                options,
                configured=self.environment.read_conf(environ),
                paths=self._paths(),
                restarts=self.asked.restarts,
                config=self.environment.read_config(settings.framework, self.spec.command, environ),
                devices=NodeDevices(*self.environment.device_names()),
            )
        except UsageError as exc:
            raise CannotArm("contract", exc.message) from exc
        if self.secrets:
            contract = replace(contract, secrets=self.secrets)
        if contract.forks is None and SHUTDOWN in contract.variables:
            python = self.environment.look_python(contract.argv[0], contract.environment(environ))
            if words := why_killed_early(python.torch):
                self.notices.append(notice(Note.WARNED, words=words))
        return contract

    def _nccl_file(self) -> str:
        """Where NCCL's log would go."""
        row = self.spec.row(self.asked.table)
        folder = self.spec.log_folder(self.environment.environ)
        name = f"node-{row.node}.e{self.asked.table.epoch}"
        file = folder / f"nccl-{self.spec.join.launch_id}" / name
        return f"{file}".replace("%", "%%") + ".%p.log"

    def _check_port(self, contract: Contract) -> None:
        port = contract.port
        if port is None or self.environment.is_free(port):
            return
        ahead = port - self.asked.table.master_port
        free = self.environment.find_free(port + 1)
        name = "master port" if ahead == 0 else "port"
        raise CannotArm(
            "port_taken",
            f"{name} {port} is already used by another program on this node",
            free - ahead if free else None,
        )

    def write_hosts(self, hosts: HostsFile, resolved: Mapping[str, Addresses]) -> None:
        """Write the nodes' names, as the person wants it."""
        mode = self.spec.settings.hosts
        # Nodes that have met on loopback are on one machine, whose hosts file names it already.
        has_met_there = self.spec.row(self.asked.table).is_loopback
        if mode == "off" or (has_met_there and not self.spec.settings.loopback):
            return
        try:
            warning = hosts.install(self.asked.table, self.spec.join.slot, resolved)
        except ArmingFailed as exc:
            if mode == "require":
                raise CannotArm("hosts", f"{exc.message} (--hosts require)") from exc
            warning = f"{exc.message}; continuing with IP addresses, names might not resolve"
        if warning:
            self.notices.append(notice(Note.WARNED, words=warning))

"""One node's part of a run, from joining to leaving.

join -> (verify, arm, go) -> program -> report -> leave

Two things go on side by side: the watch, which brings news and is the node's heart-beat, and the
program. Whatever ends the node (the result, a signal, a fence, a lost registry), the program and
all that it started is ended first, the hosts file is put back, and the cause is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rendezvous.classes import peers_of
from rendezvous.client import REQUEST_SECONDS, RegistryClient, aged, retry_pause
from rendezvous.compat import timeout
from rendezvous.errors import (
    ArmingFailed,
    ExitCode,
    Fenced,
    JoinTimeout,
    Mismatch,
    RdzvError,
    RegistryError,
    RegistryLost,
    RunOver,
    SlotTaken,
    TooManyRequests,
    Unavailable,
    UsageError,
)
from rendezvous.schema import (
    AckReport,
    EndpointTable,
    ExitReport,
    JoinReply,
    LeaveReport,
    NodeView,
    PairProbe,
    Phase,
    ProbePlan,
    ProbeReport,
    ProgressReport,
    RefuseReport,
    Report,
    Result,
    TableRow,
    printable,
    without_times,
)
from rendezvous.security import JoinString
from rendezvous.state import NOT_NEEDED, listed
from worker.background import in_background
from worker.contracts import (
    Contract,
    Paths,
    files_of,
    is_led,
    last_words,
    make_contract,
    rank_of_failure,
)
from worker.failure import code_words
from worker.family import LATE_END_SECONDS, certain_failure, failed_rank, late_to_end
from worker.hosts import HostsBlock, known_names, restore_stale
from worker.local_socket import LocalSocket, places
from worker.machine.interfaces import why_unusable
from worker.metrics import Metrics
from worker.nccl.conf import read_conf
from worker.nccl.log import NcclLog, with_trouble
from worker.needs import missing_of
from worker.node_files import write_files
from worker.offer import look_ahead, make_offer
from worker.output import OutputSink, make_private
from worker.own_folder import remove_left
from worker.own_words import own_word
from worker.ports import find_free, is_free
from worker.probe.listener import ProbeListener
from worker.probe.mesh import probe_peers
from worker.probe.names import with_names
from worker.probe.packets import Identity
from worker.probe.plan import unfit_peers
from worker.process import (
    Ending,
    Program,
    become_subreaper,
    ending_signals,
    parent_lives,
    reap_orphans,
)
from worker.refusal import refuse
from worker.resolver import Addresses, Resolver
from worker.rsh.remote import RemoteCommands
from worker.rsh.served import Shell
from worker.rsh.shims import write_shims
from worker.settings import WorkerSettings, read_bytes, state_home
from worker.table import problem_of
from worker.variables import Wishes

logger = logging.getLogger(__name__)

HOSTS_FILE = Path("/etc/hosts")
HOSTS_SECONDS = 10.0
"""How long a node that ends waits until its hosts file is put back."""
_NAMES_SECONDS = 1.0
_LOOK_SECONDS = 2.0
_SAY_SECONDS = 30.0
_LEAVE_SECONDS = 3.0
_LAST_WORDS_SECONDS = 1.0
_FAILURES_LOGGED = 8
_PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)


class Agent:
    """The agent of one node.

    Args:
        settings: What the person said.
        join: The worker run's join string.
        command: The COMMAND.
        environ: The user's environment, as the program is to see it.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        join: JoinString,
        command: Sequence[str],
        environ: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._join = join
        self._command = list(command)
        self._environ = environ
        self._client = RegistryClient(join.place, join.token)
        self._hosts = HostsBlock(HOSTS_FILE, join.run)
        self._resolver = Resolver()
        self._identity = Identity(join.probe_key, join.run, join.launch_id, join.slot)
        self._listener: ProbeListener | None = None
        self._offered: set[str] = set()
        self._has_joined = False
        self._poll = 2.0
        self._last_try_of = 0.0
        self._why_silent = ""
        self._said = ("", 0.0)
        self._acked: tuple[str, EndpointTable] | None = None
        self._folder = ""
        self._remote = RemoteCommands(
            self._client,
            join,
            allowed=settings.allow_exec or is_led(settings.framework, command),
        )
        self._metrics = Metrics(self._client, join.run, join.slot)
        self._socket = LocalSocket(
            take={"metrics": self._metrics.take}, serve={"exec": self._remote.serve}
        )
        self._serves = False
        self._served_enough = asyncio.Event()
        self._program: Program | None = None
        self._began = 0.0
        self._sink: OutputSink | None = None
        self._log: Path | None = None
        self._signal: int | None = None
        self._signalled_at = 0.0
        self._stopping = False
        self._arming: asyncio.Task[AckReport | RefuseReport] | None = None
        self._one_arms = asyncio.Lock()
        self._fault: BaseException | None = None
        self._result_known_at = 0.0
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> int:
        """Take part in the run; returns the exit code. Raises RdzvError for what it cannot do."""
        become_subreaper()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._listen_to_signals()
        reaper = asyncio.create_task(reap_orphans())
        self._start("node", self._live())
        self._start("sweep", in_background(remove_left, list(places(self._environ))))
        try:
            return await self._over
        except Exception as exc:
            self._fault = exc
            raise
        finally:
            await self._clean_up()
            reaper.cancel()

    # --- tasks and signals --------------------------------------------------------------------

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a part of the agent's work once; its failure is the agent's."""
        if name in self._tasks:
            work.close()
            return
        task = self._tasks[name] = asyncio.create_task(work, name=name)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) and not self._over.done():
            self._over.set_exception(error)

    def _end(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self._told_to_end, number)
        for number in _PASSED_SIGNALS:
            loop.add_signal_handler(number, self._pass_signal, number)
        loop.add_signal_handler(signal.SIGQUIT, self._end_at_once)

    def _pass_signal(self, number: int) -> None:
        if self._program is not None:
            self._program.signal(number)

    def _end_at_once(self) -> None:
        """QUIT: no grace."""
        if self._program is not None:
            self._program.kill_now()
        self._told_to_end(signal.SIGQUIT)

    def _told_to_end(self, number: int) -> None:
        """TERM, INT or HUP: stop the program and leave; the second time at once."""
        if self._signal is not None:
            if self._program is not None:
                self._program.kill_now()
            return
        self._signal, self._signalled_at = number, time.monotonic()
        name = signal.Signals(number).name
        logger.warning("%s: ending this node", name)
        self._start("quit", self._quit(number))

    async def _quit(self, number: int) -> None:
        if self._serves:
            self._stopping = True
            self._served_enough.set()
            await asyncio.wait({self._tasks["program"]})
        elif "program" in self._tasks:
            await self._stop_program()
        else:
            words = _words_of_signal(number)
            await self._say_goodbye(
                ExitReport(epoch=self._epoch(), exit_code=128 + number, message=words)
            )
        self._end(128 + number)

    async def _say_goodbye(self, report: Report) -> None:
        """Report once, for a moment; not when the launcher is gone, and the registry with it.

        A launcher that comes back takes up its launch as it was, this node not counted as failed.
        """
        parent = self._settings.parent
        if not self._has_joined or (parent is not None and not parent_lives(parent)):
            return
        if isinstance(self._fault, RegistryLost):
            return  # it has not answered for long enough
        with contextlib.suppress(RdzvError, TimeoutError):
            async with timeout(_LEAVE_SECONDS):
                await self._client.report(self._join.run, self._join.slot, report)

    async def _clean_up(self) -> None:
        """End the program, leave, put the hosts file back; whatever happened before."""
        for task in self._tasks.values():
            task.cancel()
        try:
            await self._end_programs(f"this node's agent is ending: {self._said[0]}")
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            await self._socket.close()
            await self._resolver.close()
            self._stop_listening()
            if (report := self._own_fault()) is not None:
                await self._say_goodbye(report)
            await self._say_goodbye(LeaveReport())
            await self._client.close()
        finally:
            if self._settings.hosts != "off":
                await self._put_hosts_back()

    async def _put_hosts_back(self) -> None:
        """Take this node's names out of the hosts file, unless that hangs."""
        try:
            async with timeout(HOSTS_SECONDS):
                if self._arming is not None:  # its thread goes on, and may still write them
                    await asyncio.wait({self._arming})
                await in_background(self._hosts.remove)
        except ArmingFailed as exc:
            logger.warning("%s could not be put back: %s", HOSTS_FILE, exc.message)
        except TimeoutError:
            logger.warning(
                "%s could not be put back within %g s, as a disk or network file system hangs; the "
                "node ends all the same, and the next rdzv on this machine puts it back",
                *(HOSTS_FILE, HOSTS_SECONDS),
            )

    def _own_fault(self) -> ExitReport | None:
        """What ended this node, when that is the node's own and nobody else knows it."""
        fault = self._fault
        if fault is None or isinstance(fault, Fenced | RunOver | RegistryError | RegistryLost):
            return None
        if isinstance(fault, RdzvError):
            code, words = int(fault.exit_code), fault.message
        else:
            code, words = int(ExitCode.INTERNAL), f"a fault in rdzv itself: {fault!r}"
        return ExitReport(
            epoch=self._epoch(), exit_code=code, by_agent=True, message=printable(words, 600)
        )

    # --- the watch ----------------------------------------------------------------------------

    async def _live(self) -> None:
        if self._settings.hosts != "off":
            await in_background(self._restore_stale_hosts)
            self._resolver.begin()
        self._listen()
        try:
            reply = await self._enter()
        except Exception as exc:
            if isinstance(exc, UsageError | ArmingFailed) or not isinstance(exc, RdzvError):
                await refuse(self._client, self._join, exc)
            raise
        self._has_joined = True
        self._poll = reply.poll_seconds
        after = reply.seq
        heard = time.monotonic()
        while True:
            try:
                view = await self._watch(after, heard)
            except (RegistryError, TooManyRequests) as exc:
                self._why_silent = exc.message
                self._check_orphaned(heard, exc)
                await asyncio.sleep(retry_pause())
                continue
            self._poll, self._why_silent = view.poll_seconds, ""
            self._say(view.reason)
            if view.seq != after:
                after = view.seq
                await self._take_in(view)
            heard = time.monotonic()

    async def _watch(self, after: int, heard: float) -> NodeView:
        """The next news, awaited no longer than this node goes on without its registry.

        The last try is a fresh one: it may have been this process that was stopped.
        """
        left = heard + self._settings.orphan_timeout - time.monotonic()
        whole = self._poll + REQUEST_SECONDS
        for seconds in seconds_of_tries(left, whole, had_last=self._last_try_of == heard):
            if seconds == whole:
                self._last_try_of = heard
            with contextlib.suppress(TimeoutError):
                async with timeout(seconds):
                    return await self._client.watch(
                        self._join.run, self._join.slot, after, self._poll
                    )
        silent = f"{self._client.base}: it accepted the connection and did not answer"
        raise Unavailable(self._why_silent or silent)

    async def _look_ahead(self) -> None:
        """Refuse what cannot be before anybody is asked; of a disk that hangs nothing is known."""
        with contextlib.suppress(TimeoutError):
            async with timeout(_LOOK_SECONDS):
                await in_background(
                    look_ahead, *(self._settings, self._join.slot, self._command, self._environ)
                )

    async def _enter(self) -> JoinReply:
        """Find the registry and join; steady tries until the join time-out."""
        deadline = time.monotonic() + self._settings.join_timeout
        await self._look_ahead()
        offer = None
        while True:
            try:
                if offer is None:
                    base = await self._client.connect()
                    offer = await in_background(
                        make_offer,
                        *(self._settings, self._join, self._command, _host_of(base)),
                        probe_port=self._listener.port if self._listener else None,
                    )
                    self._offered = {candidate.mac for candidate in offer.candidates}
                reply = await self._client.join(self._join.run, offer)
            except Mismatch as exc:
                self._show_word(exc.command_word)
                raise
            except (RegistryError, SlotTaken, TooManyRequests) as exc:
                if time.monotonic() > deadline:
                    raise JoinTimeout(
                        f"slot {self._join.slot} could not join run '{self._join.run}' within "
                        f"{self._settings.join_timeout:.0f} s: {exc.message}",
                        hint=exc.hint,
                    ) from exc
                left = deadline - time.monotonic()
                self._say(f"cannot join yet, {left:.0f} s left: {exc.message}")
                await asyncio.sleep(retry_pause())
                continue
            logger.info(
                "joined run '%s' at %s as slot %d (incarnation %d), offering %s",
                *(self._join.run, self._client.base, self._join.slot, reply.incarnation),
                ", ".join(f"{c.address} ({c.interface})" for c in offer.candidates),
            )
            return reply

    def _show_word(self, number: int | None) -> None:
        """Of a word in which the nodes differ, each shows its own; the registry sees none."""
        if number is not None:
            logger.warning("%s", own_word(self._command, number))

    def _check_orphaned(self, heard: float, cause: RdzvError) -> None:
        if self._result_known_at:
            return
        silent = time.monotonic() - heard
        limit = self._settings.orphan_timeout
        if silent < limit:
            self._say(f"the registry does not answer, {limit - silent:.0f} s left: {cause.message}")
            return
        raise RegistryLost(
            f"the registry of run '{self._join.run}' has not answered for {silent:.0f} s "
            f"(orphan time-out): {cause.message}",
            hint="the launcher or its node is gone; the program of this node was ended",
        )

    def _say(self, reason: str) -> None:
        """Log what is waited for: when it changes, and now and then."""
        text, at = self._said
        now = time.monotonic()
        if without_times(reason) != without_times(text) or now - at > _SAY_SECONDS:
            self._said = (reason, now)
            logger.info("%s", reason)

    async def _take_in(self, view: NodeView) -> None:
        if view.result is not None:
            self._start("finish", self._finish(view.result))
        elif self._join.slot in view.released:
            self._stand_by(view)
        elif view.phase is Phase.VERIFYING and view.plan is not None:
            self._verify(view.epoch, view.plan)
        elif view.phase is Phase.ARMING and view.table is not None:
            # Beside the watch, which is the heart-beat: a slow disk must not cost the slot.
            self._start(f"arm {view.epoch}", self._prepare(view.table, view.digest))
        elif view.phase is Phase.RUNNING and view.stop:
            self._start("stop", self._stop_program())
        elif view.phase is Phase.RUNNING and self._signal is None:
            self._go(view)

    def _stand_by(self, view: NodeView) -> None:
        """The table goes without this node: it is a spare until the go, and ends then."""
        if view.phase is Phase.RUNNING:
            cause = view.why_released.get(self._join.slot)
            level = logging.INFO if cause is None else logging.WARNING
            logger.log(level, "this node is released: %s", cause or NOT_NEEDED)
            self._end(int(ExitCode.OK))

    async def _prepare(self, table: EndpointTable, digest: str) -> None:
        """Arm for a table and tell it; not before what was begun for an older one has ended."""
        async with self._one_arms:
            await self._open_socket()
            resolved = await self._resolver.known(row.hostname for row in table.rows)
            arm = in_background(self._arm, table, digest, resolved)
            self._arming = asyncio.create_task(arm)
            report = await asyncio.shield(self._arming)
        await self._tell(report)

    async def _open_socket(self) -> None:
        """Let this node's program speak to its agent."""
        if self._socket.path:
            return
        try:
            await self._socket.open(self._environ)
        except OSError as exc:
            logger.warning("no socket for this node's program: %s", exc.strerror)

    async def _tell(self, report: Report) -> None:
        """Report until it is taken in, as long as the registry may come back.

        A node that was told to end does not wait for it: its launcher may have gone as well.
        """
        began = time.monotonic()
        deadline = began + self._settings.orphan_timeout
        while True:
            try:
                now = aged(report, time.monotonic() - began)
                await self._client.report(self._join.run, self._join.slot, now)
            except (RegistryError, TooManyRequests) as exc:
                since = self._signalled_at or self._result_known_at
                if since and time.monotonic() > since + _LEAVE_SECONDS:
                    logger.info("the registry was not told: %s", exc.message)
                    return
                if time.monotonic() > deadline:
                    raise
                self._say(f"the registry has not taken in this node's report yet: {exc.message}")
                await asyncio.sleep(retry_pause())
            else:
                return

    # --- verifying ----------------------------------------------------------------------------

    def _listen(self) -> None:
        """Answer the peers' probes, from before the first of them can have heard of this node."""
        try:
            self._listener = ProbeListener(self._identity, loopback=self._settings.loopback)
        except OSError as exc:
            logger.warning("no port to answer the probes of peers: %s", exc)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _verify(self, epoch: int, plan: ProbePlan) -> None:
        """Visit this node's share of its peers, beside the watch; once in each epoch."""
        name = f"verify {epoch}"
        if name in self._tasks:
            return
        for other, task in self._tasks.items():
            if other.startswith("verify "):  # its report would come too late
                task.cancel()
        self._resolver.ask(peer.hostname for peer in plan.peers)
        self._start(name, self._visit_peers(epoch, plan))

    async def _visit_peers(self, epoch: int, plan: ProbePlan) -> None:
        slots = [peer.slot for peer in plan.peers]
        # It stands in no plan when it found no port to answer at.
        share = peers_of(slots, self._join.slot, epoch) if self._join.slot in slots else []
        began = time.monotonic()
        pairs = self._pairs_without_address(plan, share)
        if not pairs:
            pairs = unfit_peers(plan, share, loopback=self._settings.loopback)
            unfit = {pair.slot for pair in pairs}
            fit = [slot for slot in share if slot not in unfit]
            pairs += await probe_peers(self._identity, plan, fit)
        good = sum(pair.outcome == "ok" for pair in pairs)
        logger.info(
            "%d of %d peers answer on %s (%.2f s)",
            *(good, len(pairs), plan.network, time.monotonic() - began),
        )
        _log_failures(pairs, plan)
        pairs = await self._with_names(pairs, plan)
        await self._tell(ProbeReport(epoch=epoch, pairs=pairs))

    async def _with_names(self, pairs: list[PairProbe], plan: ProbePlan) -> list[PairProbe]:
        """Add what the hosts file says of the peers, unless it hangs."""
        try:
            async with timeout(_NAMES_SECONDS):
                names = await in_background(known_names, HOSTS_FILE, self._join.run)
        except TimeoutError:
            return pairs
        return with_names(pairs, plan, self._join.slot, names)

    def _pairs_without_address(self, plan: ProbePlan, share: list[int]) -> list[PairProbe]:
        """What is known of the peers without a visit: nothing is reached from a lost address."""
        own = next((peer for peer in plan.peers if peer.slot == self._join.slot), None)
        problem = why_unusable(own.address, own.interface) if own else ""
        return [
            PairProbe(slot=slot, outcome="no_route", detail=printable(problem, 120))
            for slot in (share if problem else [])
        ]

    # --- arming -------------------------------------------------------------------------------

    def _arm(
        self, table: EndpointTable, digest: str, resolved: Mapping[str, Addresses]
    ) -> AckReport | RefuseReport:
        """Check the table, take it into /etc/hosts, see that the program can start on it."""
        try:
            self._check_table(table)
            self._folder = self._write_files(table)
            self._write_shims()
            contract = self._contract(table)
            self._check_needs(contract)
            self._check_address(table)
            self._check_port(table, contract)
            self._write_hosts(table, resolved)
        except _Refusal as exc:
            if exc.code == "bad_table":  # whoever made it may not pass it on
                logger.warning("the table of epoch %d is refused: %s", table.epoch, exc.reason)
            return RefuseReport(
                epoch=table.epoch, code=exc.code, reason=exc.reason, free_port=exc.free_port
            )
        for note in contract.notes:
            logger.info("%s", note)
        self._acked = (digest, table)
        return AckReport(epoch=table.epoch, digest=digest)

    def _check_table(self, table: EndpointTable) -> None:
        problem = problem_of(
            table,
            self._join,
            offered=self._offered,
            nnodes=self._settings.nnodes,
            former=self._acked[1] if self._acked else None,
        )
        if problem:
            raise _Refusal("bad_table", problem)

    def _contract(self, table: EndpointTable) -> Contract:
        try:
            return make_contract(
                self._command,
                table,
                self._join.slot,
                self._environ,
                framework=self._settings.framework,
                backend=self._settings.rdzv_backend,
                wishes=self._wishes(table),
                configured=read_conf(self._environ),
                paths=self._paths(),
            )
        except UsageError as exc:
            raise _Refusal("contract", exc.message) from exc

    def _check_needs(self, contract: Contract) -> None:
        if missing := missing_of(contract.needs, contract.environment(self._environ)):
            raise _Refusal("contract", missing)

    def _own_row(self, table: EndpointTable) -> TableRow:
        row = table.row_of_slot(self._join.slot)
        assert row is not None
        return row

    def _paths(self) -> Paths:
        folder = Path(self._folder, "bin") if self._folder and self._remote.allowed else ""
        return Paths(
            folder=self._folder,
            python=sys.executable,
            bin=str(folder),
            socket=self._socket.path,
        )

    def _write_shims(self) -> None:
        """Write what programs call to have a command run on another node."""
        if not self._remote.allowed:
            return
        if not self._folder or not self._socket.path:
            words = "nowhere to put rdzv-rsh, or the agent's socket, which remote commands need"
            raise _Refusal("contract", words)
        try:
            write_shims(Path(self._paths().bin), self._socket.path)
        except OSError as exc:
            words = f"{self._paths().bin} cannot be written: {exc.strerror}"
            raise _Refusal("contract", words) from exc

    def _write_files(self, table: EndpointTable) -> str:
        """Write the hostfiles and the table; the folder, or nothing where it cannot be had."""
        row = self._own_row(table)
        folder = self._log_folder() / f"node-{row.rank}"
        try:
            write_files(folder, files_of(table))
        except OSError as exc:
            logger.warning("no hostfile: %s cannot be written: %s", folder, exc.strerror)
            return ""
        return str(folder.resolve())

    def _wishes(self, table: EndpointTable) -> Wishes:
        """What was asked for beside the table, and where NCCL's log would go."""
        row = table.row_of_slot(self._join.slot)
        folder = self._log_folder() / f"nccl-{self._join.launch_id}"
        file = f"{folder / f'node-{row.rank}'}".replace("%", "%%") + ".%p.log" if row else ""
        return Wishes(
            require_rdma=self._settings.require_rdma,
            env_for=tuple(self._settings.env_for),
            nccl_log=self._settings.nccl_log,
            nccl_file=file,
            tf_chief=self._settings.tf_chief,
            tf_ps=self._settings.tf_ps,
            grace_seconds=self._settings.grace,
        )

    def _check_address(self, table: EndpointTable) -> None:
        own = self._own_row(table)
        if problem := why_unusable(own.address, own.interface):
            raise _Refusal("address", f"{problem} since it joined")

    def _check_port(self, table: EndpointTable, contract: Contract) -> None:
        port = contract.port
        if port is None or is_free(port):
            return
        free, ahead = find_free(port + 1), port - table.master_port
        name = "master port" if ahead == 0 else "port"
        raise _Refusal(
            "port_taken",
            f"{name} {port} is taken by another program on this node",
            free - ahead if free else None,
        )

    def _write_hosts(self, table: EndpointTable, resolved: Mapping[str, Addresses]) -> None:
        if self._settings.hosts == "off":
            return
        try:
            warning = self._hosts.install(table, self._join.slot, resolved)
        except ArmingFailed as exc:
            if self._settings.hosts == "require":
                raise _Refusal("hosts", f"{exc.message} (--hosts require)") from exc
            warning = f"{exc.message}; going on by IP address, names may not resolve"
        if warning:
            logger.warning("%s", warning)

    def _restore_stale_hosts(self) -> None:
        try:
            for run in restore_stale(HOSTS_FILE):
                logger.info("%s: what the ended run '%s' had left was removed", HOSTS_FILE, run)
        except ArmingFailed as exc:
            logger.debug("%s", exc.message)

    # --- the program --------------------------------------------------------------------------

    def _go(self, view: NodeView) -> None:
        self._stop_listening()
        if self._acked is None or self._acked[0] != view.digest:
            raise ArmingFailed(
                f"the run goes on table {view.digest[:12]}, which this node has not acknowledged"
            )
        self._start("program", self._run_program(self._acked[1]))

    async def _run_program(self, table: EndpointTable) -> None:
        row = self._own_row(table)
        contract = await in_background(self._contract, table)  # it reads nccl.conf
        self._allow_remote(contract, table)
        self._start("metrics", self._metrics.send(nodes=len(table.rows)))
        nccl = await in_background(self._nccl_log, contract, table)
        if not contract.argv:
            if nccl is not None:
                self._start("nccl", self._follow_nccl(nccl, table.epoch))
            await self._serve(table)
            return
        self._log = self._log_file(row.rank)
        self._sink = OutputSink(
            self._log,
            log_limit=read_bytes(self._settings.log_limit),
            prefix=f"[{row.rank}] " if self._settings.prefix else "",
        )
        logger.info("node %d starts: %s", row.rank, " ".join(contract.argv))
        self._began = time.monotonic()
        self._program = await Program.start(
            contract.argv,
            contract.environment(self._environ),
            grace_seconds=self._settings.grace,
            output=self._sink,
        )
        if self._stopping or self._signal is not None:  # told so while it was being started
            await self._program.stop()
        else:
            self._start("failing", self._follow_ranks(self._program, contract, table.epoch))
            self._start("late", self._follow_ends(self._program, table.epoch))
        if nccl is not None:
            self._start("nccl", self._follow_nccl(nccl, table.epoch))
        ending = await self._program.wait()
        logger.info("%s", ending.reason)
        if ending.left is not None:
            await self._warn(ending.left.words(), table.epoch)
        await self._send_last_metrics()
        self._program = None
        self._sink.close()
        report = self._exit_report(table.epoch, ending)
        if nccl is not None and report.exit_code and not report.stopped:
            with contextlib.suppress(TimeoutError):  # the log's disk may hang, and all wait
                async with timeout(_LAST_WORDS_SECONDS):
                    report = with_trouble(report, await in_background(nccl.trouble))
        await self._tell(report)

    def _allow_remote(self, contract: Contract, table: EndpointTable) -> None:
        """Run commands for the other nodes from now on, where the run allows it."""
        if self._remote.allowed and self._acked is not None and not self._stopping:
            row = self._own_row(table)
            shell = Shell(
                f"node {row.rank} ({row.hostname})",
                contract.served_environment(self._environ),
                self._settings.grace,
            )
            self._remote.begin(table, self._acked[0], shell)
            self._start("remote", self._remote.work())

    async def _end_programs(self, why: str) -> None:
        """End this node's program, and what it runs for others."""
        ending: list[Awaitable[object]] = [self._remote.close(why)]
        if self._program is not None:
            ending.append(self._program.stop())
        await asyncio.gather(*ending)

    async def _serve(self, table: EndpointTable) -> None:
        """Be there for the launcher of rank 0, which starts this node's processes from there."""
        logger.info("this node serves the program of node 0")
        self._serves = True
        await self._served_enough.wait()
        if self._signal is not None:  # before node 0 fails of it, and is taken for the cause
            self._start("report", self._tell(self._served_report(table.epoch)))
            await asyncio.wait({self._tasks["report"]}, timeout=_LEAVE_SECONDS)
        await self._remote.close(f"the run is ending: {self._said[0]}")
        await self._send_last_metrics()
        self._start("report", self._tell(self._served_report(table.epoch)))
        await asyncio.wait({self._tasks["report"]})

    def _served_report(self, epoch: int) -> ExitReport:
        told = self._signal
        return ExitReport(
            epoch=epoch,
            exit_code=128 + told if told else 0,
            age_seconds=time.monotonic() - self._signalled_at if told else 0.0,
            stopped=told is None,
            by_agent=told is not None,
            message=_words_of_signal(told) if told else "",
        )

    async def _send_last_metrics(self) -> None:
        """What the program has said before it ended; the launcher reads it before the end."""
        await self._socket.hear_out(_LAST_WORDS_SECONDS)
        await self._metrics.flush()

    def _nccl_log(self, contract: Contract, table: EndpointTable) -> NcclLog | None:
        """What NCCL's processes will say of their network; None when nobody keeps it."""
        if not contract.nccl_log:
            return None
        if "NCCL_DEBUG_FILE" in contract.variables | contract.withheld:
            try:
                make_private(Path(contract.nccl_log.replace("%%", "%")).parent)
            except OSError as exc:
                logger.warning("NCCL's log cannot be kept: %s", exc.strerror)
                return None
        logger.info("NCCL's log of each process: %s", contract.nccl_log)
        required = self._settings.require_rdma
        return NcclLog(contract.nccl_log, table.transport, required=required)

    async def _follow_nccl(self, log: NcclLog, epoch: int) -> None:
        """Tell what NCCL uses; what may not be ends the run, long before anybody would notice."""
        async for verdict in log.verdicts():
            program_is_over = self._sink is not None and self._program is None
            if self._stopping or program_is_over:
                return
            logger.log(logging.INFO if verdict.level == "ok" else logging.WARNING, verdict.words)
            report: Report = ProgressReport(
                epoch=epoch, words=verdict.words, warning=verdict.level == "warn"
            )
            if verdict.level == "fail":
                code = int(ExitCode.PREFLIGHT_FAILED)
                report = ExitReport(
                    epoch=epoch, exit_code=code, by_agent=True, message=verdict.words
                )
            await self._tell(report)

    async def _follow_ranks(self, program: Program, contract: Contract, epoch: int) -> None:
        """Warn of a failed rank, and report the program's end once that is certain.

        torchrun gives the other ranks 30 s, in which all other nodes would go on for nothing.
        """
        certain = partial(certain_failure, ends_all=contract.fatal_workers)
        failed = await program.wait_for_failure(failed_rank)
        await asyncio.sleep(_LAST_WORDS_SECONDS)
        if certain(program.family) is None and self._goes_on(program):
            words = f"rank {failed.worker_rank} ended with {code_words(failed.exit_code)}"
            words += "; the program that started it goes on"
            await self._warn(words, epoch)
            await program.wait_for_failure(certain)
            await asyncio.sleep(_LAST_WORDS_SECONDS)
        first = certain(program.family)
        if first is not None and self._goes_on(program):
            logger.warning("rank %d failed, and the others end: reporting it", first.worker_rank)
            await self._tell(self._exit_report(epoch, program.foreseen(first)))

    async def _follow_ends(self, program: Program, epoch: int) -> None:
        """Say once which ranks are late to end; that they are does not end them."""
        late: tuple[int, ...] = ()
        while self._goes_on(program) and not late:
            await asyncio.sleep(LATE_END_SECONDS / 4)
            late = late_to_end(program.family, time.monotonic())
        if late and self._goes_on(program):
            ranks = f"rank{'s' * (len(late) > 1)} {listed(map(str, late))}"
            words = f"waiting for {ranks} to end; other ranks of this node ended with exit code 0"
            await self._warn(words, epoch)

    async def _warn(self, words: str, epoch: int) -> None:
        """Say what a person should see, here and to all."""
        words = printable(words, 600)
        logger.warning("%s", words)
        await self._tell(ProgressReport(epoch=epoch, words=words, warning=True))

    def _goes_on(self, program: Program) -> bool:
        return self._program is program and not self._stopping

    def _exit_report(self, epoch: int, ending: Ending) -> ExitReport:
        first = ending.failed_rank
        rank = first.worker_rank if first else None
        if rank is None and self._sink is not None:
            rank = rank_of_failure(self._sink.tail)
        code = ending.exit_code
        if code != 0 and first is not None:
            code = first.exit_code  # torchrun itself ends with 1, whatever its worker said
        message = _more_than_code(ending.reason)
        if self._signal is not None and ending.ended_at >= self._signalled_at and first is None:
            code = 128 + self._signal
            message = _words_of_signal(self._signal)
        return ExitReport(
            epoch=epoch,
            exit_code=code,
            age_seconds=max(0.0, ending.age_seconds),
            ran_seconds=max(0.0, ending.ended_at - self._began),
            worker_rank=rank,
            stopped=self._stopping and self._signal is None and first is None,
            message=printable(message, 600),
            tail=last_words(self._sink.tail) if self._sink else [],
            log=printable(str(self._log or ""), 600),
        )

    async def _stop_program(self) -> None:
        self._stopping = True
        self._served_enough.set()
        await self._end_programs(f"the run is ending: {self._said[0]}")
        if "program" in self._tasks:
            await asyncio.wait({self._tasks["program"]})

    async def _finish(self, result: Result) -> None:
        self._result_known_at = time.monotonic()
        await self._stop_program()
        self._show_word(result.command_word)
        logger.info("run '%s' is over: %s", self._join.run, result.message)
        self._end(result.exit_code)

    def _epoch(self) -> int:
        return self._acked[1].epoch if self._acked else 0

    def _log_folder(self) -> Path:
        return self._settings.log_dir or state_home(self._environ) / self._join.run / "logs"

    def _log_file(self, rank: int) -> Path | None:
        folder = self._log_folder()
        try:
            make_private(folder)
        except OSError as exc:
            logger.warning("no log file: %s cannot be made: %s", folder, exc.strerror)
            return None
        return folder / f"node-{rank}.log"


class _Refusal(Exception):
    """Why this node cannot start on a table."""

    def __init__(self, code: Any, reason: str, free_port: int | None = None) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = printable(reason, 600)
        self.free_port = free_port


def seconds_of_tries(left: float, whole: float, *, had_last: bool) -> tuple[float, ...]:
    """How long to wait for the registry, try by try, so that the last one ends with the time left.

    Args:
        left: Seconds until this node gives its registry up.
        whole: Seconds within which a registry that is there answers.
        had_last: Whether a whole try was made at the end: one is, also by a process that was
            stopped until then, and those that follow one that failed at once have what is left.
    """
    if left > whole:
        return left - whole, whole
    return (max(0.0, left),) if had_last else (whole,)


def _words_of_signal(number: int) -> str:
    return f"its agent was told to end ({signal.Signals(number).name})"


def _log_failures(pairs: Sequence[PairProbe], plan: ProbePlan) -> None:
    """One line for each of the first failures: the registry has them all."""
    peers = {peer.slot: peer for peer in plan.peers}
    for pair in [pair for pair in pairs if pair.outcome != "ok"][:_FAILURES_LOGGED]:
        peer = peers[pair.slot]
        logger.warning(
            "slot %d (%s) at %s port %d: %s: %s",
            *(peer.slot, peer.hostname, peer.address, peer.probe_port, pair.outcome, pair.detail),
        )


def _more_than_code(reason: str) -> str:
    """What an ending's reason says beside the exit code, which is told anyway."""
    if reason.startswith("the program's keeper"):
        return reason
    return reason.partition("; ")[2]


def _host_of(base: str) -> str:
    """The host in a base URL, without brackets."""
    return base.split("//", 1)[1].rsplit(":", 1)[0].strip("[]")


async def run_agent(
    settings: WorkerSettings,
    join: JoinString,
    command: Sequence[str],
    environ: Mapping[str, str],
) -> int:
    """Run one node; returns the exit code that its process should have."""
    try:
        return await Agent(settings, join, command, environ).run()
    except (Fenced, RunOver) as exc:
        logger.log(logging.ERROR if exc.exit_code else logging.INFO, "%s", exc.message)
        return int(exc.exit_code)

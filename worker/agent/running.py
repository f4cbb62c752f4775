"""One program below an agent: started, looked at, ended; or, without one, a node that serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rendezvous.compat import timeout
from rendezvous.wire.watch import DepartureNotice
from worker.agent import inputs
from worker.agent.actions import ReadTrouble, Start
from worker.agent.arming import NodeSpec
from worker.agent.environment import (
    AgentEnvironment,
    EarlyProgram,
    NetworkLog,
    RunningProgram,
    Sink,
)
from worker.agent.evidence import removed_in
from worker.agent.last_words import Printed
from worker.agent.log_places import log_places
from worker.agent.looks import Looks
from worker.agent.notices import Note, Notice, notice
from worker.agent.port import RunningRanks
from worker.agent.sampling import follow_ranks, worlds_noted
from worker.agent.words_sender import printed_by
from worker.contracts.files import NOTICE_VARIABLE, notice_text
from worker.contracts.framework import basename
from worker.contracts.looking import LOOK_VARIABLE
from worker.contracts.words import end_by_torchrun, rank_of_failure
from worker.program.ending import Ending, with_told_end, with_told_rank
from worker.program.family import Family, pids_by_local_rank
from worker.program.fold import Fold
from worker.program.rank_logs import RankLogs
from worker.program.rank_streams import RankStreams
from worker.program.rank_words import RankWords
from worker.program.terminal import size_variables

_LOG_SECONDS = 2.0
_INFORM_SECONDS = 1.0
_HANGS = "its disk hangs"


class Running:
    """What was begun by one `Start`.

    Args:
        asked: What is started.
        spec: What this agent is.
        environment: The outer world.
        early: What of it was begun before the go.
        feed: Tells the machine what happens meanwhile.
        say: Says something in this node's log.
    """

    def __init__(
        self,
        asked: Start,
        spec: NodeSpec,
        environment: AgentEnvironment,
        early: EarlyProgram,
        feed: Callable[[inputs.Input], None],
        say: Callable[[Notice], None],
    ) -> None:
        self._asked = asked
        self._spec = spec
        self._environment = environment
        self._early = early
        self._feed = feed
        self._say = say
        self._log = ""
        self._sink: Sink | None = None
        self._ranks: RankStreams | None = None
        self._rank_logs: RankLogs | None = None
        self._places = log_places(asked, spec, environment.environ)
        self._program: RunningProgram | None = None
        self.until: float | None = None
        self._nccl: NetworkLog | None = None
        self._enough = asyncio.Event()
        self._stopping: asyncio.Task[object] | None = None
        self._step: Callable[[], int | None] = lambda: None
        self._kept: int | None = None
        self._said_progress = False
        self._reading: asyncio.Task[None] | None = None
        self._looks = Looks(environment, spec.first_rank(asked.table))
        self._shown = 0
        self._worlds = partial(worlds_noted, asked, spec, environment)

    async def run(self, step: Callable[[], int | None] = lambda: None) -> inputs.Input:
        """Start it, and wait until nothing of it is left. Raises RdzvError.

        Args:
            step: The highest step that features know of; None: none does.
        """
        self._step = step
        number, contract = self._asked.number, self._asked.contract
        await self._find_nccl_log()
        of_ranks = follow_ranks(
            self._asked, self._spec, self._environment, self._worlds, self._feed
        )
        works = (self._follow_network(), *of_ranks)
        beside = [asyncio.create_task(work) for work in works]
        try:
            if contract.argv:
                return await self._run_program()
            self._feed(inputs.Started(number))
            await self._enough.wait()
            return inputs.ProgramGone(number)
        finally:
            for task in beside:
                task.cancel()
            self._enough.set()
            if self._reading is not None:
                self._reading.cancel()
            for part in (self._ranks, self._rank_logs):
                if part is not None:
                    part.close()
            if self._sink is not None:
                self._sink.close()

    async def _run_program(self) -> inputs.Input:
        number, contract = self._asked.number, self._asked.contract
        self._sink = await self._open_sink()
        environ = contract.environment(self._environment.environ)
        environ |= size_variables(environ, self._environment.terminal(1, 2), self._places.prefix)
        self._ranks = await self._open_rank_streams()
        if self._log and self._ranks is not None:
            self._rank_logs = self._places.keep_ranks(self._sink)
        output = self._rank_logs or self._sink
        takes: dict[str, Any] = {"output": output, "ranks": self._ranks, "until": self.until}
        program = await self._early.start(contract.argv, environ, **takes)
        if program is None:
            program = await self._environment.start(
                contract.argv, environ, grace_seconds=self._spec.settings.grace, **takes
            )
        self._program = program
        if self.until not in (None, takes["until"]):  # it changed while it was started
            program.may_run(self.until)
        program.changed = self._changed
        self._feed(inputs.Started(number))
        self._looks.begin(program.main_pid)
        self._see()  # what has happened before is known now
        ending = _as_told(await program.wait(), program.family, self._sink.tail)
        await self._read_progress()
        await self._looks.finish(program.family, ending, self._said())
        words = replace(self._words(), worlds=await self._worlds())
        return inputs.ProgramGone(number, ending, words)

    async def _open_sink(self) -> Sink:
        """Open the log file; the program starts without one where that fails or hangs."""
        places = self._places
        sink = places.sink(self._environment.sink)

        def open_in_folder() -> Sink:
            self._environment.make_private(places.folder)
            return sink(places.file)

        try:
            opened: Sink = await self._in_time(open_in_folder)
        except OSError as exc:  # the time-out is one
            problem = exc.strerror or _HANGS
            self._say(notice(Note.NO_LOG_FILE, folder=places.folder, problem=problem))
            return sink(None)
        self._log = str(places.file)
        fold_launcher(opened, self._asked, self._spec)
        return opened

    async def _open_rank_streams(self) -> RankStreams | None:
        """Streams of their own for the ranks; the program starts without where that fails."""
        folder = self._asked.contract.variables.get(LOOK_VARIABLE)
        if not folder:
            return None
        count = self._spec.row(self._asked.table).nproc_per_node
        try:
            found: RankStreams | None = await self._in_time(
                self._environment.rank_streams, Path(folder), count
            )
        except OSError as exc:  # the time-out is one
            problem = exc.strerror or _HANGS
            self._say(notice(Note.NO_RANK_STREAMS, folder=folder, problem=problem))
            return None
        return found

    async def _in_time(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do it in a thread: its disk may hang, and raises TimeoutError then."""
        async with timeout(_LOG_SECONDS):
            return await self._environment.in_thread(work, *args)

    # --- while it runs ------------------------------------------------------------------------

    def look(self) -> None:
        """Tell the machine how it is, and what it has said."""
        self._see(self._words())

    def ranks(self) -> RunningRanks | None:
        """Its ranks, as features find them; None: nothing runs yet."""
        program, sink = self._program, self._sink
        if program is None or sink is None:
            return None
        count = self._spec.row(self._asked.table).nproc_per_node
        pids = pids_by_local_rank(program.family, program.main_pid, count)
        folder = self._asked.contract.variables.get(LOOK_VARIABLE, "")
        first = self._places.first
        return RunningRanks(folder, pids, first, program.main_pid, sink.printed, self._step())

    def _changed(self) -> None:
        """Something of it has ended: its failure is reported a moment later, and how far it came
        with it."""
        self._see()
        if self._program is not None:
            self._looks.failed(self._program.family, self._program.main_ended, self._said())
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_progress())

    def _see(self, words: inputs.OwnWords | None = None) -> None:
        if (program := self._program) is not None:
            main = inputs.MainEnd(*program.main_ended) if program.main_ended else None
            self._feed(inputs.ProgramSeen(self._asked.number, program.family, main, words))

    def _words(self) -> inputs.OwnWords:
        tail = self._sink.tail if self._sink is not None else []
        progress = max((n for n in (self._kept, self._step()) if n is not None), default=None)
        rank, lines = rank_of_failure(tail), self._looks.lines(self._said())
        removed = self._asked.contract.removed & self._environment.environ.keys()
        facts = (*self._looks.facts, *removed_in(removed, lines))
        return inputs.OwnWords(tuple(tail), rank, self._log, progress, lines, facts)

    def printed(self) -> Printed:
        """What its ranks have printed last, as far as it is kept."""
        spec, table = self._spec, self._asked.table
        return printed_by(self._said(), spec.row(table).node, spec.first_rank(table))

    def _said(self) -> RankWords | None:
        return self._sink.words if self._sink is not None else None

    async def _read_progress(self) -> None:
        """Keep the step of its last checkpoint, where it has one and that can be read in time."""
        file = self._spec.settings.progress_file
        if file is None:
            return
        try:
            self._kept = await self._in_time(self._environment.read_progress, file)
        except OSError as exc:  # the time-out is one
            problem = exc.strerror or _HANGS
        except ValueError as exc:
            problem = str(exc)
        else:
            return
        if not self._said_progress:
            self._said_progress = True
            self._say(notice(Note.NO_PROGRESS, file=file, problem=problem))

    async def show_departure(self, departure: DepartureNotice, number: int) -> None:
        """Show its program that a node will go; 0: no signal. Who receives one looks into the file
        at once."""
        until = asyncio.get_running_loop().time() + departure.seconds
        self._shown = shown = self._shown + 1
        await self.write_notice(departure)
        if number:
            await self._inform(number, shown, until)

    async def _inform(self, number: int, shown: int, until: float) -> None:
        """Send a signal to each rank as soon as it handles it: until the programs are stopped, or
        are shown another notice."""
        loop, told = asyncio.get_running_loop(), frozenset[tuple[int, int]]()
        while self._shown == shown:
            told = await self._environment.in_thread(self._environment.inform, number, told)
            if self._enough.is_set() or loop.time() >= until:
                return
            await asyncio.sleep(_INFORM_SECONDS)

    async def write_notice(self, departure: DepartureNotice) -> None:
        """Write what its program is shown of a node that will go."""
        contract = self._asked.contract
        variables = contract.variables | contract.withheld
        if (name := variables.get(NOTICE_VARIABLE)) is None:
            return
        file = Path(name)
        try:
            await self._in_time(
                self._environment.write_files, file.parent, {file.name: notice_text(departure)}
            )
        except OSError as exc:  # the time-out is one
            problem = exc.strerror or _HANGS
            self._say(notice(Note.NO_NOTICE_FILE, file=file, problem=problem))

    def pass_signal(self, number: int) -> None:
        """Pass a signal on to its main process."""
        if self._program is not None:
            self._program.signal(number)

    def stop(self, *, ends_itself: bool) -> None:
        """TERM, grace, KILL; without TERM where the program is ending its processes already."""
        self._enough.set()
        if self._sink is not None:
            self._sink.stop()
        if self._program is not None and self._stopping is None:
            stop = self._program.stop(ends_itself=ends_itself)
            self._stopping = asyncio.create_task(stop)

    def may_run(self, until: float) -> None:
        """Have it killed then, whatever becomes of this agent, unless that is said again."""
        self.until = until
        if self._program is not None:
            self._program.may_run(until)

    def kill(self) -> None:
        """End it at once, also within its grace."""
        if self._program is not None:
            self._program.kill_now()

    # --- its network --------------------------------------------------------------------------

    async def _find_nccl_log(self) -> None:
        """Begin to keep NCCL's log; the program starts without it where that fails or hangs."""
        try:
            self._nccl = await self._in_time(self._open_nccl_log)
        except TimeoutError:
            self._say(notice(Note.NO_NCCL_LOG, problem=_HANGS))
        except Exception as exc:  # noqa: BLE001 (the run does without)
            self._feed(inputs.PartBroken("opening NCCL's log", exc))

    def _open_nccl_log(self) -> NetworkLog | None:
        return open_nccl_log(self._asked, self._spec, self._environment, self._say)

    async def _follow_network(self) -> None:
        """Tell what NCCL uses, for as long as the program runs."""
        if self._nccl is None:
            return
        try:
            async for verdict in self._nccl.verdicts():
                self._feed(inputs.NetworkSaid(self._asked.number, verdict))
        except Exception as exc:  # noqa: BLE001 (the run does without)
            self._feed(inputs.PartBroken("following NCCL's log", exc))

    async def read_trouble(self, asked: ReadTrouble) -> inputs.Input:
        """What NCCL's log has of the end."""
        trouble = await self._environment.in_thread(self._nccl.trouble) if self._nccl else ""
        return inputs.TroubleRead(asked.number, trouble)


def _as_told(ending: Ending, family: Family, tail: Sequence[str]) -> Ending:
    """An end, with what its launcher has told of the process that failed first."""
    ending = with_told_end(ending, family, end_by_torchrun(tail))
    return with_told_rank(ending, rank_of_failure(tail))


def fold_launcher(sink: Sink, asked: Start, spec: NodeSpec) -> None:
    """Show less of the launcher that is started on this node, unless all was asked for."""
    if spec.settings.raw_output or not asked.contract.argv:
        return
    node = spec.row(asked.table).node
    name = basename(asked.contract.argv[0])
    may_restart = asked.contract.variables.get("RDZV_MAX_RESTARTS", "0") != "0"
    epoch = f" --epoch {asked.table.epoch}" if asked.again or may_restart else ""
    logs = f"rdzv logs {asked.table.run}"
    fold = Fold(
        "accelerate" if name.startswith("accelerate") else "torchrun",
        f"{logs} --node {node}{epoch}",
        f"{logs} --all{epoch}",
    )
    sink.fold_launcher(fold)


def open_nccl_log(
    asked: Start, spec: NodeSpec, environment: AgentEnvironment, say: Callable[[Notice], None]
) -> NetworkLog | None:
    """What NCCL's processes will say of their network; None when nobody keeps it."""
    contract = asked.contract
    if not contract.nccl_log:
        return None
    if "NCCL_DEBUG_FILE" in contract.variables | contract.withheld:
        folder = Path(contract.nccl_log.replace("%%", "%")).parent
        try:
            environment.make_private(folder)
        except OSError as exc:
            say(notice(Note.NO_NCCL_LOG, problem=exc.strerror))
            return None
    say(notice(Note.NCCL_LOG, file=contract.nccl_log))
    required = spec.settings.require_rdma
    return environment.nccl_log(contract.nccl_log, asked.table.transport, required=required)

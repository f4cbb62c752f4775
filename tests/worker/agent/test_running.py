"""One program below an agent, on a virtual clock: what the machine is told of it, and when."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rendezvous.wire.errors import RunError
from rendezvous.wire.table import EndpointTable
from rendezvous.wire.watch import DepartureNotice
from rendezvous.wire.world import RankWorld
from tests.support.virtual_time import forever
from tests.worker.agent.drive import at_once, virtually
from tests.worker.test_table import join, table
from worker.agent import AgentEnvironment, inputs
from worker.agent.actions import ReadTrouble, Start
from worker.agent.arming import NodeSpec
from worker.agent.last_words import Printed
from worker.agent.notices import Note, Notice, notice
from worker.agent.running import Running
from worker.contracts import Contract
from worker.evidence.look import Counters
from worker.nccl.verdict import NetworkVerdict
from worker.program.ending import Ending
from worker.program.family import Child, Family
from worker.program.informing import Told
from worker.program.rank_words import RankWords
from worker.settings import WorkerSettings

DEPARTURE = DepartureNotice(slot=3, node=0, seconds=40.0, words="drained")
ENDING = Ending(0, 30.0)
FAULT = ValueError("not this way")
PROGRAM = Contract(["train"], {})
NCCL_FILE = "/100%%p logs/nccl-l/node-2.%p.log"
NCCL = Contract(["train"], {"NCCL_DEBUG_FILE": NCCL_FILE}, nccl_log=NCCL_FILE)
WORDS = inputs.OwnWords(("step 1", "step 2"), None, "/logs/node-2.log")
GONE = inputs.ProgramGone(7, ENDING, WORDS)
SEEN = [inputs.Started(7), inputs.ProgramSeen(7, Family())]
USES_IB = NetworkVerdict("as_expected", "ok", "it uses IB")


class Program:
    """A program that ends 3 s after it is told to; see `worker.program.process.Program`."""

    family = Family()
    main_ended: tuple[int, float] | None = None
    main_pid: int | None = None

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.told: list[object] = []
        self._over = asyncio.Event()

    def signal(self, number: int) -> None:
        self.told.append(number)

    async def wait(self) -> Ending:
        await self._over.wait()
        return ENDING

    async def stop(self, *, ends_itself: bool = False) -> Ending:
        self.told.append("stop")
        await asyncio.sleep(3.0)
        self._over.set()
        return ENDING

    def may_run(self, until: float) -> None:
        self.told.append(("until", until))

    def kill_now(self) -> None:
        self.told.append("kill")
        self._over.set()


SENDING = (
    "W1127 16:31:57.048000 14317 torch/distributed/elastic/multiprocessing/api.py:1028] "
    "Sending process 14396 closing signal SIGTERM"
)


class Sink:
    """The last lines of a program."""

    tail = ("step 1", "step 2")
    words = RankWords()
    fold: Any = None
    printed = 0

    def fold_launcher(self, fold: Any) -> None:
        """It shows nothing."""
        self.fold = fold

    def stop(self) -> None:
        """It folds nothing."""

    def close(self) -> None:
        """It holds nothing open."""


class Log:
    """NCCL's log: one verdict, and then nothing."""

    async def verdicts(self) -> Any:
        yield USES_IB

    def trouble(self) -> str:
        return "a cable"


def fails(error: Exception) -> Any:
    """A part of the outer world that raises this."""

    def call(*args: Any, **options: Any) -> Any:
        raise error

    return call


async def nothing_goes_on() -> None:
    """Of what is done beside a program nothing outlives it, but for its stop."""
    await asyncio.sleep(0)
    names = (getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
    left = {name for name in names if name.startswith(("Running.", "sample_", "follow_"))}
    assert left <= {"Running.run"}


class Bench:
    """One `Start`, and what the machine and the log are told of it.

    Args:
        contract: Of the program.
        begun: It was begun before the go.
        sealed: The table of a program that starts again; None: it is the node's first.
        progress_file: Where the program keeps the step of its last checkpoint.
        step: The highest step that its metrics have told.
        until: Until when it may run, as was known at the start.
        prefix: Whether each of its lines has one.
        raw_output: Whether nothing of launchers is folded.
    """

    def __init__(
        self,
        contract: Contract = PROGRAM,
        *,
        begun: bool = False,
        sealed: EndpointTable | None = None,
        progress_file: Path | None = None,
        step: Callable[[], int | None] = lambda: None,
        until: float | None = None,
        prefix: bool | None = None,
        raw_output: bool = False,
        **changes: Any,
    ) -> None:
        self.fed: list[inputs.Input] = []
        self.said: list[Notice] = []
        self.program = Program()
        self._step = step

        self.environ: dict[str, str] = {}

        async def start(argv: Any, environ: dict[str, str], **options: Any) -> Program:
            self.program.told += [("until", options["until"])] * (until is not None)
            self.environ = environ
            await asyncio.sleep(0.5)
            return self.program

        values: dict[str, Any] = {
            "environ": {"PATH": "/bin"},
            "terminal": lambda *fds: None,
            "in_thread": at_once,
            "make_private": lambda folder: None,
            "sink": lambda *args, **options: Sink(),
            "start": start,
            "nccl_log": lambda *args, **options: Log(),
            "look_before": lambda pid: Counters(),
            "look_after": lambda before, asked: [],
        }
        environment = AgentEnvironment(**(values | changes))

        async def start_early(*args: Any, **options: Any) -> Program | None:
            return self.program if begun else None

        early: Any = SimpleNamespace(start=start_early)
        settings = WorkerSettings(
            framework="command",
            log_dir=Path("/logs"),
            progress_file=progress_file,
            prefix=prefix,
            raw_output=raw_output,
        )
        spec = NodeSpec(settings, join(), ["train"], False)
        asked = Start(7, sealed or table(), contract, again=sealed is not None)
        feed, say = self.fed.append, self.said.append
        self.running = Running(asked, spec, environment, early, feed, say)
        self.running.until = until

    def lives(self, steps: Callable[[], Any] | None = None, after: float = 1.0) -> inputs.Input:
        """What the `Start` is answered with; `steps` happen meanwhile, or it is stopped."""

        async def work() -> inputs.Input:
            task = asyncio.create_task(self.running.run(self._step))
            await asyncio.sleep(after)
            (steps or partial(self.running.stop, ends_itself=False))()
            try:
                return await task
            finally:
                await nothing_goes_on()

        return virtually(work())

    @property
    def notes(self) -> list[Note]:
        """What was said."""
        return [said.note for said in self.said]


def test_it_runs_is_seen_at_once_is_stopped_once_and_is_gone_with_its_last_words() -> None:
    bench = Bench()

    def steps() -> None:
        bench.running.stop(ends_itself=False)
        bench.running.stop(ends_itself=False)

    assert bench.lives(steps) == GONE
    assert (bench.fed, bench.program.told, bench.notes) == (SEEN, ["stop"], [])


@pytest.mark.parametrize(
    ("prefix", "own", "columns"),
    [(None, {}, "60"), (True, {}, "56"), (True, {"COLUMNS": "100"}, "100")],
)
def test_a_program_is_told_the_width_of_the_terminal_less_the_prefix(
    prefix: bool | None, own: dict[str, str], columns: str
) -> None:
    size = os.terminal_size((60, 20))
    bench = Bench(prefix=prefix, environ=own, terminal=lambda *fds: size if fds == (1, 2) else None)
    bench.lives()
    assert bench.environ["COLUMNS"] == columns
    elsewhere = Bench(prefix=prefix)
    elsewhere.lives()
    assert "COLUMNS" not in elsewhere.environ


@pytest.mark.parametrize(
    ("until", "after", "told"),
    [
        (None, 1.0, [("until", 12.0)]),
        (9.0, 1.0, [("until", 9.0), ("until", 12.0)]),
        (9.0, 0.2, [("until", 9.0), ("until", 12.0)]),  # while it is started
        (12.0, 0.2, [("until", 12.0)]),
    ],
)
def test_what_keeps_a_program_is_told_until_when_it_may_run(
    until: float | None, after: float, told: list[object]
) -> None:
    bench = Bench(until=until)

    async def steps() -> None:
        bench.running.may_run(12.0)
        await asyncio.sleep(1.0)
        bench.running.stop(ends_itself=False)

    assert isinstance(bench.lives(lambda: asyncio.create_task(steps()), after), inputs.ProgramGone)
    assert bench.program.told == [*told, "stop"]


def test_what_its_ranks_have_printed_last_is_known_by_global_rank_also_once_it_is_gone() -> None:
    words = RankWords()
    for rank, data in ((1, b"one\ntwo"), (None, b"torchrun\n")):
        words.take(rank, data)
    sink: Any = SimpleNamespace(tail=(), words=words, stop=lambda: None, close=lambda: None)
    sink.fold_launcher = lambda fold: None
    bench = Bench(sink=lambda *args, **options: sink)
    assert bench.running.printed() == Printed(2, {})
    bench.lives()
    assert bench.running.printed() == Printed(2, {None: ["torchrun"], 11: ["one", "two"]})


def test_what_was_begun_before_the_go_is_the_program() -> None:
    bench = Bench(begun=True, start=fails(RunError("no more processes")))
    assert bench.lives() == GONE
    assert bench.fed == SEEN


def test_what_changes_below_it_is_told_and_its_words_where_they_are_asked_for() -> None:
    bench = Bench()
    family, main = Family(None, (Child(101, 0.0, 0.0),)), inputs.MainEnd(3, 0.9)

    def ask() -> None:
        bench.running.look()
        bench.running.pass_signal(10)
        bench.running.kill()

    def steps() -> None:
        bench.program.family, bench.program.main_ended = family, (3, 0.9)
        bench.program.changed()
        ask()

    ask()  # before it runs this is no matter
    assert bench.fed == []
    bench.lives(steps)
    seen = inputs.ProgramSeen(7, family, main)
    assert bench.fed[2:] == [seen, replace(seen, words=WORDS)]
    assert bench.program.told == [10, "kill"]


def test_a_variable_that_was_taken_out_is_told_where_it_was_set_and_its_ranks_name_it() -> None:
    sink = Sink()
    sink.words = RankWords()
    sink.words.take(None, b"KeyError: 'SLURM_PROCID' or 'RDZV_TOKEN'\n")
    contract = replace(PROGRAM, removed=frozenset({"SLURM_PROCID", "RDZV_TOKEN", "SLURM_NTASKS"}))
    environ = {"PATH": "/bin", "SLURM_PROCID": "3", "SLURM_NTASKS": "2"}
    gone = Bench(contract, environ=environ, sink=lambda *args, **options: sink).lives()
    assert isinstance(gone, inputs.ProgramGone)
    assert [(one.kind, one.path) for one in gone.words.facts] == [("removed", "SLURM_PROCID")]


def test_a_program_that_cannot_be_started_is_a_failure_of_the_start() -> None:
    bench = Bench(start=fails(RunError("no such file: train")))
    with pytest.raises(RunError, match="no such file"):
        bench.lives()
    assert bench.fed == []


def test_a_node_without_a_command_serves_until_it_is_told_to_stop() -> None:
    bench = Bench(replace(PROGRAM, argv=[]))
    assert (bench.lives(), bench.fed) == (inputs.ProgramGone(7), [inputs.Started(7)])


def test_a_program_that_starts_again_has_a_log_of_its_epoch() -> None:
    """What the first one has printed stays, and each file has the whole limit."""
    opened: list[tuple[Path, int]] = []

    def sink(file: Path, **options: Any) -> Sink:
        opened.append((file, options["log_limit"]))
        return Sink()

    bench = Bench(sealed=table(epoch=3), sink=sink)
    assert bench.lives() == replace(GONE, words=replace(WORDS, log="/logs/node-2.e3.log"))
    assert opened == [(Path("/logs/node-2.e3.log"), 1 << 30)]


def test_where_no_log_file_can_be_made_that_is_said_and_the_program_runs() -> None:
    bench = Bench(make_private=fails(PermissionError(13, "Permission denied")))
    assert bench.lives() == replace(GONE, words=replace(WORDS, log=""))
    assert bench.notes == [Note.NO_LOG_FILE]


@pytest.mark.parametrize(
    ("kept", "step", "progress"),
    [(None, None, None), (40, None, 40), (None, 7, 7), (40, 7, 40), (0, 44, 44), (0, None, 0)],
)
def test_the_higher_of_the_last_checkpoint_and_the_last_step_is_how_far_it_has_got(
    kept: int | None, step: int | None, progress: int | None
) -> None:
    """The file is read when something has ended, and at the end: its disk may hang."""
    read: list[Path] = []

    def read_progress(path: Path) -> int | None:
        read.append(path)
        return kept

    bench = Bench(progress_file=Path("out/step"), step=lambda: step, read_progress=read_progress)

    def steps() -> None:
        bench.running.look()
        assert read == []
        bench.running.stop(ends_itself=False)

    assert bench.lives(steps) == replace(GONE, words=replace(WORDS, progress=progress))
    seen = inputs.ProgramSeen(7, Family(), words=replace(WORDS, progress=step))
    assert bench.fed[2:] == [seen]
    assert (read, bench.notes) == ([Path("out/step")], [])


@pytest.mark.parametrize("fault", [ValueError("it holds words"), PermissionError(13, "no right")])
def test_a_progress_file_that_holds_no_number_is_named_once_and_does_not_count(
    fault: Exception,
) -> None:
    bench = Bench(progress_file=Path("/step"), step=lambda: 7, read_progress=fails(fault))
    assert bench.lives() == replace(GONE, words=replace(WORDS, progress=7))
    problem = fault.strerror if isinstance(fault, OSError) else "it holds words"
    values = {"file": Path("/step"), "problem": problem}
    assert bench.said == [notice(Note.NO_PROGRESS, **values)]


def test_how_far_it_has_got_is_known_when_its_failure_is_reported_ahead() -> None:
    kept = iter([40, 41])
    bench = Bench(progress_file=Path("step"), read_progress=lambda path: next(kept))
    loop_seconds = 1.0

    async def work() -> None:
        task = asyncio.create_task(bench.running.run())
        await asyncio.sleep(loop_seconds)
        bench.program.changed()
        await asyncio.sleep(loop_seconds)
        bench.running.look()
        bench.running.kill()
        assert await task == replace(GONE, words=replace(WORDS, progress=41))

    virtually(work())
    seen = bench.fed[-1]
    assert isinstance(seen, inputs.ProgramSeen)
    assert seen.words == replace(WORDS, progress=40)


def test_the_program_is_shown_in_a_file_that_a_node_will_leave() -> None:
    written: dict[str, str] = {}
    contract = replace(PROGRAM, variables={"RDZV_NOTICE_FILE": "/logs/node-1/notice.json"})

    def write_files(folder: Path, files: dict[str, str]) -> None:
        written.update({str(folder / name): text for name, text in files.items()})

    bench = Bench(contract, write_files=write_files)
    virtually(bench.running.write_notice(DEPARTURE))
    (text,) = written.values()
    assert list(written) == ["/logs/node-1/notice.json"]
    shown = {"seconds": 40.0, "node": 0, "slot": 3, "reason": "drained"}
    assert json.loads(text) == shown
    virtually(Bench().running.write_notice(DEPARTURE))  # without a folder there is no file


def test_a_notice_that_cannot_be_written_is_said() -> None:
    contract = replace(PROGRAM, withheld={"RDZV_NOTICE_FILE": "/logs/node-1/notice.json"})
    bench = Bench(contract, write_files=fails(PermissionError(13, "no right")))
    virtually(bench.running.write_notice(DEPARTURE))
    assert bench.notes == [Note.NO_NOTICE_FILE]


class Informed:
    """Ranks that handle a signal from a certain time on; when each received it."""

    def __init__(self, *handle_at: float) -> None:
        self.received: list[tuple[float, int, int]] = []
        self._handle_at = handle_at

    def inform(self, number: int, told: Told) -> Told:
        now = asyncio.get_running_loop().time()
        able = {(rank, 0) for rank, at in enumerate(self._handle_at) if at <= now}
        self.received += [(now, number, rank) for rank, _ in sorted(able - told)]
        return told | able


def shown(bench: Bench, *departures: tuple[float, DepartureNotice, int], stop: float) -> None:
    """A program that is shown these at these times, and is told to stop."""

    async def work() -> None:
        task = asyncio.create_task(bench.running.run())
        showing = []
        for at, departure, number in departures:
            await asyncio.sleep(at - asyncio.get_running_loop().time())
            asking = bench.running.show_departure(departure, number)
            showing.append(asyncio.create_task(asking))
        await asyncio.sleep(stop - asyncio.get_running_loop().time())
        bench.running.stop(ends_itself=False)
        await task
        await asyncio.gather(*showing)

    virtually(work())


def test_who_receives_a_signal_finds_the_notice_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []
    ranks = Informed(0.0)
    bench = Bench(inform=ranks.inform)

    async def write_notice(departure: DepartureNotice) -> None:
        await asyncio.sleep(1.5)
        written.append(asyncio.get_running_loop().time())

    monkeypatch.setattr(bench.running, "write_notice", write_notice)
    shown(bench, (1.0, DEPARTURE, 10), stop=9.0)
    assert (written, ranks.received) == ([2.5], [(2.5, 10, 0)])


def test_each_rank_receives_a_signal_once_as_soon_as_it_handles_it() -> None:
    """A torchrun may still import, or a script prepare what its ranks need."""
    ranks = Informed(0.0, 2.6, 4.0, 41.5)
    shown(Bench(inform=ranks.inform), (1.0, DEPARTURE, 10), stop=50.0)
    assert ranks.received == [(1.0, 10, 0), (3.0, 10, 1), (4.0, 10, 2)]


def test_nobody_receives_a_signal_that_was_not_asked_for_or_after_the_programs_are_stopped() -> (
    None
):
    ranks = Informed(0.0, 9.0)
    shown(Bench(inform=ranks.inform), (1.0, DEPARTURE, 0), stop=3.0)
    assert ranks.received == []
    shown(Bench(inform=ranks.inform), (1.0, DEPARTURE, 10), stop=3.0)
    assert ranks.received == [(1.0, 10, 0)]


def test_a_notice_that_is_shown_again_is_sent_again_and_the_first_one_no_longer() -> None:
    ranks = Informed(0.0, 6.0)
    sooner = DEPARTURE.model_copy(update={"seconds": 8.0})
    shown(Bench(inform=ranks.inform), (1.0, DEPARTURE, 10), (4.5, sooner, 10), stop=20.0)
    assert ranks.received == [(1.0, 10, 0), (4.5, 10, 0), (6.5, 10, 1)]


def test_what_a_node_without_a_command_serves_is_informed_too() -> None:
    ranks = Informed(0.0)
    shown(Bench(replace(PROGRAM, argv=[]), inform=ranks.inform), (1.0, DEPARTURE, 10), stop=3.0)
    assert ranks.received == [(1.0, 10, 0)]


def test_a_progress_file_on_a_disk_that_hangs_holds_the_end_up_for_a_moment() -> None:
    async def in_thread(work: Any, *args: Any) -> Any:
        if args:
            await forever()
        return work()

    bench = Bench(progress_file=Path("/step"), in_thread=in_thread)

    async def work() -> float:
        task = asyncio.create_task(bench.running.run())
        await asyncio.sleep(1.0)
        bench.running.kill()
        at = asyncio.get_running_loop().time()
        assert await task == GONE
        return asyncio.get_running_loop().time() - at

    assert virtually(work()) == pytest.approx(2.0)
    assert bench.notes == [Note.NO_PROGRESS]


def test_what_ends_last_has_nobody_read_a_progress_file_beyond_the_end() -> None:
    async def in_thread(work: Any, *args: Any) -> Any:
        if args:
            await forever()
        return work()

    bench = Bench(progress_file=Path("/step"), in_thread=in_thread)

    async def steps() -> None:
        bench.running.kill()
        await asyncio.sleep(1.0)
        bench.program.changed()

    assert bench.lives(lambda: asyncio.create_task(steps())) == GONE


WITHHELD = replace(NCCL, variables={}, withheld=NCCL.variables)


@pytest.mark.parametrize("contract", [NCCL, WITHHELD], ids=["seen", "withheld"])
def test_what_nccl_uses_is_told_while_the_program_runs_and_its_trouble_when_asked_for(
    contract: Contract,
) -> None:
    """Also where the launcher must not see the variable that names the file: its folder is made."""
    private: list[Path] = []
    bench = Bench(contract, make_private=private.append)
    bench.lives()
    assert private == [Path("/100%p logs/nccl-l"), Path("/logs")]
    assert inputs.NetworkSaid(7, USES_IB) in bench.fed
    assert bench.notes == [Note.NCCL_LOG]
    read = virtually(bench.running.read_trouble(ReadTrouble(8, 7, 1.0)))
    assert read == inputs.TroubleRead(8, "a cable")


@pytest.mark.parametrize(
    "log", [lambda *args, **options: SimpleNamespace(verdicts=fails(FAULT)), fails(FAULT)]
)
def test_a_fault_in_following_or_opening_nccls_log_is_told_and_the_program_goes_on(
    log: Any,
) -> None:
    bench = Bench(replace(NCCL, variables={}), nccl_log=log)  # which is the user's
    assert bench.lives() == GONE
    broken = [said for said in bench.fed if isinstance(said, inputs.PartBroken)]
    assert (len(broken), [said for said in bench.fed if said not in broken]) == (1, SEEN)


@pytest.mark.parametrize("withheld", [True, False])
def test_nccls_log_is_kept_where_its_folder_can_be_made_and_with_what_is_required(
    withheld: bool,
) -> None:
    """Whoever names the file, the program or the person whose variable is in the way."""
    asked: list[Any] = []

    def nccl_log(*given: Any, **how: Any) -> Log:
        asked.append((given, how))
        return Log()

    contract = replace(NCCL, variables={}, withheld=NCCL.variables) if withheld else NCCL
    bench = Bench(contract, nccl_log=nccl_log)
    spec = bench.running._spec
    settings = spec.settings.model_copy(update={"require_rdma": True})
    bench.running._spec = replace(spec, settings=settings)
    bench.lives()
    assert asked == [((NCCL_FILE, table().transport), {"required": True})]
    full = fails(OSError(28, "No space left on device"))
    bench = Bench(contract, nccl_log=nccl_log, make_private=full)
    bench.lives()
    assert (len(asked), Note.NO_NCCL_LOG in bench.notes, Note.NCCL_LOG in bench.notes) == (
        1,
        True,
        False,
    )


def test_a_program_starts_though_the_disk_of_its_logs_hangs() -> None:
    async def hangs(work: Any, *args: Any, **options: Any) -> Any:
        await forever()

    bench = Bench(NCCL, in_thread=hangs)

    def steps() -> None:
        assert bench.fed == SEEN
        bench.running.stop(ends_itself=False)

    assert bench.lives(steps, 2.0 + 2.0 + 0.5 + 0.01) == replace(GONE, words=replace(WORDS, log=""))
    assert bench.notes == [Note.NO_NCCL_LOG, Note.NO_LOG_FILE]


# --- its ranks ------------------------------------------------------------------------------------


LOOK = replace(PROGRAM, variables={"RDZV_LOOK_FOLDER": "/run/look-1"})


class Streams:
    """Streams of the ranks; see `worker.program.rank_streams.RankStreams`."""

    def __init__(self) -> None:
        self.made: list[tuple[Path, int]] = []
        self.given: list[object] = []
        self.closed = 0

    def make(self, folder: Path, count: int) -> Streams:
        self.made.append((folder, count))
        return self

    async def start(self, *args: Any, **options: Any) -> Program:
        self.given.append(options["ranks"])
        return Program()

    def close(self) -> None:
        self.closed += 1


def test_the_ranks_have_streams_for_as_long_as_the_program_runs() -> None:
    streams = Streams()
    bench = Bench(LOOK, rank_streams=streams.make, start=streams.start)
    assert bench.lives() == GONE
    assert streams.made == [(Path("/run/look-1"), 5)]
    assert (streams.given, streams.closed, bench.notes) == ([streams], 1, [])


def test_features_find_its_ranks_by_the_folder_of_its_streams() -> None:
    found: list[Any] = []
    bench = Bench(LOOK, rank_streams=Streams().make)

    def steps() -> None:
        found.append(bench.running.ranks())
        bench.running.stop(ends_itself=False)

    bench.lives(steps)
    assert [ranks.folder for ranks in found] == ["/run/look-1"]


@pytest.mark.parametrize("hangs", [False, True])
def test_the_worlds_that_its_ranks_have_been_in_are_known_at_its_end(hangs: bool) -> None:
    """Also of a program that has ended before anybody has looked at it."""
    alone = RankWorld(rank=1, library="torch", size=1, places=[0], whole=True)
    asked = []

    async def in_thread(work: Callable[..., Any], *args: Any) -> Any:
        if hangs and work == read:
            await forever()
        return work(*args)

    def read(*args: object) -> tuple[RankWorld, ...]:
        asked.append(args)
        return (alone,)

    streams = Streams()
    bench = Bench(
        LOOK, rank_streams=streams.make, start=streams.start, worlds=read, in_thread=in_thread
    )
    found = () if hangs else (alone,)
    assert bench.lives(after=4.0) == replace(GONE, words=replace(GONE.words, worlds=found))
    assert set(asked) == (set() if hangs else {("/run/look-1", 8 + 2, 5)})


def test_without_a_folder_the_ranks_have_none() -> None:
    streams = Streams()
    assert Bench(rank_streams=streams.make, start=streams.start).lives() == GONE
    assert (streams.made, streams.given) == ([], [None])


@pytest.mark.parametrize("hangs", [False, True])
def test_a_program_whose_ranks_can_have_none_starts_without(hangs: bool) -> None:
    async def in_thread(work: Callable[..., Any], *args: Any) -> Any:
        if hangs and work == make:
            await forever()
        return work(*args)

    streams, make = Streams(), fails(OSError(28, "No space left on device"))
    bench = Bench(LOOK, rank_streams=make, start=streams.start, in_thread=in_thread)
    assert bench.lives(after=4.0) == GONE
    problem = "its disk hangs" if hangs else "No space left on device"
    assert bench.said == [notice(Note.NO_RANK_STREAMS, folder="/run/look-1", problem=problem)]
    assert streams.given == [None]


def test_a_program_that_cannot_be_started_leaves_no_streams() -> None:
    streams = Streams()
    bench = Bench(LOOK, rank_streams=streams.make, start=fails(RunError("no more processes")))
    with pytest.raises(RunError):
        bench.lives()
    assert streams.closed == 1


@pytest.mark.parametrize("raw", [False, True])
def test_what_launchers_print_is_folded_unless_all_is_asked_for(raw: bool) -> None:
    sink, told = Sink(), [""]
    bench = Bench(sink=lambda *args, **options: sink, raw_output=raw)
    sink.stop = lambda: told.append("stop")  # type: ignore[method-assign]
    bench.lives()
    assert (sink.fold is None) is raw
    assert told[1:] == ["stop"]


@pytest.mark.parametrize(
    ("restarts", "sealed", "option"),
    [("0", None, ""), ("3", None, " --epoch 1"), ("0", table(epoch=3), " --epoch 3")],
)
def test_what_was_folded_is_in_the_log_of_its_epoch(
    restarts: str, sealed: EndpointTable | None, option: str
) -> None:
    sink, contract = Sink(), replace(PROGRAM, variables={"RDZV_MAX_RESTARTS": restarts})
    Bench(contract, sealed=sealed, sink=lambda *args, **options: sink).lives()
    sink.fold.stop()
    assert sink.fold.take(f"{SENDING}\n".encode()) == b""
    command = f"rdzv logs {table().run} --node 2{option} --lines 2\n"
    assert sink.fold.close().endswith(command.encode())

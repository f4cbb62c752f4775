"""A launch that is driven along and written down, at a registry that is driven beside it.

What is answered in one way alone (a file is written, the registry hears) is answered at once; what
a course is about (a submission, a description, an end) it answers itself.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.actions import Action
from launcher.run.ground import OnDisk, Wanted
from launcher.run.machine import Machine
from launcher.run.values import ErrorKind, Key, LaunchFacts, Trouble
from launcher.run.words import cancel_reason, detail_of, lines, result_of
from launcher.schedulers.description import Description
from launcher.show.board import LiveBoard, PlainBoard
from launcher.show.last_line import last_line
from launcher.show.slot_table import draw
from launcher.state.state_dir import StateDir
from rendezvous.run.decision import Outcome
from rendezvous.run.events import Event
from rendezvous.run.rounds import run_report
from rendezvous.run.views import event_line, run_status
from rendezvous.wire.errors import Cause, RequestError
from rendezvous.wire.run import EventLine, RunReport, RunSpec, RunStatus, SlotNews, SlotState
from tests.launcher import drive
from tests.launcher.test_run_words import NAMES
from tests.support.courses import one_line, said, values_of
from tests.support.driver import Drive as RunDrive
from tests.support.terminals import Screen

_AT_ONCE = (
    *(do.OpenFormer, do.Establish, do.CreateRun, do.WriteIntent, do.TellSlot, do.CancelRun),
    *(do.Keep, do.KeepReport, do.FetchWords),
    *(do.CloseChild, do.WriteResult),
)
"""What is answered in one way alone, unless a course holds it."""
_STYLE = re.compile(r"\x1b\[([0-9;]+)m")
_BOLD = re.compile(r"\x1b\[1m(.*?)\x1b\[0m")
_STYLES = {"0": "", "2": "dim", "1;31": "bold red", "31": "red", "36": "cyan"}


class Registry(RunDrive):
    """The run at its registry, with a line for each event."""

    def __init__(self, spec: RunSpec, now: float) -> None:
        self.events: list[EventLine] = []
        super().__init__(spec, now)

    def apply(self, event: Event) -> Outcome:
        """See the base class."""
        outcome = super().apply(event)
        self.events.append(event_line(self.run, len(self.journal), event, outcome, self.now))
        return outcome


class LaunchCourse(drive.Drive):
    """A launch of which each input is told, and what is done about it.

    Attributes:
        registry: The run, as its registry has it; its clock is a hundred seconds ahead.
        holds: What the course answers itself, beside what it always does.
        findings: What the checks have found.
        screen: What a terminal of 110 columns shows; None: none is looked at.
    """

    def __init__(
        self,
        spec: RunSpec,
        facts: LaunchFacts,
        found: OnDisk | None = None,
        wanted: Wanted | None = None,
        *,
        on_terminal: bool = False,
    ) -> None:
        super().__init__(Machine.of(facts, found or OnDisk(), wanted or Wanted("h7", "slurm", "f")))
        self.lines: list[str] = []
        self.registry = Registry(spec, 100.0)
        self.holds: tuple[type[Any], ...] = ()
        self.report: RunReport | None = None
        self._told = 0
        self._paper = io.StringIO()
        self._read = 0
        self._plain = PlainBoard(self._paper, self.registry.run.spec.slots, clock=lambda: self.now)
        self._screen = io.StringIO()
        self._live = LiveBoard(
            self.registry.run.spec.slots,
            console=_console(self._screen, 110),
            clock=lambda: self.now,
        )
        self._on_terminal = on_terminal

    # --- inputs and actions -------------------------------------------------------------------

    def take(self, what: inputs.Input) -> list[Action]:
        """See the base class."""
        asked = self._asked(what)
        if not isinstance(what, inputs.Due):
            self.lines.append(f"* {self.now:.2f} {_input_words(what, asked)}")
        return self._carried_out(what, asked)

    def _carried_out(self, what: inputs.Input, asked: Action | None) -> list[Action]:
        """What follows, each told; and then answered, where that is at once."""
        done = super().take(what)
        for one in done:
            self._tell(one, asked)
        for one in done:
            if isinstance(one, _AT_ONCE) and not isinstance(one, self.holds):
                self._answer(one)
            elif isinstance(one, do.FinishFeatures) and self.all_open(do.RunFeatures):
                self._quietly(inputs.Done(self.id(do.RunFeatures)))
        return done

    def _asked(self, what: inputs.Input) -> Action | None:
        """What an answer is one to."""
        return self._sent.get(what.id) if isinstance(what, inputs.Answer) else None

    def _quietly(self, what: inputs.Answer) -> None:
        """An answer that is told by what comes of it alone."""
        if what.id not in self.machine.desk.open:
            return
        self._carried_out(what, self._sent[what.id])

    def _tell(self, action: Action, asked: Action | None) -> None:
        """What is done, and what a person sees of it."""
        match action:
            case do.Show(status=status):
                self._plain.status(status)
                if self._on_terminal:
                    self._live.status(status)
            case do.Say(sentence=sentence):
                self._add(f"say {type(sentence).__name__}")
                for line in lines(sentence, NAMES):
                    self._plain.say(line)
                    if self._on_terminal:
                        self._live.say(line)
            case do.AskStatus() if isinstance(asked, do.AskStatus):
                if (action.after, action.wait) != (self.registry.run.version, asked.wait):
                    self._add(_action_words(action))
            case do.RunFeatures() | do.FinishFeatures():
                pass  # in every course
            case do.BreakOff(id=number):
                self._add(f"break off {_action_words(self._sent[number])}")
            case do.WriteResult(verdict=verdict):
                self._result = result_of(verdict, NAMES)
                values = values_of(self._result)
                values["epochs"] = [end["epoch"] for end in values["epochs"]]
                self._add(f"write result {one_line(said(values))}")
            case do.CloseBoard():
                self._add("close board")
                self._plain.close()
                if self._on_terminal:
                    self._live.close()
            case do.End(outcome=outcome):
                self._add(f"end {said(values_of(replace(outcome, verdict=None)))}")
                if outcome.verdict is not None:
                    state = StateDir(Path("/nowhere"), "r")
                    self._paper.write(last_line("r", self._result, state) + "\n")
                if self._on_terminal:
                    self._show(Screen(110).write(self._screen.getvalue()).lines())
            case _:
                self._add(_action_words(action))
        self._show(self._paper.getvalue()[self._read :].splitlines())
        self._read = len(self._paper.getvalue())

    def _add(self, words: str) -> None:
        self.lines.append(f"{self.now:.2f} {words}".rstrip())

    def _show(self, shown: list[str]) -> None:
        self.lines += [f"| {line}".rstrip() for line in shown]

    def _answer(self, action: Any) -> None:
        """As it always is."""
        number = action.id
        self._keep_time()
        match action:
            case do.Keep() | do.KeepReport():
                report = self.report or run_report(self.registry.run)
                self._quietly(inputs.ReportCame(number, report))
            case do.CancelRun(reason=reason):
                if (event := self.registry.cancel(cancel_reason(reason, NAMES))) is not None:
                    self.registry.apply(event)
                self._quietly(inputs.StatusCame(number, self.stands()))
            case do.TellSlot(key=key, news=news):
                try:
                    self.registry.news(key.slot, **_news(key, news))
                except RequestError as exc:
                    self.take(inputs.Refused(number, Trouble.of(exc)))
                else:
                    self._quietly(inputs.Done(number))
            case _:
                self._quietly(inputs.Done(number))

    # --- what a course says -------------------------------------------------------------------

    def stands(self) -> RunStatus:
        """How the run stands at its registry."""
        return run_status(self.registry.run, self.registry.now, self.registry.leases)

    def see(self, **changes: Any) -> None:
        """The launch hears how the run stands, and of what has happened."""
        self._keep_time()
        if self.all_open(do.FollowEvents):
            for event in self.registry.events[self._told :]:
                self._plain.event(event)
                if self._on_terminal:
                    self._live.event(event)
            self._told = len(self.registry.events)
        if self.all_open(do.AskStatus):
            self.came(self.stands().model_copy(update=changes))

    def wait(self, seconds: float, *, silent: tuple[int, ...] = ()) -> list[Action]:
        """Time passes here and there; whenever something has changed, the launch hears of it."""
        end = self.now + seconds
        while self.now < end:
            version, step = self.registry.run.version, min(5.0, end - self.now)
            self._keep_time()
            self.registry.wait(step, silent=silent)
            super().wait(step)
            if self.registry.run.version != version:
                self.see()
        return self.last

    def pause(self, seconds: float) -> None:
        """Time passes, and nobody says anything."""
        super().wait(seconds)
        self._keep_time()

    def _keep_time(self) -> None:
        self.registry.now = max(self.registry.now, 100.0 + self.now)

    def look(self, width: int = 100, rows: int = 32) -> None:
        """What `rdzv status` shows just now, with the styles of a terminal."""
        stream = io.StringIO()
        ended = self.registry.run.result is not None
        _console(stream, width).print(draw(self.stands(), most_rows=rows, sentence=not ended))
        drawn = _BOLD.sub(r"\1", stream.getvalue()).splitlines()
        self._show([_STYLE.sub(_style, line) for line in drawn])

    def say(self, key: Key, state: SlotState, detail: str = "", **more: Any) -> None:
        """The scheduler says this of a worker run, once it is asked; it is told to end before that
        where it has to be."""
        while not self.all_open(do.Describe, key):
            if self.all_open(do.CancelWorkerRun, key):
                self.take(inputs.RunTold(self.id(do.CancelWorkerRun, key)))
            times = self.machine.desk.times
            [at] = [times[name, key][0] for name in ("look", "ends") if (name, key) in times]
            self.pause(at - self.now)
        self.take(inputs.Described(self.id(do.Describe, key), Description(state, detail, **more)))

    def is_ending(self, key: Key) -> bool:
        """Whether it is to end, and has not ended."""
        return key in self.machine.ends.ends

    def submits(self, *of: tuple[Key, str]) -> None:
        """The scheduler takes these worker runs, as these ids."""
        for key, handle in of:
            self.submitted(key, handle)

    def ends(self, *keys: Key, detail: str = "") -> None:
        """Their scheduler says that they have ended."""
        for key in keys:
            self.say(key, SlotState.ENDED, detail)


def _news(key: Key, news: do.News) -> dict[str, Any]:
    """What the registry hears of a worker run."""
    is_intent = news.state is SlotState.SUBMITTING and not news.detail
    cause = Cause.PREEMPTED if news.preempted else Cause.SCHEDULER_FAILED if news.final else ""
    heard = SlotNews(
        generation=key.generation,
        state=news.state,
        name=NAMES.of(key) if is_intent else "",
        handle=news.handle,
        detail=detail_of(news),
        cause=cause,
    )
    return dict(heard)


def _console(stream: io.StringIO, width: int) -> Console:
    return Console(
        file=stream, width=width, height=30, force_terminal=True, highlight=False, _environ={}
    )


def _style(found: re.Match[str]) -> str:
    style = _STYLES[found[1]]
    return f"<{style}>" if style else "</>"


def _input_words(what: inputs.Input, asked: Action | None) -> str:
    """An input, and to what it is the answer."""
    name = type(what).__name__
    if isinstance(what, inputs.StatusCame):
        return f"{name} {what.status.phase}, epoch {what.status.epoch}: {what.status.reason}"
    values = _without(values_of(what), "id", "key", "report")
    for inner in ("found", "trouble"):
        values |= values.pop(inner, {})
    words = one_line(f"{name} {said(values)}").rstrip()
    return words if asked is None else f"{words} to {_named(asked)}"


def _action_words(action: Any) -> str:
    """An action with all that is of it."""
    values = _without(values_of(action), "id", "key", "status")
    if isinstance(action, do.CancelRun):
        values = {"reason": repr(cancel_reason(action.reason, NAMES))}
    if isinstance(action, do.TellSlot):
        values = values["news"]
    if isinstance(action, do.Establish):
        values = {"ground": f"{type(action.ground).__name__} {said(values['ground'])}".rstrip()}
    return one_line(f"{_named(action)} {said(values)}").rstrip()


def _named(action: Any) -> str:
    name = re.sub("(?<!^)(?=[A-Z])", " ", type(action).__name__).lower()
    key = getattr(action, "key", None)
    return name if key is None else f"{name} {key.slot}.{key.generation}"


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def late(message: str, kind: ErrorKind = ErrorKind.NOT_NOW, **more: Any) -> Trouble:
    """A registry that does not answer."""
    return Trouble(kind, "unavailable", message, "try again", 85, **more)


Make = Callable[[], LaunchCourse]

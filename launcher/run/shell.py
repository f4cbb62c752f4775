"""The shell of a launch: feeds its machine, carries out what it decides, returns how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from launcher.run import actions as do
from launcher.run import inputs, recorded
from launcher.run.clearing import Clearance
from launcher.run.effects import Effects
from launcher.run.environment import LaunchEnvironment
from launcher.run.inputs import Input
from launcher.run.machine import Machine
from launcher.run.preparation import Preparation
from launcher.run.scheduling import Remains, Scheduling
from launcher.run.values import Outcome
from launcher.run.words import Names, lines
from launcher.schedulers.contract import SchedulerContext
from launcher.show.board import Board
from launcher.state.ledger import Ledger
from launcher.state.state_dir import StateDir
from rendezvous.shell import Shell
from rendezvous.wire.run import Result


class Launch:
    """One launch, from the state directory to its end.

    Args:
        prepared: What is launched.
        state: The run's folder, its lock held.
        board: Where the person sees it.
        world: The outer world.
    """

    def __init__(
        self, prepared: Preparation, state: StateDir, board: Board, world: LaunchEnvironment
    ) -> None:
        self._world = world
        self._effects = Effects(prepared, state, board, world)
        surveyor = self._effects.surveyor
        found = surveyor.found(self._effects.remains)
        made_with = prepared.facts(), found, surveyor.wanted()
        self.machine = Machine.of(*made_with)
        recorder = world.recorder(state)
        if recorder is not None:
            recorder.begin(recorded.made_with(*made_with), asyncio.get_running_loop().time())
        self._shell: Shell[Input, do.Action] = Shell(
            self._step,
            self.machine.due,
            tick=inputs.Due(),
            act=self._act,
            broken=self._broken,
            recorder=recorder,
        )
        self._effects.attach(self._shell)
        self._faults: dict[int, Exception] = {}

    @property
    def result(self) -> Result | None:
        """As it was written down; None where it never began."""
        return self._effects.result

    async def go(self) -> Outcome:
        """See it to its end. Raises what nobody expected."""
        self._world.on_signals(lambda number: self._shell.feed(inputs.SignalCame(number)))
        self._shell.feed(inputs.Begin())
        try:
            outcome = await self._effects.over
        finally:
            await self._shell.close()
            await self._effects.close()
        if outcome.fault is not None:
            raise self._faults[outcome.fault]
        return outcome

    def _step(self, said: Input, now: float) -> list[do.Action]:
        """A machine that fails decides nothing more: then the launch is over as it stands."""
        try:
            return self.machine.step(said, now)
        except Exception as exc:  # noqa: BLE001 (raised where the launch is awaited)
            if not self._effects.over.done():
                self._effects.over.set_exception(exc)
            return []

    def _act(self, action: do.Action) -> None:
        try:
            self._effects.act(action)
        except Exception as exc:  # noqa: BLE001 (the machine ends what it has begun)
            self._faults.setdefault(inputs.NO_ACTION, exc)
            self._shell.feed(inputs.PartFailed(inputs.NO_ACTION, repr(exc)))

    def _broken(self, number: int, error: Exception) -> Input:
        self._faults[number] = error
        return inputs.PartFailed(number, repr(error))


async def end_left(
    ledger: Ledger,
    context: SchedulerContext,
    say: Callable[[str], None],
    *,
    grace: float,
    world: LaunchEnvironment | None = None,
) -> bool:
    """End what a former launch has left at its schedulers; returns whether all of it is gone.

    Args:
        ledger: Of the former launch, whose launcher is no longer alive.
        context: For the schedulers.
        say: Shows what is done, and what could not be ended.
        grace: Seconds for the programs to end.
        world: The outer world; this machine when not given.
    """
    world = world or LaunchEnvironment()
    remains = Remains.of(ledger, context, world.scheduler)
    machine = Clearance.of(remains.left(), tuple(remains.unknown), grace)
    await _Clearing(machine, ledger, Scheduling(ledger, remains, world.jitter), say).go()
    return not machine.clearing.kept()


class _Clearing:
    """The shell of what ends the remains of former launches."""

    def __init__(
        self,
        machine: Clearance,
        ledger: Ledger,
        scheduling: Scheduling,
        say: Callable[[str], None],
    ) -> None:
        self._scheduling = scheduling
        self._say = say
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        path = ledger.path
        self._names = Names("", path, path, True, scheduling.name, scheduling.end_words)
        self._shell: Shell[Input, do.Action] = Shell(
            machine.step,
            machine.due,
            tick=inputs.Due(),
            act=self._act,
            broken=lambda number, error: inputs.PartFailed(number, repr(error)),
        )

    async def go(self) -> None:
        """Until nothing is being ended any more."""
        self._shell.feed(inputs.Begin())
        try:
            await self._over
        finally:
            await self._shell.close()

    def _act(self, action: do.Action) -> None:
        match action:
            case do.Say(sentence=sentence):
                for line in lines(sentence, self._names):
                    self._say(line)
            case do.Note():
                self._scheduling.note(action)
            case do.End():
                self._over.set_result(None)
            case do.Find() | do.Describe() | do.CancelWorkerRun():
                self._shell.start(action.id, self._scheduling.ask(action))

"""The shell of a launch: feeds its machine, carries out what it decides, returns how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from launcher.run import actions as do
from launcher.run import inputs
from launcher.run.clearing import Clearance
from launcher.run.effects import Effects
from launcher.run.environment import LaunchEnvironment
from launcher.run.ground import OnDisk
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
from rendezvous.wire.errors import RdzvError
from rendezvous.wire.run import Result
from worker.machine.limits import named
from worker.machine.shortage import cpu_time_met, cpu_time_used_up
from worker.program.cpu_time import cpu_time_watched


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
        self._world, self._board = world, board
        self._effects = Effects(prepared, state, board, world, self._feed)
        surveyor, remains = self._effects.surveyor, self._effects.remains
        found = OnDisk(surveyor.former(), remains.left(), remains.own(), tuple(remains.unknown))
        self.machine = Machine.of(prepared.facts(), found, surveyor.wanted())
        self._shell: Shell[Input, do.Action] = Shell(
            self._step,
            self.machine.due,
            tick=inputs.Due(),
            act=self._act,
            broken=self._broken,
        )
        self._over: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._faults: dict[int, Exception] = {}

    @property
    def result(self) -> Result | None:
        """As it was written down; None where it never began."""
        return self._effects.result

    async def go(self) -> Outcome:
        """See it to its end. Raises what nobody expected."""
        self._world.on_signals(lambda number: self._feed(inputs.SignalCame(number)))
        self._feed(inputs.Begin())
        try:
            with cpu_time_watched(self._cpu_time_met, self._cpu_time_used_up):
                outcome = await self._over
        finally:
            await self._shell.close()
            await self._effects.close()
        if outcome.fault is not None:
            raise self._faults[outcome.fault]
        return outcome

    def _cpu_time_met(self, soft: int, hard: int | None) -> None:
        self._board.say(cpu_time_met(soft, hard))

    def _cpu_time_used_up(self, seconds: int) -> None:
        self._fail(cpu_time_used_up(seconds, int(time.process_time())))

    def _feed(self, said: Input) -> None:
        self._shell.feed(said)

    def _step(self, said: Input, now: float) -> list[do.Action]:
        """A machine that fails decides nothing more: then the launch is over as it stands."""
        try:
            return self.machine.step(said, now)
        except Exception as exc:  # noqa: BLE001 (raised where the launch is awaited)
            if not self._over.done():
                self._over.set_exception(exc)
            return []

    def _act(self, action: do.Action) -> None:
        try:
            match action:
                case do.Answerable():
                    self._shell.start(action.id, self._effects.carry_out(action))
                case do.BreakOff(id=number):
                    self._shell.drop(number)
                case do.End(outcome=outcome):
                    if not self._over.done():
                        self._over.set_result(outcome)
                case _:
                    self._effects.act(action)
        except Exception as exc:  # noqa: BLE001 (the machine ends what it has begun)
            self._fail(named(exc))

    def _fail(self, error: Exception) -> None:
        self._faults.setdefault(inputs.NO_ACTION, error)
        self._feed(_part_failed(inputs.NO_ACTION, error))

    def _broken(self, number: int, error: Exception) -> Input:
        error = named(error)
        self._faults[number] = error
        return _part_failed(number, error)


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
    world, path = world or LaunchEnvironment(), ledger.path
    remains = Remains.of(ledger, context, world.scheduler)
    machine = Clearance.of(remains.left(), tuple(remains.unknown), grace)
    scheduling = Scheduling(ledger, remains, world.jitter)
    names = Names(
        "", path, path, path, True, scheduling.name, scheduling.start_words, scheduling.end_words
    )
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def act(action: do.Action) -> None:
        match action:
            case do.Say(sentence=sentence):
                for line in lines(sentence, names):
                    say(line)
            case do.Note():
                scheduling.note(action)
            case do.End():
                over.set_result(None)
            case do.Find() | do.Describe() | do.CancelWorkerRun():
                shell.start(action.id, scheduling.ask(action))

    shell: Shell[Input, do.Action] = Shell(
        machine.step, machine.due, tick=inputs.Due(), act=act, broken=_part_failed
    )
    shell.feed(inputs.Begin())
    try:
        await over
    finally:
        await shell.close()
    return not machine.clearing.kept()


def _part_failed(number: int, error: Exception) -> Input:
    words = error.message if isinstance(error, RdzvError) else repr(error)
    return inputs.PartFailed(number, words)

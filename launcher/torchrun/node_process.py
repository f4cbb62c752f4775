"""The helper of one torchrun: `rdzv_command.py _torchrun`, with the socket as standard input.

    first line -> registry hosted or found -> asked for a table -> a place in the run -> its end

It ends with the run's end for this node, which it tells torchrun; a torchrun that is gone is a node
that leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import click

from launcher.cli.process import (
    log_to_stderr,
    need_launcher_packages,
    secret_text,
    shown,
)
from launcher.options import options_from, read
from launcher.plan.plan import loopback_address
from launcher.settings import LaunchSettings
from launcher.symmetric.platforms import claims
from launcher.symmetric.start import this_host
from launcher.torchrun.asked import (
    Asked,
    command_of,
    host_settings,
    node_settings,
    read_asked,
)
from launcher.torchrun.group import Group, read_group
from launcher.torchrun.head import refuse_own_head
from launcher.torchrun.hosting import Hosting
from launcher.torchrun.link import Torchrun
from launcher.torchrun.program import TorchrunProgram
from launcher.torchrun.slots import first_slot, free_slots, is_surplus
from launcher.torchrun.words import Next
from rendezvous.talk.client import RegistryClient
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.macs import sign_join
from rendezvous.talk.retry import until_answered
from rendezvous.wire.errors import (
    AddressError,
    ExitCode,
    RdzvError,
    RegistryError,
    RequestError,
    RunError,
    RunOver,
    SlotTaken,
    TooLate,
    UsageError,
)
from rendezvous.wire.node import Candidate, JoinRequest, LinkKind
from rendezvous.wire.run import Phase
from worker.agent import AgentEnvironment, take_part, with_log_folder
from worker.contracts.plugin import DEFAULT_ROLE
from worker.offer.join_request import make_offer
from worker.options import Settings
from worker.program.hidden import hide_memory
from worker.settings import WorkerSettings

logger = logging.getLogger("worker.torchrun")

_ASK_SECONDS = 15.0
_PAUSE_SECONDS = 0.5
_LAST_LOOKS = 120
_MOST_CANDIDATES = 64
"""As many as a join may offer."""


def main() -> None:
    """Take part for the torchrun at the other end."""
    hide_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is torchrun's
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    logging.raiseExceptions = False
    asyncio.run(_serve(socket.socket(fileno=os.dup(0))))


async def _serve(link: socket.socket) -> None:
    torchrun = Torchrun(link)
    try:
        if await torchrun.open():
            over = await _take_part(torchrun)
            torchrun.tell("over", **over)
    except RdzvError as exc:
        words = f"{exc.message} ({exc.hint})" if exc.hint else exc.message
        click.echo(f"rdzv: {shown(exc.message)}", err=True)
        if exc.hint:
            click.echo(f"      {shown(exc.hint)}", err=True)
        torchrun.tell("over", code=int(exc.exit_code), message=words)
    except Exception as exc:  # the last one who can name it
        logger.exception("this is a bug in rdzv; please report it")
        torchrun.tell("over", code=int(ExitCode.INTERNAL), message=f"a bug in rdzv: {exc!r}")
    await torchrun.close()


Model = TypeVar("Model", bound=Settings)


def given(model: type[Model]) -> Model:
    """What a person has set with variables. Raises UsageError."""

    @click.command()
    @options_from(model)
    def command(**values: Any) -> Model:
        return read(model, values)

    try:
        found = command.main(args=[], prog_name="torchrun", standalone_mode=False)
    except click.UsageError as exc:
        raise UsageError(exc.format_message().rstrip(".")) from exc
    assert isinstance(found, model)
    return found


async def _take_part(torchrun: Torchrun) -> dict[str, Any]:
    own = given(WorkerSettings)
    log_to_stderr(own.log_level, "rdzv")
    need_launcher_packages()
    asked = read_asked(torchrun.begin)
    refuse_own_head(asked, claims(os.environ, this_host(), asked.size[1]))
    token = secret_text("RDZV_TOKEN")
    group = read_group(asked, token, secret_text("RDZV_REGISTRY"))
    hosting = Hosting(asked, torchrun.begin, token)
    hosts = asyncio.create_task(hosting.go())
    asks = asyncio.create_task(torchrun.asks())
    torchrun.at_end = partial(os.kill, os.getpid(), signal.SIGTERM)
    try:
        await asyncio.wait({hosts, asks}, return_when=asyncio.FIRST_COMPLETED)
        if hosts.done():
            hosts.result()
        node = await asks
        settings = node_settings(asked, node, own)
        member = _Member(asked, group, torchrun, node, settings, hosts.cancel)
        taking_part = asyncio.create_task(member.take_part())
        await asyncio.wait({hosts, taking_part}, return_when=asyncio.FIRST_COMPLETED)
        if hosts.done() and not hosts.cancelled() and hosts.exception() is not None:
            taking_part.cancel()
            hosts.result()
        over = await taking_part
        await hosting.close(member.everyone_left)
        return over
    finally:
        hosts.cancel()


@dataclass
class _Member:
    """This node, until its run is over; `met`: called once it has started on a table."""

    asked: Asked
    group: Group
    torchrun: Torchrun
    node: Next
    settings: WorkerSettings
    met: Callable[[], object]

    async def take_part(self) -> dict[str, Any]:
        """Returns how torchrun is told of the end. Raises RdzvError."""
        run, group = self.asked.run, self.group
        if group.standing is not None:
            from launcher.torchrun.standing import make_run, spec_of  # seldom wanted

            wanted = host_settings(self.asked, given(LaunchSettings))
            spec = spec_of(group, wanted, self._command(), os.environ)
            await make_run(group, spec, self.settings.join_timeout)
        slot = await self._first_slot()
        giving_up = asyncio.create_task(self._see_to_the_end())
        try:
            while True:
                with contextlib.suppress(SlotTaken):
                    code = await self._as_node(slot)
                    break
                found = await self._next_slot()
                if found is None:
                    return _not_needed(run)
                slot = found
        except TooLate as exc:
            logger.info("%s", exc.message)
            return _not_needed(run)
        finally:
            giving_up.cancel()
        words = "has ended" if code == 0 else "has failed, or this node's part of it"
        return {"code": code, "message": f"run '{run}' {words}; rdzv's lines above say more"}

    async def everyone_left(self) -> bool:
        """Whether all nodes know that the run has ended; also where nobody can be asked."""
        try:
            async with self._client("read") as client:
                return (await client.status(self.asked.run)).everyone_left
        except RdzvError:
            return True

    async def _first_slot(self) -> int:
        """What is tried first; a run that is there already is looked at before."""
        slot = first_slot(self.asked.node, self.asked.slots)
        with contextlib.suppress(RegistryError, RequestError):
            async with self._client("read") as client:
                free = free_slots(await client.status(self.asked.run))
                return _chosen(slot, free) if free else slot
        return slot

    async def _as_node(self, slot: int) -> int:
        if self.torchrun.has_ended:  # nobody has heard the signal for that
            raise RunError("torchrun has ended on this node")
        environment = AgentEnvironment(start=self._begin_program, make_offer=self._make_offer)
        join, settings = self.group.join(slot), self.settings
        if self.asked.alone:
            settings = settings.model_copy(update={"address": [loopback_address(slot)]})
        settings = await with_log_folder(settings, join, environment)
        return await take_part(settings, join, self._command(), environment, any_slot=True)

    def _command(self) -> list[str]:
        return command_of(self.torchrun.begin)

    def _make_offer(
        self, settings: WorkerSettings, join: JoinString, *args: Any, **how: Any
    ) -> JoinRequest:
        role = None if self.node.role == DEFAULT_ROLE else self.node.role
        if self.asked.loopback and not self.asked.alone:
            return replace(offer_near(settings, join, *args, **how), role=role)
        return replace(make_offer(settings, join, *args, **how), role=role)

    async def _begin_program(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        grace_seconds: float,
        until: float | None = None,
        **_: object,
    ) -> TorchrunProgram:
        self.met()
        return TorchrunProgram.begin(
            self.torchrun,
            env,
            os.environ,
            grace_seconds=grace_seconds,
            restart=self._restart,
            until=until,
        )

    async def _next_slot(self) -> int | None:
        """Another place; None where the run needs this node no more."""
        run, said = self.asked.run, False
        async with self._client("read") as client:
            while True:
                with contextlib.suppress(RegistryError):
                    status = await client.status(run)
                    if status.phase is Phase.FINISHED:
                        raise RunOver(f"run '{run}' has ended")
                    if is_surplus(status):
                        logger.info("run '%s' has all the nodes that it needs", run)
                        return None
                    if free := free_slots(status):
                        await asyncio.sleep(_PAUSE_SECONDS * random.random() / 5)  # noqa: S311
                        return _chosen(0, free)
                    if not said:
                        said = True
                        words = "all places of run '%s' are taken; this node waits until it starts"
                        logger.info(words, run)
                await asyncio.sleep(_PAUSE_SECONDS)

    def _client(self, kind: str) -> RegistryClient:
        keys = self.group.keys
        return RegistryClient(self.group.place, keys.read if kind == "read" else keys.admin)

    async def _restart(self) -> None:
        """Have the programs of all nodes start again. Raises RdzvError."""
        why = f"torchrun of {socket.gethostname()} starts its workers again"
        async with self._client("admin") as client:
            await until_answered(
                lambda: client.restart(self.asked.run, why[:300]), seconds=_ASK_SECONDS
            )

    async def _see_to_the_end(self) -> None:
        """A torchrun that gives up ends the run, also where another one starts again just then."""
        await self.torchrun.given_up.wait()
        run = self.asked.run
        async with self._client("admin") as client:
            with contextlib.suppress(RegistryError, RequestError):
                first = status = await client.status(run)
                for _ in range(_LAST_LOOKS):
                    if status.phase is not Phase.RUNNING or status.epoch > first.epoch:
                        break
                    await asyncio.sleep(_PAUSE_SECONDS)
                    status = await client.status(run)
                why = f"torchrun of {socket.gethostname()} has no restart left"
                await client.cancel(run, why)


def _chosen(wanted: int, free: Sequence[int]) -> int:
    """Not the same place for all who look at once."""
    return wanted if wanted in free else random.choice(free)  # noqa: S311


def _not_needed(run: str) -> dict[str, Any]:
    return {"code": 0, "message": f"run '{run}' does not need this node"}


def offer_near(settings: WorkerSettings, join: JoinString, *args: Any, **how: Any) -> JoinRequest:
    """`make_offer`, with a loopback address behind those that other machines can reach.

    For a node that has met the registry on loopback: it may be one of several of a machine, or the
    first of a run whose other nodes are elsewhere. Where all nodes have one, they are on the
    registry's machine, and meet there.
    """
    near = loopback_address(join.slot)
    try:
        offer = make_offer(settings, join, *args, **how)
    except AddressError:
        if settings.address or settings.interface or settings.network:
            raise
        alone = settings.model_copy(update={"loopback": True, "address": [near]})
        return make_offer(alone, join, *args, **how)
    last = Candidate("lo", near, 8, LinkKind.LOOPBACK, reason="loopback, for nodes of this machine")
    offer = replace(offer, candidates=[*offer.candidates[: _MOST_CANDIDATES - 1], last])
    return sign_join(offer, join.row_key, run=join.run, launch_id=join.launch_id)

"""What a node begins of its programs before their go: a torchrun, or what forks their processes."""

from __future__ import annotations

from collections.abc import Callable

from rendezvous.wire.run import RestartFacts
from worker.agent.arming import NodeSpec
from worker.agent.environment import AgentEnvironment, EarlyProgram
from worker.agent.notices import Notice
from worker.agent.warm import FIRST_FAILED, OTHER_NEEDS_TORCHRUN, WarmStart, WarmWish
from worker.contracts import FRAMEWORKS, Contract
from worker.contracts.outer import without_outer
from worker.program.terminal import size_variables


class Begun:
    """What is begun for the next program; each has the same place.

    Args:
        spec: What this agent is.
        environment: The outer world.
        say: Says something in this node's log.
    """

    def __init__(
        self, spec: NodeSpec, environment: AgentEnvironment, say: Callable[[Notice], None]
    ) -> None:
        self._spec = spec
        self._environment = environment
        wish = _wish(spec)
        self._warm: WarmStart | None = None
        if wish is not None:
            self._warm = environment.warm(wish, self._environ(), environment.in_thread, say)
        self.program: EarlyProgram = self._warm or self._early()

    def _early(self) -> EarlyProgram:
        spec, environment = self._spec, self._environment
        return environment.early(
            _torchrun(spec), self._environ(), spec.settings.grace, environment.in_thread
        )

    def _environ(self) -> dict[str, str]:
        """The user's environment as the program will see it, as far as that is known."""
        settings, environment = self._spec.settings, self._environment
        environ = without_outer(environment.environ, FRAMEWORKS[settings.framework].keeps)
        prefix = f"[{self._spec.join.slot}] " if settings.prefix else ""
        return environ | size_variables(environ, environment.terminal(1, 2), prefix)

    async def needs_torchrun(self) -> bool:
        """Return whether this node can start its processes by torchrun alone."""
        return self._warm is None or bool(await self._warm.why_torchrun())

    async def begin(self, *, cold: bool) -> None:
        """Begin with another, while the program before it ends; `cold`: nothing is forked any
        more, and torchrun starts the processes."""
        if self._warm is not None and cold:
            self._warm.give_up(FIRST_FAILED)
        if self._warm is not None and not cold:
            self.program = self._warm
            await self._warm.begin()
        if cold or await self.needs_torchrun():
            self.program = self._early()
            await self.program.begin()

    async def disarm(self, facts: RestartFacts) -> None:
        """Drop what was made ready for a table, and anything like it where torchrun starts the
        processes of the next one.

        Args:
            facts: What the registry says of the next start.
        """
        if self._warm is None:
            return
        await self._warm.disarm()
        if facts.by_torchrun:
            self._warm.give_up(FIRST_FAILED if facts.cold else OTHER_NEEDS_TORCHRUN)
            await self._warm.end()

    async def arm(self, contract: Contract) -> bool:
        """Make ready for a table what can be; whether its processes will be forked."""
        return self._warm is not None and await self._warm.arm(contract)

    async def end(self) -> None:
        """End what has not become a program."""
        await self.program.end()
        if self._warm is not None:
            await self._warm.end()


def begins_early(spec: NodeSpec) -> bool:
    """Whether anything is begun before a go."""
    return bool(_torchrun(spec)) or _wish(spec) is not None


def _wish(spec: NodeSpec) -> WarmWish | None:
    return WarmWish.of(spec.settings, spec.command, spec.join.slot)


def _torchrun(spec: NodeSpec) -> list[str]:
    """The call that can be begun before the go; empty: none."""
    if spec.settings.early_start == "off":
        return []
    return FRAMEWORKS[spec.settings.framework].torchrun(spec.command)

"""The registry that a launch begins on: that of the former one, or a new one with new keys."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from launcher.prepare.context import LaunchContext
from launcher.prepare.environment import LaunchEnvironment, Socket
from launcher.prepare.preparation import Preparation
from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import RUN_FILE, StateDir
from launcher.symmetric.start import group_launch_id
from rendezvous.talk.credentials import RunKeys, registry_credential
from rendezvous.talk.join_string import RegistryPlace, RegistryString
from rendezvous.wire.errors import UsageError
from worker.contracts.variables import ProgramOptions

_NEAR = ("127.0.0.1", "::1")


@dataclass(eq=False, repr=False)
class ContextMaker:
    """Opens the former launch of a run, or makes room for a new one.

    Attributes:
        prepared: What is launched.
        state: The run's folder, its lock held.
        environment: The outer world.
        record: The launch that is on record.
        socket: Where the registry's process listens; None where there is none.
    """

    prepared: Preparation
    state: StateDir
    environment: LaunchEnvironment

    def __post_init__(self) -> None:
        self.record = self.state.record()
        self.socket: Socket | None = None

    def standing(self) -> RegistryString | None:
        """Return the standing registry that is wanted, as this run's clients dial it: this order
        goes into the join strings and the record."""
        standing = self.prepared.standing
        if standing is None:
            return None
        return replace(standing, place=standing.place.ordered_for(self.state.run))

    def reach_former(self) -> LaunchContext:
        """Reach the former launch's standing registry."""
        record = self.record
        assert record is not None
        place = record.registry_place()
        keys = RunKeys(self.state.secret(), self.state.run, record.launch_id)
        return LaunchContext(self.prepared, keys, place, place, keys.admin)

    def listen_for_former(self) -> LaunchContext:
        """Listen on the port of the former launch's registry, to start it there.

        Nothing that a later launcher would read is changed. Raises UsageError.
        """
        record = self.record
        assert record is not None
        place = record.registry_place()
        alone, tls = self._alone, place.trust != "plain"
        return self._listen(record.launch_id, place.port, alone=alone, tls=tls, exact=True)

    def new(self, kept: Sequence[str]) -> LaunchContext:
        """Make a new launch; raises UsageError.

        Args:
            kept: Names of former launches' worker runs that may still exist.
        """
        standing = self.standing()
        self.state.forget_launch(kept, log_dir=self.prepared.settings.log_dir)
        context = self._fresh() if standing is None else self._at_standing(standing)
        try:
            self.write_record(context)
        except BaseException:
            if self.socket is not None:
                self.socket.close()
            raise
        return context

    def _fresh(self) -> LaunchContext:
        """The other nodes of a symmetric start look for the registry at this port, and no other."""
        secret, plan = self.prepared.group_secret, self.prepared.plan
        if secret is None:
            launch_id = self.environment.launch_id()
        else:
            self.state.write("secret", secret.hex().encode())
            launch_id = group_launch_id(secret, plan.run)
        port, alone = plan.settings.port, self._alone
        exact = secret is not None  # and known to everybody: whoever has it must prove himself
        return self._listen(launch_id, port, alone=alone, tls=exact or not alone, exact=exact)

    @property
    def _alone(self) -> bool:
        """Whether nobody but this machine is to reach the registry: the nodes of a symmetric start
        come by themselves, and some may be elsewhere."""
        comes_alone = self.prepared.group_secret is None or self.prepared.plan.slots == 1
        return self.prepared.plan.site.loopback and comes_alone

    def _listen(
        self, launch_id: str, port: int, *, alone: bool, tls: bool, exact: bool
    ) -> LaunchContext:
        """Listen, and write down what the registry's process must know."""
        sock = self.environment.listen(port, address=_NEAR[0] if alone else "", exact=exact)
        try:
            secret = self.state.secret(self.environment.secret)
            proof = self.environment.configure(self.state, secret, tls=tls)
            addresses = self._addresses(alone=alone)
        except BaseException:
            sock.close()
            raise
        bound = sock.getsockname()[1]
        place = RegistryPlace(tuple(addresses), bound, proof.trust, proof.proof)
        near = replace(place, addresses=_NEAR[:1] if alone else _NEAR)
        keys = RunKeys(secret, self.state.run, launch_id)
        self.socket = sock
        return LaunchContext(self.prepared, keys, place, near, registry_credential(secret))

    def _addresses(self, *, alone: bool) -> Sequence[str]:
        given = self.prepared.settings.registry_address
        addresses = given or ([_NEAR[0]] if alone else self.environment.addresses())
        if not addresses and self.prepared.plan.site.loopback:
            return [_NEAR[0]]
        if not addresses:
            raise UsageError(
                "this machine has no address where workers could reach the registry",
                hint="name one with --registry-address",
            )
        return addresses

    def _at_standing(self, standing: RegistryString) -> LaunchContext:
        secret = self.state.secret(self.environment.secret)
        keys = RunKeys(secret, self.state.run, self.environment.launch_id())
        place = standing.place
        return LaunchContext(self.prepared, keys, place, place, standing.credential)

    def write_record(self, context: LaunchContext) -> None:
        """Write down the launch, for a later launcher. Raises UsageError."""
        settings, plan = self.prepared.settings, context.plan
        shown = [
            [one.name, one.value, one.reason, one.name in plan.given.by_slot]
            for one in plan.given.explained()
        ]
        given = {"given": shown} if shown else {}
        record = LaunchRecord(
            run=plan.run,
            launch_id=plan.launch_id,
            scheduler=settings.starter,
            place=context.place.to_json(),
            owns_registry=context.owns_registry,
            host=self.environment.hostname(),
            nodes=plan.nnodes,
            options=asdict(ProgramOptions.of(settings)) | {"command": list(plan.command)} | given,
            fingerprint=self.prepared.fingerprint(),
            folder=plan.site.cwd,
            pid=os.getpid(),
            started_at=time.time(),  # noqa: TID251 (for people: how old a launch is)
        )
        self.state.write(RUN_FILE, self.prepared.run_file().encode("utf-8", "replace"))
        self.state.write_record(record)

"""Parameters of one launch: where its registry is, its keys and its plan."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from launcher.launch.environment import LaunchEnvironment, Socket
from launcher.plan.plan import ANYWHERE, LOCAL, Plan, Submission, Where
from launcher.prepare.preparation import Preparation
from launcher.schedulers.contract import Scheduler
from launcher.state.launch_record import LaunchRecord
from launcher.state.state_dir import RUN_FILE, StateDir
from launcher.symmetric.start import group_launch_id
from rendezvous.talk.credentials import Credential, RunKeys, registry_credential
from rendezvous.talk.join_string import JoinString, RegistryPlace, RegistryString, with_port
from rendezvous.talk.macs import word_macs
from rendezvous.talk.sealed_variables import NONCE, pack, seal
from rendezvous.wire.errors import UsageError
from rendezvous.wire.node import Job
from rendezvous.wire.run import RunSpec
from rendezvous.wire.words import printable
from worker.contracts import FRAMEWORKS
from worker.contracts.variables import ProgramOptions
from worker.options import specs_of

_NEAR = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class LaunchContext:
    """Parameters of one launch, shared by its registry and its worker runs.

    Attributes:
        prepared: What is launched.
        place: Where the workers find the registry.
        near: Where this launcher does.
        creator: The credential that may create the run.
    """

    prepared: Preparation
    keys: RunKeys
    place: RegistryPlace
    near: RegistryPlace
    creator: Credential

    @cached_property
    def plan(self) -> Plan:
        """The plan, with the launch id."""
        first = next((self.place.host_and_port(one)[0] for one in self.place.addresses), "")
        return replace(self.prepared.plan, launch_id=self.keys.launch_id, master_addr=first)

    @property
    def owns_registry(self) -> bool:
        """Whether the registry is this launch's own."""
        return self.prepared.standing is None

    def submission(self, slot: int, generation: int, where: Where = ANYWHERE) -> Submission:
        """Return what is submitted for a slot."""
        return self.plan.submission(slot, generation, where)

    def scheduler(self, slot: int) -> Scheduler | None:
        """Return what submits the worker runs of a slot; None: nobody does."""
        return self.prepared.scheduler_of(slot)

    def starter(self, slot: int) -> str:
        """Return the ledger's name for the scheduler of a slot."""
        is_here = slot == 0 and self.prepared.settings.local_node
        return LOCAL if is_here else self.prepared.settings.starter

    def token_sha256(self, slot: int, generation: int) -> str:
        """Return the digest of a join token, for the registry."""
        return self.keys.join_token(slot, generation).sha256()

    def join(self, slot: int, generation: int) -> str:
        """Return the join string of a worker run; slot 0's is for where loopback never fails."""
        is_near = slot == 0 and self.prepared.settings.local_node and self.owns_registry
        place = self.near if is_near else self.place
        return JoinString.of(self.keys, place, slot, generation).text()

    def sealed(self) -> str:
        """Return the secret variables of all nodes, for the registry."""
        given, keys = self.plan.given, self.keys
        packed = pack(given.secrets, given.by_slot)
        nonce = os.urandom(NONCE)
        return seal(packed, keys.row_key, nonce, run=keys.run, launch_id=keys.launch_id)

    def spec(self) -> RunSpec:
        """Return the description of the run for the registry."""
        plan, keys, settings = self.plan, self.keys, self.plan.settings
        managed = not self.prepared.symmetric
        led = FRAMEWORKS[settings.framework].is_led(plan.command)
        words = word_macs(keys.row_key, plan.command, run=plan.run, launch_id=keys.launch_id)
        return RunSpec(
            launch_id=keys.launch_id,
            min_nodes=plan.min_nodes,
            max_nodes=plan.max_nodes,
            limits=plan.limits(),
            master_port=settings.master_port,
            loopback=plan.site.loopback,
            managed=managed,
            same_command=not settings.any_command,
            verify=settings.verify == "on",
            spares=settings.spares,
            on_node_loss=settings.on_node_loss,
            standby=settings.standby,
            local_node=settings.local_node and settings.outlives_nodes and self.owns_registry,
            strict=settings.strict,
            skip=settings.skip,
            require_rdma=settings.require_rdma,
            allow_exec=settings.allow_exec or led,
            led=led or settings.tf_ps > 0,  # parameter servers never end by themselves
            ends_with=settings.ends_with,
            job=Job(
                framework=settings.framework_words,
                command_words=words,
                nnodes_source=settings.source("nnodes"),
            ),
            features=specs_of(settings),
            secrets=[*plan.given.secrets],
            registry=_where(self.place),
            token_sha256=[
                keys.join_token(slot, 1).sha256() for slot in range(0 if managed else plan.slots)
            ],
            read_sha256=keys.read.sha256(),
            admin_sha256=keys.admin.sha256(),
        )


def _where(place: RegistryPlace) -> str:
    """Return the registry's address, as a person types it."""
    first = next(iter(place.addresses), "")
    more = len(place.addresses) - 1
    also = f" or one of {more} other addresses" if more > 0 else ""
    return printable(f"{with_port(*place.host_and_port(first))}{also}", 253)


class ContextMaker:
    """Opens the former launch of a run, or makes room for a new one.

    Attributes:
        record: The launch that is on record.
        socket: Where the registry's process listens; None where there is none.

    Args:
        prepared: What is launched.
        state: The run's folder, its lock held.
        environment: The outer world.
    """

    def __init__(
        self, prepared: Preparation, state: StateDir, environment: LaunchEnvironment
    ) -> None:
        self._prepared = prepared
        self._state = state
        self._environment = environment
        self.record = state.record()
        self.socket: Socket | None = None

    def standing(self) -> RegistryString | None:
        """Return the standing registry that is wanted, as this run's clients dial it: this order
        goes into the join strings and the record."""
        standing = self._prepared.standing
        if standing is None:
            return None
        return replace(standing, place=standing.place.ordered_for(self._state.run))

    def reach_former(self) -> LaunchContext:
        """Reach the former launch's standing registry."""
        record = self.record
        assert record is not None
        place = record.registry_place()
        keys = RunKeys(self._state.secret(), self._state.run, record.launch_id)
        return LaunchContext(self._prepared, keys, place, place, keys.admin)

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
        self._state.forget_launch(kept, log_dir=self._prepared.settings.log_dir)
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
        secret, plan = self._prepared.group_secret, self._prepared.plan
        if secret is None:
            launch_id = self._environment.launch_id()
        else:
            self._state.write("secret", secret.hex().encode())
            launch_id = group_launch_id(secret, plan.run)
        port, alone = plan.settings.port, self._alone
        exact = secret is not None  # and known to everybody: whoever has it must prove himself
        return self._listen(launch_id, port, alone=alone, tls=exact or not alone, exact=exact)

    @property
    def _alone(self) -> bool:
        """Whether nobody but this machine is to reach the registry: the nodes of a symmetric start
        come by themselves, and some may be elsewhere."""
        comes_alone = self._prepared.group_secret is None or self._prepared.plan.slots == 1
        return self._prepared.plan.site.loopback and comes_alone

    def _listen(
        self, launch_id: str, port: int, *, alone: bool, tls: bool, exact: bool
    ) -> LaunchContext:
        """Listen, and write down what the registry's process must know."""
        sock = self._environment.listen(port, address=_NEAR[0] if alone else "", exact=exact)
        try:
            secret = self._state.secret(self._environment.secret)
            proof = self._environment.configure(self._state, secret, tls=tls)
            addresses = self._addresses(alone=alone)
        except BaseException:
            sock.close()
            raise
        bound = sock.getsockname()[1]
        place = RegistryPlace(tuple(addresses), bound, proof.trust, proof.proof)
        near = replace(place, addresses=_NEAR[:1] if alone else _NEAR)
        keys = RunKeys(secret, self._state.run, launch_id)
        self.socket = sock
        return LaunchContext(self._prepared, keys, place, near, registry_credential(secret))

    def _addresses(self, *, alone: bool) -> Sequence[str]:
        given = self._prepared.settings.registry_address
        addresses = given or ([_NEAR[0]] if alone else self._environment.addresses())
        if not addresses and self._prepared.plan.site.loopback:
            return [_NEAR[0]]
        if not addresses:
            raise UsageError(
                "this machine has no address where workers could reach the registry",
                hint="name one with --registry-address",
            )
        return addresses

    def _at_standing(self, standing: RegistryString) -> LaunchContext:
        secret = self._state.secret(self._environment.secret)
        keys = RunKeys(secret, self._state.run, self._environment.launch_id())
        place = standing.place
        return LaunchContext(self._prepared, keys, place, place, standing.credential)

    def write_record(self, context: LaunchContext) -> None:
        """Write down the launch, for a later launcher. Raises UsageError."""
        settings, plan = self._prepared.settings, context.plan
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
            host=self._environment.hostname(),
            nodes=plan.nnodes,
            options=asdict(ProgramOptions.of(settings)) | {"command": list(plan.command)} | given,
            fingerprint=self._prepared.fingerprint(),
            folder=plan.site.cwd,
            pid=os.getpid(),
            started_at=time.time(),  # noqa: TID251 (for people: how old a launch is)
        )
        self._state.write(RUN_FILE, self._prepared.run_file().encode("utf-8", "replace"))
        self._state.write_record(record)

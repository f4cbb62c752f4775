"""Parameters of one launch: where its registry is, its keys and its plan."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property

from launcher.plan.plan import LOCAL, Plan
from launcher.prepare.preparation import Preparation
from rendezvous.talk.credentials import Credential, RunKeys
from rendezvous.talk.join_string import JoinString, RegistryPlace, with_port
from rendezvous.talk.macs import word_macs
from rendezvous.talk.sealed_variables import NONCE, pack, seal
from rendezvous.wire.node import Job
from rendezvous.wire.run import RunSpec
from rendezvous.wire.words import printable
from worker.contracts import FRAMEWORKS
from worker.options import specs_of


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

    def starter(self, slot: int) -> str:
        """Return the ledger's name for the scheduler of a slot."""
        is_here = slot == 0 and self.prepared.settings.local_node
        return LOCAL if is_here else self.prepared.settings.starter

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

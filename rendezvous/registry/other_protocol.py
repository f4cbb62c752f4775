"""Nodes that speak another protocol than this registry: their run hears of them."""

from __future__ import annotations

from typing import NoReturn

from rendezvous.registry.access import Access
from rendezvous.registry.sequencer import Sequencer
from rendezvous.run.events import Event
from rendezvous.run.joins import decide_mismatch
from rendezvous.serving.other_protocol import REGISTRY
from rendezvous.talk.credentials import Credential
from rendezvous.wire.protocol import Greeting, other_protocol


async def refuse_node(
    sequencer: Sequencer,
    access: Access,
    name: str,
    credential: Credential | None,
    greeting: Greeting,
) -> NoReturn:
    """Refuse a node of this run, which may end by it. Raises OtherProtocol, Unauthorized."""
    live = access.joiner(name, credential, greeting.slot, greeting.generation)
    error = other_protocol(greeting.speaker, REGISTRY)

    def decide(_: float) -> Event | None:
        if (ends := decide_mismatch(live.run, greeting, error)) is not None:
            live.tell_end(greeting.slot)  # by this very refusal
        return ends

    await sequencer.change_run(live, decide)
    raise error

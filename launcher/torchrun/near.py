"""What a node offers that has met the registry on loopback: it may be one of several of a machine,
or the first of a run whose other nodes are elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launcher.plan.plan import loopback_address
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.macs import sign_join
from rendezvous.wire.errors import AddressError
from rendezvous.wire.node import Candidate, JoinRequest, LinkKind
from worker.offer.join_request import make_offer
from worker.settings import WorkerSettings


def offer_near(settings: WorkerSettings, join: JoinString, *args: Any, **how: Any) -> JoinRequest:
    """`make_offer`, with a loopback address behind those that other machines can reach.

    Where all nodes have one, they are on the registry's machine, and meet there.
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
    offer = replace(offer, candidates=[*offer.candidates[: _MOST - 1], last])
    return sign_join(offer, join.row_key, run=join.run, launch_id=join.launch_id)


_MOST = 64
"""Candidates that a join may carry."""

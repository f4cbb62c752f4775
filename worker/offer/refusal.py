"""A node that cannot take part says why before it leaves; it has not joined.

Without this the registry would wait for it until the join time-out, and its launcher look for a
firewall.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import replace

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import RunKeys, new_secret
from rendezvous.talk.failures import OtherKey
from rendezvous.talk.join_string import JoinString
from rendezvous.talk.retry import until_answered
from rendezvous.wire.errors import (
    ArmingFailed,
    ExitCode,
    RdzvError,
    RegistryError,
    TooManyRequests,
    UsageError,
)
from rendezvous.wire.node import Refusal
from rendezvous.wire.words import printable

logger = logging.getLogger(__name__)

TELL_SECONDS = 60.0
"""How long a node tries to reach the registry with its refusal."""
_TRACE_SECONDS = 3.0
_LASTING = (UsageError, ArmingFailed)  # another worker run with the same spec would refuse as well


def refusal_of(error: Exception, hostname: str) -> Refusal:
    """What is told of an error of this node's own."""
    if isinstance(error, RdzvError):
        code, words, hint = error.code, error.message, error.hint
        exit_code = int(error.exit_code)
    else:
        code, words, hint = "internal", f"an internal error in rdzv: {error!r}", ""
        exit_code = int(ExitCode.INTERNAL)
    return Refusal(
        hostname=printable(hostname, 253),
        code=code,
        reason=printable(words, 600),
        hint=printable(hint, 600),
        exit_code=exit_code,
        retryable=not isinstance(error, _LASTING),
    )


async def refuse_alone(join: JoinString, error: Exception) -> None:
    """Refuse on a connection of its own; see `refuse`."""
    async with RegistryClient(join.place, join.token) as client:
        await refuse(client, join, error)


async def refuse(
    client: RegistryClient,
    join: JoinString,
    error: Exception,
    *,
    seconds: float = TELL_SECONDS,
    of_slot: bool = True,
) -> None:
    """Tell the registry why this node does not join, while it may still come up; never raises.

    A registry that refuses to hear it has no use for it.
    Without `of_slot` the node has none, and shows the token of slot 0. Where another key was met,
    who has it is let know that somebody asked, as a stranger, who proves nothing.
    """
    if isinstance(error, OtherKey):
        await _leave_trace(join, error)
        return
    refusal = refusal_of(error, socket.gethostname()).model_copy(update={"of_slot": of_slot})
    said = False

    def say(failure: RdzvError) -> None:
        nonlocal said
        if not said:
            said = True
            logger.warning(
                "this node cannot take part: %s (reporting it to the registry for at most "
                "%.0f s: %s)",
                *(refusal.reason, seconds, failure.message),
            )

    try:
        await until_answered(
            lambda: client.refuse(join.run, join.slot, refusal),
            seconds=seconds,
            failed=say,
            pause=client.pause,
        )
    except (RegistryError, TooManyRequests) as exc:
        logger.warning("could not report it to the registry: %s", exc.message)
    except RdzvError as exc:
        logger.debug("could not report it to the registry: %s", exc.message)


async def _leave_trace(join: JoinString, error: OtherKey) -> None:
    """Ask whoever has the other key, with a token made up for it: node 0 of this very launch may be
    the one whose group token differs, and would hear of this node from nobody else.

    No secret is sent, and no name: it keeps no more than the address that this comes from.
    """
    token = RunKeys(new_secret(), join.run, "").join_token(join.slot, 1)
    refusal = refusal_of(OtherKey("the registry has another key"), "")
    for address, pin in error.pins.items():
        place = replace(join.place, addresses=(address,), proof=bytes.fromhex(pin))
        with contextlib.suppress(RdzvError):
            async with RegistryClient(place, token) as client:
                await until_answered(
                    lambda: client.refuse(join.run, join.slot, refusal), seconds=_TRACE_SECONDS
                )

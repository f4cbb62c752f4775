"""The calls about what the ranks of a failed program have printed last."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from rendezvous.talk.client import RegistryClient
from rendezvous.wire.errors import Unavailable
from rendezvous.wire.last_words import LastWords, LastWordsReply, RunLastWords

Model = TypeVar("Model", bound=BaseModel)


async def send_words(
    client: RegistryClient, run: str, slot: int, said: LastWords
) -> LastWordsReply:
    """Send what the ranks of this node's program have printed last: one try."""
    path = f"/v1/runs/{run}/nodes/{slot}/words"
    return _read(LastWordsReply, await client.request("POST", path, said))


async def last_words(client: RegistryClient, run: str, after: int) -> RunLastWords:
    """What ranks have printed last, numbered above `after`; needs the run's admin credential."""
    path = f"/v1/runs/{run}/words"
    return _read(RunLastWords, await client.request("GET", path, params={"after": after}))


def _read(model: type[Model], data: bytes) -> Model:
    try:
        return model.model_validate_json(data)
    except ValidationError as exc:
        raise Unavailable(
            f"the registry's answer is not a valid {model.__name__}: {exc.errors()[0]['msg']}"
        ) from exc

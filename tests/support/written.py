"""A registry that is a page: what it answers to each call is written there, who asks is noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import to_json

from rendezvous.talk.client import RegistryClient
from rendezvous.talk.credentials import Credential
from rendezvous.talk.join_string import RegistryPlace
from rendezvous.wire.errors import NotFound, RdzvError

Written = BaseModel | RdzvError | Callable[[], BaseModel]


@dataclass
class Registry:
    """What it answers, by METHOD and path; nothing is dialled.

    Attributes:
        asked: Each call in order, with what was sent: the parameters, else the body.
        credentials: With which each was asked.
    """

    answers: dict[str, Written]
    asked: list[tuple[str, Any]] = field(default_factory=list)
    credentials: list[str | None] = field(default_factory=list)

    def client(
        self, place: RegistryPlace, credential: Credential | str | None = None, **how: Any
    ) -> RegistryClient:
        """In the place of `RegistryClient`."""
        assert isinstance(place, RegistryPlace)
        return _Client(self, place, credential, **how)

    def put_in(self, monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
        """Whoever opens a client asks this registry."""
        for module in ("rendezvous.talk.client", *modules):
            monkeypatch.setattr(f"{module}.RegistryClient", self.client)


class _Client(RegistryClient):
    def __init__(self, of: Registry, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._of = of

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: dict[str, Any] | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """See the base class."""
        call = f"{method} {path.partition('?')[0]}"
        self._of.asked.append((call, params or body))
        self._of.credentials.append(self.credential)
        found = self._of.answers.get(call, NotFound(f"there is no {call}"))
        if isinstance(found, RdzvError):
            raise found
        return to_json(found() if callable(found) else found)

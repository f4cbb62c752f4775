"""A registry with several runs, and every kind of credential that somebody could show to it.

Run `team-demo` is the second launch of its name, and its slot 0 is filled for the second time; it
is one of tenant `team`; `other` is somebody else's; `over` was cancelled. The clock stands still at
a moment in which nobody has been heard of for a while, so that a lease that is renewed can be seen.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from pydantic_core import to_json

from rendezvous.registry.app import make_app
from rendezvous.registry.journal import MemoryJournal
from rendezvous.talk.credentials import (
    SERVER_NAME,
    Credential,
    hkdf,
    metrics_credential,
    node_credential,
    parse_credential,
)
from rendezvous.wire.errors import NotFound
from rendezvous.wire.reports import AckReport
from rendezvous.wire.run import Phase
from rendezvous.wire.tenant import TenantRequest
from tests.support.driver import make_probe
from tests.support.registry import Launch
from tests.support.served import OPERATOR, SECRET, FakeClock, Served, ask
from tests.support.topics import ASKED, PUBLISHED
from tests.support.wire_fields import stored

GENERATION_2: dict[str, Any] = {"generation": 2, "join_id": "join-0-of-generation-2"}
QUESTION = 1
"""No question has this number: an answer to it changes nothing."""
VIEW = 1
"""Nor has any view this one."""
SILENCE = 0.4
DEMO, NEW = "team-demo", "team-new"
RUNS = (DEMO, "other", "over")
TENANTS = {"team": "team-", "other team": "team2-", "former team": "former-", "spare": "spare-"}
"""Their prefixes, by name."""
KEPT = [(one, one.query and one.query.load()()) for one in PUBLISHED]
"""What features publish, each with the query of a reader who knows nothing."""
MESSAGES = {topic.path: stored(topic.message) for topic, _ in KEPT} | {
    topic.name: stored(topic.answer) | {"number": QUESTION} for topic in ASKED
}
"""By the last part of a path, the message that is stored for it."""


class Stage:
    """The registry, its runs, `shown`: credentials by what they are, and the effects `before`."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.served = Served(self.journal, FakeClock())
        app = make_app(self.served.service, allowed_hosts=[SERVER_NAME])
        self.ask = functools.partial(ask, app)
        self.mine = Launch(DEMO)
        self.other = Launch("other")
        self.over = Launch("over")
        self.shown: dict[str, Credential | str | None] = {}
        self.before: tuple[Any, ...] = ()

    async def prepare(self) -> None:
        """Bring all runs to where they shall stand."""
        self.served.start()
        replaced = Launch(DEMO, launch_id="launch00")
        for launch in (replaced, self.over):
            await self._start(launch)
            await self.served.service.cancel(self.served.host(launch), "asked for")
        for launch in (self.mine, self.other):
            await self._start(launch)
        await self._replace_slot_0()
        for slot, incarnation in ((0, 2), (1, 1)):
            await self.served.report(self.mine, slot, make_probe(2, slot, [1 - slot]), incarnation)
        await self._add_tenants()
        self._collect(replaced)
        self.served.clock.seconds += SILENCE
        self.before = self.effects()

    async def _add_tenants(self) -> None:
        tenants = self.served.service.tenants
        for name, prefix in TENANTS.items():
            made = self._tenant(name)
            await tenants.put(
                name.replace(" ", "-"), TenantRequest(prefix=prefix, sha256=made.sha256())
            )
        await tenants.remove("former-team")

    @staticmethod
    def _tenant(name: str) -> Credential:
        return Credential("tenant", hkdf(SECRET, name))

    async def _start(self, launch: Launch) -> None:
        await self.served.create(launch, 2, allow_exec=True)
        for slot in (0, 1):
            await self.served.join(launch, slot)

    async def _replace_slot_0(self) -> None:
        news = {
            "generation": 2,
            "state": "submitting",
            "token_sha256": self.mine.token(0, 2).sha256(),
        }
        slot = f"/v1/runs/{DEMO}/slots/0"
        assert (await self.ask("POST", slot, self.mine.keys.admin, news)).status == 200
        reply = await self.served.join(self.mine, 0, **GENERATION_2)
        assert parse_credential(reply.credential) == self.node(self.mine, 0, 2)

    async def go(self) -> None:
        """Let the run of this name run."""
        run = self.served.host(self.mine).run
        for slot, incarnation in ((0, 2), (1, 1)):
            ack = AckReport(epoch=run.epoch, digest=run.digest)
            await self.served.report(self.mine, slot, ack, incarnation)
        assert run.phase is Phase.RUNNING

    def node(self, launch: Launch, slot: int, incarnation: int = 1) -> Credential:
        """The credential that the registry gives to this incarnation."""
        key = hkdf(SECRET, "nodes")
        return node_credential(key, launch.run, launch.keys.launch_id, slot, incarnation)

    def _collect(self, replaced: Launch) -> None:
        stranger = Launch(DEMO)
        self.shown = {
            "none": None,
            "garbage": "\x7f{}' OR 1=1 --",
            **self._of("wrong", stranger, node_credential(SECRET, DEMO, "launch01", 0, 2), 2),
            "wrong metrics": Credential("metrics", bytes(32)),
            "wrong operator": Credential("registry", bytes(32)),
            "wrong tenant": Credential("tenant", bytes(32)),
            "revoked tenant": self._tenant("former team"),
            "other tenant": self._tenant("other team"),
            **self._of("replaced launch's", replaced, self.node(replaced, 0)),
            "old generation's join": self.mine.token(0, 1),
            **self._of("other run's", self.other, self.node(self.other, 0)),
            "other slot's join": self.mine.token(1, 1),
            "other slot's node": self.node(self.mine, 1),
            "old incarnation's node": self.node(self.mine, 0, 1),
            "future node": self.node(self.mine, 0, 3),
            "join": self.mine.token(0, 2),
            "node": self.node(self.mine, 0, 2),
            "read": self.mine.keys.read,
            "look": self.mine.keys.look,
            "logs": self.mine.keys.logs,
            "admin": self.mine.keys.admin,
            "metrics": metrics_credential(OPERATOR.sha256()),
            "tenant": self._tenant("team"),
            "operator": OPERATOR,
        }

    @staticmethod
    def _of(
        whose: str, launch: Launch, node: Credential, generation: int = 1
    ) -> dict[str, Credential]:
        return {
            f"{whose} join": launch.token(0, generation),
            f"{whose} node": node,
            f"{whose} read": launch.keys.read,
            f"{whose} look": launch.keys.look,
            f"{whose} logs": launch.keys.logs,
            f"{whose} admin": launch.keys.admin,
        }

    def request(self, method: str, route: str, run: str = DEMO) -> tuple[str, Any]:
        """Path and body of a request of this route that is right in all but the credential."""
        made = NEW if (method, route) == ("PUT", "/v1/runs/{run}") and run == DEMO else run
        bodies: dict[tuple[str, str], Any] = {
            ("PUT", "/v1/tenants/{tenant}"): {"prefix": "added-", "sha256": "a" * 64},
            ("PUT", "/v1/runs/{run}"): self.mine.spec(2).model_dump(mode="json"),
            ("POST", "/v1/runs/{run}/restart"): {"reason": "new data"},
            ("POST", "/v1/runs/{run}/slots/{slot}/drain"): {"seconds": 60.0, "reason": "repair"},
            ("PUT", "/v1/runs/{run}/secrets"): {"sealed": "AQID"},
            ("POST", "/v1/runs/{run}/slots/{slot}"): {"generation": 2, "state": "running"},
            ("POST", "/v1/runs/{run}/slots/{slot}/refusal"): {
                "hostname": "host0",
                "code": "usage",
                "reason": "there is no GPU",
                "exit_code": 2,
            },
            ("POST", "/v1/runs/{run}/nodes"): json.loads(
                to_json(self.mine.join(0, **GENERATION_2))
            ),
            ("POST", "/v1/runs/{run}/nodes/{node}/watch"): {"epoch": 2, "exit_code": 3},
            ("POST", "/v1/runs/{run}/nodes/{node}/reports"): {
                "kind": "refuse",
                "epoch": 2,
                "code": "contract",
                "reason": "no such program",
            },
            ("POST", "/v1/runs/{run}/nodes/{node}/words"): {
                "epoch": 1,
                "node": 0,
                "texts": [{"rank": 0, "text": "out of memory"}],
            },
            ("POST", "/v1/runs/{run}/views"): {"rank": 0, "grep": ["loss"]},
            ("POST", "/v1/runs/{run}/nodes/{node}/views"): {"view": VIEW, "number": 1},
            ("POST", "/v1/runs/{run}/nodes/{node}/relay"): {
                "parcels": [{"peer": 1, "frame": {"kind": "end", "number": 1}}]
            },
        }
        bodies |= {("POST", f"/v1/runs/{{run}}/nodes/{{node}}/{k}"): v for k, v in MESSAGES.items()}
        tenant = "added" if method == "PUT" else "spare"
        digest = self.served.host(self.mine).run.digest
        path = route.format(run=made, slot=0, node=0, digest=digest, tenant=tenant)
        return path, bodies.get((method, route), b"")

    def effects(self) -> tuple[Any, ...]:
        """All that a request could have changed: the journal, the states, the leases."""
        now = self.served.service.now()
        hosts = [self.served.host(launch) for launch in (self.mine, self.other, self.over)]
        silence = [
            host.leases.silent_seconds((slot, incarnation), now)
            for host in hosts
            for slot in (0, 1)
            for incarnation in (1, 2, 3)
        ]
        told = [
            host.store(topic).to_json(host.run, query, 0.0)
            if topic.response is not None
            else repr(vars(host.store(topic))).encode()
            for host in hosts
            for topic, query in KEPT
        ]
        told += [host.questions(one).written(0, now).plain for host in hosts for one in ASKED]
        told += [repr(host.views.orders(now)).encode() for host in hosts]
        told += [b"%d" % host.relay.held_bytes if host.relay else b"" for host in hosts]
        told += [host.last_words.after(0) for host in hosts]
        told += [host.sealed.encode() for host in hosts]
        states = [repr(host.run) for host in hosts]
        return [repr(vars(self.journal))], states, silence, told, self._runs()

    def strangers(self) -> int:
        """How many that have proven nothing are kept, of all runs."""
        hosts = [self.served.host(launch) for launch in (self.mine, self.other, self.over)]
        return sum(one.ask.stranger for host in hosts for one in host.run.refused.values())

    def _runs(self) -> list[str]:
        """Which runs there are; a stranger may have made one."""
        found = []
        for name in (*RUNS, "nosuch", NEW):
            try:
                self.served.service.access.run(name, OPERATOR, "write")
            except NotFound:
                continue
            found.append(name)
        return found

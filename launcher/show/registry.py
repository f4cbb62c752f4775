"""What `rdzv doctor` finds at the addresses of the standing registry that RDZV_REGISTRY names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from pydantic import ValidationError

from rendezvous.compat import timeout
from rendezvous.frozen import frozen
from rendezvous.talk.client import REQUEST_SECONDS
from rendezvous.talk.dialling import dial_name
from rendezvous.talk.failures import Fault, NetworkFailure, dial_words
from rendezvous.talk.join_string import RegistryPlace, RegistryString, with_port
from rendezvous.talk.network import Answer, Line, Network, Request
from rendezvous.version import rdzv_version
from rendezvous.wire.checks import Check, Level
from rendezvous.wire.errors import UsageError
from rendezvous.wire.node import Finding
from rendezvous.wire.protocol import HEADER, PROTOCOL, Speaker, same_rdzv
from rendezvous.wire.types import Problem
from worker.preflight.verdict import Verdict

LOOK_SECONDS = 5.0
"""Of all that is asked at one address; the addresses are asked side by side."""
_OTHERS = frozenset({Fault.NOT_PROVEN, Fault.OTHER_KEY})
_NAMES = frozenset({Fault.NO_NAME, Fault.NO_NAME_SERVER})
_SILENT = frozenset({Fault.FILTERED, Fault.HOST_DOWN, Fault.SILENT})
_EXPECTED = "a registry that is ready"


@frozen
class Proven:
    """A registry that proved to be the one that is meant.

    Attributes:
        version: Of rdzv there.
        status: What `/readyz` answered, as HTTP has it.
        why_not: Why it cannot serve now, in its own words.
        refusal: Why it refuses the credential; empty where it does not, or was not asked.
        protocol: That it speaks.
    """

    version: str
    status: int
    why_not: str = ""
    refusal: str = ""
    protocol: int = PROTOCOL


Seen = Proven | NetworkFailure


def check_registry(read: Callable[[], str | None], skip: bool) -> list[Finding]:
    """Ask at each address.

    Args:
        read: Gives the value of RDZV_REGISTRY, None where it is not set.
        skip: Ask nothing.
    """
    return [verdict.finding(Check.REGISTRY) for verdict in _verdicts(read, skip)]


def _verdicts(read: Callable[[], str | None], skip: bool) -> Sequence[Verdict]:
    if skip:
        return [Verdict("skipped", "not asked for (--skip)")]
    try:
        text = read()
        if text is None:
            return [Verdict("skipped", "RDZV_REGISTRY is not set")]
        registry = RegistryString.parse(text)
    except UsageError as exc:
        return [
            Verdict(
                "fail",
                exc.message,
                expected="what 'rdzv serve', 'rdzv token registry' or 'rdzv tenant add' wrote",
                cause="no launch can use it",
                fix=exc.hint or "set RDZV_REGISTRY_FILE to a file that this user can read",
            )
        ]
    return judge(registry.place, asyncio.run(look(registry)))


async def look(registry: RegistryString) -> dict[str, Seen]:
    """What is at each address, by its name; within `LOOK_SECONDS`."""
    from rendezvous.talk.http_network import HttpNetwork

    network, addresses = HttpNetwork(), dict.fromkeys(registry.place.addresses)
    seen = await asyncio.gather(*(_look_at(network, registry, one) for one in addresses))
    return dict(zip(addresses, seen, strict=True))


async def _look_at(network: Network, registry: RegistryString, address: str) -> Seen:
    try:
        async with timeout(LOOK_SECONDS):
            line = await dial_name(network, registry.place, address, REQUEST_SECONDS)
            try:
                return await _ask(line, registry)
            finally:
                await line.aclose()
    except NetworkFailure as exc:
        return exc
    except TimeoutError:
        return NetworkFailure(Fault.FILTERED)


async def _ask(line: Line, registry: RegistryString) -> Proven:
    ready = await line.request(Request("GET", "/readyz", {}), REQUEST_SECONDS)
    version = ready.headers.get("x-rdzv", "")
    said = Speaker.from_header(ready.headers.get(HEADER, ""))
    if said.protocol not in (None, PROTOCOL):
        return Proven(version, ready.status, protocol=said.protocol)
    if ready.status != 200:
        return Proven(version, ready.status, why_not=_words(ready))
    shown = {"authorization": f"Bearer {registry.credential.text()}"}
    runs = await line.request(Request("GET", "/v1/runs", shown), REQUEST_SECONDS)
    return Proven(version, 200, refusal=_words(runs) if runs.status in (401, 403) else "")


def _words(answer: Answer) -> str:
    try:
        return Problem.model_validate_json(answer.body).message
    except ValidationError:
        return f"status {answer.status}"


# --- what it means


def judge(place: RegistryPlace, seen: Mapping[str, Seen]) -> list[Verdict]:
    """A verdict on each address; a failure where no launch could use the registry.

    One machine has addresses that not everybody reaches, and one of them is enough; a replica that
    is missing is missed when the next one goes.
    """
    if not seen:
        return [Verdict("fail", "RDZV_REGISTRY names no address", expected=_EXPECTED)]
    is_served = any(
        isinstance(one, Proven) and one.status == 200 and one.protocol == PROTOCOL
        for one in seen.values()
    )
    return [
        verdict for name, one in seen.items() for verdict in _judged(place, name, one, is_served)
    ]


def _judged(place: RegistryPlace, name: str, one: Seen, is_served: bool) -> Iterator[Verdict]:
    subject = with_port(*place.host_and_port(name))
    if isinstance(one, Proven):
        yield _proven(place, subject, one, is_served)
        return
    value = dial_words(one, place)
    if is_served and not place.replicas and one.fault not in _OTHERS:
        yield Verdict("ok", f"{value}; the registry answers at another of its addresses", subject)
        return
    if one.fault in _OTHERS:
        value = "not the registry that RDZV_REGISTRY names: it holds another key"
    cause = (
        "launches use the others; a run that is there is missed when those go"
        if is_served
        else "a launch with this RDZV_REGISTRY cannot start"
    )
    level: Level = "warn" if is_served else "fail"
    yield Verdict(level, value, subject, _EXPECTED, cause, _cure(one.fault, subject))


def _proven(place: RegistryPlace, subject: str, one: Proven, is_served: bool) -> Verdict:
    how = "plain HTTP" if place.trust == "plain" else "TLS, with the right key"
    if one.protocol != PROTOCOL:
        them, us = Speaker("it", one.protocol, one.version), Speaker("", PROTOCOL, rdzv_version())
        return Verdict(
            "warn" if is_served else "fail",
            f"the right registry, but {them.name} {them.says()}, and this rdzv {us.says()}",
            subject,
            _EXPECTED,
            "it refuses every launch from here",
            same_rdzv(one.version),
        )
    if one.status == 503:
        return Verdict(
            "warn" if is_served else "fail",
            f"the right registry, but not ready: {one.why_not}",
            subject,
            _EXPECTED,
            "it cannot create or continue runs until it is; running programs are not disturbed",
            "if this lasts, read the log of 'rdzv serve' there: it says why its database is away",
        )
    if one.status != 200:
        return Verdict(
            "warn",
            f"the right registry, but it cannot say whether it is ready: {one.why_not}",
            subject,
            _EXPECTED,
            "something between here and the registry may have answered",
            "check the proxy or ingress in front of it",
        )
    if one.refusal:
        return Verdict(
            "fail",
            f"ready, but it refuses the credential: {one.refusal}",
            subject,
            "a credential that it knows",
            "a launch with this RDZV_REGISTRY cannot start",
            "ask its operator for another RDZV_REGISTRY: 'rdzv tenant list' shows who has access",
        )
    return Verdict("ok", f"ready, rdzv {one.version}, {how}", subject)


def _cure(fault: Fault, subject: str) -> str:
    if fault in _OTHERS:
        return (
            "take the RDZV_REGISTRY of that registry: the file that 'rdzv serve' named there, or "
            "'rdzv token registry' with the RDZV_TOKEN of its replicas; or correct the address"
        )
    if fault is Fault.OTHER_PROTOCOL:
        return same_rdzv("")
    if fault in _NAMES:
        return "check the name, and that this machine's name server knows it: getent hosts NAME"
    if fault is Fault.REFUSED:
        return "start 'rdzv serve' there, or compare the port with its --port"
    if fault in _SILENT:
        return (
            "check that the host is up and that no firewall is between: "
            f"nc -vz {_for_nc(subject)}; 'rdzv serve' there says in its log what it waits for"
        )
    return (
        "check what listens there: another program, a proxy, or 'rdzv serve' with TLS where "
        "RDZV_REGISTRY says --behind-ingress, or the other way round"
    )


def _for_nc(subject: str) -> str:
    host, _, port = subject.rpartition(":")
    return f"{host.strip('[]')} {port}"

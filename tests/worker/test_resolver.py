"""Where hostnames lead already: which are asked for, and that a silent resolver delays nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rendezvous.background import in_background
from tests.support.missing import need
from worker.hosts.resolver import NO_SUCH_NAME, Resolver, names_to_ask


class Answers:
    """A resolver of fixed answers; what is in `silent` is not answered while the test runs."""

    def __init__(self, known: dict[str, set[str]], silent: str = "") -> None:
        self.asked: list[str] = []
        self.begun, self.over = threading.Event(), threading.Event()
        self._known, self._silent = known, silent

    def __call__(self, name: str) -> frozenset[str]:
        self.asked.append(name)
        self.begun.set()
        if name == self._silent:
            self.over.wait()
        return frozenset(self._known.get(name, ()))

    __name__ = "answers"


@asynccontextmanager
async def begun(answers: Answers, *, answered: bool = True) -> AsyncIterator[Resolver]:
    """A resolver whose first question was asked, and answered."""
    resolver = Resolver(answers)
    resolver.begin()
    assert resolver._nowhere is not None
    await (resolver._nowhere if answered else in_background(answers.begun.wait))
    try:
        yield resolver
        await resolver.close()
    finally:
        answers.over.set()


async def test_each_name_is_asked_for_once_and_told_in_lower_case() -> None:
    answers = Answers({"vault": {"10.96.0.1"}})
    async with begun(answers) as resolver:
        resolver.ask(["Vault", "n1", "no.label"])
        found = await resolver.known(["VAULT", "n2"])
    assert found == {"vault": {"10.96.0.1"}, "n1": set(), "n2": set()}
    assert sorted(answers.asked) == ["n1", "n2", NO_SUCH_NAME, "vault"]


async def test_where_a_wildcard_leads_is_nobodys_name() -> None:
    answers = Answers({NO_SUCH_NAME: {"10.1.1.1"}, "n1": {"10.1.1.1"}, "db": {"10.2.2.2"}})
    async with begun(answers) as resolver:
        assert await resolver.known(["n1", "db"]) == {"n1": set(), "db": {"10.2.2.2"}}


async def test_a_silent_resolver_is_asked_once_and_never_waited_for() -> None:
    answers = Answers({}, NO_SUCH_NAME)
    async with begun(answers, answered=False) as resolver:
        resolver.ask(["n1"])
        with pytest.raises(StopIteration) as answer:  # it does not even give way to others
            resolver.known(["n1", "n2"]).send(None)
        assert answer.value.value == {}
        assert answers.asked == [NO_SUCH_NAME]


async def test_a_name_that_is_not_answered_delays_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with begun(Answers({"n1": {"10.0.0.1"}}, "n2")) as resolver:
        for names, seconds in (("n1", 600), ("n1 n2", 0.01), ("n1 n2", 600)):
            monkeypatch.setattr("worker.hosts.resolver._WAIT_SECONDS", seconds)
            assert await resolver.known(names.split()) == {"n1": {"10.0.0.1"}}


async def test_who_waits_for_names_goes_on_when_the_node_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the thread that it waits for before the hosts file is put back would never begin."""
    monkeypatch.setattr("worker.hosts.resolver._WAIT_SECONDS", 600)
    async with begun(Answers({"n1": {"10.0.0.1"}}, "n2")) as resolver:
        waits = asyncio.ensure_future(resolver.known(["n1", "n2"]))
        await asyncio.wait([waits], timeout=0.1)
        await resolver.close()
        assert await waits == {"n1": {"10.0.0.1"}}


async def test_without_a_begin_nothing_is_asked() -> None:
    answers = Answers({})
    resolver = Resolver(answers)
    resolver.ask(["n1"])
    assert await resolver.known(["n1"]) == {}
    assert answers.asked == []
    await resolver.close()


def test_all_nodes_together_ask_for_a_bounded_number_of_names_services_first() -> None:
    few = [f"gpu{number}" for number in range(30)]
    assert sorted(names_to_ask([*few, "vault"])) == sorted([*few, "vault"])
    many = [f"gpu{number}" for number in range(1000)]
    for count in (100, 1000):
        names = names_to_ask([*many[:count], "Vault"])
        assert names[0] == "vault"
        assert len(names) * count <= 1024
    assert names_to_ask(f"n{number}" for number in range(5000)) == ["n0"]
    assert names_to_ask([]) == []


def test_this_machines_own_resolver_is_asked(tmp_path: Path) -> None:
    """In a mount namespace in which /etc/hosts is the test's."""
    need("unshare", "mount")
    (tmp_path / "hosts").write_text("10.96.0.1 vault\nfd00::1%eth0 vault\n")
    program = (
        "from worker.hosts.resolver import addresses_of as of; print(sorted(of('vault')), of('x'))"
    )
    script = f'mount --bind {tmp_path}/hosts /etc/hosts && exec "$0" "$@"'
    argv = ["unshare", "--map-root-user", "--mount", "--net", "sh", "-c", script]
    done = subprocess.run(
        [*argv, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "['10.96.0.1'] frozenset()\n", done.stderr

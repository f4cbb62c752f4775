"""What a node asks of the outer world, call by call, is as in `doors_courses.txt`.

As it arms, visits its peers, answers questions, sends views, and is begun as a whole: on a
virtual clock, skewed, each thing twice. See `make reference`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from rendezvous.channel import Asked
from rendezvous.feature import Lazy
from rendezvous.wire.errors import (
    ArmingFailed,
    Fenced,
    NotFound,
    RunOver,
    Unavailable,
)
from rendezvous.wire.log_view import ViewOrder, ViewReply
from rendezvous.wire.pace import PACE
from rendezvous.wire.question import Answer, Question
from rendezvous.wire.run import RestartFacts
from rendezvous.wire.table import EndpointTable
from tests.support.courses import lines_in, one_line, text_of
from tests.worker.agent.courses import PLAN
from tests.worker.agent.drive import virtually
from tests.worker.skewed import SLOT, skewed
from tests.worker.test_table import join, sealed
from tests.worker.told import Told, shown
from worker import agent
from worker.agent import AgentEnvironment
from worker.agent.actions import AnswerQuestion, Arm, ServeView, Visit
from worker.agent.answering import Answers, bytes_told
from worker.agent.arming import NodeSpec, arm
from worker.agent.inputs import NotArmed
from worker.agent.looks import Looks
from worker.agent.notices import text_of as words_of
from worker.agent.port import Parts, RunningRanks
from worker.agent.viewing import MOST_VIEWS
from worker.agent.views import Views
from worker.agent.visiting import listen, visit
from worker.contracts.framework import HOOK
from worker.evidence.look import Asked as AskedLook
from worker.evidence.look import Counters
from worker.machine.user_python import UserPython
from worker.preflight.own_environment import Completed
from worker.probe.packets import Identity
from worker.program.ending import Ending
from worker.program.family import Child, Family, Ranks
from worker.program.rank_words import RankWords
from worker.settings import WorkerSettings

KNOWN = Path(__file__).with_name("doors_courses.txt")
JOIN = join(SLOT)


def _sealed(epoch: int, port: int, order: tuple[int, ...]) -> EndpointTable:
    made = skewed(epoch, port, order=order, launch_id=JOIN.launch_id)
    return made.model_copy(update={"rows": [sealed(row) for row in made.rows]})


FIRST, SECOND = _sealed(4, 29_517, (0, 1, 2)), _sealed(6, 29_521, (2, 1, 0))
NO_SPACE = OSError(28, "No space left on device")


class Doors:
    """Calls through an environment that are told, each with its time."""

    def __init__(self) -> None:
        self.told = Told()

    def door(self, name: str, found: Any = None) -> Callable[..., Any]:
        """One that answers so: a value, an error, or a function of what is asked."""

        def call(*given: Any, **named: Any) -> Any:
            words = [*map(word, given), *(f"{key}={word(each)}" for key, each in named.items())]
            self.told.lines.append(one_line(f"@ {_now()}{name}({', '.join(words)})"))
            answer = found(*given, **named) if callable(found) else found
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def environment(self, **answers: Any) -> AgentEnvironment:
        """What nothing happens in, but for these."""

        async def in_thread(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
            await asyncio.sleep(0.125)
            return work(*given, **named)

        doors = {name: self.door(name, found) for name, found in answers.items()}
        plain: Any = {"environ": {"PATH": "/bin", "HOME": "/h"}, "in_thread": in_thread}
        return AgentEnvironment(**(plain | doors))


def _now() -> str:
    try:
        return f"{asyncio.get_running_loop().time():.3f} "
    except RuntimeError:
        return ""


def word(value: Any) -> str:
    """Short, and without what is another one each time."""
    if isinstance(value, str):
        return repr(value.replace(HOOK, "HOOK").replace(sys.executable, "PYTHON"))
    if isinstance(value, (Path, int, float, bool, type(None))):
        return repr(str(value)) if isinstance(value, Path) else repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(word, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {word(v)[:80]}' for k, v in value.items())}}}"
    if isinstance(value, (set, frozenset)):
        return word(sorted(value))
    if hasattr(value, "epoch") and hasattr(value, "rows"):
        return f"<{value.epoch}:{value.master_port}>"
    if isinstance(value, AskedLook):
        return f"Asked({shown(value)})"
    name = getattr(value, "__name__", None)
    return name or f"<{type(value).__name__}>"


def how_it_arms() -> Told:
    """For both tables: where all is well, and where each of several things is not."""
    doors = Doors()
    told = doors.told
    well: dict[str, Any] = {
        "why_unusable": "",
        "why_too_few": "",
        "is_free": True,
        "find_free": lambda port: port + 10,
        "missing_of": "",
        "read_conf": {},
        "read_config": "",
        "write_files": None,
        "remove_file": None,
        "device_names": ([], []),
        "place_shims": lambda folders, *_: folders[1],
        "look_python": UserPython("3.11.4", "2.1.0"),
    }
    script: dict[str, Any] = {"framework": "torchrun", "command": ["train.py", "--lr", "3"]}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any], Any, str]] = {
        "well": ({}, {}, None, "/run/s/agent"),
        "without a socket": ({}, {}, None, ""),
        "by torchrun": ({}, script, None, "/run/s/agent"),
        "warm": ({}, script | {"warm": "on"}, "warns", "/run/s/agent"),
        "warm but by torchrun": ({}, script | {"warm": "on", "by": True}, None, "/run/s/agent"),
        "remote": ({}, {"remote": True}, None, "/run/s/agent"),
        "remote without a socket": ({}, {"remote": True}, None, ""),
        "remote without files": ({"write_files": NO_SPACE}, {"remote": True}, None, "/s/agent"),
        "shims nowhere": ({"place_shims": NO_SPACE}, {"remote": True}, None, "/s/agent"),
        "no files": ({"write_files": NO_SPACE}, {}, None, "/s/agent"),
        "no file removed": ({"remove_file": NO_SPACE}, {}, None, "/s/agent"),
        "missing": ({"missing_of": "train is nowhere"}, {}, None, "/s/agent"),
        "address": ({"why_unusable": "eth2 is down"}, {}, None, "/s/agent"),
        "too few": ({"why_too_few": "no room for 5"}, {}, None, "/s/agent"),
        "hosts refused": ({}, {"hosts": "require"}, ArmingFailed("read-only"), "/s/agent"),
        "hosts warned of": ({}, {"hosts": "auto"}, ArmingFailed("read-only"), "/s/agent"),
        "hosts off": ({}, {"hosts": "off"}, ArmingFailed("read-only"), "/s/agent"),
        "log folder": ({}, {"log_dir": None}, None, "/s/agent"),
    }
    for what, (world, options, hosts, socket) in cases.items():
        named: dict[str, Any] = {"framework": "command", "log_dir": Path("/l%gs")}
        named |= {"hosts": "auto"} | options
        remote, by = named.pop("remote", False), named.pop("by", False)
        command = named.pop("command", ["train"])
        spec = NodeSpec(WorkerSettings(**named), JOIN, command, remote=remote)
        file: Any = SimpleNamespace(install=doors.door("install", hosts))
        for table in (FIRST, SECOND):
            row = spec.row(table)
            asked = Arm(
                7, table, table.digest(), None, frozenset([row.mac]), RestartFacts(mixed=by)
            )
            told.lines.append(f"* {what} of {table.epoch}")
            _arms(told, arm(asked, spec, doors.environment(**well | world), file,
                            socket=socket, resolved={"gpu-4": {"10.0.0.1"}}))  # fmt: skip
    spec = NodeSpec(WorkerSettings(log_dir=Path("/logs")), JOIN, ["train.py"], remote=False)
    for slot, free in ((7, 29_600), (7, None), (SLOT, 29_600)):
        own = replace(spec, join=replace(JOIN, slot=slot))
        asked = Arm(8, FIRST, FIRST.digest(), None, frozenset([own.row(FIRST).mac]), RestartFacts())
        told.lines.append(f"* a port is taken of {slot}, free {free}")
        environment = doors.environment(**well | {"is_free": False, "find_free": free})
        file = SimpleNamespace(install=doors.door("install"))
        _arms(told, arm(asked, own, environment, file, socket="/s/agent", resolved={}))
    other = replace(asked, offered=frozenset(["x"]))
    told.lines.append("* another address")
    _arms(told, arm(other, own, doors.environment(**well), file, socket="", resolved={}))
    return told


def _arms(told: Told, found: Any) -> None:
    """What has come of it."""
    told.lines += [f"- says {one_line(words_of(each))}" for each in found.notices]
    if isinstance(found, NotArmed):
        told.lines.append(one_line(f"- refused {shown(found.refusal)}"))
        return
    contract = found.contract
    told.lines.append(one_line(f"- {contract.argv} port {contract.port} forks {contract.forks}"))
    variables = contract.variables | {"-": " ".join(contract.withheld)}
    mine = {n: v for n, v in variables.items() if n.startswith(("RDZV_", "TORCHELASTIC", "-"))}
    told.lines.append(one_line(f"- {mine}".replace(sys.executable, "PYTHON")))


def _kept(found: list[Any], _: Identity, **how: Any) -> None:
    found.append(how)


def how_it_visits() -> Told:
    """Its share, from an address that it has or has lost; near and not, fresh, with bad names."""
    doors = Doors()
    identity = Identity(JOIN.probe_key, JOIN.run, JOIN.launch_id, SLOT)

    async def hangs(*_: Any) -> Any:
        await asyncio.sleep(0.5)
        return []

    async def work() -> None:
        near = PLAN.model_copy(
            update={
                "peers": [
                    one.model_copy(update={"address": f"127.0.0.{n}"})
                    for n, one in enumerate(PLAN.peers, 1)
                ]
            }
        )
        gone = PLAN.model_copy(update={"peers": [one for one in PLAN.peers if one.slot != SLOT]})
        for what, plan, is_near, problem, names in (
            ("plain", PLAN, False, "", {}),
            ("it has lost its address", PLAN, False, "eth2 is down " + "x" * 200, {}),
            ("near", near, True, "", {}),
            ("near, of one that is not", near, False, "", {}),
            ("far, of one that is near", PLAN, True, "", {"gpu-9": {"10.9.9.9"}}),
            ("fresh", PLAN.model_copy(update={"fresh": [7]}), False, "", {"gpu-6": {"10.9.9.9"}}),
            ("without a place", gone, False, "", {}),
        ):
            environment = doors.environment(
                why_unusable=problem, probe=hangs, known_names=names, hosts_file=None
            )
            environment = replace(environment, hosts_file=Path("/etc/hosts"))
            found = await visit(Visit(9, 4, plan), identity, environment, near=is_near)
            doors.told.of(what, found.number, round(found.seconds, 3), *found.pairs)
        for options in (
            {},
            {"master_port": 30_000, "loopback": True},
            {"probe_ports": "4100-4110"},
        ):
            settings = WorkerSettings(**options)
            spec = NodeSpec(settings, JOIN, ["x"], remote=False)
            for same in (None, 7_013):
                ports: list[Any] = []
                keep: Any = partial(_kept, ports)
                environment = replace(AgentEnvironment(), listen=keep)
                listen(spec, identity, environment, same)
                how = ports[0] | {"avoid": len(ports[0]["avoid"])}
                doors.told.of(f"listens {options} {same}", how, max(ports[0]["avoid"], default=0))

    virtually(work())
    return doors.told


class Registry:
    """One that is told things, and answers as it is made up."""

    def __init__(self, doors: Doors, *answers: Any) -> None:
        self._told, self._answers = doors.told, [*answers]

    def pause(self) -> float:
        """Seconds until it is asked again."""
        return 0.375

    async def ask(self, model: Any, method: str, path: str, said: Any = None) -> Any:
        """Take something in."""
        self._told.lines.append(
            one_line(f"@ {_now()}{method} {path} {shown(said) if said else ''}")
        )
        return await self._answer()

    async def _answer(self) -> Any:
        await asyncio.sleep(0.0625)
        found = self._answers.pop(0) if self._answers else None
        if isinstance(found, Exception):
            raise found
        return found


def how_it_looks_after_a_failure() -> Told:
    """Once, at what the ranks have named; before, in the end, and where looking fails."""
    doors = Doors()
    words = RankWords()
    for rank, data in (
        (1, b"OSError: [Errno 28] No space left on device: '/data/x'\n"),
        (None, b"launcher\nmore\n"),
        (0, b"first\nsecond\n"),
    ):
        words.take(rank, data)
    failed = Family(None, (Child(71, 1.0, 1.0, Ranks(9, 1), 5.0, 1), Child(72, 1, 1, Ranks(8, 0))))
    runs = Family(None, (Child(72, 1.0, 1.0, Ranks(8, 0)),))

    async def work() -> None:
        for what, before, after in (
            ("well", Counters(), ["a fact"]),
            ("before fails", ValueError("x"), ["a fact"]),
            ("after fails", Counters(), ValueError("x")),
        ):
            environment = doors.environment(
                look_before=lambda pid, found=before: found,
                look_after=lambda counters, asked, found=after: found,
                folders=("/work",),
            )
            for ending in (Ending(1, 9.0), Ending(0, 9.0), Ending(1, 9.0, was_told=True)):
                for family, main in (
                    (runs, None),
                    (runs, (0, 3.0)),
                    (runs, (2, 3.0)),
                    (failed, None),
                ):
                    looks = Looks(environment, 8)
                    looks.failed(family, main, words)
                    looks.begin(70)
                    await asyncio.sleep(0)
                    looks.failed(family, main, words)
                    if main is None and family is runs and ending.was_told:
                        looks.failed(failed, main, words)
                        looks.failed(failed, main, words)
                    began = asyncio.get_running_loop().time()
                    await looks.finish(family, ending, words)
                    took = asyncio.get_running_loop().time() - began
                    doors.told.of(f"{what} {ending.exit_code} {main}", looks.facts, round(took, 3))
            doors.told.of(
                "lines",
                *((one.text, one.rank) for one in looks.lines(words)),
                looks.lines(None),
            )

    virtually(work())
    return doors.told


def how_questions_are_answered() -> Told:
    """Of a feature, or when ranks called; at whose turn, and why there is nothing."""
    doors = Doors()
    ranks = RunningRanks("/look", {0: 71, 1: None}, 14, 70, 4_096, None)
    weather = Question(number=5, topic="weather")
    pace = Question(number=5, topic=PACE, data={"before": 70.5})
    topic = Asked("weather", Lazy(""), Lazy(""), rate=50)

    async def made(question: Question, of: RunningRanks) -> Answer:
        doors.told.lines.append(f"@ {_now()}made of {shown(question)} {of}")
        await asyncio.sleep(0.125)
        return Answer(number=5, epoch=3, words="it rains")

    async def work() -> None:
        known: Any = SimpleNamespace(answers={"weather": (topic, made)})
        for what, of, changes in (
            ("weather", ranks, {}),
            ("no program", None, {"program": None, "why": "it is over"}),
            ("none yet", None, {}),
            ("later", ranks, {"node": 125}),
            ("not known", ranks, {"question": Question(number=5, topic="mood"), "node": 500}),
            ("pace", ranks, {"question": pace, "node": 225, "nodes": 3}),
            ("pace of none", None, {"question": pace}),
            ("pace, ended", None, {"question": pace, "program": None, "why": "it is over"}),
            ("pace, no folder", ranks._replace(folder=""), {"question": pace}),
        ):
            wall = iter([100.0, 100.5, 200.0, 200.25, 300.0, 301.0, 400.0, 400.5, 500.0, 500.5])
            environment = doors.environment(calls={}, wall=lambda wall=wall: next(wall))
            clocks = [SimpleNamespace(now=n) for n in (150.0, 252.0, 350.0, 450.0, 550.0)]
            registry: Any = Registry(doors, *clocks)
            asked: Any = {"question": weather, "program": 7, "epoch": 4, "node": 0, "nodes": 1}
            doors.told.lines.append(f"* {what} {_now()}")
            spec = SimpleNamespace(join=JOIN)
            its: Any = SimpleNamespace(environment=environment, spec=spec, _client=registry)
            known.clock = partial(Parts.clock, its)
            answers = Answers(environment, registry, JOIN, known)
            await answers.answer(AnswerQuestion(**asked | changes), of)
        doors.told.of("bytes", *(bytes_told(nodes) for nodes in (1, 170, 500, 1_400, 9_000)))
        for error in (Unavailable("away"), Fenced("another")):
            registry = Registry(doors, error)
            answers = Answers(doors.environment(), registry, JOIN, known)
            await answers.answer(AnswerQuestion(weather, 4, 7, 50, 90), None)

    virtually(work())
    return doors.told


def how_views_are_served() -> Told:
    """Posts of several views, with room and without; three flushes, and who is too many."""
    doors = Doors()
    told = doors.told

    class Reading:
        """In place of what reads the logs: each step finds what was put in."""

        made: ClassVar[list[Any]] = []

        def __init__(self, asked: ServeView, folder: Path) -> None:
            self.view, self.hurries, self.drops = asked.order.view, False, asked.order.follow
            self.found: list[Any] = []
            self.is_idle, self.is_done, self.words = True, False, "nothing there"
            self.backlog = SimpleNamespace(take=lambda: self.found.pop(0) if self.found else [])
            self.made.append(self)
            told.lines.append(f"@ {_now()}reads {self.view} in {folder}")

        def step(self) -> None:
            told.lines.append(f"@ {_now()}steps {self.view}{' hurries' if self.hurries else ''}")

        def close(self) -> None:
            told.lines.append(f"@ {_now()}closes {self.view}")

    async def work() -> None:
        goes = ViewReply(goes_on=True)
        replies = [
            *(
                goes,
                ViewReply(goes_on=True, taken=False, wait=0.5),
                goes,
                Unavailable("away"),
                goes,
            ),
            *(ViewReply(goes_on=True, wait=0.75), goes, goes, goes, goes, goes, goes),
        ]
        registry: Any = Registry(doors, *replies, *[goes] * 40, ViewReply(goes_on=False))
        views = Views(registry, JOIN, doors.environment(), Path("/logs"))
        orders = [ViewOrder(view=n, rank=11, follow=n == 7) for n in (7, 8, 9)]
        tasks = [
            asyncio.create_task(views.serve(ServeView(one, 1, (11,), (10, 11), 4, 0.25 * n)))
            for n, one in enumerate(orders)
        ]
        await asyncio.sleep(1.0)
        seven, eight, nine = Reading.made
        for number in range(3):
            part: Any = {"rank": 11, "lines": [f"line {number}"], "skipped": 0}
            seven.found.append([part])
            nine.found.append([part, part])
            await asyncio.sleep(0.5)
            seven.is_idle = number != 1
            told.lines.append(f"* {_now()}flush {number}")
            await views.flush()
            told.of(f"{_now()}flushed", sorted(views._behind), views._hurry.is_set())
            seven.is_idle = True
        eight.is_done = True
        await asyncio.sleep(6.0)
        nine.is_idle = False
        await asyncio.sleep(0.1)
        nine.is_idle = True
        views._served |= {*range(100, 100 + MOST_VIEWS - len(views._served))}
        await views.serve(ServeView(orders[0].model_copy(update={"view": 99}), 1, (), (), 4, 0.0))
        views._served -= {*range(100, 200)}
        seven.is_done = nine.is_done = True
        registry._answers[:] = [Fenced("another"), *[Unavailable("away")] * 9]
        await asyncio.sleep(20.0)
        told.of(f"{_now()}left", sorted(views._served), [task.done() for task in tasks])
        await views.flush()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("worker.agent.views.Reading", Reading)
        virtually(work())
    return told


def how_a_node_is_begun() -> Told:
    """What `run_agent` sets up and takes down, whose signals it takes, and where its logs are."""
    doors = Doors()
    told = doors.told
    settings = WorkerSettings(framework="command", log_dir=Path("/logs"))

    class Shell:
        """In place of a `NodeShell`."""

        ends: Any = 3

        def __init__(self, spec: NodeSpec, environment: Any, client: Any) -> None:
            self.said = (spec.remote, spec.any_slot, spec.command, spec.join.slot)
            self.feed = doors.door("feed", lambda said: told.lines.append(f"- {said}"))

        async def run(self) -> int:
            told.of(f"{_now()}runs", *self.said)
            await asyncio.sleep(1.5)
            loop: Any = asyncio.get_running_loop()
            loop.taken[signal.SIGTERM](signal.SIGTERM)
            if isinstance(self.ends, Exception):
                raise self.ends
            return int(self.ends)

    async def reaps() -> None:
        try:
            await asyncio.sleep(100.0)
        finally:
            told.lines.append(f"@ {_now()}reaps no more")

    async def work() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.taken = {}
        loop.add_signal_handler = lambda number, call, *given: loop.taken.update({number: call})

        async def close() -> None:
            told.lines.append("@ closes it")

        client = SimpleNamespace(close=close)
        world = {"dial": client, "remove_left": None, "parent_lives": False}
        for ends in (3, Fenced("another one"), RunOver("it is over"), NotFound("no run")):
            for parent, allow in ((None, False), (44, True)):
                Shell.ends = ends
                told.lines.append(f"* {ends!r} {parent} {_now()}")
                own = settings.model_copy(update={"parent": parent, "allow_exec": allow})
                try:
                    code = await agent.run_agent(
                        own, JOIN, ("train", "x"), environment=doors.environment(**world)
                    )
                    told.of("code", code)
                except NotFound as exc:
                    told.refused(exc)
        told.of("signals", sorted(map(int, loop.taken)))
        await _where_logs_are(doors, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "NodeShell", Shell)
        patch.setattr(agent, "become_subreaper", doors.door("become_subreaper"))
        patch.setattr(agent, "reap_orphans", reaps)
        said = SimpleNamespace(
            log=lambda level, form, *words: told.lines.append(f"says {level}: {form % words}"),
            info=lambda form, *words: told.lines.append(f"says: {form % words}"),
            warning=lambda form, *words: told.lines.append(f"warns: {form % words}"),
        )
        patch.setattr(agent, "logger", said)
        patch.setattr(agent, "shim_places", lambda environ: ["/a", "/b"])
        patch.setattr(agent, "ending_signals", lambda: [signal.SIGTERM, signal.SIGINT])

        def watched(met: Callable[..., None], used_up: Callable[..., None]) -> Any:
            met(60, 90)
            met(61, None)
            used_up(90)
            return nullcontext()

        patch.setattr(agent, "cpu_time_watched", watched)
        patch.setattr(agent, "cpu_time_met", lambda soft, hard: f"met {soft} of {hard}")
        patch.setattr(agent, "cpu_time_used_up", lambda hard, used: f"{hard} used up")
        virtually(work())
    return told


async def _where_logs_are(doors: Doors, settings: WorkerSettings) -> None:
    """As a person says, or where they can be; and what PATH is completed with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agent, "state_home", lambda environ: Path("/tmp/own"))
        for folder in (Path("/logs"), None):
            for why in ("", "the disk is full"):
                patch.setattr(agent, "why_elsewhere", doors.door("why_elsewhere", why))
                own = settings.model_copy(update={"log_dir": folder})
                found = await agent.with_log_folder(own, JOIN, doors.environment())
                doors.told.of(f"logs {folder} {why}", str(found.log_dir), found is own)
        environ = {"PATH": "/bin:/opt"}
        for added in ("", "/opt"):
            completed = Completed(environ, added) if added else Completed(environ)
            patch.setattr(agent, "complete_path", doors.door("complete_path", completed))
            patch.setattr(agent, "AgentEnvironment", doors.environment)
            for slot in (0, SLOT):
                own_join = replace(JOIN, slot=slot)
                found_in = await agent._own_environment(settings, own_join, ["train"])
                doors.told.of(f"path {added!r} {slot}", dict(found_in.environ))

        async def hangs(*_: Any, **__: Any) -> Any:
            await asyncio.sleep(99.0)

        slow = replace(doors.environment(), in_thread=hangs)
        own = settings.model_copy(update={"log_dir": None})
        found = await agent.with_log_folder(own, JOIN, slow)
        doors.told.of(f"{_now()}a disk that hangs", found is own)


def how_ranks_are_read() -> Told:
    """What is imported where it is wanted, with which values, and in which order."""
    doors = Doors()
    pids = {0: 71, 1: None, 2: 73}
    with pytest.MonkeyPatch.context() as patch:
        for name, found in {
            "ranks.calls": "calls",
            "ranks.importing": "importing",
            "worlds.read_worlds": "worlds",
        }.items():
            patch.setattr(f"worker.look.{name}", doors.door(name.rpartition(".")[2], found))
        plain = AgentEnvironment()
        for folder in ("/look", ""):
            doors.told.of("calls", plain.calls(folder, pids, 14))
            doors.told.of("importing", plain.importing(folder, 3))
            doors.told.of("worlds", plain.worlds(folder, 14, 3))
    return doors.told


COURSES: dict[str, Callable[[], Told]] = {
    one.__name__: one
    for one in (
        *(how_it_arms, how_it_visits, how_it_looks_after_a_failure),
        *(how_questions_are_answered, how_views_are_served, how_a_node_is_begun),
        how_ranks_are_read,
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_a_node_asks_for(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

# ruff: noqa: E501
"""Bugs of replicas to be planted, each of which a schedule must show; and the search for those."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path

from tests.simulation.history import Violation
from tests.simulation.patching import Bug, Edit
from tests.simulation.replicas.schedule import generate
from tests.simulation.replicas.world import collected, simulate

SEEDS = Path(__file__).with_name("seeds.json")
Found = tuple[int, str]
"""The seed that shows a bug, and the invariant that does not hold."""

# By file: the bug's name, what stands there, and what stands there with the bug.
# fmt: off
_EDITS = {
    "tests/support/shared_engine.py": [
        ("no fence", 'if self.owners.get(run) != Holding(run, me, epoch):\n            return Overtaken', 'if False:\n            return Overtaken'),
        ("claim whatever the epoch", "if known == holding or (known is None and not holding.epoch):", "if True:"),
        ("epochs begin again after a drop", "self.owners[run] = Holding(run, None, epoch)", "del self.owners[run]"),
        ("leases by a replica's clock", "row.seen = now", "pass"),
        # With it the journal refuses what does not follow, and the run is read again.
        ("read before the claim", "if self.is_full or not {one.number for one in records}.isdisjoint(known):", "if self.is_full:"),
    ],
    "rendezvous/server/replica.py": [
        ("read before the claim", "claimed = await self._journal.claim(wanted)\n        except",
         "self._loads.early = {one.run: await self._journal.read(one.run) for one in wanted}\n            claimed = await self._journal.claim(wanted)\n        except"),
        ("what is lost is kept", "for run in beat.lost:", "for run in ():"),
        ("doubts are not looked into", "wanted = [*self._doubtful(), ", "wanted = ["),
        ("an end looks only once", "while await self._give_all():\n                    pass", "await self._give_all()"),
        ("an end keeps its runs", "for run in runs:\n                await self._move(run)", "break"),
    ],
    "rendezvous/server/loading.py": [
        ("what has ended is served at once", "and not await self._is_proven(run):", "and False:"),
        ("read before the claim", "records = await self._journal.read(run)", "records = getattr(self, 'early', {}).pop(run, None) or await self._journal.read(run)"),
    ],
    "rendezvous/server/membership.py": [
        ("judged as soon as the engine is back", "self.is_sure(now) and now - self.unbroken_since >= JUDGE_SECONDS", "self.is_sure(now)"),
        ("always sure", "return now - self.beaten_at < LEASE_SECONDS", "return True"),
        ("the dead live", "if one.id == self.me or one.is_alive(LEASE_SECONDS)]", "]"),
        ("nobody is the heir", "if heir(one.run, takers) == self.me", "if False"),
    ],
    "rendezvous/server/sequencer.py": [
        ("in doubt is written", "errors = await asyncio.shield(writing)",
         "errors = {run: why for run, why in (await asyncio.shield(writing)).items() if type(why).__name__ != 'InDoubt'}"),
        ("in doubt is not written", "if isinstance(error, Unavailable) or", "if type(error).__name__ == 'Overtaken' or"),
        ("time goes on without the engine", "self.clock.hold()", "pass"),
        ("time stands still for ever", "self.clock.go_on()", "pass"),
        ("told what is under way", "if not all(live.is_durable for live in lives):", "if False:"),
    ],
    "rendezvous/server/runs.py": [
        ("who waits is not told of a move", "        if live is not None:\n            live.leave(why)", "        if live is not None:\n            live.away = why"),
        ("the doubtful is served", "            self.set_aside(name)\n            live.leave(why)\n", ""),
    ],
    "rendezvous/server/live_run.py": [
        ("every replica's clock is the run's", "return self._clock() + self.offset", "return self._clock()"),
        ("what was read is not made", '        """That it was made is durable: the one before it will not be back."""\n        self._replaced = None', '        """That it was made is durable."""'),
    ],
}
# fmt: on


def _bugs() -> dict[str, Bug]:
    edits: dict[str, list[Edit]] = {}
    for file, rows in _EDITS.items():
        for name, old, new in rows:
            edits.setdefault(name, []).append(Edit(file, old, new))
    return {name: Bug(name, tuple(some)) for name, some in edits.items()}


BUGS = _bugs()


def stored() -> dict[str, Found]:
    """What is known, by bug."""
    known: dict[str, list[object]] = json.loads(SEEDS.read_text())
    return {name: (int(str(seed)), str(invariant)) for name, (seed, invariant) in known.items()}


def keep(known: dict[str, Found]) -> None:
    """Write what is known, a line for each bug."""
    lines = [f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
    SEEDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def search(names: Iterable[str], most: int) -> list[str]:
    """Find a schedule for each bug among the first seeds; returns the bugs that had none."""
    missed = []
    for name in names:
        known = stored()
        found = _first(BUGS[name], range(most))
        print(f"{name}: {found or f'not caught by {most} schedules'}", flush=True)
        known.pop(name, None)
        keep(known if found is None else known | {name: found})
        missed += [] if found is not None else [name]
    return missed


def _first(bug: Bug, seeds: Iterable[int]) -> Found | None:
    left = collected(iter(seeds))
    while True:
        with bug.planted():
            for seed in left:
                if (violation := simulate(generate(seed)).violation) is not None:
                    break
            else:
                return None
        if is_good(seed):
            return seed, violation.invariant


def shown(name: str, seed: int) -> Violation | None:
    """What the schedule of a seed shows of a bug."""
    with BUGS[name].planted():
        return simulate(generate(seed)).violation


@functools.cache
def is_good(seed: int) -> bool:
    """Whether the real code passes."""
    return simulate(generate(seed)).violation is None

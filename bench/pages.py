"""What the page of a run costs, and how soon it shows what: `python -m bench.pages`."""

from __future__ import annotations

import argparse
import io
import math
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import launcher
from bench.browser import Chromium, chromium, missing
from bench.machine import describe, watching
from bench.meeting import Meeting, meeting
from bench.paged import BIN, Ui, folder_of, ui_of
from bench.registry import raise_file_limit
from bench.rows import HEADER, Figure, Report, Row, row
from bench.tellers import Teller, teller, viewers
from launcher.state.state_dir import StateDir
from rendezvous.talk.credentials import RunKeys

_RATE = 20.0
"""Changes of the run in a second."""
_ROWS = 200
"""Of slots, which the page shows at once."""
_VIEWERS = 20
_PROGRAM = Path(__file__).parent / "marked.py"
_LINES_A_SECOND = 10.0
_LIMIT_SECONDS = 60.0
Work = Callable[[], Iterable[Row | Figure]]


@dataclass(frozen=True)
class Targets:
    """What is asked for at a size: milliseconds, megabytes, per cent of a core."""

    ready: float
    event: tuple[float, float]
    rss: float
    heap: float
    ui_cpu: tuple[float, float]
    registry_cpu: float


_TARGETS = {
    4: Targets(250, (20, 60), 60, 10, (1, 3), 1),
    64: Targets(250, (20, 60), 65, 10, (1, 3), 1),
    1_024: Targets(600, (40, 150), 90, 25, (3, 8), 2),
}


@dataclass(frozen=True)
class Scene:
    """A run, its page, a browser, and nodes that tell something."""

    run: str
    nodes: int
    targets: Targets
    ui: Ui
    browser: Chromium
    tells: Teller
    seconds: float

    @property
    def rows(self) -> int:
        """Of slots that are shown."""
        return min(self.nodes, _ROWS)


def of_run(nodes: int, loads: int, seconds: float) -> Iterator[Row | Figure]:
    """All that a browser sees of a run whose nodes run.

    Args:
        nodes: Emulated ones, before a real registry.
        loads: Of the page, each in a tab of its own.
        seconds: For which changes come, each time.
    """
    targets = _TARGETS[nodes]
    with meeting(nodes, tls=True) as met:
        met.open()
        with ExitStack() as stack, met.running() as keys:
            enter = stack.enter_context
            root = enter(folder_of(met.registry, keys, nodes))
            tells = enter(teller(met.registry.place, keys.run, _shown(met)))
            others = enter(viewers())
            ui = enter(ui_of(root, keys.run))
            browser = enter(chromium())
            scene = Scene(keys.run, nodes, targets, ui, browser, tells, seconds)
            yield from _ready(scene, loads)
            yield from _seen(scene)

            def watch() -> None:
                others.watch(ui.link(), keys.run, _VIEWERS - 1)

            yield from _costs(scene, watch)
            stack.close()


def _shown(met: Meeting) -> dict[int, str]:
    """Credentials of the nodes that the page shows without being asked for more."""
    return {slot: text for slot, text in met.credentials().items() if slot < _ROWS}


def _ready(scene: Scene, loads: int) -> Iterator[Row | Figure]:
    """The first load, which also starts the browser's processes, is not counted."""
    times = []
    for _ in range(loads + 1):
        with scene.browser.shows(scene.ui.link(), scene.rows) as shown:
            times.append(shown.ready_ms())
    del times[0]
    yield row("page", scene.nodes, "page_ready", times, note="a new tab each, nothing cached")
    p95 = sorted(times)[math.ceil(0.95 * len(times)) - 1]
    note = "p95, from the navigation until the slots are drawn and the stream has begun"
    target = scene.targets.ready
    yield Figure("page_ready", scene.nodes, round(p95, 1), "ms", target, loads, note=note)


def _seen(scene: Scene) -> Iterator[Row | Figure]:
    """The time from a node's report until it is in the document: as an event, and in its row."""
    late = {}
    for view in ("events", "now"):
        with scene.browser.shows(scene.ui.link(), scene.rows) as shown:
            shown.ready_ms()
            if view != "now":
                shown.open(view)
            scene.tells.begin(_RATE, scene.seconds)
            told = scene.tells.ended()
            shown.wait_for_mark(told[-1].mark)
            seen = shown.marks()
        late[view] = [
            1_000 * max(0.0, seen[one.mark] - one.answered) for one in told if one.mark in seen
        ]
        answered = statistics.median(1_000 * (one.answered - one.sent) for one in told)
        note = f"since the registry's answer, which took {answered:.1f} ms"
        if view == "now":  # what is replaced before somebody asks is not seen
            note += f"; {len(late[view])} of {len(told)} seen"
        else:
            assert len(late[view]) == len(told), "an event was not shown"
        yield row("page", scene.nodes, f"{view}_view", late[view], note=note)
    p50, p99 = scene.targets.event
    median, last = _median_and_p99(late["events"])
    count = len(late["events"])
    yield Figure("event_to_screen", scene.nodes, median, "ms", p50, count, note="p50")
    yield Figure("event_to_screen", scene.nodes, last, "ms", p99, count, note="p99")


def _median_and_p99(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    last = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return round(statistics.median(ordered), 1), round(last, 1)


def _costs(scene: Scene, watch: Callable[[], None]) -> Iterator[Figure]:
    """CPU time of the page's processes with one viewer and with more, and what all of them hold."""
    nodes, targets = scene.nodes, scene.targets
    with scene.browser.shows(scene.ui.link(), scene.rows) as shown:
        shown.ready_ms()
        one = _percent_while_told(scene.tells, scene.seconds, scene.ui.cpu_seconds)
        watch()
        many = _percent_while_told(scene.tells, scene.seconds, scene.ui.cpu_seconds)
        memory, heap = scene.ui.memory(), shown.heap_bytes() / 1e6
    for viewed_by, value, target in zip((1, _VIEWERS), (one, many), targets.ui_cpu, strict=True):
        note = f"{viewed_by} viewer{'s' * (viewed_by > 1)}, {_RATE:g} changes/s"
        yield Figure("ui_cpu", nodes, round(value, 2), "% core", target, note=note)
    note = f"PSS of both processes, {_VIEWERS} viewers; RSS of the one {memory.rss / 1e6:.0f} MB"
    yield Figure("ui_rss", nodes, round(memory.pss / 1e6, 1), "MB", targets.rss, note=note)
    yield Figure("browser_heap", nodes, round(heap, 1), "MB", targets.heap)


def _percent_while_told(tells: Teller, seconds: float, cpu_seconds: Callable[[], float]) -> float:
    before, began = cpu_seconds(), time.monotonic()
    tells.begin(_RATE, seconds)
    tells.ended()
    return 100 * (cpu_seconds() - before) / (time.monotonic() - began)


def of_registry(nodes: int, pairs: int, seconds: float) -> Iterator[Figure]:
    """What a page that somebody looks at adds to its registry's CPU time: with, without, again."""
    with meeting(nodes, tls=True) as met:
        met.open()
        with ExitStack() as stack, met.running() as keys:
            root = stack.enter_context(folder_of(met.registry, keys, nodes))
            tells = stack.enter_context(teller(met.registry.place, keys.run, _shown(met)))
            added: dict[str, list[float]] = {"quiet": [], f"{_RATE:g} changes/s": []}
            for _ in range(pairs):
                without = _shares(met, tells, seconds)
                with _looked_at(root, keys):
                    beside = _shares(met, tells, seconds)
                for name, one, other in zip(added, beside, without, strict=True):
                    added[name].append(one - other)
            stack.close()
    for name, found in added.items():
        note = f"added by a page, {name}; each pair: {', '.join(f'{one:+.1f}' for one in found)}"
        value = round(statistics.median(found), 2)
        target = _TARGETS[nodes].registry_cpu
        yield Figure("registry_page", nodes, value, "% core", target, pairs, note=note)


def _looked_at(root: Path, keys: RunKeys) -> ExitStack:
    """A page and a viewer."""
    with ExitStack() as stack:
        ui = stack.enter_context(ui_of(root, keys.run))
        stack.enter_context(viewers()).watch(ui.link(), keys.run, 1)
        time.sleep(0.5)
        return stack.pop_all()


def _shares(met: Meeting, tells: Teller, seconds: float) -> tuple[float, float]:
    """Of a core that its registry uses, in per cent: while nothing happens, and while much does."""
    before, began = met.registry.cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    quiet = 100 * (met.registry.cpu_seconds() - before) / (time.monotonic() - began)
    return quiet, _percent_while_told(tells, seconds, met.registry.cpu_seconds)


def log_line(seconds: float) -> Iterator[Row | Figure]:
    """A real launch of 2 nodes here: from a rank's print until its line is on the screen."""
    with tempfile.TemporaryDirectory(prefix="rdzv-bench-") as folder, ExitStack() as stack:
        root, run = Path(folder), "printing"
        command = [str(BIN / "rdzv"), "launch", "--state-dir", str(root), "--rdzv-id", run]
        command += ["--framework", "command", "--nnodes", "2", "--"]
        command += [
            sys.executable,
            "-I",
            "-S",
            str(_PROGRAM),
            str(_LINES_A_SECOND),
            str(_LIMIT_SECONDS),
        ]
        nowhere = subprocess.DEVNULL
        launch = stack.enter_context(subprocess.Popen(command, stdout=nowhere, stderr=nowhere))
        stack.callback(launch.terminate)
        _wait_until_it_runs(StateDir(root, run))
        ui = stack.enter_context(ui_of(root, run))
        browser = stack.enter_context(chromium())
        with browser.shows(ui.link(), 2) as shown:
            shown.ready_ms()
            shown.open("logs", rank=0)
            time.sleep(1.0)
            began = time.monotonic()
            time.sleep(seconds + 1.0)
            seen = {mark / 1e6: at for mark, at in shown.marks().items()}
        late = [1_000 * (at - mark) for mark, at in seen.items() if began <= mark < began + seconds]
    assert len(late) > _LINES_A_SECOND * seconds / 2, f"{len(late)} lines were shown"
    yield row("page", 2, "log_line", late, note="of a rank that is looked at, in a real launch")
    _, p99 = _median_and_p99(late)
    yield Figure("log_line", 2, p99, "ms", 300, len(late), note="p99, from print to screen")


def _wait_until_it_runs(state: StateDir) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not any(path.stat().st_size for path in state.logs.rglob("*") if path.is_file()):
        assert time.monotonic() < deadline, "no program was started"
        time.sleep(0.05)


def wheel() -> Iterator[Figure]:
    """What the page adds to the wheel, which is packed in the same way."""
    root = Path(launcher.__file__).parent
    paths = [root / "cli" / "ui.py"]
    paths += [path for path in (root / "ui").rglob("*") if path.is_file()]
    paths = [path for path in paths if path.suffix != ".pyc"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            archive.write(path, f"rdzv/_app/launcher/{path.relative_to(root)}")
    plain = sum(path.stat().st_size for path in paths)
    note = f"{len(paths)} files, {plain / 1e3:.0f} kB unpacked"
    size = round(len(packed.getvalue()) / 1e3, 1)
    yield Figure("page_wheel", 0, size, "kB", 150, note=note)


@dataclass(frozen=True)
class Amount:
    """How much is measured.

    Attributes:
        loads: Of the page.
        seconds: Of changes.
        pairs: With and without a page.
    """

    loads: int
    seconds: float
    pairs: int


FULL, QUICK = Amount(20, 10.0, 3), Amount(3, 1.0, 1)


def works(sizes: Sequence[int], amount: Amount) -> Iterator[Work]:
    """All measurements of the page, to be made one after the other."""
    yield wheel
    if reason := missing():
        print(f"the page is not measured: {reason}")
        return
    for nodes in sizes:
        yield partial(of_run, nodes, amount.loads, amount.seconds)
        yield partial(of_registry, nodes, amount.pairs, amount.seconds)
    yield partial(log_line, amount.seconds)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", choices=[*_TARGETS], default=[*_TARGETS])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    raise_file_limit()
    report = Report(describe(), "quick" if arguments.quick else "")
    print(f"{describe()}\n{HEADER}")
    for work in works(arguments.nodes, QUICK if arguments.quick else FULL):
        with watching() as load:
            done = list(work())
        for one in done:
            report.add(one, load.others_percent)


if __name__ == "__main__":
    main()

"""The kinds of faults, and what each does to the world.

Of a node that a fault can cost its slot no more than honesty is expected: it is `troubled`, or its
path `light`. All other faults must not cost anybody anything.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from rendezvous.wire.run import NodeState, SlotState
from tests.simulation.leaving import drain
from tests.simulation.network import ADDRESSES
from tests.simulation.schedule import BREAKING, HANGING, QUEUES, Fault, names

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.network import Path
    from tests.simulation.world import World

_SHORT_DELAY = 0.3
_CODES = (1, 3, 77)
_MOMENT = 0.1
_TERM, _INT, _QUIT = signal.SIGTERM, signal.SIGINT, signal.SIGQUIT
_HURRIED = ((_TERM, _TERM), (_QUIT, None), (_INT, _QUIT))
_LIES = (SlotState.UNKNOWN, SlotState.FAILED, SlotState.QUEUED)
PARTS = names("board, keeper, submit, describe, cancel, registry, close, result")
"""What may fail of a launcher, or of what it asks, as nobody expected."""
_HARMLESS_BESIDE = {"isolated", "registry crash", "registry pause", "doubled", "echo", "disk slow"}
"""What may go wrong while the registry is cut off from all, and still nobody is given up."""


Apply = Callable[["World", Fault], None]


def _path(world: World, fault: Fault) -> Path:
    """Of the newest node of the slot, where that is on another host than its first one."""
    if fault.slot >= 0 and world.schedule.launches[fault.launch].outlives_nodes:
        for process in _processes(world, fault)[-1:]:
            return process.path
    return world.network.path(fault.launch, fault.slot)


def _processes(world: World, fault: Fault) -> list[Process]:
    """Those of the slot that live, the newest last."""
    living = [process for process in world.history.processes if process.machine.alive]
    return [x for x in living if (x.index, x.slot) == (fault.launch, fault.slot)]


# --- the registry and its disk --------------------------------------------------------------------


def _pause_registry(world: World, fault: Fault) -> None:
    registry = world.network.registry
    if registry is not None and not registry.machine.paused:
        registry.machine.pause()
        world.registry_was_down = True
        world.registries.is_away(fault.seconds)
        now = world.loop.time()
        world.history.gaps.append((now, now + fault.seconds))
        world.later(fault.seconds, world.network.go_on, registry)


def _fill_disk(world: World, fault: Fault) -> None:
    world.disk.full_until = world.loop.time() + fault.seconds
    world.registries.is_away(fault.seconds)
    world.registry_was_down = True


def _slow_disk(world: World, fault: Fault) -> None:
    world.disk.slow_until, world.disk.slow_seconds = world.loop.time() + fault.seconds, 0.3
    world.registry_was_down = True


def _lying_disk(world: World, fault: Fault) -> None:
    world.disk.lies += fault.count
    world.registry_was_down = True


# --- the network ----------------------------------------------------------------------------------


def _lose(way: str) -> Apply:
    def apply(world: World, fault: Fault) -> None:
        path = _path(world, fault)
        setattr(path, way, getattr(path, way) + fault.count)
        path.light += fault.count

    return apply


def _double(world: World, fault: Fault) -> None:
    _path(world, fault).double += fault.count


def _late(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.late, path.late_seconds = fault.count, fault.seconds
    path.is_late = True
    if fault.seconds > _SHORT_DELAY:
        path.light += 2


def _cut(*ways: str) -> Apply:
    def apply(world: World, fault: Fault) -> None:
        path = _path(world, fault)
        for way in ways:
            setattr(path, way, world.loop.time() + fault.seconds)
            path.light += 2

    return apply


def _cut_address(world: World, fault: Fault) -> None:
    """One of the registry's networks fails for a host: at the other address it is there."""
    launch, path = world.schedule.launches[fault.launch], _path(world, fault)
    address = ADDRESSES[fault.count - 1]
    path.address_cut_until[address] = world.loop.time() + fault.seconds
    path.light += 1 if launch.addresses > 1 and launch.lease >= 15 else 2


def _loss(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.loss, path.loss_until = fault.count / 100, world.loop.time() + fault.seconds
    path.light += 2


def _hang_up(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.light += 1
    world.network.end_all(path)


def _forget(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    short = world.schedule.launches[fault.launch].lease < 15
    path.light += 2 if short else 1
    world.network.drop_silently(path)


def _isolate(world: World, fault: Fault) -> None:
    """The registry's own network fails for more than a lease, and less than two."""
    world.network.isolated_until = world.loop.time() + fault.seconds
    world.registry_was_down = True
    alone = _HARMLESS_BESIDE.issuperset(other.what for other in world.schedule.faults)
    for facts in world.history.facts.values():
        run = world.history.run_of(facts)
        nodes = [slot.node for slot in run.slots if slot.node is not None] if run else []
        here = sum(node.state not in (NodeState.LOST, NodeState.LEFT) for node in nodes)
        paths = [world.network.path(facts.index, slot) for slot in range(facts.launch.slots)]
        others = [process.path for process in world.history.processes if process.facts is facts]
        for path in dict.fromkeys([*paths, *others] if facts.launch.outlives_nodes else paths):
            held = alone and here >= 3 and fault.seconds < 1.65 * facts.launch.lease
            held &= not (facts.launch.here and facts.launch.owns_registry)  # then not from all
            path.light += 1 if held else 2
            path.is_late = True


# --- nodes ----------------------------------------------------------------------------------------


def _newest(act: Callable[[World, Fault, Process], object]) -> Apply:
    """To the newest process of the slot."""

    def apply(world: World, fault: Fault) -> None:
        for process in _processes(world, fault)[-1:]:
            act(world, fault, process)

    return apply


def _host_down(world: World, fault: Fault) -> None:
    for process in _processes(world, fault):
        process.die(silent=True)


def _pause(world: World, fault: Fault, process: Process) -> None:
    process.troubled = process.was_paused = True
    process.machine.pause()
    world.later(fault.seconds, process.machine.go_on)


def _stick(world: World, fault: Fault, process: Process) -> None:
    process.stuck = True


def _start_anew(world: World, fault: Fault, process: Process) -> None:
    """Its container dies, and is started again at once, with the same token."""
    world.start_process(process.join)
    process.die(silent=False)


def _mark(world: World, fault: Fault) -> None:
    """The node will meet it when it comes to that point."""
    world.marks[fault.what, fault.launch, fault.slot] = fault


def _fail_program(world: World, fault: Fault) -> None:
    _mark(world, fault)
    for process in _processes(world, fault)[-1:]:
        if process.started_at is not None:
            process.fail_program(_CODES[fault.count - 1])


def _fail_once(world: World, fault: Fault, process: Process) -> None:
    """What runs now fails; what starts after it does not."""
    if process.started_at is not None:
        process.fail_program(_CODES[fault.count - 1])


def _stop_unasked(world: World, fault: Fault, process: Process) -> None:
    """The node's agent stops its program by itself, and says so: nobody else knows of it."""
    if process.started_at is not None and process.program_code is None and not process.serves:
        process.troubled = process.stops_unasked = True
        process.fail_program(143)


def _hurry(world: World, fault: Fault) -> None:
    """A moment later, as a node that has just been told of the go is about to start."""
    world.later(_MOMENT, _newest(_hurry_now), world, fault)


def _hurry_now(world: World, fault: Fault, process: Process) -> None:
    """Somebody does not want to wait: a second signal, or the one that means it."""
    first, second = _HURRIED[fault.count - 1]
    process.tell_to_end(first)
    if second:
        world.later(fault.seconds, process.tell_to_end, second)


def _pass_signal(world: World, fault: Fault, process: Process) -> None:
    process.pass_on(signal.SIGUSR2 if fault.count > 1 else signal.SIGUSR1)


# --- schedulers and launchers ---------------------------------------------------------------------


def _more(counter: str) -> Apply:
    """So many more calls of the scheduler go wrong in this way."""

    def apply(world: World, fault: Fault) -> None:
        scheduler = world.schedulers[fault.launch]
        setattr(scheduler, counter, getattr(scheduler, counter) + fault.count)

    return apply


def _lie(world: World, fault: Fault) -> None:
    """The scheduler is wrong of a worker run: it is over, it is queued, or nobody knows."""
    scheduler = world.schedulers[fault.launch]
    scheduler.lie = _LIES[fault.count - 1]
    scheduler.lie_slot = fault.slot
    scheduler.lie_until = world.loop.time() + fault.seconds
    if scheduler.lie is SlotState.FAILED:
        _path(world, fault).light += 2


def _lagging_list(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].list_lag = fault.seconds


def _keep_all(world: World, fault: Fault) -> None:
    scheduler = world.schedulers[fault.launch]
    scheduler.keeps_all, scheduler.says_nothing = True, fault.count > 1


def _queue_again(world: World, fault: Fault) -> None:
    """Whatever is submitted again for the slot waits so long for a machine."""
    world.schedulers[fault.launch].queued_again[fault.slot] = fault.seconds


def _come_back(world: World, fault: Fault) -> None:
    """The platform of a node that came by itself starts it again."""
    launch = world.schedule.launches[fault.launch]
    if launch.symmetric:
        world.later(fault.seconds, world.come_by_itself, fault.launch, fault.slot)


def _hang_logs(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].log_hangs = True


def _pause_launcher(world: World, fault: Fault) -> None:
    for launcher in world.live_launchers(fault.launch):
        launcher.was_paused = True
        launcher.machine.pause()
        world.later(fault.seconds, launcher.machine.go_on)


def _tell_launcher(world: World, fault: Fault) -> None:
    """A person ends it, and may not have the patience to wait."""
    for launcher in world.live_launchers(fault.launch):
        launcher.tell_to_end(signal.SIGINT if fault.slot else signal.SIGTERM)
        for again in range(1, fault.count):
            world.later(again * fault.seconds, launcher.tell_to_end, signal.SIGINT)


def _fill_folder(world: World, fault: Fault) -> None:
    world.folder_full_until = world.loop.time() + fault.seconds


def _make_registry_ill(world: World, fault: Fault) -> None:
    world.registries.ill_until = world.loop.time() + fault.seconds
    world.registry_was_down = True


def _break_part(world: World, fault: Fault) -> None:
    world.breaks[fault.launch] = PARTS[fault.count - 1]


def _slow_submissions(world: World, fault: Fault) -> None:
    scheduler = world.schedulers[fault.launch]
    scheduler.slow_next, scheduler.slow_seconds = fault.count, fault.seconds


KINDS: dict[str, Apply] = {
    "registry crash": lambda w, f: w.registries.crash(f.seconds),
    "registry pause": _pause_registry,
    "disk full": _fill_disk,
    "disk slow": _slow_disk,
    "disk lies": _lying_disk,
    "request lost": _lose("lose_up"),
    "answer lost": _lose("lose_down"),
    "doubled": _double,
    "late": _late,
    "cut up": _cut("cut_up_until"),
    "cut down": _cut("cut_down_until"),
    "cut": _cut("cut_up_until", "cut_down_until"),
    "address cut": _cut_address,
    "loss": _loss,
    "hung up": _hang_up,
    "forgotten": _forget,
    "isolated": _isolate,
    "echo": lambda w, f: w.network.echo(_path(w, f), f.count),
    "kill": _newest(lambda w, f, p: p.die(silent=False)),
    "host down": _host_down,
    "pause": _newest(_pause),
    "term": _newest(lambda w, f, p: p.tell_to_end()),
    "stuck": _newest(_stick),
    "twin": _newest(lambda w, f, p: w.start_process(p.join)),
    "started anew": _newest(_start_anew),
    "program fails": _fail_program,
    "fails once": _newest(_fail_once),
    "stops unasked": _newest(_stop_unasked),
    "submission fails": _more("fail_next"),
    "submission lost": _more("lose_answer"),
    "submission slow": _slow_submissions,
    "submission unsure": _more("unsure_next"),
    "preempted": lambda w, f: w.schedulers[f.launch].preempt(f.slot),
    "scheduler busy": _more("busy"),
    "scheduler hangs": lambda w, f: w.schedulers[f.launch].hang(f.seconds),
    "scheduler lies": _lie,
    "scheduler silent": lambda w, f: w.schedulers[f.launch].silence(f.seconds),
    "list lags": _lagging_list,
    "queued again": _queue_again,
    "dies at once": _more("dying"),
    "comes back": _come_back,
    "cancel refused": _keep_all,
    "logs hang": _hang_logs,
    "launcher killed": lambda w, f: w.kill_launcher(f.launch, f.seconds),
    "launcher paused": _pause_launcher,
    "launcher told": _tell_launcher,
    "cancelled": lambda w, f: w.cancel(f.launch),
    "restarted by hand": lambda w, f: w.restart(f.launch),
    "drained": drain,
    "cleared": lambda w, f: w.clear(f.launch),
    "folder full": _fill_folder,
    "port held": lambda w, f: w.registries.hold_port(f.seconds),
    "registry ill": _make_registry_ill,
    "part breaks": _break_part,
    "queue full": lambda w, f: w.queues.fill(f),
    "hurry": _hurry,
    "signal passed": _newest(_pass_signal),
    "parent gone": _newest(lambda w, f, p: p.lose_parent()),
}
_MARKS = """
address lost, breaks, falls back, finishes, forged, gets on, hangs, heeds notice, hosts refused,
metrics, names elsewhere, names kept, names unwanted, network cut, no hostfile, no listener, no log
folder, no offer, no shims, no socket, notice, other job, other table, other word, port taken,
preset variables, program missing, refuses, sick, silent probes, slow arm, slow exit, slow start,
slow stop, slow visits, stale names, start refused, unreachable
"""
"""What a node meets when it comes to that point."""
KINDS |= dict.fromkeys(names(_MARKS), _mark)
_DOORS = {"hangs": HANGING, "breaks": BREAKING, "queue full": QUEUES}


def words(fault: Fault) -> str:
    """The fault as a line that a person reads."""
    when = f"{fault.when:8.3f} s" if isinstance(fault.when, float) else f"{fault.when:>10}"
    door = f" ({_DOORS[fault.what][fault.count - 1]})" if fault.what in _DOORS else ""
    where = f"slot {fault.slot} of launch {fault.launch}"
    return f"{when}  {fault.what}{door}: {where}, {fault.seconds} s, {fault.count} times"

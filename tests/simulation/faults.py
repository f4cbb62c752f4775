"""The kinds of faults: what each does to the world, and how it is read in a schedule.

A fault that can cost a node its slot says so (`trouble`): of such a node the invariants expect no
more than honesty. All other faults must not cost anybody anything.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rendezvous.wire.run import NodeState, SlotState
from tests.simulation.network import ADDRESSES
from tests.simulation.schedule import BREAKING, HANGING, Fault

if TYPE_CHECKING:
    from tests.simulation.agents import Process
    from tests.simulation.network import Path
    from tests.simulation.world import World

_SHORT_DELAY = 0.3
_CODES = (1, 3, 77)
_MOMENT = 0.1
_HURRIED = (
    (signal.SIGTERM, signal.SIGTERM),
    (signal.SIGQUIT, None),
    (signal.SIGINT, signal.SIGQUIT),
)
_LIES = (SlotState.UNKNOWN, SlotState.FAILED, SlotState.QUEUED)
PARTS = ("board", "keeper", "submit", "describe", "cancel", "registry", "close", "result")
"""What may fail of a launcher, or of what it asks, as nobody expected."""
_HARMLESS_BESIDE = {"isolated", "registry crash", "registry pause", "doubled", "echo", "disk slow"}
"""What may go wrong while the registry is cut off from all, and still nobody is given up."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault; `words` is filled with the values of the fault.

    Attributes:
        doors: Of which one is meant, by the fault's count; empty: there is no choice.
    """

    words: str
    apply: Callable[[World, Fault], None]
    doors: tuple[str, ...] = ()


def _path(world: World, fault: Fault) -> Path:
    return world.network.path(fault.launch, fault.slot)


def _processes(world: World, fault: Fault) -> list[Process]:
    """Those of the slot that live, the newest last."""
    return [
        process
        for process in world.history.processes
        if (process.facts.index, process.slot) == (fault.launch, fault.slot)
        and process.machine.alive
    ]


# --- the registry and its disk --------------------------------------------------------------------


def _crash(world: World, fault: Fault) -> None:
    world.crash_registry(fault.seconds)


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
    world.disk.slow_until = world.loop.time() + fault.seconds
    world.disk.slow_seconds = 0.3
    world.registry_was_down = True


def _lying_disk(world: World, fault: Fault) -> None:
    world.disk.lies += fault.count
    world.registry_was_down = True


# --- the network ----------------------------------------------------------------------------------


def _lose_up(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.lose_up += fault.count
    path.light += fault.count


def _lose_down(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.lose_down += fault.count
    path.light += fault.count


def _double(world: World, fault: Fault) -> None:
    _path(world, fault).double += fault.count


def _late(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.late, path.late_seconds = fault.count, fault.seconds
    path.is_late = True
    if fault.seconds > _SHORT_DELAY:
        path.light += 2


def _cut_up(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.cut_up_until = world.loop.time() + fault.seconds
    path.light += 2


def _cut_down(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.cut_down_until = world.loop.time() + fault.seconds
    path.light += 2


def _cut(world: World, fault: Fault) -> None:
    _cut_up(world, fault)
    _cut_down(world, fault)


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


def _reset(world: World, fault: Fault) -> None:
    path = _path(world, fault)
    path.light += 1
    world.network.reset(path)


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
        run = world.history.runs.get(facts.launch.run)
        here = 0
        if run is not None and run.spec.launch_id == facts.launch_id:
            states = [slot.node.state for slot in run.slots if slot.node is not None]
            here = sum(state not in (NodeState.LOST, NodeState.LEFT) for state in states)
        for slot in range(facts.launch.slots):
            path = world.network.path(facts.index, slot)
            held = alone and here >= 3 and fault.seconds < 1.65 * facts.launch.lease
            held &= not (facts.launch.here and facts.launch.owns_registry)  # then not from all
            path.light += 1 if held else 2
            path.is_late = True


def _echo(world: World, fault: Fault) -> None:
    world.network.echo(_path(world, fault), fault.count)


# --- nodes ----------------------------------------------------------------------------------------


def _kill(world: World, fault: Fault) -> None:
    for process in _processes(world, fault)[-1:]:
        process.die(silent=False)


def _host_down(world: World, fault: Fault) -> None:
    for process in _processes(world, fault):
        process.die(silent=True)


def _pause(world: World, fault: Fault) -> None:
    for process in _processes(world, fault)[-1:]:
        process.troubled = process.was_paused = True
        process.machine.pause()
        world.later(fault.seconds, process.machine.go_on)


def _term(world: World, fault: Fault) -> None:
    for process in _processes(world, fault)[-1:]:
        process.tell_to_end()


def _stick(world: World, fault: Fault) -> None:
    for process in _processes(world, fault)[-1:]:
        process.stuck = True


def _twin(world: World, fault: Fault) -> None:
    for process in _processes(world, fault)[-1:]:
        world.start_twin(process)


def _mark(world: World, fault: Fault) -> None:
    """The node will meet it when it comes to that point."""
    world.marks[fault.what, fault.launch, fault.slot] = fault


def _fail_program(world: World, fault: Fault) -> None:
    _mark(world, fault)
    for process in _processes(world, fault)[-1:]:
        if process.started_at is not None:
            process.fail_program(_CODES[fault.count - 1])


def _stop_unasked(world: World, fault: Fault) -> None:
    """The node's agent stops its program by itself, and says so: nobody else knows of it."""
    for process in _processes(world, fault)[-1:]:
        if process.started_at is not None and process.program_code is None and not process.serves:
            process.troubled = process.stops_unasked = True
            process.fail_program(143)


# --- how a node is told to end --------------------------------------------------------------------


def _hurry(world: World, fault: Fault) -> None:
    """A moment later, as a node that has just been told of the go is about to start."""
    world.later(_MOMENT, _hurry_now, world, fault)


def _hurry_now(world: World, fault: Fault) -> None:
    """Somebody does not want to wait: a second signal, or the one that means it."""
    first, second = _HURRIED[fault.count - 1]
    for process in _processes(world, fault)[-1:]:
        process.tell_to_end(first)
        if second:
            world.later(fault.seconds, process.tell_to_end, second)


def _pass_signal(world: World, fault: Fault) -> None:
    for process in _processes(world, fault)[-1:]:
        process.pass_on(signal.SIGUSR2 if fault.count > 1 else signal.SIGUSR1)


def _lose_parent(world: World, fault: Fault) -> None:
    for process in _processes(world, fault)[-1:]:
        process.lose_parent()


# --- schedulers and launchers ---------------------------------------------------------------------


def _fail_submission(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].fail_next += fault.count


def _lose_submission(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].lose_answer += fault.count


def _preempt(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].preempt(fault.slot)


def _lie(world: World, fault: Fault) -> None:
    """The scheduler is wrong of a worker run: it is over, it is queued, or nobody knows."""
    scheduler = world.schedulers[fault.launch]
    scheduler.lie = _LIES[fault.count - 1]
    scheduler.lie_slot = fault.slot
    scheduler.lie_until = world.loop.time() + fault.seconds
    if scheduler.lie is SlotState.FAILED:
        _path(world, fault).light += 2


def _unsure_submission(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].unsure_next += fault.count


def _busy_scheduler(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].busy += fault.count


def _silence(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].silence(fault.seconds)


def _lagging_list(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].list_lag = fault.seconds


def _keep_all(world: World, fault: Fault) -> None:
    scheduler = world.schedulers[fault.launch]
    scheduler.keeps_all, scheduler.says_nothing = True, fault.count > 1


def _hang_logs(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].log_hangs = True


def _kill_launcher(world: World, fault: Fault) -> None:
    world.kill_launcher(fault.launch, fault.seconds)


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


def _clear(world: World, fault: Fault) -> None:
    """A person does it who sees that the launcher is no more."""
    world.clear(fault.launch)


def _hold_port(world: World, fault: Fault) -> None:
    world.registries.hold_port(fault.seconds)


def _make_registry_ill(world: World, fault: Fault) -> None:
    world.registries.ill_until = world.loop.time() + fault.seconds
    world.registry_was_down = True


def _break_part(world: World, fault: Fault) -> None:
    world.breaks[fault.launch] = PARTS[fault.count - 1]


def _slow_submissions(world: World, fault: Fault) -> None:
    scheduler = world.schedulers[fault.launch]
    scheduler.slow_next, scheduler.slow_seconds = fault.count, fault.seconds


def _hang_scheduler(world: World, fault: Fault) -> None:
    world.schedulers[fault.launch].hang(fault.seconds)


def _cancel(world: World, fault: Fault) -> None:
    world.cancel(fault.launch)


KINDS: dict[str, Kind] = {
    "registry crash": Kind("the registry is killed, and back after {seconds:.1f} s", _crash),
    "registry pause": Kind("the registry is stopped for {seconds:.1f} s", _pause_registry),
    "disk full": Kind("the journal's disk is full for {seconds:.1f} s", _fill_disk),
    "disk slow": Kind("the journal's disk is slow for {seconds:.1f} s", _slow_disk),
    "disk lies": Kind("the disk says of {count} commits that they failed", _lying_disk),
    "request lost": Kind("{node}: {count} requests are lost", _lose_up),
    "answer lost": Kind("{node}: {count} answers are lost", _lose_down),
    "doubled": Kind("{node}: {count} requests come twice", _double),
    "late": Kind("{node}: {count} messages are up to {seconds:.1f} s late, out of order", _late),
    "cut up": Kind("{node}: nothing reaches the registry for {seconds:.1f} s", _cut_up),
    "cut down": Kind("{node}: nothing comes from the registry for {seconds:.1f} s", _cut_down),
    "cut": Kind("{node} is cut off for {seconds:.1f} s", _cut),
    "address cut": Kind(
        "{node}: the registry's address {count} is cut off for {seconds:.1f} s", _cut_address
    ),
    "loss": Kind("{node}: {count} % of the messages are lost for {seconds:.1f} s", _loss),
    "reset": Kind("{node}: its connections are reset", _reset),
    "forgotten": Kind("{node}: its connections are forgotten on the way", _forget),
    "isolated": Kind("the registry is cut off from all for {seconds:.1f} s", _isolate),
    "echo": Kind("{node}: what it sent {count} messages ago comes once more", _echo),
    "kill": Kind("{node} is killed", _kill),
    "host down": Kind("{node}: its host is gone without a word", _host_down),
    "pause": Kind("{node} is stopped for {seconds:.1f} s", _pause),
    "term": Kind("{node} is told to end", _term),
    "stuck": Kind("{node} keeps polling and reports nothing more", _stick),
    "twin": Kind("{node}: a second node comes with the same token", _twin),
    "slow arm": Kind("{node} takes {seconds:.1f} s to prepare", _mark),
    "port taken": Kind("{node} finds its master port taken, {count} times", _mark),
    "hosts refused": Kind("{node} cannot write its hosts file", _mark),
    "unreachable": Kind("{node} cannot reach a peer", _mark),
    "network cut": Kind("{node}: its first network is cut off", _mark),
    "silent probes": Kind("{node} leaves a peer out of its report", _mark),
    "falls back": Kind("{node}: NCCL does not use what it should", _mark),
    "sick": Kind("{node} fails a check of its own", _mark),
    "refuses": Kind("{node} cannot take part, as it finds before it joins", _mark),
    "other job": Kind("{node} comes with another job", _mark),
    "program fails": Kind("{node}: its program fails", _fail_program),
    "stops unasked": Kind("{node}: its agent stops its program by itself", _stop_unasked),
    "slow stop": Kind("{node}: its program takes {seconds:.1f} s to stop", _mark),
    "finishes": Kind("{node}: its program ends well {seconds:.1f} s after it is told to", _mark),
    "other table": Kind("{node} acknowledges another table than the run's", _mark),
    "slow exit": Kind("{node} tells of its failure {seconds:.1f} s late", _mark),
    "submission fails": Kind("launch {launch}: {count} submissions are refused", _fail_submission),
    "submission lost": Kind("launch {launch}: {count} submissions look refused", _lose_submission),
    "preempted": Kind("{node} is preempted by its scheduler", _preempt),
    "scheduler lies": Kind("{node}: its scheduler is wrong of it for {seconds:.1f} s", _lie),
    "launcher killed": Kind("launcher {launch} dies; back after {seconds:.1f} s", _kill_launcher),
    "cancelled": Kind("somebody cancels launch {launch}", _cancel),
    "submission unsure": Kind("launch {launch}: {count} submissions fail", _unsure_submission),
    "scheduler busy": Kind("launch {launch}: its scheduler is busy {count} times", _busy_scheduler),
    "scheduler silent": Kind("launch {launch}: no scheduler for {seconds:.1f} s", _silence),
    "list lags": Kind("launch {launch}: runs are listed {seconds:.1f} s late", _lagging_list),
    "cancel refused": Kind("launch {launch}: its scheduler ends nothing", _keep_all),
    "logs hang": Kind("launch {launch}: its scheduler's logs do not come", _hang_logs),
    "launcher paused": Kind("launcher {launch} is stopped for {seconds:.1f} s", _pause_launcher),
    "launcher told": Kind("launcher {launch} is told to end, {count} times", _tell_launcher),
    "folder full": Kind("the state directory's disk is full for {seconds:.1f} s", _fill_folder),
    "hurry": Kind("{node} is told to end, and not to wait (in way {count})", _hurry),
    "signal passed": Kind("{node} is sent a signal for its program", _pass_signal),
    "parent gone": Kind("{node}: what has started its agent is gone", _lose_parent),
    "slow visits": Kind("{node} takes {seconds:.1f} s more to visit its peers", _mark),
    "slow start": Kind("{node} takes {seconds:.1f} s more to start its program", _mark),
    "start refused": Kind("{node} cannot start its program", _mark),
    "program missing": Kind("{node} has not what starts its program", _mark),
    "address lost": Kind("{node} loses its address", _mark),
    "no offer": Kind("{node} finds that it has nothing to offer", _mark),
    "no listener": Kind("{node} has no port at which it could answer probes", _mark),
    "no socket": Kind("{node} has no socket for its program", _mark),
    "no log folder": Kind("{node} cannot make its log folder", _mark),
    "no hostfile": Kind("{node} cannot write its hostfiles", _mark),
    "no shims": Kind("{node} cannot write what its program calls other nodes with", _mark),
    "stale names": Kind("{node}: an ended run has left names in its hosts file", _mark),
    "names kept": Kind("{node} cannot put its hosts file back", _mark),
    "names unwanted": Kind("{node} is to write no names", _mark),
    "names elsewhere": Kind("{node}: its resolver has other nodes' names already", _mark),
    "preset variables": Kind("{node} has other addresses and ranks preset", _mark),
    "metrics": Kind("{node}: its program tells how it gets on", _mark),
    "other word": Kind("{node} comes with another word in its COMMAND", _mark),
    "forged": Kind("{node} is told of another table than the others (in way {count})", _mark),
    "hangs": Kind("{node}: a thread hangs ({door}, {seconds:.1f} s; 0: for ever)", _mark, HANGING),
    "breaks": Kind("{node}: something unforeseen breaks ({door})", _mark, BREAKING),
    "cleared": Kind("somebody ends what launcher {launch} has left", _clear),
    "port held": Kind("another program holds the registry's port, {seconds:.1f} s", _hold_port),
    "registry ill": Kind("a registry that starts ends, for {seconds:.1f} s", _make_registry_ill),
    "part breaks": Kind("launcher {launch}: its part {count} fails once", _break_part),
    "submission slow": Kind(
        "launch {launch}: answers come {seconds:.1f} s late", _slow_submissions
    ),
    "scheduler hangs": Kind("launch {launch}: no answers for {seconds:.1f} s", _hang_scheduler),
}


def words(fault: Fault) -> str:
    """The fault as a line that a person reads."""
    when = f"{fault.when:8.3f} s" if isinstance(fault.when, float) else f"{fault.when:>10}"
    node = f"slot {fault.slot} of launch {fault.launch}"
    kind = KINDS[fault.what]
    door = kind.doors[fault.count - 1] if kind.doors else ""
    what = kind.words.format(
        node=node, launch=fault.launch, seconds=fault.seconds, count=fault.count, door=door
    )
    return f"{when}  {what}"

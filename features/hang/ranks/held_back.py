"""What a control group holds its processes back with, by its own counters at two moments. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rendezvous.frozen import frozen
from rendezvous.wire.words import bytes_text, printable
from worker.machine.groups import counter_in, cpus_in, limit_in


@frozen
class Group:
    """The files of one group that show what holds its processes back; empty where there is none.

    Attributes:
        frozen: cgroup.events, or version 1's freezer.state.
        cpu: cpu.stat, and `quota` cpu.max, or version 1's quota and period in one line.
        memory: memory.events, and `high` memory.high.
        oom: Version 1's memory.oom_control.
    """

    frozen: str = ""
    cpu: str = ""
    quota: str = ""
    memory: str = ""
    high: str = ""
    oom: str = ""


def held_back(before: Mapping[str, Group], after: Mapping[str, Group]) -> list[str]:
    """Say of each folder what held its processes back in between."""
    found = []
    for folder, now in after.items():
        found += [
            printable(f"its control group {folder} {words}", 600)
            for words in _words(before.get(folder, now), now)
        ]
    return found


def _words(then: Group, now: Group) -> list[str]:
    found = []
    if counter_in(now.frozen, "frozen") == 1 or now.frozen.strip() == "FROZEN":
        found.append("is frozen, as by 'docker pause': no process in it runs")
    if counter_in(now.oom, "under_oom") == 1:
        found.append(
            "is out of memory, and its processes wait for some (memory.oom_control does not let "
            "the kernel kill)"
        )
    high = limit_in(now.high)
    if (times := _rise(then.memory, now.memory, "high")) and high is not None:
        found.append(
            f"is above its memory.high of {bytes_text(high)}, and the kernel slowed it down "
            f"{times} times during the look"
        )
    periods = _rise(then.cpu, now.cpu, "nr_periods")
    throttled = _rise(then.cpu, now.cpu, "nr_throttled")
    if throttled and throttled * 2 >= periods:  # a burst that was cut off is no reason to be late
        cpus = cpus_in(now.quota)
        allows = f" of {cpus:g} CPUs" if cpus is not None else ""
        found.append(
            f"was held back by its CPU quota{allows} in {throttled} of {periods} periods during "
            "the look"
        )
    return found


def _rise(then: str, now: str, name: str) -> int:
    """How much a counter has risen."""
    return (counter_in(now, name) or 0) - (counter_in(then, name) or 0)

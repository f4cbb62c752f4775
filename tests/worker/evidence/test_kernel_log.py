"""What the kernel's log has said since: kills for memory, and GPUs' errors."""

from __future__ import annotations

import pytest

from rendezvous.cause.facts import FactKind
from rendezvous.wire.evidence import Fact
from worker.evidence.parsing.kernel_log import (
    Killed,
    Xid,
    killed_in,
    last_line,
    lines_since,
    xids_in,
)
from worker.evidence.parsing.memory import Machine, killed_facts, pids_facts
from worker.evidence.parsing.telling import fact
from worker.machine.groups import Rise

GROUP_LINE = (
    "Memory cgroup out of memory: Killed process 6056 (a) b) total-vm:217332kB, anon-rss:53888kB"
)
MACHINE_LINE = "Out of memory: Killed process 77 (python3) total-vm:9kB, oom_score_adj:0"
OLD_LINE = "Out of memory: Kill process 78 (python) score 900 or sacrifice child"
XID_LINE = "NVRM: Xid (PCI:0000:3b:00): 79, pid='812', name=python3, GPU has fallen off the bus."
LOG = f"""\
<6>[   10.000000] old
<4>[   99.500000][  T123] before
<3>[  100.250000] {GROUP_LINE}
<3>[  101.000000] {XID_LINE}
continued
"""


def test_the_log_is_read_from_the_line_that_was_its_last() -> None:
    before = "\n".join(LOG.splitlines()[:2])
    assert last_line(before) == "<4>[   99.500000][  T123] before"
    assert lines_since(LOG, last_line(before)) == [GROUP_LINE, XID_LINE, "continued"]
    assert lines_since(LOG, LOG.splitlines()[-1]) == []


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("<6>[  100.000000] overwritten since", [GROUP_LINE, XID_LINE]),
        ("<6>[  500.000000] overwritten since", []),
        ("<6>overwritten, and this kernel tells no time", []),
        ("", ["old", "before", GROUP_LINE, XID_LINE]),  # it was empty
    ],
)
def test_where_that_line_is_gone_the_kernels_times_tell(last: str, told: list[str]) -> None:
    assert lines_since(LOG, last) == told


def test_kills_and_gpu_errors_are_found() -> None:
    lines = [GROUP_LINE, MACHINE_LINE, OLD_LINE, XID_LINE, XID_LINE, "NVRM: loading", "usb: new"]
    assert killed_in(lines) == [
        Killed(6056, True, GROUP_LINE),
        Killed(77, False, MACHINE_LINE),
        Killed(78, False, OLD_LINE),
    ]
    no_pid = "NVRM: Xid (PCI:0000:3b:00): 48, DBE"
    assert xids_in([*lines, no_pid]) == [Xid(XID_LINE, 812), Xid(no_pid)]
    assert last_line("") == ""


RISE = Rise("/cg/job", 1, 50, 49)
IN_GROUP, IN_MACHINE = killed_in([GROUP_LINE])[0], killed_in([MACHINE_LINE])[0]


def oom(kind: str, **fields: object) -> Fact:
    return Fact.model_validate({"kind": kind, **fields})


@pytest.mark.parametrize(
    ("rises", "kills", "killed", "ranks", "facts"),
    [
        ([], 0, [], {}, []),
        ([], 0, [IN_GROUP], {}, []),  # of another container
        (
            [RISE],
            1,
            [],
            {},
            [oom("oom_kill", path="/cg/job", value=1.0, limit=50.0, words="peak 49")],
        ),
        (
            [RISE],
            1,
            [IN_GROUP, IN_MACHINE],
            {6056: 3},
            [oom("oom_kill", path="/cg/job", value=1.0, limit=50.0, words=GROUP_LINE, rank=3)],
        ),
        (
            [Rise("/cg/job", 1)],  # without a limit
            1,
            [IN_MACHINE, IN_GROUP],
            {},
            [oom("oom_kill", path="/cg/job", value=1.0, words=MACHINE_LINE)],
        ),
        ([], 0, [IN_GROUP], {6056: 3}, [oom("oom_kill", value=1.0, words=GROUP_LINE, rank=3)]),
        ([], 2, [], {}, [oom("oom_machine", value=2.0, limit=1000.0)]),
        (
            [],
            1,
            [IN_MACHINE, IN_GROUP],
            {},
            [oom("oom_machine", value=1.0, limit=1000.0, words=MACHINE_LINE)],
        ),
        (
            [],
            0,
            [IN_MACHINE],
            {77: 1},
            [oom("oom_machine", value=1.0, limit=1000.0, words=MACHINE_LINE, rank=1)],
        ),
    ],
)
def test_a_kill_is_the_groups_or_the_machines(
    rises: list[Rise], kills: int, killed: list[Killed], ranks: dict[int, int], facts: list[Fact]
) -> None:
    assert killed_facts(rises, Machine(kills, 1000), killed, ranks) == facts


def test_a_limit_of_processes_that_was_met_is_told() -> None:
    assert pids_facts([RISE]) == [oom("pids", path="/cg/job", value=1.0, limit=50.0)]


def test_a_fact_holds_what_a_message_can() -> None:
    made = fact(FactKind.FILES, path="/a\nb\x1b", value=1 << 63, limit=-1, words="w" * 300)
    assert (made.path, made.value, made.limit, len(made.words)) == ("/a?b?", 1e18, 0.0, 253)

"""The limit of CPU time: survived at the soft limit, named before the hard one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from worker.machine.shortage import cpu_time_met, cpu_time_used_up

BURN = """
import asyncio, json, resource, signal, sys, time
from worker.program.cpu_time import cpu_time_watched

async def main():
    told, over = [], asyncio.Event()
    def met(soft, hard):
        told.append([soft, hard])
        over.set()
    def used_up(hard):
        told.append(hard)
        over.set()
    with cpu_time_watched(met, used_up):
        while not over.is_set():
            until = time.process_time() + 0.02
            while time.process_time() < until: pass
            await asyncio.sleep(0)
    began = time.process_time()
    while time.process_time() < began + 0.2: pass
    return told, signal.getitimer(signal.ITIMER_PROF)[0]

soft, hard = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
print(json.dumps(asyncio.run(main())))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "told"), [(1, -1, [[1, None]]), (1, 60, [[1, 60]]), (2, 2, [2])]
)
def test_the_limit_is_told_before_it_ends_anything(
    soft: int, hard: int, told: list[object]
) -> None:
    argv = [sys.executable, "-c", BURN, str(soft), str(hard)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert json.loads(done.stdout) == [told, 0.0]


def test_a_process_at_its_limit_says_which_and_where_it_is_set() -> None:
    error = cpu_time_used_up(3600, 3599)
    assert error.exit_code == 82
    assert error.message == (
        "the CPU time is used up: this process may use 3600 s of CPU time (ulimit -t), and has "
        "used 3599 s"
    )
    assert "limits.conf" in (error.hint or "")
    words = "this process has used its 60 s of CPU time (ulimit -S -t), and continues"
    assert cpu_time_met(60, 90) == f"{words} until 90 s"
    assert cpu_time_met(60, None) == f"{words}: there is no hard limit"

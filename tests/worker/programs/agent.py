"""A small agent: supervises a program and prints what it knows, a JSON object a line.

    agent.py GRACE COMMAND [ARGUMENT ...]

SIGTERM stops the program. The exit code is the program's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

from worker.program.output import OutputSink
from worker.program.process import Program, become_subreaper, reap_orphans


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


async def main(grace_seconds: float, command: list[str]) -> int:
    become_subreaper()
    reaping = asyncio.create_task(reap_orphans(0.1))
    environment = dict(os.environ)
    program = await Program.start(
        command, environment, grace_seconds=grace_seconds, output=OutputSink(stdout=2)
    )
    stopping: list[asyncio.Task[object]] = []
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: stopping.append(asyncio.create_task(program.stop()))
    )
    # Two orphans of our own, outside the program.
    subprocess.run(["sh", "-c", "sleep 0.1 & sleep 0.1 &"], check=True)
    say(agent=os.getpid(), keeper=program.pid)
    ending = await program.wait()
    reaping.cancel()
    say(exit_code=ending.exit_code, reason=ending.reason)
    return ending.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(main(float(sys.argv[1]), sys.argv[2:])))

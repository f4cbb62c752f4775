"""Real agents, one after another: a join string on each line of standard input.

    lied_to.py FOLDER

The agent of line N has FOLDER/N/hosts as its hosts file, and would start `touch FOLDER/N/started`.
For each one a JSON object is printed: its exit code, the error it ended with, and what it logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import tests  # noqa: F401 (which installs the features)
from rendezvous.talk.join_string import JoinString
from rendezvous.wire.errors import RdzvError
from worker.agent import AgentEnvironment, run_agent
from worker.settings import WorkerSettings


async def lie_to(join: JoinString, folder: Path) -> dict[str, object]:
    """One agent, from its join to its end."""
    settings = WorkerSettings(
        nnodes="2",
        framework="command",
        loopback=True,
        address=["127.0.0.2"],
        log_dir=folder,
        orphan_timeout=20,
        grace=1,
    )
    command = ["touch", str(folder / "started")]
    try:
        environment = AgentEnvironment(hosts_file=folder / "hosts")
        code = await run_agent(settings, join, command, environment=environment)
    except RdzvError as exc:
        return {"code": int(exc.exit_code), "error": exc.message}
    return {"code": code, "error": ""}


def main(folder: Path) -> None:
    """See the module's docstring."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.basicConfig(level="INFO", handlers=[handler])
    logging.getLogger("httpx").setLevel("WARNING")
    for number, line in enumerate(sys.stdin):
        said.clear()
        end = asyncio.run(lie_to(JoinString.parse(line), folder / str(number)))
        print(json.dumps({**end, "said": said}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""One node that probes: listens, waits for the plan, visits everybody, writes what it found.

Arguments: its slot; a folder that all nodes share. It writes its port to SLOT.port, waits for
`plan`, writes its report to SLOT.found, and goes on listening until it is ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rendezvous.wire.verify import ProbePlan
from worker.probe.listener import ProbeListener
from worker.probe.mesh import probe_peers
from worker.probe.packets import Identity


async def main(slot: int, folder: Path) -> None:
    identity = Identity(b"k" * 32, "r", "launch01", slot)
    with ProbeListener(identity) as listener:
        write(folder / f"{slot}.port", str(listener.port))
        while not (folder / "plan").exists():
            await asyncio.sleep(0.05)
        plan = ProbePlan.model_validate_json((folder / "plan").read_text())
        pairs = await probe_peers(identity, plan, [peer.slot for peer in plan.peers])
        write(folder / f"{slot}.found", json.dumps([asdict(pair) for pair in pairs]))
        await asyncio.sleep(600)


def write(path: Path, text: str) -> None:
    """All at once: others wait for the file."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))

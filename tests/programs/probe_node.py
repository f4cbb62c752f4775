"""One node that probes: listens, waits for the plans, visits everybody, writes what it found.

Arguments: its slot; a folder that all nodes share. It writes its port to SLOT.port, waits for
`plans`, writes a list of reports to SLOT.found, and goes on listening until it is ended.
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
        while not (folder / "plans").exists():
            await asyncio.sleep(0.05)
        found = []
        for text in json.loads((folder / "plans").read_text()):
            plan = ProbePlan.model_validate(text)
            slots = [peer.slot for peer in plan.peers]
            pairs = await probe_peers(identity, plan, slots)
            found.append([asdict(pair) for pair in pairs])
        write(folder / f"{slot}.found", json.dumps(found))
        await asyncio.sleep(600)


def write(path: Path, text: str) -> None:
    """All at once: others wait for the file."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))

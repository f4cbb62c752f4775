"""A node that comes later than the others, when a test lets it."""

from __future__ import annotations

from pathlib import Path


def late_slot_1(folder: Path) -> tuple[str, str]:
    """An option of a launch: slot 1's node starts once the folder holds a file `join`.

    It waits as long as its launcher lives.
    """
    wait = f"until test -e {folder}/join; do kill -0 $PPID || exit; sleep 0.05; done"
    spec = folder / "worker.yaml"
    spec.write_text(
        f"argv: [sh, -c, 'test <<SLOT>> = 0 || {wait}; exec rdzv worker \"$@\"', sh,"
        " <<WORKER_OPTIONS>>, --, <<COMMAND>>]\nenv: {RDZV_JOIN: <<RDZV_JOIN>>}\n"
    )
    return "--worker-spec", str(spec)

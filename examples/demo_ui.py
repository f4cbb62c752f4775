"""Show `make demo UI=1`: the demo's run, and a page of it that stays after its end.

On a terminal the page is that of `rdzv ui`, beside the launch, until Enter is pressed. Elsewhere
nobody can press it: the page is that of `rdzv launch --ui`, which ends with the run. Standard
library only.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SCRIPT = Path(__file__).with_name("digits.py")
RUN = "demo"
RECORD = "launch.json"  # in the run's folder, as soon as there is a run to show


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start the launch on 4 nodes."""
    argv = ["rdzv", "launch", "--state-dir", str(folder), "--rdzv-id", RUN, "--nnodes", "4"]
    argv += ["--nproc-per-node", "2,1,1,1", *options]
    return subprocess.Popen([*argv, "--", str(SCRIPT)])


@contextlib.contextmanager
def page(launcher: subprocess.Popen[bytes], folder: Path) -> Iterator[bool]:
    """Serve the page, and show its link, once there is a run; Enter is this program's."""
    while launcher.poll() is None and not (folder / RUN / RECORD).exists():
        time.sleep(0.05)
    if not (folder / RUN / RECORD).exists():  # it was refused, and has said why
        yield False
        return
    command = ["rdzv", "ui", RUN, "--state-dir", str(folder)]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        print(f"See the run at {server.stdout.readline().strip()}", flush=True)
        yield True
    finally:
        server.terminate()
        server.wait()


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="rdzv-demo-"))
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    launcher = start(folder, *([] if is_terminal else ["--ui"]))
    try:
        if is_terminal:
            with page(launcher, folder) as is_served:
                launcher.wait()
                if is_served:
                    print("The page stays open: press Enter here to close it", flush=True)
                    sys.stdin.readline()
    except KeyboardInterrupt:
        pass
    code = launcher.wait()
    if code == 0:
        shutil.rmtree(folder)
    else:
        print(f"The files of the run are in {folder}", flush=True)
    if not is_terminal:
        print("The page has ended with the run: on a terminal it stays until you press Enter")
    return code


if __name__ == "__main__":
    sys.exit(main())

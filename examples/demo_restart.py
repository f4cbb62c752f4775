"""What `make demo-restart` shows: a process and the registry are killed; the loss stays the same.

It trains `resume.py` twice on 4 nodes of this machine. Nothing disturbs the first run. In the
second one a process kills itself, and this script kills the registry; `--max-restarts` starts the
programs again. Then it compares the two losses. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("resume.py")
KILL = ("--kill-rank", "2", "--kill-step", "130")
REGISTRY_STEP = 40  # the registry is killed once this step has been saved, before the process is
LOSS = re.compile(r"resume: loss (\S+ \(\S+\))")
TOLD = re.compile(r"rdzv: (?:epoch|run) .*|\[0\] resume: .*|rdzv .* s  (the registry restarted .*)")


def start(folder: Path, run: str, *options: str) -> subprocess.Popen[str]:
    """Start a launch on 4 nodes; its checkpoints lie beside its state."""
    kept = checkpoints(folder, run)
    argv = ["rdzv", "launch", "--state-dir", str(folder), "--rdzv-id", run, "--nnodes", "4"]
    argv += ["--framework", "env", "--max-restarts", "2", "--progress-file", str(kept / "step")]
    argv += ["--", str(SCRIPT), "--folder", str(kept), "--step-seconds", "0.01", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def checkpoints(folder: Path, run: str) -> Path:
    """Where a run saves."""
    return folder / f"checkpoints-{run}"


def relay(launcher: subprocess.Popen[str]) -> list[str]:
    """Print what matters here of all that a launch says, until it ends; return all."""
    said = []
    try:
        for line in launcher.stdout or ():
            said.append(line)
            if told := TOLD.match(line):
                print("   ", told[1] or told[0], flush=True)
    except KeyboardInterrupt:  # the launcher has it as well, and ends its run
        launcher.communicate()
        raise
    if launcher.wait() != 0:
        sys.exit(f"{''.join(said)}the launch ended with exit code {launcher.returncode}")
    return said


def loss(said: list[str]) -> str:
    """The loss at the end, as a number and with all its bits."""
    return next(found[1] for line in said if (found := LOSS.search(line)))


def kill_registry(launcher: subprocess.Popen[str], progress: Path) -> None:
    """Wait for the training to come to a step, and kill the registry: a child of the launcher."""
    while not progress.exists() or int(progress.read_text()) < REGISTRY_STEP:
        if launcher.poll() is not None:
            return
        time.sleep(0.02)
    for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        if b"_registry" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(int(pid), signal.SIGKILL)
            print(f"    step {progress.read_text().strip()}: the registry is killed", flush=True)


def disturbed(folder: Path) -> list[str]:
    """Train, while the registry is killed from here, and a process kills itself."""
    launcher = start(folder, "disturbed", *KILL)
    progress = checkpoints(folder, "disturbed") / "step"
    killer = threading.Thread(target=kill_registry, args=(launcher, progress))
    killer.start()
    said = relay(launcher)
    killer.join()
    for words in ("the registry restarted", "ok after 1 restart"):
        if not any(words in line for line in said):
            sys.exit(f"{''.join(said)}the launch did not say: {words}")
    return said


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="rdzv-demo-"))
    print("1/2 Training that nothing disturbs", flush=True)
    expected = loss(relay(start(folder, "undisturbed")))
    print(
        "2/2 The same, but the registry is killed, and then one of the four processes", flush=True
    )
    found = loss(disturbed(folder))
    if found != expected:
        print(f"The losses differ: {expected} and {found}; see {folder}")
        return 1
    shutil.rmtree(folder)
    print("The registry was started again on its journal, and no node noticed.")
    print("The programs of all nodes were started again on the same nodes, from a checkpoint.")
    print(f"Both losses are {found}: equal to the last bit.")
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)

"""What `make demo-restart` shows: registry, process and node are killed; the loss stays the same.

It trains `resume.py` twice on 4 nodes of this machine. Nothing disturbs the first run. In the
second one this script kills the registry, a process kills itself, and this script kills a node:
`--max-restarts` starts the programs again, and `--standby` has a fifth node wait for the place of
the lost one. Then it compares the two losses. Standard library only.
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
from collections.abc import Sequence
from pathlib import Path

SCRIPT = Path(__file__).with_name("resume.py")
KILL = ("--kill-rank", "2", "--kill-step", "90")
KILLED = (  # once the step was saved: the launcher's child with these words
    (40, "the registry", (b"_registry",)),
    (140, "a node", (b"worker", b"127.0.0.4")),
)
STANDBY = ("--on-node-loss", "replace", "--standby", "1")
LOSS = re.compile(r"resume: loss (\S+ \(\S+\))")
TOLD = re.compile(r"rdzv: (?:epoch|run) .*|\[0\] resume: .*|rdzv .* s  (the registry restarted .*)")


def start(
    folder: Path, run: str, options: Sequence[str] = (), script_options: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start a launch on 4 nodes; its checkpoints lie beside its state."""
    kept = checkpoints(folder, run)
    argv = ["rdzv", "launch", "--state-dir", str(folder), "--rdzv-id", run, "--nnodes", "4"]
    argv += ["--framework", "env", "--max-restarts", "2", "--progress-file", str(kept / "step")]
    argv += [*options, "--", str(SCRIPT), "--folder", str(kept), "--step-seconds", "0.01"]
    argv += script_options
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


def kill(
    launcher: subprocess.Popen[str], progress: Path, step: int, words: Sequence[bytes]
) -> bool:
    """Kill the launcher's child with these words once a step was saved; False where it ended."""
    while not progress.exists() or int(progress.read_text()) < step:
        if launcher.poll() is not None:
            return False
        time.sleep(0.02)
    for pid in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        if set(words) <= set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")):
            os.kill(int(pid), signal.SIGKILL)
    return True


def kill_both(launcher: subprocess.Popen[str], progress: Path) -> None:
    """Kill the registry, and later a node: its agent, with which its program dies."""
    for step, name, words in KILLED:
        if kill(launcher, progress, step, words):
            print(f"    step {progress.read_text().strip()}: {name} is killed", flush=True)


def disturbed(folder: Path) -> list[str]:
    """Train, while the registry and a node are killed from here, and a process kills itself."""
    launcher = start(folder, "disturbed", STANDBY, KILL)
    progress = checkpoints(folder, "disturbed") / "step"
    killer = threading.Thread(target=kill_both, args=(launcher, progress))
    killer.start()
    said = relay(launcher)
    killer.join()
    for words in ("the registry restarted", "ok after 1 restart and 1 replacement"):
        if not any(words in line for line in said):
            sys.exit(f"{''.join(said)}the launch did not say: {words}")
    return said


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="rdzv-demo-"))
    print("1/2 Training that nothing disturbs", flush=True)
    expected = loss(relay(start(folder, "undisturbed")))
    print("2/2 The same, but the registry is killed, then a process, and then a node", flush=True)
    found = loss(disturbed(folder))
    if found != expected:
        print(f"The losses differ: {expected} and {found}; see {folder}")
        return 1
    shutil.rmtree(folder)
    print("The registry was started again on its journal, and no node noticed.")
    print("After the process was killed, all programs started again, from a checkpoint.")
    print("The node's place was taken by one that stood by, and all started again once more.")
    print(f"Both losses are {found}: equal to the last bit.")
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)

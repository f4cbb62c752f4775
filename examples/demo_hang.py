"""What `make demo-hang` shows: a process hangs; it is named, looked at, and the run goes on.

It trains `resume.py` on 4 nodes of this machine. One process stops in the middle, and the three
others wait for it in a collective, as they would for half an hour. This script looks at the run
meanwhile; `--stall end` names the process and ends the programs, and `--max-restarts` starts them
again from the newest checkpoint. Standard library only.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("resume.py")
RUN = "demo-hang"
HANG = ("--hang-rank", "2", "--hang-step", "70")
SAVED_STEP = 60  # the newest checkpoint before it
STALL_SECONDS = 5.0
LOOK_SECONDS = 6.0  # a pause of 5 s may be usual: a look says so then
TOLD = re.compile(r"rdzv: (?:epoch|run) .*|\[0\] resume: .*|rdzv .* s  (nothing has moved .*)")


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the launch on 4 nodes; its checkpoints lie beside its state."""
    kept = folder / "kept"
    argv = ["rdzv", "launch", "--state-dir", str(folder), "--rdzv-id", RUN, "--nnodes", "4"]
    argv += ["--framework", "env", "--max-restarts", "1", "--progress-file", str(kept / "step")]
    argv += ["--stall", "end", "--stall-timeout", str(STALL_SECONDS)]
    argv += ["--", str(SCRIPT), "--folder", str(kept), "--step-seconds", "0.01", *HANG]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def look(launcher: subprocess.Popen[str], folder: Path, seen: list[str]) -> None:
    """Once the process hangs, look where all are; keep what is shown."""
    progress = folder / "kept" / "step"
    while not progress.exists() or int(progress.read_text()) < SAVED_STEP:
        if launcher.poll() is not None:
            return
        time.sleep(0.05)
    time.sleep(LOOK_SECONDS)
    command = ["rdzv", "look", RUN, "--state-dir", str(folder)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen.append(shown.stdout)
    print(f"    $ rdzv look {RUN}", flush=True)
    for line in shown.stdout.splitlines():
        print(f"    {line}", flush=True)


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="rdzv-demo-"))
    print("Training on 4 nodes; one process hangs after step 69", flush=True)
    launcher, said, seen = start(folder), list[str](), list[str]()
    looker = threading.Thread(target=look, args=(launcher, folder, seen))
    looker.start()
    try:
        for line in launcher.stdout or ():
            said.append(line)
            if told := TOLD.match(line):
                print("   ", told[1] or told[0], flush=True)
    except KeyboardInterrupt:  # the launcher has it as well, and ends its run
        launcher.communicate()
        raise
    code = launcher.wait()
    looker.join()
    everything = "".join([*said, *seen])
    for words in ("rank 2 (node 2", "load_batch", "ok after 1 restart"):
        if code != 0 or words not in everything:
            sys.exit(f"{everything}the launch ended with exit code {code}; it should say: {words}")
    shutil.rmtree(folder)
    print("The process that hung was named, with the line at which it was.")
    print("The programs of all nodes were started again on the same nodes, from a checkpoint.")
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)

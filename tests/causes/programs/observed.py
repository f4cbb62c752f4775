"""As Lightning starts ranks: the first process of a node starts the others, and ends itself by
SIGTERM when one of them has failed (Lightning#18218). The second one of node 1 raises."""

import os
import signal
import subprocess
import sys
import time

first = "LOCAL_RANK" not in os.environ
if first:
    env = {**os.environ, "LOCAL_RANK": "1"}
    child = subprocess.Popen([sys.executable, *sys.argv], env=env)
time.sleep(2)
if not first and os.environ["NODE_RANK"] == "1":
    raise IndexError("index 1003 is out of bounds for dimension 0 with size 1000")
for _ in range(100):
    time.sleep(0.2)
    if first and child.poll():
        print(
            f"[rank: 2] Child process with PID {child.pid} terminated with code {child.returncode}."
            " Forcefully terminating all other processes to avoid zombies",
            flush=True,
        )
        os.kill(os.getpid(), signal.SIGTERM)

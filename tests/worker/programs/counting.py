"""A rank that may start another one, each of which counts how often it is told to end.

    counting.py NAME SECONDS HOW [NAME SECONDS HOW]

The first one starts the second as Lightning does, and HOW is what it does when it is told: `passes`
passes SIGTERM on, `bears` starts the second only then, anything else does neither. SECONDS after it
was told it says how often that was, and ends.
"""

import os
import signal
import subprocess
import sys
import time

name, seconds, how, *second = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
signal.signal(signal.SIGTERM, lambda *_: None)  # it is one that handles SIGTERM


def start() -> "list[subprocess.Popen[bytes]]":
    command = [sys.executable, "-I", "-S", __file__, *second]
    return [subprocess.Popen(command, env={**os.environ, "LOCAL_RANK": "1"})] if second else []


started = [] if how == "bears" else start()
os.write(1, f"{name}\n".encode())
last, times = time.monotonic() + 60, 0
while (left := last - time.monotonic()) > 0:
    if signal.sigtimedwait([signal.SIGTERM], left):
        times += 1
        last = min(last, time.monotonic() + float(seconds))
        if how == "bears":
            start()
        for child in started if how == "passes" else ():
            child.terminate()
os.write(1, f"{name} told {times}\n".encode())

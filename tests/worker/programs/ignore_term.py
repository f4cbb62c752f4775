"""Like torchrun and its workers: two, each in a session of its own, that ignore SIGTERM."""

import os
import signal
import subprocess
import sys
import time

if sys.argv[1:]:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("pid", os.getpid(), flush=True)
    time.sleep(60)
else:
    worker = [sys.executable, "-I", "-S", __file__, "worker"]
    for child in [subprocess.Popen(worker) for _ in range(2)]:
        child.wait()

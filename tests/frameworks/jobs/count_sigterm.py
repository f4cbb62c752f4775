"""Writes down each SIGTERM that comes to this rank, and ends a moment after the first one.

count_sigterm.py [--local-rank=N] FOLDER
"""

import os
import signal
import sys
import time

RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK", "HOROVOD_RANK")
AFTER_SECONDS = 1.5

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
rank = next(os.environ[name] for name in RANKS if name in os.environ)
with open(os.path.join(sys.argv[-1], f"told-{rank}"), "w", buffering=1) as told:
    last = time.monotonic() + 60
    while (left := last - time.monotonic()) > 0:
        if signal.sigtimedwait([signal.SIGTERM], left):
            told.write("SIGTERM\n")
            last = min(last, time.monotonic() + AFTER_SECONDS)

"""Like torchrun and a worker of it: a session of its own, torchrun's variable, and what it started.

    torchrun_like.py passes | dies

When it is told to end, it passes that on, but by SIGRTMIN, so that a SIGTERM which a worker gets is
somebody else's; or it is killed before it has passed anything on. A worker and its child each end
at the first signal, and say how many SIGTERM and SIGRTMIN have come.
"""

import os
import signal
import subprocess
import sys

PASSED = {signal.SIGTERM, signal.SIGRTMIN, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, PASSED)


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def started(what: str, **more: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-I", "-S", __file__, what], **more)  # type: ignore[call-overload, no-any-return]


what = sys.argv[1]
if what in ("passes", "dies"):
    variables = {**os.environ, "TORCHELASTIC_RUN_ID": "r"}
    worker = started("worker", env=variables, start_new_session=True)
    told = signal.sigwait(PASSED)
    if what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    os.killpg(worker.pid, signal.SIGRTMIN)
    worker.wait()
    say("torchrun", signal.Signals(told).name)
else:
    child = started("child") if what == "worker" else None
    say(what, "ready")
    numbers = [signal.sigwait(PASSED)]
    while more := signal.sigtimedwait(PASSED, 0):
        numbers.append(signal.Signals(more.si_signo))
    if child is not None:
        child.wait()
    say(what, *(number.name for number in map(signal.Signals, numbers)))

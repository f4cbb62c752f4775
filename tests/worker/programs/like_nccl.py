"""Does to its log what NCCL does: takes NCCL_DEBUG_FILE, says what the given log says, goes on."""

import os
import sys
import time
from pathlib import Path

log, seconds, code = sys.argv[1:]
pattern = os.environ["NCCL_DEBUG_FILE"]
name = "%".join(part.replace("%p", str(os.getpid())) for part in pattern.split("%%"))
assert os.environ["NCCL_DEBUG"] == "INFO"
Path(name).write_bytes(Path(log).read_bytes())
time.sleep(float(seconds))
sys.exit(int(code))

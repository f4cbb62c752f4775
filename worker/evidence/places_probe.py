"""A program of its own: see how full the file systems of some paths are, and whether they answer.

It is started as `python -I -S places_probe.py PATH...` by `places`, since a file system whose
server is gone holds whoever touches it, at times for good. Prints a line of JSON for each path as
soon as it is known: its index, then what `_place` gives, or an errno and its words. What is not
known within a moment is left out, and then comes the line `end`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

LIMIT_SECONDS = 0.3
_lock = threading.Lock()


def main(paths: list[str]) -> None:
    """Look at all paths side by side: one that hangs must not hide the others."""
    deadline = time.monotonic() + LIMIT_SECONDS
    threads = [
        threading.Thread(target=_tell, args=(index, path), daemon=True)
        for index, path in enumerate(paths)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    _say("end")
    os._exit(0)  # without those that hang


def _tell(index: int, path: str) -> None:
    try:
        _say(json.dumps([index, *_place(path)]))
    except OSError as error:
        _say(json.dumps([index, error.errno, error.strerror or ""]))


def _place(path: str) -> list[object]:
    """Of the file system that holds a path, or would: its device, where it is mounted, and the free
    and all bytes, the free and all inodes."""
    real = os.path.realpath(path)
    while True:
        try:
            device = os.stat(real).st_dev
            break
        except (FileNotFoundError, NotADirectoryError):
            if real == "/":
                raise
            real = os.path.dirname(real)
    found = os.statvfs(real)
    size = found.f_frsize
    amounts = [found.f_bavail * size, found.f_blocks * size, found.f_favail, found.f_files]
    return [device, _mount_point(real, device), *amounts]


def _mount_point(path: str, device: int) -> str:
    while path != "/":
        above = os.path.dirname(path)
        if os.stat(above).st_dev != device:
            break
        path = above
    return path


def _say(line: str) -> None:
    with _lock:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

"""A program of its own: see whether folders take a write, as a full or hung disk would not.

It is started as `python -I -S disk_probe.py write|sync FOLDER...` by `surroundings`, since a
file system whose server is gone holds whoever touches it. Prints a line of JSON for each folder,
as soon as it is known: [index, free bytes, total bytes, errno, problem]; first comes an empty line.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading

_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


def main(how: str, folders: list[str]) -> None:
    """Look at all folders side by side: one that hangs must not hide the others.

    Args:
        how: `write` tries a write, `sync` waits until the disk has it, too.
    """
    _say("")  # from here on, only the file systems can take long
    threads = [
        threading.Thread(target=_tell, args=(index, folder, how == "sync"), daemon=True)
        for index, folder in enumerate(folders)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _tell(index: int, folder: str, sync: bool) -> None:
    free = total = 0
    code, problem = 0, ""
    try:
        found = os.statvfs(folder)
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        _write(folder, sync)
    except OSError as error:
        code, problem = error.errno or 0, error.strerror or str(error)
    _say(json.dumps([index, free, total, code, problem]))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _write(folder: str, sync: bool) -> None:
    """Write a block to a file without a name: nobody sees it, and nothing is left behind."""
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
        if not os.access(folder, os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES)) from error
        return
    try:
        os.write(file, bytes(4096))
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

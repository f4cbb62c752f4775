"""A program of its own: open RDMA devices as NCCL does, and say how each took it.

It is started as `python -I -S verbs.py DEVICE...` by `rdma`, since a broken driver can block
or crash whoever opens its device. Prints a line for each device: its name, a tab, `library` if that
or its part for the device is missing, a tab, and nothing or why the device cannot be opened.
"""

from __future__ import annotations

import ctypes
import os
import sys

_LIBRARIES = ("libibverbs.so.1", "libibverbs.so")


def main(names: list[str]) -> None:
    """Open each of the named devices, and close it again."""
    try:
        verbs = _load()
    except OSError as error:
        for name in names:
            _say(name, f"libibverbs cannot be loaded: {error}", lacks="library")
        return
    count = ctypes.c_int(0)
    devices = verbs.ibv_get_device_list(ctypes.byref(count))
    by_name = {_name(verbs, devices[i]): devices[i] for i in range(count.value if devices else 0)}
    for name in names:
        if name in by_name:
            _say(name, _open(verbs, by_name[name]))
        else:
            _say(name, "libibverbs has no driver for this device", lacks="library")


def _load() -> ctypes.CDLL:
    error: OSError | None = None
    for library in _LIBRARIES:
        try:
            verbs = ctypes.CDLL(library, use_errno=True)
        except OSError as failure:
            error = error or failure
            continue
        verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
        verbs.ibv_get_device_name.restype = ctypes.c_char_p
        verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
        verbs.ibv_open_device.restype = ctypes.c_void_p
        verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
        verbs.ibv_close_device.argtypes = [ctypes.c_void_p]
        return verbs
    raise error or OSError("no library is named")


def _name(verbs: ctypes.CDLL, device: int) -> str:
    return str((verbs.ibv_get_device_name(device) or b"").decode(errors="replace"))


def _open(verbs: ctypes.CDLL, device: int) -> str:
    ctypes.set_errno(0)
    context = verbs.ibv_open_device(device)
    if not context:
        code = ctypes.get_errno()
        return f"ibv_open_device fails: {os.strerror(code)}" if code else "ibv_open_device fails"
    verbs.ibv_close_device(context)
    return ""


def _say(name: str, problem: str, lacks: str = "") -> None:
    sys.stdout.write(f"{name}\t{lacks}\t{problem}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

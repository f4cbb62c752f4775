"""What rdzv's programs of their own do and print is as in `own_process_courses.txt`.

They are started with an interpreter alone, or run in the user's; here their code runs in this
process, with an operating system, drivers and libraries that are none, and each call is written
down (@). See `make reference`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import io
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.courses import lines_in, text_of
from tests.worker.told import Told
from worker.evidence import places_probe
from worker.look import noting
from worker.look.site import sitecustomize
from worker.machine import disk_probe, loadable, nvml, verbs

KNOWN = Path(__file__).with_name("own_process_courses.txt")


def os_error(number: int, words: str = "") -> OSError:
    """As the kernel says it."""
    return OSError(number, words or f"errno {number}")


class Kernel:
    """In place of `os`: what it is asked is told, and it answers as it was told to.

    Args:
        told: Where it is told.
        answers: By call, what comes of it: a value, an error, or a function of its arguments.
        quiet: Calls that are not told.
    """

    def __init__(self, told: Told, answers: Mapping[str, Any], quiet: tuple[str, ...] = ()) -> None:
        self._told, self._answers, self._quiet = told, answers, quiet

    def __getattr__(self, name: str) -> Any:
        if name not in self._answers:
            return getattr(os, name)
        answer = self._answers[name]
        if name in ("path", "environ"):
            return answer

        def call(*given: Any) -> Any:
            shown = [one if len(repr(one)) < 90 else f"{len(one)} bytes" for one in given]
            if name == "open":
                shown = [given[0], *_flags(given[1]), *given[2:]]
            found = answer
            if callable(answer):
                try:
                    found = answer(*given)
                except OSError as exc:
                    found = exc
            if name not in self._quiet:
                with _LOCK:
                    self._told.lines.append(f"@ {name} {shown}" + f" {found}" * (found is not None))
            if isinstance(found, BaseException):
                raise found
            return found

        return call


_LOCK = threading.Lock()
_FLAGS = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_NONBLOCK", "O_CLOEXEC", "O_TMPFILE")


def _flags(given: int) -> list[str]:
    return [name for name in _FLAGS if given & getattr(os, name) == getattr(os, name)]


class Thread:
    """In place of a thread: one that is over at once, or never."""

    told: Told
    never: tuple[str, ...] = ()

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> None:
        assert daemon
        self.target, self.args = target, args

    def start(self) -> None:
        """Do it."""
        if not set(self.never) & set(self.args):
            self.target(*self.args)

    def join(self, seconds: float | None = None) -> None:
        """So long."""
        self.told.lines.append(
            f"@ waits for {self.args[1]} {seconds if seconds is None else round(seconds, 3)}"
        )


@contextlib.contextmanager
def printed(told: Told) -> Iterator[None]:
    """Tell what is printed meanwhile."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        yield
    told.lines += [f"> {line}" for line in output.getvalue().splitlines()]


# --- disks and places -----------------------------------------------------------------------------


def space(free: int, blocks: int, size: int = 512, inodes: int = 7) -> SimpleNamespace:
    """What statvfs says."""
    return SimpleNamespace(
        f_bavail=free,
        f_blocks=blocks,
        f_frsize=size,
        f_bsize=3,
        f_bfree=5,
        f_favail=inodes,
        f_files=inodes * 3,
        f_ffree=1,
    )


def what_disks_are_told() -> Told:
    """Folders that can be written, cannot, or have no files without a name; one after the other."""
    told = Told()
    places = {
        "/good": space(30, 70),
        "/full": space(0, 90),
        "/nfs": space(40, 80),
        "/plain": space(50, 60),
        "/slow": space(11, 13),
        "/odd": space(17, 19),
    }
    opens = {
        "/nfs": os_error(errno.EOPNOTSUPP),
        "/plain": os_error(errno.EISDIR),
        "/odd": os_error(errno.EROFS, "Read-only file system"),
    }
    numbers = {name: 50 + n for n, name in enumerate(places)}

    def statvfs(path: str) -> Any:
        if path not in places:
            raise os_error(errno.ENOENT, "No such file or directory")
        return places[path]

    def opened(path: str, flags: int, mode: int) -> int:
        if path in opens:
            raise opens[path]
        return numbers[path]

    def write(file: int, data: bytes) -> int:
        if file == numbers["/full"]:
            raise os_error(errno.ENOSPC)
        return len(data)

    def fsync(file: int) -> None:
        if file == numbers["/slow"]:
            raise os_error(errno.EIO)

    kernel = Kernel(
        told,
        {
            "statvfs": statvfs,
            "open": opened,
            "write": write,
            "fsync": fsync,
            "close": lambda file: None,
            "access": lambda path, mode: path == "/nfs",
        },
        ("statvfs",),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Thread, "told", told, raising=False)
        patch.setattr(disk_probe, "os", kernel)
        patch.setattr(disk_probe, "threading", SimpleNamespace(Thread=Thread))
        for how in ("write", "sync"):
            for folder in (*places, "/gone"):
                told.of(f"{how} {folder}")
                with printed(told):
                    disk_probe.main(how, [folder])
        told.of("two side by side")
        with printed(told):
            disk_probe.main("write", ["/good", "/full"])
    return told


def where_paths_are() -> Told:
    """What is told of file systems, also of one that never answers."""
    told = Told()
    devices = {"/": 1, "/data": 2, "/data/a": 2, "/data/a/b": 3, "/dev/shm": 4, "/dev": 1}

    def stat(path: str) -> Any:
        if path == "/stale":
            raise os_error(errno.ESTALE, "Stale file handle")
        if path == "/data/file/x":
            raise NotADirectoryError
        if path not in devices:
            raise FileNotFoundError
        return SimpleNamespace(st_dev=devices[path])

    path = SimpleNamespace(
        realpath=lambda given: given.replace("/link", "/data"), dirname=os.path.dirname
    )
    answers = {
        "stat": stat,
        "statvfs": lambda path: space(30 + devices[path], 70, 100 * devices[path], devices[path]),
        "path": path,
        "_exit": lambda code: told.lines.append(f"ends with {code}"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places_probe, "os", Kernel(told, answers, ("stat", "statvfs", "_exit")))
        moments = iter(range(100))
        patch.setattr(places_probe, "time", SimpleNamespace(monotonic=lambda: next(moments) / 16))
        patch.setattr(places_probe, "threading", SimpleNamespace(Thread=Thread))
        patch.setattr(Thread, "told", told, raising=False)
        patch.setattr(Thread, "never", ("/hangs",))
        asked = [
            "/data/a/b",
            "/link/a/new/file",
            "/dev/shm",
            "/stale",
            "/hangs",
            "/data/file/x",
            "/",
        ]
        for paths in (asked, ["/data"]):
            with printed(told):
                places_probe.main(paths)
    return told


# --- libraries and drivers ------------------------------------------------------------------------


class Verbs:
    """In place of libibverbs; a device is a number."""

    def __init__(self, told: Told, names: list[str], opens: Mapping[int, int | None]) -> None:
        self.names = names

        def tell(what: str) -> None:
            told.lines.append(f"@ {what}")

        class Call:
            def __init__(self, call: Callable[..., Any]) -> None:
                self.call = call

            def __call__(self, *given: Any) -> Any:
                return self.call(*given)

        def get_list(count: Any) -> list[int] | None:
            count._obj.value = len(names)
            return [*range(70, 70 + len(names))] if names else None

        def name(device: int) -> bytes | None:
            return names[device - 70].encode() or None

        def opened(device: int) -> int | None:
            number = opens.get(device)
            tell(f"open {device}")
            ctypes.set_errno(number or 0)
            return 900 + device if number is None else None

        self.ibv_get_device_list = Call(get_list)
        self.ibv_get_device_name = Call(name)
        self.ibv_open_device = Call(opened)
        self.ibv_close_device = Call(lambda context: tell(f"close {context}"))


def what_libraries_say() -> Told:
    """RDMA devices by libibverbs, and any library that is to be loaded."""
    told = Told()
    asked = ["mlx5_1", "mlx5_0", "mlx5_9", "mlx5_3"]
    there = Verbs(told, ["mlx5_0", "mlx5_1", "", "mlx5_3"], {71: errno.EACCES, 73: 0})
    cases: dict[str, dict[str, Any]] = {
        "the first": {"libibverbs.so.1": there},
        "the second": {"libibverbs.so": there},
        "no device": {"libibverbs.so.1": Verbs(told, [], {})},
        "none": {},
    }
    with pytest.MonkeyPatch.context() as patch:
        for what, libraries in cases.items():

            def load(name: str, libraries: Mapping[str, Any] = libraries, **how: bool) -> Any:
                told.lines.append(f"@ load {name} {how}")
                if name not in libraries:
                    raise OSError(f"{name}: cannot\nopen  it")
                return libraries[name]

            patch.setattr(ctypes, "CDLL", load)
            told.of(what)
            with printed(told):
                verbs.main(asked if libraries else asked[:2])
        for call in ("get_device_list", "get_device_name", "open_device", "close_device"):
            own = vars(getattr(there, f"ibv_{call}"))
            types = [f"{name}={own[name]}" for name in ("argtypes", "restype") if name in own]
            told.of(call, re.sub(r"[^ ]*\bLP_", "LP_", " ".join(types)))
        told.of("loadable")
        with printed(told):
            loadable.main(["libnccl-net.so", "libibverbs.so"])
        patch.setattr(ctypes, "CDLL", lambda name: there)
        with printed(told):
            loadable.main(["libibverbs.so"])
    return told


class Nvml(ModuleType):
    """In place of pynvml: `gpus` say of each call what comes of it."""

    NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_NO_PERMISSION, NVML_SUCCESS = 12, 4, 0
    NVML_DEVICE_MIG_ENABLE, NVML_TEMPERATURE_GPU = 1, 66
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 31, 32
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230

    class NVMLError(Exception):
        """Its number, and its words."""

        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    class c_nvmlGpuFabricInfo_t(ctypes.Structure):
        """As pynvml calls it."""

        _fields_ = (("state", ctypes.c_int),)

    def __init__(self, told: Told, gpus: list[dict[str, Any]], init: int = 0) -> None:
        super().__init__("pynvml")
        self.told, self.gpus, self.init = told, gpus, init

    def nvmlInit(self) -> None:
        """Or there is none."""
        if self.init:
            raise self.NVMLError(self.init)

    def nvmlSystemGetDriverVersion(self) -> bytes:
        """As older ones say it."""
        return b"570.86\xff"

    def nvmlDeviceGetCount(self) -> int:
        """All."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        """One."""
        found: dict[str, Any] = self._of(self.gpus[index], "handle", self.gpus[index])
        return found

    def nvmlDeviceGetMigDeviceHandleByIndex(
        self, gpu: dict[str, Any], index: int
    ) -> dict[str, Any]:
        """A part of one."""
        return {"UUID": self._of({"part": gpu["parts"][index]}, "part")}

    def nvmlDeviceGetGpuFabricInfo(self, gpu: dict[str, Any], info: Any) -> None:
        """Its state is written."""
        info._obj.state = self._of(gpu, "fabric")

    def nvmlDeviceGetFieldValues(self, gpu: dict[str, Any], fields: list[int]) -> list[Any]:
        """A value, or that there is none."""
        self.told.lines.append(f"@ fields {fields}")
        value = self._of(gpu, "recovery")
        union = SimpleNamespace(uiVal=value)
        return [SimpleNamespace(nvmlReturn=0 if value >= 0 else 3, value=union)]

    def nvmlDeviceGetTotalEccErrors(self, gpu: dict[str, Any], kind: int, which: int) -> Any:
        """Counted."""
        self.told.lines.append(f"@ ECC errors {kind} {which}")
        return self._of(gpu, "ecc")

    def nvmlDeviceGetTemperature(self, gpu: dict[str, Any], where: int) -> Any:
        """Of a place."""
        self.told.lines.append(f"@ temperature {where}")
        return self._of(gpu, "heat")

    def _of(self, gpu: dict[str, Any], name: str, default: Any = AttributeError) -> Any:
        found = gpu.get(name, default)
        if isinstance(found, type) and issubclass(found, Exception):
            raise found
        if isinstance(found, Exception):
            raise found
        return found

    def __getattr__(self, name: str) -> Any:
        """Any other question to a GPU; older packages lack some."""
        short = name.removeprefix("nvmlDeviceGet")
        if short == name:
            raise AttributeError(name)
        return lambda gpu: self._of(gpu, short)


def what_nvml_says() -> Told:
    """GPUs of all kinds: sound, sick, in parts, older, another job's; and drivers that are none."""
    told = Told()
    refuses = Nvml.NVMLError
    sound = {
        "Name": b"H100",
        "UUID": "GPU-aa",
        "MigMode": (0, 1),
        "ecc": 3,
        "RemappedRows": (1, 2, 0, 0),
        "CurrentClocksThrottleReasons": 72,
        "recovery": 2,
        "fabric": 3,
        "MemoryInfo": SimpleNamespace(used=11, total=80, free=69),
        "UtilizationRates": SimpleNamespace(gpu=37, memory=5),
        "heat": 61,
    }
    gpus: list[dict[str, Any]] = [
        sound,
        sound
        | {"UUID": b"GPU-bb", "RemappedRows": (0, 0, 1, 0), "recovery": -1, "fabric": refuses(3)},
        sound
        | {
            "UUID": "GPU-cc",
            "RemappedRows": (0, 0, 0, 1),
            "MigMode": (1, 0),
            "MaxMigDeviceCount": 3,
            "parts": ["MIG-c0", refuses(2), b"MIG-c2"],
            "ecc": refuses(3),
        },
        {"Name": "V100", "UUID": "GPU-dd"},
        {"handle": refuses(4)},
        {"Name": refuses(15)},
        sound | {"MigMode": (1, 1), "MaxMigDeviceCount": refuses(9)},
    ]
    with pytest.MonkeyPatch.context() as patch:
        for what in ("health", "use"):
            patch.setitem(sys.modules, "pynvml", Nvml(told, gpus))
            for number in range(len(gpus)):
                patch.setattr(sys.modules["pynvml"], "gpus", [gpus[number]])
                told.of(f"{what} of {number}")
                with printed(told):
                    nvml.main(what)
            patch.setattr(sys.modules["pynvml"], "gpus", gpus[:2])
            told.of(f"{what} of two")
            with printed(told):
                nvml.main(what)
        for number in (12, 9):
            patch.setitem(sys.modules, "pynvml", Nvml(told, gpus, number))
            told.of(f"error {number}")
            with printed(told):
                nvml.main("use")
        patch.setitem(sys.modules, "pynvml", None)
        told.of("no package")
        with printed(told):
            nvml.main("use")
    return told


# --- in the user's process ------------------------------------------------------------------------


class Group:
    """A process group."""

    def __init__(self, size: int, rank: int) -> None:
        self._size, self._rank = size, rank

    def size(self) -> int:
        """Of all."""
        return self._size

    def rank(self) -> int:
        """The own one."""
        return self._rank


class World:
    """What torch has its world in."""

    def __init__(self) -> None:
        self._default_pg: Group | None = None
        self.other = 0

    @property
    def default_pg(self) -> Group | None:
        """As torch calls it."""
        return self._default_pg


class State:
    """What jax has its own in."""

    def __init__(self) -> None:
        self.client: object = None
        self.num_processes, self.process_id = 7, 3
        self.preemption_sync_manager: object = None
        self.partition_index: object = None


def which_worlds_are_noted() -> Told:
    """Those that a process forms, one after the other, each once; and none where one is unseen."""
    told = Told()
    links: list[str] = []

    def symlink(word: str, path: str) -> None:
        links.append(f"{path} -> {word}")
        if "91" in path:
            raise os_error(errno.EEXIST)

    kernel = Kernel(told, {"symlink": symlink, "getpid": lambda: 4_711}, ("symlink", "getpid"))
    torch: Any = ModuleType("torch.distributed.distributed_c10d")
    jax: Any = ModuleType("jax._src.distributed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noting, "os", kernel)
        patch.setattr(noting, "MOST", 6)
        patch.setattr(sys, "meta_path", [*sys.meta_path])
        for name in (torch.__name__, jax.__name__, *noting.UNSEEN):
            patch.delitem(sys.modules, name, raising=False)

        def shown(what: str) -> None:
            told.of(what, *links, waiting=[each[0] for each in notes.waiting])
            links.clear()

        noting.start("/look", "5")
        notes: Any = sys.meta_path[0]
        shown("nothing is imported")
        world, state = World(), State()
        torch._world, jax.global_state = world, state
        patch.setitem(sys.modules, torch.__name__, torch)
        told.of("finds", notes.find_spec("numpy"), notes.find_spec("torch.nn"))
        shown("torch is there, and nobody has looked")
        notes.find_spec("torch.distributed.fsdp")
        shown("somebody has")
        world.other = 3
        world._default_pg = Group(15, 9)
        shown("a world")
        world._default_pg = Group(15, 9)
        world._default_pg = None
        shown("the same, and none")
        world._default_pg = Group(4, 4)
        world._default_pg = Group(1 << 25, 3)
        world._default_pg = Group(91, 2)
        world._default_pg = Group(91, 2)
        world._default_pg = Group(1, 0)
        shown("others")
        own = type(world)
        told.of("its class", own.__name__, own.__module__ == World.__module__, own is World)
        notes.find_spec("jax.numpy")
        shown("no jax yet")
        patch.setitem(sys.modules, jax.__name__, jax)
        state.client = "c"
        notes.find_spec("jax._src.x")
        shown("jax, which was connected before")
        state.num_processes = 8
        shown("that alone is no world")
        state.partition_index = 1
        shown("this is")
        state.num_processes = 9
        state.preemption_sync_manager = 1
        state.num_processes = 10
        state.preemption_sync_manager = 2
        shown("no more than so many")
        patch.setitem(sys.modules, "ray", ModuleType("ray"))
        notes.noted.clear()
        world._default_pg = Group(3, 1)
        shown("beside a library that is not seen")
        odd: Any = ModuleType(torch.__name__)
        odd._world = 5
        patch.setitem(sys.modules, torch.__name__, odd)
        noting.start("/look", "6")
        notes = sys.meta_path[0]
        shown("of another form")
    return told


class Hook:
    """What a process is, and has open, when the hook begins."""

    def __init__(
        self, told: Told, environ: Mapping[str, str], pipes: Mapping[int, str], **more: Any
    ) -> None:
        self.told, self.environ, self.pipes = told, environ, pipes
        self.streams: str | None = more.get("streams", "8:71 8:72\nSLURM_LOCALID LOCAL_RANK\n")
        self.links: dict[str, str] = dict(more.get("links", {}))
        self.fifos = more.get("fifos", ("5.stdout", "5.stderr", "launcher.stderr"))
        self.lives: Mapping[int, tuple[str, int]] = {4_711: ("S", 900)} | more.get("lives", {})
        self.taken: set[int] = set(more.get("taken", ()))
        self.files: dict[int, str] = {}
        self.number = 10

    def kernel(self) -> Kernel:
        """In place of `os`."""
        answers: dict[str, Any] = {
            "environ": self.environ,
            "open": self.open,
            "read": self.read,
            "close": self.close,
            "fstat": self.fstat,
            "dup2": lambda old, new, inherit=True: new,
            "get_inheritable": lambda file: file == 1,
            "get_blocking": lambda file: file == 2,
            "set_blocking": lambda file, blocks: None,
            "getpid": lambda: 4_711,
            "symlink": self.symlink,
            "readlink": lambda path: self.links[path],
            "replace": self.replace,
            "register_at_fork": lambda: None,
        }
        return Kernel(
            self.told, answers, ("read", "getpid", "readlink", "get_inheritable", "get_blocking")
        )

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """A file, a FIFO that somebody reads, or a process's."""
        name = path.removeprefix("/look/")
        if name == "streams" and self.streams is None:
            raise FileNotFoundError
        if name.endswith((".stdout", ".stderr")) and name not in self.fifos:
            raise os_error(errno.ENXIO)
        if path.startswith("/proc/") and int(path.split("/")[2]) not in self.lives:
            raise FileNotFoundError
        self.number += 1
        self.files[self.number] = path
        return self.number

    def read(self, file: int, size: int) -> bytes:
        """Its text."""
        path = self.files[file]
        if not path.startswith("/proc/"):
            return (self.streams or "").encode()
        pid = int(path.split("/")[2])
        state, started = self.lives[pid]
        return f"{pid} (py) {state} {' '.join('0' * 18)} {started} 0 0\n".encode()

    def close(self, file: int) -> None:
        """What is closed was open."""
        del self.files[file]

    def fstat(self, file: int) -> Any:
        """The pipes, and high numbers that are taken."""
        if file in self.pipes:
            device, inode = self.pipes[file].split(":")
            return SimpleNamespace(st_dev=device, st_ino=inode)
        if file in self.taken:
            return None
        raise os_error(errno.EBADF)

    def symlink(self, words: str, path: str) -> None:
        """Unless there is one."""
        if path in self.links:
            raise FileExistsError
        self.links[path] = words

    def replace(self, path: str, other: str) -> None:
        """It moves."""
        self.links[other] = self.links.pop(path)


RANK = {"RDZV_LOOK_FOLDER": "/look", "LOCAL_RANK": "5"}
BOTH = {1: "8:71", 2: "8:72"}
HOOKS: dict[str, tuple[dict[str, str], dict[int, str], dict[str, Any]]] = {
    "no folder": ({"LOCAL_RANK": "5"}, BOTH, {}),
    "no rank": ({"RDZV_LOOK_FOLDER": "/look"}, BOTH, {}),
    "a rank": (RANK, BOTH, {}),
    "a rank of the first name": (RANK | {"SLURM_LOCALID": "6"}, BOTH, {"fifos": ("6.stdout",)}),
    "a rank with both in one": (RANK, {1: "8:71", 2: "8:71"}, {}),
    "a rank that was redirected": (RANK, {1: "8:9", 2: "8:72"}, {}),
    "a rank that nobody reads": (RANK, BOTH, {"fifos": ()}),
    "a rank that is no number": (RANK | {"LOCAL_RANK": "5x"}, BOTH, {}),
    "a rank of no known name": ({"RDZV_LOOK_FOLDER": "/look", "MPI_LOCALRANKID": "5"}, BOTH, {}),
    "a rank in a folder that is gone": (RANK, BOTH, {"streams": None}),
    "a rank beside one that lives": (
        RANK,
        BOTH,
        {"links": {"/look/5.here": "77 33 41"}, "lives": {77: ("R", 33)}},
    ),
    "a rank after one that ended": (
        RANK,
        BOTH,
        {"links": {"/look/5.here": "77 33 41"}, "lives": {77: ("Z", 33)}},
    ),
    "a rank after one of the same number": (
        RANK,
        BOTH,
        {"links": {"/look/5.here": "77 33 41"}, "lives": {77: ("S", 34)}},
    ),
    "a rank that begins again": (RANK, BOTH, {"links": {"/look/5.here": "4711 900 41"}}),
    "a rank with files in the way": (RANK, BOTH, {"taken": (1_000, 250)}),
    "a rank with no number left": (RANK, BOTH, {"taken": (1_000, 250, 60)}),
}


def what_the_hook_does() -> Told:
    """In processes of all kinds; and how a launcher is known by its words."""
    told = Told()
    with pytest.MonkeyPatch.context() as patch:
        registered: list[Any] = []
        signal: Any = ModuleType("_signal")
        signal.SIGRTMIN, signal.SIG_DFL, signal.getsignal = 34, "default", lambda number: "default"
        faulthandler: Any = ModuleType("faulthandler")
        faulthandler.register = lambda number, **how: told.lines.append(
            f"@ register {number} {how}"
        )
        patch.setitem(sys.modules, "_signal", signal)
        patch.setitem(sys.modules, "faulthandler", faulthandler)
        patch.setattr(sys, "meta_path", [*sys.meta_path])
        for name in (sitecustomize.TORCH, "jax"):
            patch.delitem(sys.modules, name, raising=False)

        def begins(self: Any) -> None:
            told.lines.append(
                f"@ begins {self.name} {[w for w in self.where if isinstance(w, str)]} {self.pid}"
            )

        patch.setattr(sitecustomize.Beside, "start", begins)

        def runs(
            what: str, environ: dict[str, str], pipes: dict[int, str], more: dict[str, Any]
        ) -> None:
            told.of(what)
            hook = Hook(told, environ, pipes, **more)
            patch.setattr(sitecustomize, "os", hook.kernel())
            patch.setattr(sys, "stderr", SimpleNamespace(encoding="utf-8", errors="strict"))
            sitecustomize.install()
            told.lines += [f"- {path} -> {words}" for path, words in hook.links.items()]
            told.lines += [f"- open {path}" for path in hook.files.values()]
            finders = [one for one in sys.meta_path if isinstance(one, sitecustomize.Imports)]
            for one in finders:
                told.lines += [
                    f"- waits for {modules}: {beside.name}" for modules, beside in one.waiting
                ]
                for name in ("numpy", "jax", "torch", "torch.distributed", "torch.distributed"):
                    one.find_spec(name)
                told.lines.append(f"- then {one.waiting} {one in sys.meta_path}")
            assert registered == []

        for what, (environ, pipes, more) in HOOKS.items():
            runs(what, environ, pipes, more)
        patch.setitem(sys.modules, "jax", ModuleType("jax"))
        runs("a rank that has imported jax", RANK, BOTH, {})
        signal.getsignal = lambda number: "theirs"
        runs("a rank that handles the signal", RANK, BOTH, {})
        patch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        signal.getsignal = lambda number: "default"
        runs("a rank without the GIL", RANK, BOTH, {})
        own = sys.stderr
        opened: list[Any] = []
        patch.setattr(
            sitecustomize, "open", lambda *given, **how: opened.append([*given, how]), raising=False
        )
        patch.setattr(sys, "argv", ["/opt/bin/torchrun"])
        runs("a launcher", {"RDZV_LOOK_FOLDER": "/look"}, BOTH, {})
        told.of("its errors", opened, sys.stderr is not own)
        template = {"RDZV_LOOK_FOLDER": "/look", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "x"}
        runs("a launcher with a template", template, BOTH, {})
        runs("a launcher that is a rank", RANK, BOTH, {})
        runs("a launcher that nobody reads", {"RDZV_LOOK_FOLDER": "/look"}, BOTH, {"fifos": ()})
        for argv, words in (
            *(
                (["/x/torchrun"], []),
                (["accelerate-launch"], []),
                (["accelerate"], []),
                (["torchrun.py"], []),
            ),
            *(
                (["-m"], ["py", "-m", "torch.distributed.run"]),
                (["-m"], ["py", "-mtorch.distributed.run"]),
            ),
            *(
                (["-m"], ["py", "-um", "accelerate.commands.launch"]),
                (["-m"], ["py", "-Xm", "torch.distributed.run"]),
            ),
            *(
                (["-m"], ["py", "-m", "torch.distributed.launch", "x"]),
                (["-m"], ["py", "x", "-m", "pkg"]),
            ),
            *(
                (["-m"], ["py", "-m"]),
                ([], []),
                (["-m"], ["py", "torch.distributed.run", "-c", "m"]),
            ),
        ):
            patch.setattr(sys, "argv", argv)
            patch.setattr(sys, "orig_argv", words)
            told.of(f"{argv} {words}", sitecustomize._is_launcher())
    return told


COURSES = {
    one.__name__: one
    for one in (
        *(what_disks_are_told, where_paths_are, what_libraries_say, what_nvml_says),
        *(which_worlds_are_noted, what_the_hook_does),
    )
}


@pytest.mark.parametrize("name", COURSES)
def test_what_they_do(name: str) -> None:
    assert COURSES[name]().lines == lines_in(KNOWN, name)


if __name__ == "__main__":  # make reference
    sys.exit(KNOWN.write_text(text_of(COURSES)) == 0)

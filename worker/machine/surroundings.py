"""What a node's program will find around it: looked at before the start, judged elsewhere.

`look_around` gathers all that `worker.preflight` judges. Whatever may hang (a name server, a disk
whose server is gone, a driver) is asked side by side, each in a thread or process of its own, and
what has not answered in time is left out: no start is held up by its own checks.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

from rendezvous.frozen import frozen
from rendezvous.version import rdzv_version
from rendezvous.wire.hostnames import lookup_error
from rendezvous.wire.node import Candidate, Facts, RdmaPort
from rendezvous.wire.words import printable
from worker.machine import aside, disk_probe, kernel, loadable, rdma, sysfs
from worker.machine.cpus import count_cpus
from worker.machine.gpus import Gpus, hidden_gpus, look_gpus, uuids_of, visible_gpus
from worker.machine.interfaces import count_gpus
from worker.machine.kernel import Arp, Clock, ResourceLimits, ephemeral_range
from worker.machine.network import Network, Skipped
from worker.machine.rdma import Unopened, error_counters, look_rdma, opened
from worker.machine.user_python import UserPython, look_user_python
from worker.nccl.conf import read_conf
from worker.nccl.env import GidWish, Given, gid_wish, given_by

LIMIT_SECONDS = 1.3
"""For everything that may hang, side by side."""

PATIENT_SECONDS = 10.0
"""For RDMA drivers and plugins, which answer within 20 ms: without their answer a node fails, and
one that is merely busy must not. For everything, where a person waits for it."""

NO_ANSWER = "no answer in time"
EFA = "Unknown"
"""The link layer that the kernel gives to AWS's network cards."""

EFA_LIBRARIES = ("libnccl-net.so", "libnccl-net-ofi.so", "libnccl-net-aws-ofi.so")
_HOST = Path("/")
_HOSTS_FILE = Path("/etc/hosts")
_SLACK_SECONDS = 0.3
_PATIENT = PATIENT_SECONDS - _SLACK_SECONDS
_SILENT_DRIVER = "its driver does not answer in time"
_SILENT_DEVICE = Unopened(_SILENT_DRIVER)
_SCRIPTS = (".py", ".sh")
_MOST_SCRIPT_BYTES = 16 << 20
_MOST_GPUS = 64
_JUDGED = ("NCCL_", "GLOO_", "TP_")
_FILE_VARIABLES = ("NCCL_TOPO_FILE",)
_ERROR_COUNTERS = ("link_downed", "symbol_error", "link_error_recovery")

DiskProbe: TypeAlias = Literal["space", "write", "sync"]
"""How a folder is tried: its free space, a write as well, or until the disk has it.

The last one takes a busy disk a second or more, which is no fault.
"""

_T = TypeVar("_T")


@frozen
class Disk:
    """A folder's file system; `total_bytes` is 0 where it has no storage of its own.

    Attributes:
        problem: Why it cannot be written; empty when it can.
        code: The errno of that; 0 where it gave no answer in time.
    """

    path: str
    free_bytes: int = 0
    total_bytes: int = 0
    problem: str = ""
    code: int = 0


@frozen
class Requested:
    """What the run that is asked for means for this node.

    Attributes:
        hosts: `--hosts`.
        nproc: Processes that will be started here; None when not known.
        master_port: Where node 0 will listen, when this node will be that.
        loopback: All nodes are on this machine.
        require_rdma: `--require-rdma`.
        looks_up_name: What starts COMMAND looks up this node's own hostname, by Python.
    """

    hosts: str = "auto"
    nproc: int | None = None
    master_port: int | None = None
    loopback: bool = False
    require_rdma: bool = False
    looks_up_name: bool = False


@frozen
class Surroundings:
    """All that the checks judge. What could not be found out is None or empty, and not judged.

    Attributes:
        facts: What is told to the registry.
        network: The interfaces.
        candidates: The addresses that are offered, best first.
        skipped: Those that are not, each with the reason.
        left_out: Those of them that are used where no network of the others works.
        registry_source: This machine's address on its route to the registry, where known.
        address_problem: Why there is none, and what to try; empty when there is one.
        hostname: As the program will know it.
        hostname_error: Why Python cannot look it up; empty where it can.
        hostname_addresses: What it resolves to; None where only a name server could tell, which a
            run does not ask.
        is_name_server_silent: One was asked, and did not answer in time.
        is_hosts_writable: Whether the hosts file can be written.
        arp: By interface.
        unopened: By RDMA device, why libibverbs does not open it.
        rdma_errors: By port, the error counters that rose while we looked.
        gpus: As the driver sees them; None where this container has none.
        hidden_gpus: Those that the program will not see, as NVML counts.
        gpu_nodes: How many GPUs this container was given.
        is_direct: Whether network cards may reach the GPUs' memory.
        libraries: By name, why it cannot be loaded; empty when it can be.
        given: What the user has set, by variable or in NCCL's files.
        missing_files: Those files that variables name and that are not there.
        vendor: Of the machine.
        temporary: TMPDIR, or /tmp.
        is_master_port_free: None where no port was looked at.
        ephemeral: The ports that outgoing connections take.
        requested: What was not looked at: the run that is asked for.
    """

    facts: Facts = field(default_factory=Facts)
    python: UserPython = field(default_factory=UserPython)
    network: Network = field(default_factory=lambda: Network(()))
    candidates: tuple[Candidate, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    left_out: tuple[Candidate, ...] = ()
    registry_source: str = ""
    address_problem: tuple[str, str] = ("", "")
    hostname: str = ""
    hostname_error: str = ""
    hostname_addresses: tuple[str, ...] | None = None
    is_name_server_silent: bool = False
    is_hosts_writable: bool = True
    arp: Mapping[str, Arp] = field(default_factory=dict)
    unopened: Mapping[str, Unopened] = field(default_factory=dict)
    rdma_errors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    gpus: Gpus | None = None
    hidden_gpus: frozenset[int] = frozenset()
    gpu_nodes: int = 0
    is_direct: bool = True
    libraries: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, Given] = field(default_factory=dict)
    missing_files: frozenset[str] = frozenset()
    vendor: str = ""
    limits: ResourceLimits | None = None
    shm: Disk | None = None
    disks: tuple[Disk, ...] = ()
    temporary: str = "/tmp"  # noqa: S108
    clock: Clock | None = None
    is_master_port_free: bool | None = None
    ephemeral: tuple[int, int] = (32_768, 60_999)
    requested: Requested = field(default_factory=Requested)

    @property
    def rdma(self) -> list[RdmaPort]:
        """The RDMA ports; their library has been tried."""
        return self.facts.rdma


class _Later(Generic[_T]):
    """An answer that is asked for in a thread of its own, which nobody waits for in the end."""

    def __init__(self, ask: Callable[[], _T], default: _T, deadline: float) -> None:
        self._answer, self._deadline = default, deadline
        self._thread = threading.Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], _T]) -> None:
        self._answer = ask()

    def get(self) -> _T:
        """The answer, or the default when there is none by the deadline (or asking failed)."""
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        return self._answer


@frozen
class _Files:
    """What the user's files say; they may lie on a disk whose server is gone."""

    python: UserPython = field(default_factory=UserPython)
    given: Mapping[str, Given] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    script_digest: str = ""


_NO_DISKS: tuple[Disk, ...] = ()
_SILENT_GPUS: Gpus | None = Gpus(problem=_SILENT_DRIVER, is_late=True)
_NO_RDMA: tuple[list[RdmaPort], dict[str, dict[str, int]]] = ([], {})
"""What is known where a device does not answer: its files in sysfs are questions to its driver."""


def look_around(
    program: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    folders: Sequence[Path] = (),
    probe: DiskProbe = "write",
    resolve: bool = False,
    root: Path = _HOST,
    limit_seconds: float = LIMIT_SECONDS,
) -> Surroundings:
    """See what the program will find here; the caller adds what it will be told itself.

    Args:
        program: What starts the user's program: `torchrun`, or COMMAND's first word.
        command: The COMMAND.
        environ: The user's environment.
        folders: Where the program may write, beside its working directory and TMPDIR.
        probe: What is tried in each folder.
        resolve: Whether a name server may be asked for this machine's own name.
        root: The directory that holds `sys`, `proc` and `dev`; below another than / no RDMA device
            is opened.
        limit_seconds: For all that may hang, together.
    """
    began, limit, nodes = time.monotonic(), limit_seconds - _SLACK_SECONDS, count_gpus(root, {})

    def later(ask: Callable[[], _T], default: _T, seconds: float = limit_seconds) -> _Later[_T]:
        return _Later(ask, default, began + seconds)

    hostname, temporary = socket.gethostname(), Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108
    paths = [*_working_directory(), temporary, *folders]
    disks = later(lambda: _disks(paths, probe, limit), _NO_DISKS)
    files = later(lambda: _read_files(program, command, environ), _Files())
    addresses = later(lambda: _addresses_of(hostname, root, resolve), None)
    ports, counted = later(lambda: (look_rdma(root), error_counters(root)), _NO_RDMA).get()
    driver = later(lambda: look_gpus(limit) if nodes else None, _SILENT_GPUS)
    efa = EFA_LIBRARIES if any(port.link_layer == EFA for port in ports) else ()
    unloaded = dict.fromkeys(efa, NO_ANSWER)
    libraries = later(lambda: _load(efa, _PATIENT), unloaded, PATIENT_SECONDS)
    if (wish := gid_wish(files.get().given)) != GidWish():  # files may keep us waiting from here on
        ports = later(lambda: look_rdma(root, wish), ports).get()
    names = list(dict.fromkeys(p.device for p in ports if not p.problem and root == _HOST))
    closed = dict.fromkeys(names, _SILENT_DEVICE)
    tried = later(lambda: rdma.open_devices(names, _PATIENT), closed, PATIENT_SECONDS)
    return replace(
        _quick(root, nodes),
        temporary=str(temporary),
        facts=_facts(files.get(), environ, opened(ports, tried.get()), driver.get(), root),
        python=files.get().python,
        given=files.get().given,
        missing_files=files.get().missing,
        hostname_addresses=addresses.get(),
        is_name_server_silent=resolve and addresses.get() is None,
        gpus=driver.get(),
        hidden_gpus=hidden_gpus(driver.get(), environ),
        libraries=libraries.get(),
        disks=disks.get(),
        unopened=tried.get(),
        rdma_errors=rises(counted, later(lambda: error_counters(root), counted).get()),
    )


def _quick(root: Path, nodes: int) -> Surroundings:
    """What is answered at once."""
    return Surroundings(
        hostname=printable(socket.gethostname(), 253),
        hostname_error=lookup_error(socket.gethostname()),
        is_hosts_writable=os.access(_HOSTS_FILE, os.W_OK),
        gpu_nodes=nodes,
        is_direct=kernel.reaches_gpu_memory(root),
        vendor=kernel.vendor(root),
        limits=kernel.read_limits(root),
        shm=_space(Path("/dev/shm")),  # noqa: S108
        clock=kernel.read_clock(),
        ephemeral=ephemeral_range(),
    )


def rises(
    before: Mapping[str, Mapping[str, int]], after: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    """What the counters of link errors have gained, by port; ports without any are left out."""
    gains = {
        port: {
            name: value - before.get(port, {}).get(name, value)
            for name, value in counters.items()
            if name in _ERROR_COUNTERS and value > before.get(port, {}).get(name, value)
        }
        for port, counters in after.items()
    }
    return {port: gained for port, gained in gains.items() if gained}


def _working_directory() -> list[Path]:
    """Where the program will be started; it may have been removed."""
    try:
        return [Path.cwd()]
    except OSError:
        return []


def _read_files(program: str, command: Sequence[str], environ: Mapping[str, str]) -> _Files:
    given = given_by(environ, read_conf(environ))
    given = {name: value for name, value in given.items() if name.startswith(_JUDGED)}
    named = {name: given[name].value for name in _FILE_VARIABLES if name in given}
    return _Files(
        python=look_user_python(program, environ),
        given=given,
        missing=frozenset(name for name, path in named.items() if not os.path.isfile(path)),
        script_digest=_script_digest(command),
    )


def _facts(
    files: _Files,
    environ: Mapping[str, str],
    ports: Sequence[RdmaPort],
    gpus: Gpus | None,
    root: Path,
) -> Facts:
    python, hcas = files.python, files.given.get("NCCL_IB_HCA")
    visible = [gpu for gpu in visible_gpus(gpus, environ) if not gpu.problem]
    return Facts(
        rdzv_version=rdzv_version(),
        python_version=python.version,
        torch_version=python.torch,
        cuda_version=python.cuda,
        nccl_version=python.nccl,
        driver_version=(gpus.driver if gpus else "") or kernel.driver_version(root),
        gpus=count_gpus(root, environ),
        gpu_models=[gpu.model for gpu in visible][:_MOST_GPUS],
        gpu_uuids=uuids_of(visible)[:_MOST_GPUS],
        cpus=count_cpus(),
        boot_id=sysfs.text(root / "proc/sys/kernel/random/boot_id"),
        machine_id=sysfs.text(root / "etc/machine-id"),
        script_digest=files.script_digest,
        rdma=rdma.chosen(ports, hcas.value if hcas else ""),
    )


def _script_digest(command: Sequence[str]) -> str:
    """SHA-256 of the first word that names a script here; empty without one."""
    for word in command:
        path = Path(word)
        try:
            if path.suffix in _SCRIPTS and 0 < path.stat().st_size <= _MOST_SCRIPT_BYTES:
                return hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, ValueError):
            continue
    return ""


def _in_hosts_file(hostname: str, root: Path) -> tuple[str, ...]:
    """The addresses that /etc/hosts gives to a name."""
    found = []
    lines = sysfs.content(root / "etc/hosts").splitlines()
    for words in (line.partition("#")[0].split() for line in lines):
        if hostname.lower() in (name.lower() for name in words[1:]):
            with contextlib.suppress(ValueError):
                found.append(str(ipaddress.ip_address(words[0])))
    return tuple(dict.fromkeys(found))


def _addresses_of(hostname: str, root: Path, resolve: bool) -> tuple[str, ...] | None:
    if not resolve:
        return _in_hosts_file(hostname, root) or None
    try:
        found = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def _disks(paths: Sequence[Path], probe: DiskProbe, limit_seconds: float) -> tuple[Disk, ...]:
    """Each folder once; by a process of its own, as this one cannot let go of a disk that hangs."""
    if probe == "space":
        return tuple(_space(path) for path in dict.fromkeys(paths))
    names = list(dict.fromkeys(map(str, paths)))
    answer = aside.ask(Path(disk_probe.__file__), probe, *names, limit_seconds=limit_seconds)
    found = {}
    _, *lines = answer.text.split("\n")
    for line in filter(None, lines):
        with contextlib.suppress(ValueError):  # it was killed in the middle of a line
            index, free, total, code, problem = json.loads(line)
            found[names[index]] = Disk(names[index], free, total, printable(problem, 200), code)
    # A process that could not even start in time tells of a busy machine and nothing of its disks.
    return tuple(found.get(name, Disk(name, problem=NO_ANSWER)) for name in names if lines)


def _space(path: Path) -> Disk:
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Disk(str(path), problem=error.strerror or str(error), code=error.errno or 0)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    if found.f_flag & os.ST_RDONLY:  # its free space, often none, says nothing
        return Disk(str(path), free, total, os.strerror(errno.EROFS), errno.EROFS)
    return Disk(str(path), free, total)


def _load(names: Sequence[str], limit_seconds: float) -> dict[str, str]:
    if not names:
        return {}
    answer = aside.ask(Path(loadable.__file__), *names, limit_seconds=limit_seconds)
    lines = (line.partition("\t") for line in answer.text.splitlines())
    problems = {name: printable(problem, 300) for name, _, problem in lines}
    return {name: problems.get(name, answer.problem or NO_ANSWER) for name in names}

"""The causes that can be told from each other: what shows them, what they mean, what to do. Pure.

`docs/causes.md` is made of this table. A line of output is matched with the patterns in the order
of the rows: what is special stands before what is general.
"""

from __future__ import annotations

import re
from enum import Enum

from rendezvous.frozen import frozen


class Kind(Enum):
    """What a row is, which decides how it stands against others."""

    OWN = "own"
    """Something went wrong in or below this rank."""
    BETWEEN = "between"
    """Two ranks or nodes do not fit together: the one that says so need not be the odd one."""
    OUTSIDE = "outside"
    """Somebody or something ended this rank."""
    CONSEQUENCE = "consequence"
    """This rank suffers what another one has, or waits for one that does not come."""


class Then(Enum):
    """What another start on the same nodes may change."""

    MAY_HELP = "may help"
    HOPELESS = "hopeless"
    """Nothing: it fails alike until somebody changes something."""
    SICK = "sick"
    """Nothing for long: a device of the node is broken."""


@frozen
class Row:
    """One cause.

    Attributes:
        id: Its name in `result.json`.
        says: What it means, as a sentence continues after the rank's name.
        shown_by: What it is told from, for people.
        hint: What to do.
        patterns: Regular expressions of lines that tell it.
        codes: Exit codes that tell it, where no line or fact tells more; 128 + n for signal n.
    """

    id: str
    says: str
    shown_by: str
    hint: str = ""
    patterns: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    kind: Kind = Kind.OWN
    then: Then = Then.MAY_HELP


_GLOO = r"gloo/transport|gloo::|ProcessGroupGloo|unbound_buffer|Gloo connectFullMesh"
_SICK_XIDS = r"48|63|64|74|79|92|94|95|119|120|14[0-9]"
SICK_XID = re.compile(rf"Xid \(PCI:[^)]*\): ({_SICK_XIDS}),")
"""NVIDIA's numbers of errors of the device itself; 13, 31, 43 and 45 are of the program, or what
follows from another error (docs.nvidia.com/deploy/xid-errors)."""

DEVICES = (
    Row(
        "gpu_ecc",
        "its GPU has uncorrectable memory errors",
        "CUDA's error, or the GPU's own count",
        "drain the node and have its GPU reset or replaced",
        (r"uncorrectable (ECC|NVLink) error", r"cudaErrorECCUncorrectable"),
        then=Then.SICK,
    ),
    Row(
        "gpu_xid",
        "the driver reported an error of its GPU",
        "a line `NVRM: Xid` of the kernel's log with a number that is of the device",
        "drain the node; NVIDIA's list of Xid errors says what the number means",
        (SICK_XID.pattern, r"GPU has fallen off the bus", r"CUDA error: .*GPU is lost"),
        then=Then.SICK,
    ),
    Row(
        "cuda_memory",
        "its GPU's memory was used up",
        "CUDA out of memory, in the words of torch, JAX or ROCm",
        "use a smaller batch or shard more; see whether another process holds memory on that GPU "
        "(nvidia-smi)",
        (
            r"(CUDA|HIP) out of memory",
            r"OutOfMemoryError",
            r"CU(BLAS|DNN)_STATUS_ALLOC_FAILED",
            r"RESOURCE_EXHAUSTED: .*(memory|allocat)",
            r"Cuda failure.*'out of memory'",
        ),
    ),
    Row(
        "cuda_fault",
        "a CUDA kernel failed",
        "CUDA's error: illegal access, device-side assertion, launch failure",
        "run it again with CUDA_LAUNCH_BLOCKING=1: the line that is named need not be the one",
        (
            r"illegal memory access was encountered",
            r"device-side assert triggered",
            r"(CUDA|HIP) error: (unspecified launch failure|misaligned address)",
            r"CUBLAS_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)",
            r"CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)",
        ),
    ),
    Row(
        "cuda_setup",
        "it cannot use a GPU of its node",
        "CUDA's error: no device, no such device, driver too old",
        "compare the driver, CUDA_VISIBLE_DEVICES and --nproc-per-node of this node with the "
        "others': rdzv doctor",
        (
            r"no CUDA-capable device is detected",
            r"invalid device ordinal",
            r"CUDA driver version is insufficient",
            r"No CUDA GPUs are available",
            r"Found no NVIDIA driver",
        ),
        then=Then.MAY_HELP,
    ),
    Row(
        "watchdog_stuck",
        "one of its CUDA calls did not return, and NCCL's watchdog stopped with it",
        "ProcessGroupNCCL's own message",
        "look at the driver (dmesg, nvidia-smi) of this node, and for a thread that holds the GIL",
        (r"watchdog (thread )?got stuck for", r"Heartbeat monitor timed out"),
    ),
    Row(
        "ib_path",
        "an InfiniBand or RoCE path of its node was silent",
        "NCCL's completion error (status 12: the retries are used up)",
        "check the cable, the switch port and the flow control of both ends: `rdzv doctor` on both",
        (
            r"Got completion from peer .*(status=|error )\d+",
            r"(IBV_WC_RETRY_EXC_ERR|IBV_WC_RNR_RETRY_EXC_ERR|transport retry counter exceeded)",
        ),
        kind=Kind.BETWEEN,
    ),
    Row(
        "ib_queue_pair",
        "an InfiniBand or RoCE connection could not be made",
        "NCCL: ibv_modify_qp failed",
        "compare GID index, subnet and MTU of the ports of both ends (NCCL_IB_GID_INDEX)",
        (r"ibv_modify_qp failed",),
        kind=Kind.BETWEEN,
    ),
    Row(
        "locked_memory",
        "it cannot lock the memory that RDMA needs",
        "NCCL: ibv_reg_mr or ibv_create_cq: Cannot allocate memory",
        "raise the limit of locked memory to unlimited (ulimit -l, --ulimit memlock=-1)",
        (r"ibv_(reg_mr|create_cq|create_qp|alloc_pd)\S* .*Cannot allocate memory",),
    ),
)

COLLECTIVES = (
    Row(
        "size_mismatch",
        "two ranks call a collective with tensors of different sizes",
        "Gloo's size check, or torch's with TORCH_DISTRIBUTED_DEBUG=DETAIL",
        "the programs differ there: compare what each rank passes (last batch, uneven shards)",
        (
            r"op\.preamble\.length <= op\.nbytes",
            r"distributed collective mismatch",
            r"Detected mismatch between collectives",
        ),
        kind=Kind.BETWEEN,
    ),
    Row(
        "watchdog_timeout",
        "it waited in a collective until NCCL's time-out",
        "Watchdog caught collective operation timeout",
        kind=Kind.CONSEQUENCE,
        patterns=(r"Watchdog caught collective operation timeout",),
    ),
    Row(
        "waited",
        "it waited for another rank until its time-out",
        "the time-outs of Gloo and of torch's store",
        kind=Kind.CONSEQUENCE,
        patterns=(
            r"Timed out waiting \d+ ?ms for (recv|send|connection)",
            r"wait timeout after \d+ ?ms",
            r"Timed out after \d+ seconds waiting for clients",
            r"failed to pass monitoredBarrier",
            r"(Wait|Socket|Connection|Rendezvous) ?Timeout\b.*(store|rank|wait)",
            rf"({_GLOO}).*(timed out|timeout)",
            r"RendezvousTimeoutError",
            r"The client socket has (timed out|failed to connect)",
            r"DistStoreError",
            r"DEADLINE_EXCEEDED",
        ),
    ),
    Row(
        "peer_gone",
        "it lost its connection to another rank",
        "the errors of Gloo, NCCL, MPI and torch's store for a peer that is gone",
        kind=Kind.CONSEQUENCE,
        patterns=(
            rf"({_GLOO}).*(closed by peer|reset by peer|Broken pipe|refused|Connection)",
            r"(Connection closed by peer|Connection reset by peer) ?\[",
            r"remote process exited or there was a network error",
            r"ncclRemoteError",
            r"Connection closed by (remote )?peer",
            r"socketProgress.*(Connection|closed)",
            r"failed to recv, got 0 bytes",
            r"(recvValue|sendBytes|recvBytes|sendValue)\b.*failed",
            r"TCPStore.*(Broken pipe|Connection|closed|failed)",
            r"DistNetworkError",
            r"NCCL communicator was aborted",
            r"coordination service.*(unavailable|disconnected|heartbeat)",
            r"MPI_ABORT was invoked|An MPI communication peer process has unexpectedly disconnect",
            r"^(\S+\.)?(BrokenPipeError|ConnectionResetError|ConnectionAbortedError|EOFError)\b",
            r"HorovodInternalError",
        ),
    ),
)

MEMORY = (
    Row(
        "memory_limit",
        "the kernel killed it at the memory limit of its control group",
        "SIGKILL, and the control group's own count of such kills",
        "ask the scheduler for more memory, or use fewer data-loading workers",
    ),
    Row(
        "machine_memory",
        "the kernel killed it because the machine's memory was used up",
        "SIGKILL, and the kernel's count or line",
        "use fewer processes or data-loading workers on this machine, or one with more memory",
    ),
    Row(
        "shared_memory",
        "its shared memory (/dev/shm) is full",
        "the error of torch's shared memory, or SIGBUS where /dev/shm has nothing free",
        "give the container more (docker: --shm-size=16g or --ipc=host; Kubernetes: an emptyDir "
        "with medium Memory at /dev/shm); it is not the disk",
        (
            r"unable to allocate shared memory",
            r"unable to (mmap|write|resize|open) .*</?torch_\S*>.*No space left",
            r"DataLoader worker \(pid \d+\) is killed by signal: Bus error",
            r"workers? (are|is) out of shared memory",
            r"(Error while creating|posix_fallocate of) shared memory",
        ),
    ),
    Row(
        "address_space",
        "it could not have the memory that it asked for",
        "the allocator's error",
        "lift the limit of address space (ulimit -v), or ask for less memory at a time",
        (
            r"DefaultCPUAllocator: (can't allocate|not enough) memory",
            r"^(numpy\S*\.)?(_ArrayMemoryError|MemoryError)\b",
            r"std::bad_alloc",
            r"\[Errno 12\]|OSError.*Cannot allocate memory",
        ),
    ),
)

FILES = (
    Row(
        "inodes",
        "a file system has no inode left",
        "the error for a full disk, while bytes are free",
        "delete small files there, or write fewer of them",
    ),
    Row(
        "file_limit",
        "a file cannot become as large as it tried",
        "EFBIG or SIGXFSZ, or a torn write with a limit of file size",
        "lift the limit (ulimit -f)",
        (r"\[Errno 27\]", r"\bFile too large\b"),
        (128 + 25,),
    ),
    Row(
        "quota",
        "the quota of a file system is used up",
        "EDQUOT",
        "delete something there, or ask for a larger quota",
        (r"\[Errno 122\]", r"Disk quota exceeded"),
    ),
    Row(
        "disk_full",
        "a file system is full",
        "ENOSPC, or the torn write of torch.save",
        "free space there, keep fewer checkpoints, or write somewhere else",
        (
            r"\[Errno 28\]",
            r"No space left on device",
            r"basic_ios::clear: iostream error",
            r"unexpected pos \d+ vs\.? \d+",
            r"PytorchStreamWriter failed writing",
        ),
    ),
    Row(
        "open_files",
        "it has reached the limit of open files",
        "EMFILE",
        "raise the limit (ulimit -n), or use torch.multiprocessing's file_system sharing",
        (r"\[Errno 2[34]\]", r"Too many open files"),
    ),
    Row(
        "filesystem_gone",
        "a file system does not answer",
        "ESTALE, EIO or a device that is gone",
        "look at the mount on this node; the server behind it may be down",
        (
            r"\[Errno (5|107|108|112|116|121)\]",
            r"Stale file handle",
            r"OSError.*Input/output error",
            r"Transport endpoint is not connected",
        ),
    ),
    Row(
        "read_only",
        "it cannot write there: the file system is read-only",
        "EROFS",
        "write somewhere else, or mount it for writing on this node",
        (r"\[Errno 30\]",),
        then=Then.MAY_HELP,
    ),
    Row(
        "file_missing",
        "a file is missing on its node",
        "ENOENT",
        "is the path on every node? A folder that is not shared must be copied",
        (r"\[Errno 2\]", r"^(\S+\.)?FileNotFoundError\b"),
    ),
    Row(
        "permission",
        "it is not allowed to read or write a file",
        "EACCES or EPERM",
        "compare the owner and the mode with the user of this node's processes",
        (r"\[Errno (13|1)\]", r"^(\S+\.)?PermissionError\b"),
    ),
)

PROCESSES = (
    Row(
        "threads",
        "it could start no more threads or processes",
        "EAGAIN of fork or of a thread, and the count of the control group",
        "raise the limit of processes (ulimit -u, the container's pids limit), or set "
        "OMP_NUM_THREADS and use fewer data-loading workers",
        (
            r"can't start new thread",
            r"pthread_create",
            r"(fork|thread|std::system_error).*Resource temporarily unavailable",
            r"BlockingIOError: \[Errno 11\]",
        ),
    ),
    Row(
        "port_taken",
        "a port that it needs is taken",
        "EADDRINUSE",
        "end what holds the port, or choose another one",
        (r"\[Errno 98\]", r"EADDRINUSE", r"[Aa]ddress already in use"),
    ),
    Row(
        "name_resolution",
        "a name cannot be resolved on its node",
        "the resolver's error",
        "look at /etc/resolv.conf of this node, or give an address",
        (
            r"gaierror",
            r"Name or service not known",
            r"(Temporary failure in name resolution|NameResolutionError)",
            r"nodename nor servname",
        ),
    ),
    Row(
        "unreachable",
        "a service cannot be reached from its node",
        "the error of an HTTP client, or of a connection that the program makes itself",
        "can this node reach it? Download before the run, or set the proxy on every node",
        (
            r"MaxRetryError",
            r"urlopen error",
            r"^(\S+\.)?(ConnectionRefusedError|ConnectTimeout|ConnectError|URLError|HTTPError)\b",
            r"LocalEntryNotFoundError|OfflineModeIsEnabled",
        ),
    ),
    Row(
        "shared_library",
        "a shared library is missing on its node, or does not fit",
        "the loader's error",
        "compare the image and LD_LIBRARY_PATH of this node with the others'",
        (
            r"cannot open shared object file",
            r"undefined symbol",
            r"version `\S+' not found",
        ),
        then=Then.MAY_HELP,
    ),
    Row(
        "import_error",
        "a Python module is missing on its node, or does not fit",
        "ModuleNotFoundError or ImportError",
        "install it into the environment of every node; `rdzv doctor` shows which Python is used",
        (r"^(\S+\.)?ModuleNotFoundError\b", r"^(\S+\.)?ImportError\b", r": No module named '?\w"),
        then=Then.HOPELESS,
    ),
    Row(
        "syntax_error",
        "a Python file cannot be read",
        "SyntaxError, IndentationError or TabError",
        "fix the file; an older Python on this node does not know newer syntax",
        (r"^(\S+\.)?(SyntaxError|IndentationError|TabError)\b",),
        then=Then.HOPELESS,
    ),
    Row(
        "arguments",
        "the program does not take its arguments",
        "exit code 2 with the words of an argument parser",
        "compare COMMAND with the program's --help",
        (r"^(\S+: )?error: .*argument|^\S+: error: ", r"^usage: "),
        then=Then.HOPELESS,
    ),
    Row(
        "not_started",
        "the program could not be started",
        "exit code 126 or 127",
        "is it on the PATH of this node, and executable?",
        codes=(126, 127),
        then=Then.HOPELESS,
    ),
    Row(
        "loader_worker",
        "a data-loading worker of it ended",
        "torch's DataLoader",
        "try num_workers=0 to see the worker's own error",
        (
            r"DataLoader worker \(pid \d+\) is killed by signal",
            r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly",
        ),
    ),
)

OUTSIDE = (
    Row(
        "time_limit",
        "the scheduler ended it at the job's time limit",
        "the scheduler's own words",
        "ask for more time, or start again from the state that was saved last",
        (r"DUE TO TIME LIMIT",),
        kind=Kind.OUTSIDE,
    ),
    Row(
        "preempted",
        "the scheduler preempted its worker run",
        "the scheduler's own words",
        "start again from the state that was saved last, or let the job requeue itself",
        (r"DUE TO PREEMPTION", r"DUE TO JOB REQUEUE", r"DUE TO NODE FAILURE"),
        kind=Kind.OUTSIDE,
    ),
    Row(
        "evicted",
        "Kubernetes took its pod away",
        "the pod's reason, or the node's message",
        "see `kubectl describe pod`: a limit of disk or memory, or a node that was drained",
        (r"The node was low on resource", r"Pod was (evicted|preempted)", r"\bEvicted\b"),
        kind=Kind.OUTSIDE,
    ),
    Row(
        "job_cancelled",
        "its job was cancelled at the scheduler",
        "the scheduler's own words",
        "was it cancelled with scancel?",
        (r"slurmstepd: error: .*CANCELLED AT",),
        kind=Kind.OUTSIDE,
    ),
    Row(
        "stopped_process",
        "it is stopped (SIGSTOP), so that the others wait for it",
        "state T in /proc",
        "continue it (kill -CONT), or see who stopped it: a debugger, a checkpoint tool",
        kind=Kind.OUTSIDE,
    ),
    Row(
        "killed",
        "something outside of the run killed it",
        "SIGKILL that neither rdzv sent, nor the kernel for memory, as far as it shows",
        "SIGKILL often comes from the kernel (out of memory) or from the scheduler",
        codes=(128 + 9,),
        kind=Kind.OUTSIDE,
    ),
    Row(
        "terminated",
        "something outside of the run ended it, before anything had failed",
        "SIGTERM or SIGHUP that rdzv did not send",
        "SIGTERM often comes from the scheduler (a time limit, a preemption) or from a person",
        codes=(128 + 15, 128 + 1),
        kind=Kind.OUTSIDE,
    ),
    Row(
        "interrupted",
        "something outside of the run interrupted it",
        "SIGINT that rdzv did not send",
        "Ctrl-C was pressed there, or the scheduler sends SIGINT before it ends a job",
        codes=(128 + 2,),
        kind=Kind.OUTSIDE,
    ),
)

ENDS = (
    Row(
        "cpu_limit",
        "it has used all the processor time that it may",
        "SIGXCPU",
        "lift the limit (ulimit -t)",
        codes=(128 + 24,),
    ),
    Row(
        "bus_error",
        "it wrote into memory that the machine could not give",
        "SIGBUS",
        "a full /dev/shm or a full file system below a mapped file is the usual cause",
        (r"Fatal Python error: Bus error",),
        (128 + 7,),
    ),
    Row(
        "segfault",
        "it crashed in native code",
        "SIGSEGV; with Python's faulthandler, the line of Python that called it",
        "a library that does not fit is the usual cause: compare versions with the other nodes'",
        (r"Fatal Python error: Segmentation fault",),
        (128 + 11,),
    ),
    Row(
        "crash",
        "it crashed in native code",
        "SIGILL, SIGFPE, SIGTRAP or SIGSYS",
        "SIGILL: a library was built for another processor; SIGSYS: the container forbids the call",
        (r"Fatal Python error: (Illegal instruction|Floating[ -]point exception)",),
        (128 + 4, 128 + 5, 128 + 8, 128 + 31),
    ),
    Row(
        "exception",
        "its program raised an exception",
        "the last line of its traceback",
    ),
    Row(
        "abort",
        "native code of it gave up",
        "SIGABRT, and what C++ said",
        "a gloo job may abort like this after it has succeeded: end the script with os._exit",
        patterns=(r"^\s*what\(\):", r"Fatal Python error: Aborted", r"^terminate called"),
        codes=(128 + 6,),
    ),
    Row(
        "exit_code",
        "its program ended by itself",
        "an exit code without any words",
    ),
)

NODES = (
    Row(
        "node_lost",
        "its node went silent",
        "the registry's lease, or its connection that was closed",
        "see its worker run's log; out of memory and preemption are the usual causes",
        kind=Kind.OUTSIDE,
    ),
    Row(
        "node_failed",
        "its agent ended it",
        "what the agent itself says",
    ),
)

JUDGED = (
    Row(
        "early_end",
        "it ended with exit code 0 while others continued, which then waited for it",
        "the ends of all ranks: nothing but waiting failed",
        "the ranks do not take the same number of steps: compare the lengths of their data",
        kind=Kind.OWN,
    ),
    Row(
        "late_rank",
        "it had not come when the others' time-out for the start had ended",
        "time-outs of torch's store in all ranks but a few",
        "what is it doing before init_process_group? It may import slowly, load data or hang",
    ),
    Row(
        "absent_rank",
        "it did not take part in a collective in which the others waited",
        "time-outs in all ranks but a few",
        "what is it doing meanwhile? It may load data, save a checkpoint or hang",
    ),
    Row(
        "desync",
        "all ranks waited for each other",
        "time-outs in all ranks",
        "they do not call the same collectives in the same order, or the network holds them: see "
        "that no branch depends on the rank",
    ),
)

CAUSES: tuple[Row, ...] = (
    *DEVICES, *COLLECTIVES, *OUTSIDE, *MEMORY, *FILES, *PROCESSES, *ENDS,
    *NODES, *JUDGED,
)  # fmt: skip
BY_ID = {row.id: row for row in CAUSES}
BY_CODE = {code: row.id for row in CAUSES for code in row.codes}

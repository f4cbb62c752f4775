"""Causes in a node's memory, files and processes. Pure."""

from __future__ import annotations

from rendezvous.cause.row import Row, Then


def _http(codes: str) -> tuple[str, ...]:
    """How exceptions of HTTP clients tell a status; a warning of one may be got over."""
    forms = (
        rf"HTTP Error {codes}\b",
        rf"\b{codes} (Client|Server) Error\b",
        rf"(Client|Server) error '{codes}\b",
        rf"An error occurred \({codes}\)",
        rf"\b{codes}, message=",
    )
    return (rf"^(\S+\.)?\w*(Error|Exception): .*?({'|'.join(forms)})",)


_UNAVAILABLE = "Resource temporarily unavailable"
_CACHE = (
    r"(/\.cache/|\.triton/|triton_cache|torchinductor|torch_extensions|(models|datasets)--"
    r"|/cache-\w{8,}\.arrow|\.incomplete\b|\.lock\b|\.tmp\b|/tmp[-_][^/]*')"
)
"""Folders that several ranks use at once, and files that are renamed when they are whole."""

MEMORY = (
    Row(
        "memory_limit",
        "the kernel killed it at the memory limit of its control group",
        "SIGKILL, and the control group's own count of such kills; Slurm's words",
        "ask the scheduler for more memory, or use fewer data-loading workers",
        (
            r"oom[_-]kill event|cgroup out-of-memory handler|Memory cgroup out of memory",
            r"tasks? [\d,-]+: Out Of Memory|[Ee]xceeded (job |step )?memory limit",
        ),
    ),
    Row(
        "machine_memory",
        "the kernel killed it because the machine's memory was used up",
        "SIGKILL, and the kernel's count or line",
        "use fewer processes or data-loading workers on this machine, or one with more memory",
        (r"Out of memory: Killed process \d",),
    ),
    Row(
        "shared_memory",
        "its shared memory (/dev/shm) is full",
        "the error of torch's shared memory, or SIGBUS where /dev/shm has nothing free",
        "give the container more (docker: --shm-size=16g or --ipc=host; Kubernetes: an emptyDir "
        "with medium Memory at /dev/shm); it is not the disk",
        (
            r"(unable to allocate|workers? \w+ out of|while creating|fallocate of) shared memory",
            r"unable to (mmap|write|resize|open) .*</?torch_\S*>.*No space left",
            r"DataLoader worker \(pid \d+\) is killed by signal: Bus error",
        ),
    ),
    Row(
        "address_space",
        "it could not have the memory that it asked for",
        "the allocator's error",
        "lift the limit of address space (ulimit -v), or ask for less memory at a time",
        (
            r"DefaultCPUAllocator: (can't allocate|not enough) memory",
            r"^(numpy\S*\.)?(_ArrayMemoryError|MemoryError)\b|std::bad_alloc",
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
        "EFBIG or SIGXFSZ, or a write that was cut off where file size is limited",
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
        "ENOSPC, or a write that was cut off where a file system has nothing free",
        "free space there, keep fewer checkpoints, or write somewhere else",
        (r"\[Errno 28\]", r"No space left on device"),
    ),
    Row(
        "write_failed",
        "a file could not be written to its end",
        "the write of torch.save that was cut off, without what it met",
        "it met a limit of file size (ulimit -f), a quota or a full file system: compare this "
        "node's with the others'",
        (r"basic_ios::clear: iostream|unexpected pos \d+ vs|PytorchStreamWriter failed writing",),
    ),
    Row(
        "open_files",
        "it has reached the limit of open files",
        "EMFILE",
        "raise the limit (ulimit -n), or use torch.multiprocessing's file_system sharing",
        (r"\[Errno 2[34]\]|Too many open files|received 0 items of ancdata",),
    ),
    Row(
        "shared_tensor",
        "it could not open or map a tensor that one of its processes shares",
        "torch's words of a file `/torch_...` in /dev/shm",
        "raise vm.max_map_count (sysctl) and the limit of open files (ulimit -n); the process that "
        "shares a tensor has to live until it was received",
        (r"unable to (mmap|open|resize|stat) .*<(/?torch_\S*|filename not specified)>",),
    ),
    Row(
        "shared_cache",
        "a file of a cache was missing there, or was changed meanwhile",
        "ENOENT, ESTALE, or a folder that is not empty, below a cache's folder",
        "two ranks may use it at once: give each rank or node its own (TRITON_CACHE_DIR, "
        "TORCHINDUCTOR_CACHE_DIR, TORCH_EXTENSIONS_DIR, HF_HOME), or fill it before the start",
        (
            rf"(\[Errno (2|17|39|116)\]|FileNotFoundError|Directory not empty).*{_CACHE}",
            rf"{_CACHE}\S*: (cannot open shared object file|file too short)",
        ),
    ),
    Row(
        "filesystem_gone",
        "a file system does not answer",
        "ESTALE, EIO or a device that is gone",
        "look at the mount on this node; the server behind it may be down",
        (
            r"\[Errno (5|107|108|112|116|121)\]|Stale file handle|OSError.*Input/output error",
            r"Transport endpoint is not connected",
        ),
    ),
    Row(
        "read_only",
        "it cannot write there: the file system is read-only",
        "EROFS",
        "write somewhere else, or mount it for writing on this node",
        (r"\[Errno 30\]",),
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
        "EAGAIN of fork or of a thread, and the counts of the control group and of the user",
        "raise the limit where it is set (ulimit -u, nproc in limits.conf; pids.max: docker run "
        "--pids-limit, the kubelet's podPidsLimit, systemd's TasksMax), or set OMP_NUM_THREADS "
        "and use fewer data-loading workers",
        (
            r"can't start new thread|pthread_create|\b[Cc]annot fork\b",
            rf"([Ff]ork|[Tt]hread|std::system_error|cannot (be )?start).*{_UNAVAILABLE}",
            rf"^(\S+\.)?(RuntimeError|SystemError|OSError): (\[Errno 11\] )?{_UNAVAILABLE}",
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
            r"gaierror|Name or service not known",
            r"(Temporary failure in name resolution|NameResolutionError)|nodename nor servname",
        ),
    ),
    Row(
        "service_refuses",
        "a service refuses what its node asks for",
        "the exception of an HTTP client: 401, 403 or 407",
        "which token or key has this node, and may that have it? Compare with the other nodes, or "
        "download before the run",
        _http("40[137]"),
    ),
    Row(
        "service_lacks",
        "a service does not have what its node asks for",
        "the exception of an HTTP client: 404 or 410",
        "compare the name and the revision with what is there; some services say so, too, where "
        "a token is missing",
        _http("4(04|10)"),
    ),
    Row(
        "service_fails",
        "a service that it needs is overloaded or fails",
        "the exception of an HTTP client: 429, or 500 and more",
        "try again with longer pauses, ask from fewer ranks, or download before the run",
        (*_http(r"(429|5\d\d)"), r"^(\S+\.)?RetryError: .*too many (429|5\d\d) error responses"),
    ),
    Row(
        "unreachable",
        "a service cannot be reached from its node",
        "the error of an HTTP client, or of a connection that the program makes itself",
        "can this node reach it? Download before the run, or set the proxy on every node",
        (
            r"MaxRetryError|urlopen error|LocalEntryNotFoundError|OfflineModeIsEnabled",
            r"^(\S+\.)?(ConnectionRefusedError|ConnectTimeout|ConnectError|URLError|HTTPError)\b",
        ),
    ),
    Row(
        "connection_lost",
        "a connection that it uses itself was closed",
        "the exception of a socket or of a pipe",
        "what is at its other end: a service, or a process that this rank has started?",
        (r"^(\S+\.)?(BrokenPipeError|ConnectionResetError|ConnectionAbortedError)\b",),
    ),
    Row(
        "shared_library",
        "a shared library is missing on its node, or does not fit",
        "the loader's error",
        "compare the image and LD_LIBRARY_PATH of this node with the others'",
        (r"cannot open shared object file|undefined symbol|version `\S+' not found",),
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
        (r"^(\S+: )?error: .*argument|^[^\s:]+: error: ", r"^usage: "),
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
        (r"DataLoader worker \(pid(\(s\))? [\d, ]+\) (is killed by signal|exited unexpectedly)",),
    ),
)

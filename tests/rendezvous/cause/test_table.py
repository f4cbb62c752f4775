"""The table of causes is whole, and each of its rows can be judged."""

from __future__ import annotations

import re

import pytest

from rendezvous.cause.clues import row_of
from rendezvous.cause.facts import FactKind
from rendezvous.cause.others import COMMUNICATION
from rendezvous.cause.seen import NodeSeen
from rendezvous.cause.table import BY_CODE, BY_ID, CAUSES, Kind, Row, Then
from rendezvous.wire.evidence import Clue, Evidence, Fact, RankEnd
from rendezvous.wire.reports import ExitReport
from tests.rendezvous.cause.verdicts import judged_of

LINES = {
    "data_ended": "StopIteration",
    "backend_missing": "RuntimeError: Distributed package doesn't have MPI built in",
    "library_misfit": "TypeError: f() got an unexpected keyword argument 'x'",
    "gpu_ecc": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "gpu_xid": "NVRM: Xid (PCI:0000:4b:00): 79, pid=1, GPU has fallen off the bus.",
    "cuda_memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "cuda_fault": "RuntimeError: CUDA error: an illegal memory access was encountered",
    "cuda_library": "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling x",
    "cuda_build": "RuntimeError: CUDA error: no kernel image is available for execution on the",
    "fabric_manager": "RuntimeError: Cuda failure 802 'system not yet initialized'",
    "cuda_setup": "RuntimeError: CUDA error: invalid device ordinal",
    "waited": "RuntimeError: gloo/transport: Timed out waiting 6000ms for recv operation",
    "told_of_rank": "x.CheckpointException: CheckpointException ranks:dict_keys([3])",
    "peer_gone": "RuntimeError: gloo/transport: Connection closed by peer [10.0.0.1]:5",
    "shared_memory": "RuntimeError: unable to allocate shared memory(shm) for file",
    "address_space": "RuntimeError: DefaultCPUAllocator: can't allocate memory: 4 bytes",
    "file_limit": "OSError: [Errno 27] File too large",
    "quota": "OSError: [Errno 122] Disk quota exceeded",
    "disk_full": "OSError: [Errno 28] No space left on device",
    "write_failed": "RuntimeError: unexpected pos 1024 vs 918",
    "open_files": "OSError: [Errno 24] Too many open files: '/data/1'",
    "shared_tensor": "RuntimeError: unable to mmap 8 bytes from file </torch_1_2>: Cannot (12)",
    "shared_cache": "FileNotFoundError: [Errno 2] No such file: '/root/.triton/cache/x/y.json'",
    "filesystem_gone": "OSError: [Errno 116] Stale file handle",
    "read_only": "OSError: [Errno 30] Read-only file system: '/data'",
    "file_missing": "FileNotFoundError: [Errno 2] No such file or directory: '/data'",
    "permission": "PermissionError: [Errno 13] Permission denied: '/data'",
    "threads": "RuntimeError: can't start new thread",
    "port_taken": "OSError: [Errno 98] Address already in use",
    "name_resolution": "socket.gaierror: [Errno -2] Name or service not known",
    "connection_lost": "ConnectionResetError: [Errno 104] Connection reset by peer",
    "service_refuses": "urllib.error.HTTPError: HTTP Error 401: Unauthorized",
    "service_lacks": "requests.exceptions.HTTPError: 404 Client Error: Not Found for url",
    "service_fails": "httpx.HTTPStatusError: Server error '503 Service Unavailable'",
    "unreachable": "urllib.error.URLError: <urlopen error timed out>",
    "shared_library": "ImportError: libx.so.1: cannot open shared object file: No such file",
    "import_error": "ModuleNotFoundError: No module named 'x'",
    "syntax_error": "SyntaxError: invalid syntax",
    "loader_worker": "RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly",
    "exception": "ValueError: no",
    "gpu_ipc": "torch.distributed.DistBackendError: NCCL error: Cuda failure 'invalid argument'",
    "build_failed": "RuntimeError: Error building extension 'fused_adam'",
    "extension_missing": "ImportError: /r/torch_extensions/a.so: cannot open shared object file",
    "file_damaged": "_pickle.UnpicklingError: invalid load key, 'v'.",
    "not_finite": "ValueError: Input X contains NaN.",
    "ddp_reduction": "RuntimeError: Expected to have finished reduction in the prior iteration",
    "checkpoint_misfit": "RuntimeError: Error(s) in loading state_dict for Net:",
    "not_initialized": "ValueError: Default process group has not been initialized, please",
    "devices_mixed": "RuntimeError: Expected all tensors to be on the same device, but found",
    "communication": "torch.distributed.DistBackendError: NCCL error in: x.cpp:77, internal error",
    "memory_maps": "ImportError: libx.so: failed to map segment: Cannot allocate memory",
    "shapes": "RuntimeError: The size of tensor a (17) must match the size of tensor b (8)",
    "zero_parameters": "RuntimeError: still have inflight params [{'id': 6}]",
    "sample": "cv2.error: resize.cpp:4062: (-215:Assertion failed) !ssize.empty() in function 'r'",
    "collectives_differ": "RuntimeError: Detected mismatch between collectives on ranks.",
}
"""The last line of a traceback, of a program that ends with 1."""
NATIVE = {
    "hip_fault": "Memory access fault by GPU node-4 (Agent handle: 0x8) on address 0x7f. Reason:",
    "ib_memory": "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with status=4 opcode=0",
    "watchdog_stuck": "ProcessGroupNCCL watchdog got stuck for 480 seconds",
    "ib_path": "NCCL WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0",
    "ib_queue_pair": "NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out",
    "locked_memory": "NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
    "no_route": "NCCL WARN socketStartConnect: Connect to 10.0.5.1<5> failed : No route to host",
    "topology": "graph/xml.h:76 NCCL WARN Attribute arch of node cpu not found",
    "main_guard": "RuntimeError: An attempt has been made to start a new process before the",
    "net_adapter": "NCCL WARN NET/IB : Got async event : local catastrophic error",
    "file_lock": "File locking failed in ADIOI_Set_lock(fd 14,cmd F_SETLKW64/7,type F_RDLCK/0)",
    "net_interface": "NCCL WARN Bootstrap : no socket interface found",
    "gpu_shared": "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4b000",
    "ranks_differ": "NCCL WARN Mismatched NCCL version detected : rank 0 version 21805 rank 1",
    "rank_twice": "NCCL WARN Bootstrap Root : rank 1 of 4 ranks has already checked in",
    "container": "slurmstepd: error: pyxis: couldn't start container",
    "size_mismatch": "[enforce fail at pair.cc] op.preamble.length <= op.nbytes. 16 vs 8",
    "assertion": "x: aio.cpp:223: int f(): Assertion `buffer.nbytes() == file_bytes' failed.",
    "others_ended": "F0926 17:26:32.1 7 agent.cc:77] ends, since another worker has crashed",
    "watchdog_timeout": "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL",
}
"""A line of native code."""
ENDS = {
    "killed": (137, ""),
    "terminated": (143, ""),
    "interrupted": (130, ""),
    "cpu_limit": (152, ""),
    "bus_error": (135, "Fatal Python error: Bus error"),
    "segfault": (139, "Fatal Python error: Segmentation fault"),
    "crash": (132, ""),
    "arithmetic": (136, ""),
    "abort": (134, "terminate called after throwing an instance of 'std::logic_error'"),
    "exit_code": (7, "step 3"),
    "own_watchdog": (1, "Timeout (0:00:04)!"),
    "launcher_ended": (129, "W1125 17:57:35 1 torch/x.py:753] Received 1 death signal, shutting"),
    "not_started": (127, "sh: train: not found"),
    "arguments": (2, "train.py: error: unrecognized arguments: --x"),
    "time_limit": (143, "slurmstepd: error: JOB 1 CANCELLED AT x DUE TO TIME LIMIT ***"),
    "preempted": (143, "slurmstepd: error: JOB 1 CANCELLED AT x DUE TO PREEMPTION ***"),
    "requeued": (143, "slurmstepd: error: *** JOB 1 ON n CANCELLED AT x DUE TO JOB REQUEUE ***"),
    "node_failure": (
        143,
        "slurmstepd: error: *** STEP 1.0 CANCELLED AT x DUE TO NODE FAILURE, SEE",
    ),
    "job_memory": (143, "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit."),
    "job_cancelled": (143, "slurmstepd: error: *** JOB 1 ON node CANCELLED AT x ***"),
    "evicted": (143, "The node was low on resource: memory."),
}
"""Exit codes, with a last line."""
FACTS = {
    "memory_limit": (137, Fact(kind=FactKind.OOM_KILL, value=1)),
    "machine_memory": (137, Fact(kind=FactKind.OOM_MACHINE, value=1)),
    "inodes": (1, Fact(kind=FactKind.INODES, path="/data")),
    "variable_removed": (1, Fact(kind=FactKind.REMOVED, path="PMI_RANK")),
}
WORDS = {
    "file_exists": "FileExistsError: [Errno 17] File exists: '/data/out'",
    "accelerator": "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.",
    "variable_missing": "KeyError: 'WANDB_RUN_GROUP'",
    "data_empty": "ZeroDivisionError: division by zero",
    "lookup": "KeyError: 'labels'",
    "code": "AttributeError: 'NoneType' object has no attribute 'shape'",
    "settings": "ValueError: train_batch_size must be divisible by the number of ranks",
}
"""The last line of a traceback, of what the words of an exception alone tell."""
LIKE = {
    "cuda_memory": (
        "ValueError: Free memory on device (16.61/23.68 GiB) on startup is less than desired GPU",
        "ValueError: No available memory for the cache blocks. Try increasing",
        "Error 2 cudaErrorMemoryAllocation: out of memory",
    ),
    "memory_maps": (
        "JIT session error: Cannot allocate memory",
        "LLVM ERROR: out of memory",
        "RuntimeError: unable to mmap 8 bytes from file </d/x.bin>: Cannot allocate memory (12)",
    ),
    "port_taken": (
        "[ERROR] HCCL listen on port[16666] fail. Please check whether the port is been using by",
        "RuntimeError: Port 29500 is already in use",
        "OSError: cannot bind to port 8000: it is being used by another process",
    ),
    "shapes": (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)",
        "ValueError: Expected input batch_size (32) to match target batch_size (4).",
    ),
    "zero_parameters": (
        "RuntimeError: tracing error at step 42: expected the next 2 parameters in the queue",
        "AssertionError: {'id': 0, 'status': 'NOT_AVAILABLE', 'numel': 0, 'ds_numel': 4}",
    ),
    "sample": (
        "RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [1]",
        "soundfile.LibsndfileError: Error opening 'a.wav': Format not recognised.",
        "OSError: broken data stream when reading image file",
    ),
    "abort": (
        "munmap_chunk(): invalid pointer: 0x00007fa5380304b0",
        "double free or corruption (!prev)",
        "*** stack smashing detected ***: terminated",
    ),
    "open_files": (
        "RuntimeError: received 0 items of ancdata",
        "unable to open shared memory object </torch_7_8> in read-write mode: Too many open files",
    ),
    "shared_tensor": (
        "RuntimeError: unable to mmap 48 bytes from file <filename not specified>: Cannot (12)",
        "RuntimeError: unable to open file </torch_7_8>: No such file or directory (2)",
    ),
    "shared_memory": (
        "RuntimeError: unable to write to file </torch_7_8>: No space left on device (28)",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient",
    ),
    "cuda_build": (
        "RuntimeError: CUDA error: named symbol not found",
        "the provided PTX was compiled with an unsupported toolchain.",
    ),
    "fabric_manager": ("NCCL WARN Cuda failure 802 'system not yet initialized'",),
    "cuda_setup": (
        "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: CUDA error: initialization error",
        "Error 803: system has unsupported display driver / cuda driver combination",
        "Error 804: forward compatibility was attempted on non supported HW",
    ),
    "cuda_fault": ("Indexing.cu:12: f: block: [3,0,0], thread: [9,0,0] Assertion `a < b` failed.",),
    "cuda_library": ("RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `f`",),
    "": (
        "KeyError: 'column text of /data/train.csv is missing'",
        "ValueError: key lr of /etc/train/config.yaml not found in the schema",
        "UserWarning: Plan failed; cudnn_status: CUDNN_STATUS_NOT_SUPPORTED",
        "NCCL INFO socketPollConnect: connect to 1.0.0.2<4> returned Connection refused, retrying",
        "NCCL INFO NET/IB : No device found.",
        "NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such",
        "INFO: the parameters are the same across all ranks",
        "UserWarning: Port 8787 is already in use. Hosting the HTTP server on port 4001 instead",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was ended",
        "[LightGBM] [Warning] Connecting to rank 3 failed, waiting for 200 milliseconds",
        "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host x.co:443 ssl",
        "RuntimeError: DataLoader timed out after 5 seconds",
        "subprocess.TimeoutExpired: Command 'x' timed out after 5 seconds",
    ),
    "backend_missing": ("RuntimeError: Distributed package doesn't have NCCL built in",),
    "ranks_differ": ("NCCL WARN Mismatched collective detected, please check around rank 1",),
    "rank_twice": ("XlaRuntimeError: ALREADY_EXISTS: /job:jax_worker/replica:0/task:1 connected",),
    "connection_lost": ("BrokenPipeError: [Errno 32] Broken pipe",),
    "unreachable": (
        "wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec.",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='x', port=443): Read timed out.",
    ),
    "filesystem_gone": (
        "RuntimeError: write(): fd 29 failed with Input/output error",
        "TimeoutError: [Errno 110] Connection timed out: '/mnt/data/1'",
    ),
    "time_limit": (
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
        "=>> PBS: job killed: walltime 3612 exceeded limit 3600",
        "job 7 exceeded hard wallclock time - initiate terminate method",
    ),
    "job_memory": (
        "=>> PBS: job killed: mem 4194304kb exceeded limit 2097152kb",
        'job 7 exceeds job hard limit "h_vmem" of queue',
        "Ray killed this worker, since memory exceeds the memory usage threshold of 0.95",
    ),
    "preempted": (
        "Preempted by pod 4 on node n1",
        "Spot Instance interruption notice",
        "TERM_PREEMPT: job killed after preemption",
    ),
    "evicted": (
        "The node had condition: [DiskPressure].",
        "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi.",
        "TaintManagerEviction: Marking for deletion Pod d/p",
    ),
    "job_cancelled": ("TERM_OWNER: job killed by owner.",),
    "terminated": (
        "lightning.pytorch.utilities.exceptions.SIGTERMException",
        "RuntimeError: worker got signal 15",
    ),
    "build_failed": (
        "/usr/bin/ld: cannot find -lcuda: No such file or directory",
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/a.c']' returned non-zero",
        "nvcc fatal   : Unsupported gpu architecture 'compute_90'",
        "ninja: build stopped: subcommand failed.",
    ),
    "container": (
        "docker: Error response from daemon: failed to create task: OCI runtime create failed: x",
        "nvidia-container-cli: ldcache error: process /sbin/ldconfig failed with error code: 1",
        "Back-off pulling image x: ImagePullBackOff",
    ),
    "file_damaged": (
        "EOFError: Ran out of input",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central",
        "OSError: image file is truncated (7 bytes not processed)",
    ),
    "not_finite": (
        "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore.",
    ),
    "threads": (
        "RuntimeError: Resource temporarily unavailable",
        "bash: fork: retry: Resource temporarily unavailable",
        "./run.sh: 2: Cannot fork",
        "rdzv: cannot start 'x': Resource temporarily unavailable",
        "libgomp: Thread creation failed: Resource temporarily unavailable",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 2",
        'ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "x" }) }',
        "OpenBLAS blas_thread_init: RLIMIT_NPROC 300 current, 300 max",
    ),
    "checkpoint_misfit": (
        "RuntimeError: size mismatch for a.weight: copying a param with shape [3] from checkpoint",
        'Missing key(s) in state_dict: "a.weight".',
        'RuntimeError: /ckpt/step_7/model.pt: Missing key(s) in state_dict: "a.weight".',
        "ValueError: loaded state dict contains a parameter group that doesn't match the size",
        "RuntimeError: The model and loaded state dict do not match exactly",
    ),
    "devices_mixed": (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with",
    ),
    "service_refuses": (
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(",
        "huggingface_hub.errors.GatedRepoError: Cannot access gated repo for url x",
    ),
    "service_lacks": ("OSError: x/y is not a local folder and is not a valid model identifier",),
    "loader_worker": (
        "SystemError: (Fatal) Blocking queue is killed because the data reader raises an exception",
    ),
    "gpu_ipc": (
        "NCCL WARN HIP failure: 'invalid device pointer'",
        "NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between",
    ),
    "bus_error": (
        "Bus error (core dumped)",
        "/bin/sh: line 1:     7 Bus error     (core dumped) x",
    ),
    "shared_library": (
        "ImportError: /a/flash_attn_2_cuda.so: undefined symbol: _ZN3c10",
        "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (by /a.so)",
    ),
    "no_route": (
        "NCCL WARN socketPollConnect: Connect to 10.0.0.2<407> returned 113(No route to host)",
        "socketStartConnect: Connect to 10.0.0.2<4> failed : Connection timed out",
    ),
    "peer_gone": (
        "NET/IB : Got completion from peer 10.0.0.2<3> with status=5 opcode=0 (flush)",
        "socketStartConnect: Connect to 10.0.0.2<4> failed : Connection refused",
        "NCCL WARN Proxy Call to rank 3 failed (Connect)",
        "Socket recv failed while polling for opId=0x55a5",
        "Polled an error from coordination service (this can be an error from",
        "absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped",
        "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: Connection lost",
        "ORTE has lost communication with a remote daemon.",
        "ray.exceptions.RayActorError: The actor died unexpectedly before it",
        "Horovod has been shut down. This was caused by an exception on one",
    ),
    "waited": (
        "tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
        "v0/HorovodAllreduce_0 [missing ranks: 3]",
        "Stalled ranks:",
        "[ERROR] HCCL(7,python3):2025 [Wait]wait socket establish timeout, role[1] rank[0]",
        "[c10d] The client socket has failed to connect (errno: 113 - No route to host).",
    ),
    "size_mismatch": ("NET/Socket : peer 10.0.5.1<4> message truncated : receiving 8 bytes",),
    "ib_path": (
        "NET/IB : Got completion from peer 10.0.0.2<3> with error 12, opcode 0",
        "NET/IB : Got completion from peer 10.0.0.2<3> with status=12 opcode=0",
    ),
    "file_missing": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'",
        "ValueError: /data/train does not exist",
        "RuntimeError: No such file: /data/x.bin",
    ),
    "killed": ("torch.x.ProcessExitedException: process 0 terminated with signal SIGKILL",),
    "hip_fault": ("RuntimeError: HIP error: an illegal memory access was encountered",),
    "ib_memory": ("NET/IB : Got completion from peer 10.0.0.2<3> with error 10, opcode 0",),
    "disk_full": ("sqlite3.OperationalError: database or disk is full",),
    "quota": ("OSError: [Errno 122] Disk quota exceeded: '/home/u/x'",),
    "read_only": ("sqlite3.OperationalError: attempt to write a readonly database",),
    "file_lock": (
        "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11)",
        "BlockingIOError: [Errno 11] Unable to lock 'x.lock': Resource temporarily unavailable",
    ),
    "shared_cache": (
        "FileNotFoundError: [Errno 2] No such file: '/tmp/torchinductor_u/a/b.py'",
        "FileNotFoundError: [Errno 2] No: 'o/tmp-checkpoint-5' -> 'o/checkpoint-5'",
        "OSError: [Errno 116] Stale file handle: '/home/u/.cache/x.lock'",
        "OSError: [Errno 39] Directory not empty: '/home/u/.triton/cache/1'",
        "ImportError: /home/u/.triton/cache/1/a.so: file too short",
    ),
    "memory_limit": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of",
        "slurmstepd: error: Detected 2 oom-kill event(s) in step 7.0 cgroup",
        "srun: error: gpu001: tasks 0-3: Out Of Memory",
        "slurmstepd: error: Exceeded job memory limit at some point.",
        "Memory cgroup out of memory: Killed process 7 (python)",
    ),
    "machine_memory": ("Out of memory: Killed process 7 (python) total-vm:6kB",),
}
"""Other lines, by the row whose step helps; without one what is none of it."""
WAITED = Clue(id="waited", line="Timed out", rank=0)
JUDGED = {
    "stopped_process": ([RankEnd(rank=1, state="T")], [WAITED]),
    "early_end": ([RankEnd(rank=1, exit_code=0, ended=-1.0)], [WAITED]),
    "absent_rank": ([RankEnd(rank=1)], [WAITED]),
    "late_rank": ([RankEnd(rank=1)], [WAITED.model_copy(update={"line": "DistStoreError"})]),
    "store_unreachable": (
        [RankEnd(rank=1)],
        [WAITED, Clue(id="waited", line="trying to connect to (host, 9)", rank=1)],
    ),
    "no_store": (
        [RankEnd(rank=1, exit_code=1, ended=0.0)],
        [Clue(id="waited", line="trying to connect to (h, 9)", rank=rank) for rank in range(2)],
    ),
    "all_alike": (
        [RankEnd(rank=1, exit_code=1, ended=0.0)],
        [
            Clue(id="communication", line=f"NCCL error of rail {rank}", rank=rank, raised=True)
            for rank in range(2)
        ],
    ),
    "desync": (
        [RankEnd(rank=1, exit_code=1, ended=0.0)],
        [WAITED, Clue(id="waited", line="", rank=1)],
    ),
}
"""What the second of two ranks did while the first one waited."""


def one(code: int, *tail: str) -> NodeSeen:
    report = ExitReport(epoch=1, exit_code=code, rank=0, tail=list(tail))
    return NodeSeen(0, 100.0, report, failed=True, ranks=range(1))


def of_fact(code: int, fact: Fact) -> NodeSeen:
    ends, clues = [RankEnd(rank=0, exit_code=code, ended=0.0)], []
    if fact.kind == FactKind.REMOVED:
        clues = [Clue(id="exception", line="KeyError: 'PMI_RANK'", rank=0, raised=True)]
    elif code == 1:
        clues = [Clue(id="disk_full", line=LINES["disk_full"], rank=0, raised=True)]
    evidence = Evidence(ranks=ends, clues=clues, facts=[fact])
    report = ExitReport(epoch=1, exit_code=code, evidence=evidence)
    return NodeSeen(0, 100.0, report, failed=True, ranks=range(1))


def of_two(end: list[RankEnd], clues: list[Clue]) -> NodeSeen:
    evidence = Evidence(ranks=[RankEnd(rank=0, exit_code=1, ended=0.0), *end], clues=clues)
    report = ExitReport(epoch=1, exit_code=1, evidence=evidence)
    return NodeSeen(0, 100.0, report, failed=True, ranks=range(2))


BY_AGENT = ExitReport(epoch=1, exit_code=1, by_agent=True)
SEEN = {
    **{row: one(1, line) for row, line in NATIVE.items()},
    **{
        row: one(1, "Traceback (most recent call last):", '  File "a.py", line 1', line)
        for row, line in {**LINES, **WORDS}.items()
    },
    **{row: one(code, line) for row, (code, line) in ENDS.items()},
    **{row: of_fact(*told) for row, told in FACTS.items()},
    **{row: of_two(*told) for row, told in JUDGED.items()},
    "node_lost": NodeSeen(0, lost_at=100.0),
    "node_failed": NodeSeen(0, 100.0, BY_AGENT, failed=True),
}


@pytest.mark.parametrize("row", CAUSES, ids=lambda row: row.id)
def test_every_row_is_whole_and_reached(row: Row) -> None:
    assert row.says
    assert row.hint or row.kind is Kind.CONSEQUENCE or row.id == "node_failed"
    assert re.fullmatch(r"[a-z_]+", row.id)
    for text in (row.says, row.hint):
        assert text == text.strip().removesuffix(".")
    for pattern in (*row.patterns, *row.words):
        assert re.compile(pattern).search("") is None
    judged = judged_of([SEEN[row.id]])
    assert judged.cause.row == row.id


def test_names_and_codes_are_unique() -> None:
    assert len(BY_ID) == len(CAUSES)
    assert len(BY_CODE) == sum(len(row.codes) for row in CAUSES)
    assert SEEN.keys() == BY_ID.keys()


def test_a_consequence_is_told_by_words_alone_and_blames_nothing_of_its_node() -> None:
    for row in CAUSES:
        if row.kind is Kind.CONSEQUENCE:
            assert row.patterns or row.id == COMMUNICATION
            assert not row.codes
            assert row.then is Then.MAY_HELP


@pytest.mark.parametrize("row", LIKE)
def test_a_line_tells_the_row_whose_step_helps(row: str) -> None:
    assert [row_of(line) or "" for line in LIKE[row]] == [row] * len(LIKE[row])


def test_a_spawned_process_that_was_killed_speaks_of_memory() -> None:
    line = "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal"
    head = ("Traceback (most recent call last):", '  File "a.py", line 1')
    assert judged_of([one(1, *head, f"{line} SIGKILL")]).cause.row == "killed"
    assert judged_of([one(1, *head, f"{line} SIGABRT")]).cause.row == "exit_code"

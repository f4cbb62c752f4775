"""Causes in devices, and what ranks suffer of each other. Pure."""

from __future__ import annotations

import re
from functools import partial

from rendezvous.cause.row import Kind, Row, Then

_GLOO = r"gloo/transport|gloo::|ProcessGroupGloo|unbound_buffer|Gloo connectFullMesh"
_CONNECT = r"[Cc]onnect to \S+<\d+>|[Ss]ocket(Start|Poll)Connect|gloo/.*\bconnect\b"
_AT_LAST = r"(?!.*retrying)"
"""NCCL informs of each try."""
_NO_LISTENER = r"(?!.*server socket has failed)"
"""A socket that cannot listen has lost nobody: the port is taken, or may not be had."""
_SICK_XIDS = r"48|63|64|74|79|92|94|95|119|120|14[0-9]"
SICK_XID = re.compile(rf"Xid \(PCI:[^)]*\): ({_SICK_XIDS}),")
"""NVIDIA's numbers of errors of the device itself; 13, 31, 43 and 45 are of the program, or what
follows from another error (docs.nvidia.com/deploy/xid-errors)."""

_between = partial(Row, kind=Kind.BETWEEN)
_consequence = partial(Row, kind=Kind.CONSEQUENCE)

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
            r"(CUDA|HIP) out of memory|OutOfMemoryError|CU(BLAS|DNN)_STATUS_ALLOC_FAILED",
            r"RESOURCE_EXHAUSTED: .*(memory|allocat)|Cuda failure.*'out of memory'",
        ),
    ),
    Row(
        "cuda_fault",
        "a CUDA kernel failed",
        "CUDA's error: illegal access, device-side assertion, launch failure",
        "after an assertion look for an index or a label that is out of range; else run it again "
        "with CUDA_LAUNCH_BLOCKING=1: the line that is named need not be the one",
        (
            r"illegal memory access was encountered|device-side assert triggered",
            r"\.(cu|cuh|hip):\d+: .*Assertion .* failed",
            r"(CUDA|HIP) error: (unspecified launch failure|misaligned address)",
            r"CU(BLAS|DNN)_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR)",
        ),
    ),
    Row(
        "cuda_library",
        "a library of CUDA has refused a call",
        "cuBLAS or cuDNN: NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED",
        "often the GPU's memory is used up (nvidia-smi), an earlier kernel has failed "
        "(CUDA_LAUNCH_BLOCKING=1), or LD_LIBRARY_PATH leads to another version of the library",
        (r"(?<!cudnn_status: )CU(BLAS|DNN)_STATUS_(NOT_|INVALID_VALUE|BAD_PARAM|ARCH_MISMATCH)",),
    ),
    Row(
        "cuda_build",
        "its CUDA code was not built for this GPU, or this driver",
        "CUDA's error: no kernel image, a symbol that is not found, or PTX of a newer toolchain",
        "install torch and its extensions as built for this node's GPU (TORCH_CUDA_ARCH_LIST) and "
        "driver: compare its nvidia-smi with the others'",
        (
            r"no kernel image is available|PTX was compiled with an unsupported toolchain",
            r"(CUDA|HIP) error: (named symbol not found|invalid device function|device kernel)",
        ),
    ),
    Row(
        "fabric_manager",
        "the NVSwitch fabric of its node is not ready",
        "CUDA's error 802: system not yet initialized",
        "start nvidia-fabricmanager on this node, in exactly the version of its driver",
        (r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady",),
    ),
    Row(
        "cuda_setup",
        "it cannot use a GPU of its node",
        "CUDA's error: no device, no such device, a busy one, a driver that does not fit",
        "compare the driver, CUDA_VISIBLE_DEVICES and --nproc-per-node of this node with the "
        "others': rdzv doctor; see whether another process has the GPU (nvidia-smi)",
        (
            r"no CUDA-capable device is detected|No CUDA GPUs are available|invalid device ordinal",
            r"CUDA-capable device(\(s\)|s)? (is/)?are busy or unavailable",
            r"CUDA driver version is insufficient|Found no NVIDIA driver|CUDA unknown error",
            r"unsupported display driver / cuda driver|forward compatibility was attempted on",
            r"Driver/library version mismatch|Error 999: unknown error",
        ),
    ),
    _consequence(
        "watchdog_stuck",
        "it waited in a call of NCCL or CUDA, until NCCL's heartbeat monitor ended it",
        "ProcessGroupNCCL's own message",
        "see which rank did not come; if all have, look at the driver (dmesg, nvidia-smi) of this "
        "node, and for a thread that holds the GIL",
        (r"watchdog (thread )?got stuck for|Heartbeat monitor timed out",),
    ),
    _between(
        "ib_path",
        "an InfiniBand or RoCE path of its node was silent",
        "NCCL's completion error (status 12: the retries are used up)",
        "check the cable, the switch port and the flow control of both ends: `rdzv doctor` on both",
        (
            r"Got completion from peer .*(status=|error )\d+",
            r"IBV_WC_(RNR_)?RETRY_EXC_ERR|[Tt]ransport retry count(er)? exceeded",
        ),
    ),
    _between(
        "ib_queue_pair",
        "an InfiniBand or RoCE connection could not be made",
        "NCCL: ibv_modify_qp failed",
        "compare GID index, subnet and MTU of the ports of both ends (NCCL_IB_GID_INDEX)",
        (r"ibv_modify_qp failed",),
    ),
    Row(
        "locked_memory",
        "it cannot lock the memory that RDMA needs",
        "NCCL: ibv_reg_mr or ibv_create_cq: Cannot allocate memory",
        "raise the limit of locked memory to unlimited (ulimit -l, --ulimit memlock=-1)",
        (r"ibv_(reg_mr|create_cq|create_qp|alloc_pd)\S* .*Cannot allocate memory",),
    ),
    _between(
        "no_route",
        "two nodes do not reach each other over the interface that NCCL or Gloo uses",
        "their own connect: no route to host, network is unreachable, timed out",
        "let NCCL_SOCKET_IFNAME name the network that joins them; is a firewall in between?",
        (rf"({_CONNECT}).*(No route to|Network is unreachable|Connection timed out){_AT_LAST}",),
    ),
    Row(
        "net_interface",
        "it finds no network interface of the name that it was given",
        "NCCL: no socket interface found; the same of Gloo, or no NET plugin",
        "let NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME, NCCL_IB_HCA and NCCL_NET name what this node "
        "has (ip addr, ibv_devices), or leave them out",
        (
            r"no socket interface found|Failed to initialize any NET plugin",
            r"gloo.*Unable to find (address|interface) for|NCCL WARN .*NET/IB : No device found",
        ),
    ),
)


COLLECTIVES = (
    _between(
        "size_mismatch",
        "two ranks call a collective with tensors of different sizes",
        "Gloo's size check, a truncated message, or torch's TORCH_DISTRIBUTED_DEBUG=DETAIL",
        "compare what each rank passes there (last batch, uneven shards), and the nodes' NCCL_*",
        (r"op\.preamble\.length <= op\.nbytes|message truncated :|MPI_ERR_TRUNCATE",),
    ),
    _between(
        "gpu_shared",
        "two ranks use one GPU",
        "NCCL: Duplicate GPU detected",
        "first call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])); see CUDA_VISIBLE_DEVICES",
        (r"Duplicate GPU detected",),
    ),
    _between(
        "ranks_differ",
        "the ranks were not started alike",
        "NCCL's comparison of its versions, or of the number of ranks",
        "compare the environments of the nodes (NCCL's version), and WORLD_SIZE",
        (r"Mismatched NCCL version|mismatch in rank count",),
    ),
    _between(
        "collectives_differ",
        "the collectives of the ranks differ",
        "what each rank reports about itself, with TORCH_DISTRIBUTED_DEBUG=DETAIL; where one rank "
        "differs from most, it is named",
        "see which branch depends on the rank, and compare what each rank passes there",
        (r"distributed collective mismatch", r"Detected mismatch between collectives"),
    ),
    _consequence(
        "told_of_rank",
        "another rank has failed in what all of them do together",
        "torch's CheckpointException, which names the rank and what that has raised",
        patterns=(r"\bCheckpointException ranks:",),
    ),
    _consequence(
        "watchdog_timeout",
        "it waited in a collective until NCCL's time-out",
        "Watchdog caught collective operation timeout",
        patterns=(r"Watchdog caught collective operation timeout",),
    ),
    _consequence(
        "waited",
        "it waited for another rank until its time-out",
        "the time-outs of Gloo and of torch's store",
        patterns=(
            r"Timed out waiting \d+ ?ms for (recv|send|connection)|wait timeout after \d+ ?ms",
            r"Timed out after \d+ seconds waiting for clients|failed to pass monitoredBarrier",
            r"(Wait|Socket|Connection|Rendezvous) ?Timeout\b.*(store|rank|wait)",
            rf"({_GLOO}).*(timed out|timeout)",
            r"RendezvousTimeoutError|The client socket has (timed out|failed to connect)",
            r"DistStoreError|DEADLINE_EXCEEDED|Barrier timed out",
        ),
    ),
    _consequence(
        "peer_gone",
        "it lost another rank, or its connection to one",
        "the errors of Gloo, NCCL, MPI, JAX, Ray and torch's store for a peer that is gone",
        patterns=(
            rf"({_GLOO}).*(closed by peer|reset by peer|Broken pipe|refused|Connection)",
            r"Connection reset by peer ?\[|Connection (closed by (remote )?|reset by remote )peer",
            r"remote process exited or there was a network error|ncclRemoteError",
            r"socketProgress.*(Connection|closed)|Socket (recv|send) failed while polling",
            rf"({_CONNECT}).*([Rr]efused|exceeded retries){_AT_LAST}|Proxy Call to rank \d+ failed",
            r"failed to recv, got 0 bytes|(recvValue|sendBytes|recvBytes|sendValue)\b.*failed",
            rf"TCPStore{_NO_LISTENER}.*(Broken pipe|Connection|closed|failed)",
            rf"DistNetworkError{_NO_LISTENER}",
            r"NCCL communicator was aborted|HorovodInternalError|Horovod has been shut down",
            r"coordination service.*(unavailable|disconnected|heartbeat)|Polled an error from",
            r"JAX distributed service detected fatal|tasks are unhealthy|another task died",
            r"(Xla|Jax)RuntimeError: (UNAVAILABLE|ABORTED|CANCELLED)\b",
            r"MPI_ABORT was invoked|An MPI communication peer process has unexpectedly disconnect",
            r"(ORTE|PRTE) has lost communication|mpi(run|exec) noticed that process rank \d",
            r"(RayActor|ActorDied|WorkerCrashed|NodeDied|OwnerDied)Error\b|actor died unexp",
        ),
    ),
)

"""Causes in devices, and what ranks suffer of each other. Pure."""

from __future__ import annotations

import re

from rendezvous.cause.row import Kind, Row, Then

_GLOO = r"gloo/transport|gloo::|ProcessGroupGloo|unbound_buffer|Gloo connectFullMesh"
_NO_LISTENER = r"(?!.*server socket has failed)"
"""A socket that cannot listen has lost nobody: the port is taken, or may not be had."""
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
        "it waited in a call of NCCL or CUDA until NCCL's heartbeat monitor ended it",
        "ProcessGroupNCCL's own message",
        "look at the driver (dmesg, nvidia-smi) of this node, and for a thread that holds the GIL",
        (r"watchdog (thread )?got stuck for", r"Heartbeat monitor timed out"),
        kind=Kind.CONSEQUENCE,
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
        (r"op\.preamble\.length <= op\.nbytes",),
        kind=Kind.BETWEEN,
    ),
    Row(
        "collectives_differ",
        "the collectives of the ranks differ",
        "what each rank reports about itself, with TORCH_DISTRIBUTED_DEBUG=DETAIL; where one rank "
        "differs from most, it is named",
        "see which branch depends on the rank, and compare what each rank passes there",
        (r"distributed collective mismatch", r"Detected mismatch between collectives"),
        kind=Kind.BETWEEN,
    ),
    Row(
        "told_of_rank",
        "another rank has failed in what all of them do together",
        "torch's CheckpointException, which names the rank and what that has raised",
        kind=Kind.CONSEQUENCE,
        patterns=(r"\bCheckpointException ranks:",),
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
            rf"TCPStore{_NO_LISTENER}.*(Broken pipe|Connection|closed|failed)",
            rf"DistNetworkError{_NO_LISTENER}",
            r"NCCL communicator was aborted",
            r"coordination service.*(unavailable|disconnected|heartbeat)",
            r"MPI_ABORT was invoked|An MPI communication peer process has unexpectedly disconnect",
            r"HorovodInternalError",
        ),
    ),
)

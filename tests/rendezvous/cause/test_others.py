"""What an exception, or a last error, says of other ranks in words that no row knows."""

from __future__ import annotations

import pytest

from rendezvous.cause.others import COMMUNICATION, UNLIKE, is_of_itself, is_together, row_of_others

OF_OTHERS = (
    "RuntimeError: x.cpp:208 OPS function error: HcclAllreduce, error code is 6",
    "RuntimeError: oneCCL: ze_call.cpp:43 do_call: EXCEPTION: ze error: failed",
    "x.UnavailableError: Socket closed: [[node allreduce/CollectiveReduce_14]]",
    "x.errors_impl.CancelledError: Collective ops is aborted by: [_Derived_]",
    "grpc.RpcError: StatusCode.UNAVAILABLE: failed to connect",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue",
    "RuntimeError: Timed out initializing process group in store based barrier on rank: 3",
    "TimeoutError: [Errno 110] Connection timed out",
    "concurrent.futures._base.TimeoutError",
    "EOFError",
    "RuntimeError: the Connection was closed by remote peer",
    "distributed.scheduler.KilledWorker: ('x', <Worker 'tcp://10.0.5.1:4', name: 1>)",
    "distributed.comm.core.CommClosedError: in <closed TCP>: Stream is closed",
    "lightgbm.basic.LightGBMError: Connecting to rank 3 failed",
    "RuntimeError: could not reach node 4 after 30 s",
    "RuntimeError: Internal: NCCL operation ncclGroupEnd() failed: unhandled cuda error",
    "ValueError: (InvalidArgument) TCP send error. Details: Broken pipe.",
    "RuntimeError: ECONNREFUSED: x",
    "x.MyError: the server did not respond",
    "RuntimeError: recv() failed",
    "x.StreamError: the session has expired; stream was reset",
    "RuntimeError: eof (this error originated at tensorpipe/transport/ibv/connection_impl.cc:302)",
    "NET/OFI Request completed with error. RC: 107. Error: Connection closed by peer",
    "[F ProcessGroupNCCL.cpp:1169] the watchdog got stuck: this indicates a CUDA API hang",
    "XlaRuntimeError: it failed: see the other task logs (at /job:jax_worker/replica:0/task:1)",
)
OF_ALL = (
    "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 128 params",
    "RuntimeError: disagreement between rank0 and rank3: rank0: [1], rank3: [2]",
    "FloatingPointError: Fatal error: gradients are inconsistent between workers. Try x",
    "x.DistributedOperationException: shape mismatches. All shapes across devices must be",
    "x.FailedPreconditionError: Mismatched ALLREDUCE CPU/GPU device selection: One rank",
    "ValueError: the vocabulary sizes are not equal on all ranks",
    "AssertionError: Different ranks have different values for step: Rank 1 has 8. Others: 7",
    "AssertionError: all ranks must pass the same number of tensors",
    "XGBoostError: x/collective/nccl_device.cuh:49: Multiple processes run on the same device",
    "x.InvalidArgumentError: Collective ops is aborted by: Shape mismatch in the collective",
    "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by others",
)
OF_ITSELF = (
    "torch.distributed.DistBackendError: NCCL error: Cuda failure 'out of memory'",
    "RuntimeError: Distributed package doesn't have NCCL built in",
    "XlaRuntimeError: UNKNOWN: Failed to start RPC server",
    "RuntimeError: world_size (4) is not equal to tensor_model_parallel_size (2)",
    "KeyError: 'all_reduce'",
    "ValueError: invalid process group name",
    "RuntimeError: DataLoader timed out after 4 seconds",
    "wandb: ERROR Run initialization has timed out after 200.0 sec.",
    "CheckpointingException: /data/ckpt/iter_10 is not a distributed checkpoint",
    "[W1 ProcessGroupNCCL.cpp:1] Warning: a barrier was left out",
    "rank 2: no more data",
    "RuntimeError: jax.distributed.initialize() must be called before any JAX computations",
    "InternalError: it failed on /job:localhost/replica:0/task:0/device:GPU:0",
    "RuntimeError: broadcast isn't implemented on backend [xpu].",
    "InvalidArgumentError: shapes do not fit: [[Node: x, _device=/job:ps/replica:0/task:0]]",
    "RuntimeError: synapse error 20 in hcclCommInitRank",
)


@pytest.mark.parametrize("line", OF_OTHERS)
def test_a_library_that_communicates_tells_of_others(line: str) -> None:
    assert row_of_others(line, "", 2) == COMMUNICATION


@pytest.mark.parametrize("line", OF_ALL)
def test_what_compares_ranks_is_between_them(line: str) -> None:
    assert row_of_others(line, "", 2) == UNLIKE


@pytest.mark.parametrize("line", OF_ITSELF)
def test_a_rank_tells_of_its_own_program_devices_and_files(line: str) -> None:
    assert row_of_others(line, "", 2) is None


def test_where_it_was_raised_tells_too_unless_the_program_is_wrong() -> None:
    inside = "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py"
    assert row_of_others("RuntimeError: it failed", inside, 2) == COMMUNICATION
    assert row_of_others("RuntimeError: it failed", "/opt/train.py", 2) is None
    assert row_of_others("TypeError: it failed", inside, 2) is None


def test_who_names_another_rank_or_others_speaks_of_them() -> None:
    for line in ("ValueError: no data of rank 3", "KeyError: other ranks did not finish"):
        assert row_of_others(line, "", 2) == COMMUNICATION
    assert row_of_others("ValueError: no data of rank 2", "", 2) is None


def test_what_is_read_from_other_ranks_is_together() -> None:
    assert is_together("utils.py:173 in all_gather_list")
    assert not is_together("utils.py:134 in load_checkpoint")


def test_an_exception_of_a_program_is_of_itself() -> None:
    assert is_of_itself("builtins.IndexError: list index out of range")
    assert not is_of_itself("tensorflow.errors_impl.InvalidArgumentError: it failed")

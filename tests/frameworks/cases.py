"""The jobs: how each framework is launched by rdzv, and what has to come of it.

Each host knows its own name alone, as 127.0.1.1 (Debian's habit); where `--hosts off` stands,
nothing is mended about that.
"""

from __future__ import annotations

from tests.frameworks.lab import EXAMPLES, JOBS, Case


def _example(name: str) -> str:
    return str(EXAMPLES / name)


_SUM = str(JOBS / "torch_sum.py")
_AS_IT_IS = ("--hosts", "off")
_C10D = ("--rdzv-backend", "c10d", *_AS_IT_IS)
_ACCELERATE = ("--framework", "accelerate", *_AS_IT_IS)
_ENV = ("--framework", "env", *_AS_IT_IS)
_DEEPSPEED = ("--framework", "deepspeed", *_AS_IT_IS)
_OPENMPI = ("--framework", "openmpi", *_AS_IT_IS)
_MPICH = ("--framework", "mpich", *_AS_IT_IS)
_INTELMPI = ("--framework", "intelmpi", *_AS_IT_IS)
_TENSORFLOW = ("--framework", "tensorflow", *_AS_IT_IS)
_LIGHTNING_DIGITS = (_example("lightning_digits.py"),)
_TRAINER_DIGITS = (_example("trainer_digits.py"),)
_DEEPSPEED_DIGITS = (_example("deepspeed_digits.py"),)
_TENSORFLOW_DIGITS = (_example("tensorflow_digits.py"),)
_JAX = ("--framework", "jax")
_JAX_DIGITS = (_example("jax_digits.py"),)
_HOROVOD_DIGITS = _example("horovod_digits.py")
_MPI4PY = ("python3", _example("mpi4py_digits.py"))
_MPI_TORCH = ("python3", _example("mpi_torch.py"))

CASES = [
    Case("torchrun", "torch", _AS_IT_IS, (_SUM, "torchrun")),
    Case("torchrun-uneven", "torch", _AS_IT_IS, (_SUM, "torchrun"), processes=(1, 2)),
    Case("torchrun-c10d", "torch", _C10D, (_SUM, "torchrun"), processes=(1, 2)),
    Case(
        "torch.distributed.launch",
        "torch",
        ("--framework", "torch.distributed.launch", *_AS_IT_IS),
        (_example("launch_digits.py"),),
    ),
    Case("env", "torch", _ENV, (_example("env_digits.py"),)),
    Case("env-uneven", "torch", _ENV, (_SUM, "env"), processes=(1, 2)),
    Case("accelerate", "torch", _ACCELERATE, (_example("accelerate_digits.py"),)),
    Case("lightning", "torch", ("--framework", "lightning", *_AS_IT_IS), _LIGHTNING_DIGITS),
    Case("lightning-torchrun", "torch", _AS_IT_IS, _LIGHTNING_DIGITS),
    Case("trainer", "torch", _AS_IT_IS, _TRAINER_DIGITS),
    Case(
        "trainer-accelerate", "torch", _AS_IT_IS, ("accelerate", "launch", *_TRAINER_DIGITS)
    ),  # chosen by COMMAND
    Case("deepspeed", "torch", _DEEPSPEED, _DEEPSPEED_DIGITS, needs=("g++",)),
    Case("deepspeed-torchrun", "torch", _AS_IT_IS, _DEEPSPEED_DIGITS, needs=("g++",)),
    Case(
        "deepspeed-pdsh",
        "torch",
        _DEEPSPEED,
        ("--launcher", "pdsh", *_DEEPSPEED_DIGITS),
        needs=("g++", "pdsh"),
    ),
    Case(
        "deepspeed-openmpi",
        "torch",
        _DEEPSPEED,
        ("--launcher", "openmpi", *_DEEPSPEED_DIGITS),
        needs=("g++", "mpirun"),
    ),
    Case(
        "openmpi-c",
        "torch",
        _OPENMPI,
        ("PROGRAM",),
        source=_example("mpi_hello.c"),
        needs=("mpicc", "mpirun"),
        framework="mpi",
    ),
    Case("openmpi-mpi4py", "torch", _OPENMPI, _MPI4PY, needs=("mpirun",), framework="mpi4py"),
    Case("openmpi-torch", "torch", _OPENMPI, _MPI_TORCH, needs=("mpirun",)),
    Case(
        "openmpi-uneven",
        "torch",
        _OPENMPI,
        _MPI4PY,
        processes=(1, 2),
        needs=("mpirun",),
        framework="mpi4py",
    ),
    Case("openmpi-5", "openmpi5", _OPENMPI, _MPI4PY, framework="mpi4py"),
    Case("mpich", "mpich", _MPICH, _MPI4PY, framework="mpi4py"),
    Case("mpich-uneven", "mpich", _MPICH, _MPI4PY, processes=(1, 2), framework="mpi4py"),
    Case("intelmpi", "intelmpi", _INTELMPI, _MPI4PY, framework="mpi4py"),
    Case("intelmpi-uneven", "intelmpi", _INTELMPI, _MPI4PY, processes=(1, 2), framework="mpi4py"),
    Case("horovod", "horovod", ("--framework", "horovod"), (_HOROVOD_DIGITS,)),
    Case(
        "horovod-horovodrun",
        "horovod",
        ("--framework", "horovod"),
        ("horovodrun", "python3", _HOROVOD_DIGITS),
    ),
    Case("tensorflow", "tensorflow", _TENSORFLOW, _TENSORFLOW_DIGITS, processes=(1, 1)),
    Case(
        "tensorflow-chief",
        "tensorflow",
        (*_TENSORFLOW, "--tf-chief"),
        _TENSORFLOW_DIGITS,
        processes=(1, 1),
    ),
    Case("jax", "jax", _JAX, _JAX_DIGITS, processes=(1, 1)),
    Case("jax-uneven", "jax", _JAX, _JAX_DIGITS, processes=(1, 2)),
]
